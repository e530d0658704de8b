"""Reading files of a directory: while they are not in memory, the kernel is asked for the next ones, within bounds."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from profagent.ingest import read_ahead
from profagent.ingest.read_ahead import AheadReader

SIZE = 100
NAMES = [f"f{number}" for number in range(12)]


class Disk:
    """Files that are not in memory until they are read, or asked for."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[tuple[str, int]] = []
        self.waited: list[str] = []
        self.cold = set(NAMES)
        self._preadv = os.preadv
        for name in NAMES:
            (folder / name).write_bytes(name.encode() * (SIZE // len(name)))

    def preadv(self, handle: int, views: list[memoryview], offset: int, flags: int = 0) -> int:
        name = self._name(handle)
        if flags == os.RWF_NOWAIT and name in self.cold:
            raise BlockingIOError
        if name in self.cold:
            self.cold.remove(name)
            self.waited.append(name)
        return self._preadv(handle, views, offset)

    def posix_fadvise(self, handle: int, offset: int, size: int, advice: int) -> None:
        assert (offset, advice) == (0, os.POSIX_FADV_WILLNEED)
        self.asked.append((self._name(handle), size))
        self.cold.discard(self._name(handle))

    def _name(self, handle: int) -> str:
        return Path(f"/proc/self/fd/{handle}").readlink().name


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(tmp_path)
    monkeypatch.setattr(os, "preadv", disk.preadv)
    monkeypatch.setattr(os, "posix_fadvise", disk.posix_fadvise)
    return disk


def read(reader: AheadReader, folder: Path, *places: int) -> None:
    for place in places:
        assert reader.read(place, SIZE) == (folder / NAMES[place]).read_bytes()
        for thread in threading.enumerate():
            if thread.name == "read-ahead":
                thread.join()


def test_files_in_memory_are_read_without_asking(tmp_path: Path, disk: Disk) -> None:
    disk.cold.clear()
    read(AheadReader(tmp_path, NAMES), tmp_path, *range(len(NAMES)))
    assert (disk.asked, disk.waited) == ([], [])


def test_after_one_that_was_waited_for_all_others_are_asked_for(tmp_path: Path, disk: Disk) -> None:
    reader = AheadReader(tmp_path, NAMES, files_ahead=4)
    read(reader, tmp_path, 0)
    sizes = [len((tmp_path / name).read_bytes()) for name in NAMES]
    assert disk.asked == list(zip(NAMES[1:5], sizes[1:5], strict=True))
    read(reader, tmp_path, *range(1, len(NAMES)))
    assert disk.waited == NAMES[:1]
    assert disk.asked == list(zip(NAMES[1:], sizes[1:], strict=True))


def test_no_more_bytes_than_the_bound_are_asked_for(tmp_path: Path, disk: Disk) -> None:
    read(AheadReader(tmp_path, NAMES, bytes_ahead=SIZE * 5 // 2), tmp_path, 0)
    assert disk.asked == [("f1", SIZE), ("f2", SIZE), ("f3", SIZE // 2)]


def test_more_files_are_looked_at_only_while_many_are_not_in_memory(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "FIRST_FILES_AHEAD", 2)
    disk.cold.intersection_update(NAMES[:1] + NAMES[2:3] + NAMES[9:])
    read(AheadReader(tmp_path, NAMES, files_ahead=4), tmp_path, *range(len(NAMES)))
    assert disk.waited == ["f0", "f9"], "f1 to f6 were looked at, and f10 and f11"
    assert [name for name, _ in disk.asked] == ["f2", "f10", "f11"]


def test_a_file_that_vanished_is_passed_over_until_it_is_read(tmp_path: Path, disk: Disk) -> None:
    (tmp_path / NAMES[2]).unlink()
    reader = AheadReader(tmp_path, NAMES, files_ahead=4)
    read(reader, tmp_path, 0)
    assert [name for name, _ in disk.asked] == ["f1", "f3", "f4"]
    with pytest.raises(FileNotFoundError):
        reader.read(2, SIZE)


def test_a_file_beyond_the_bound_is_not_read(tmp_path: Path, disk: Disk) -> None:
    reader = AheadReader(tmp_path, NAMES)
    assert reader.read(0, SIZE - 1) is None
    assert disk.waited == []


def test_a_file_system_that_cannot_tell_is_read_all_the_same(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def preadv(handle: int, views: list[memoryview], offset: int, flags: int = 0) -> int:
        if flags:
            raise OSError(95, os.strerror(95))
        return disk.preadv(handle, views, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    read(AheadReader(tmp_path, NAMES), tmp_path, *range(len(NAMES)))
    assert disk.asked == []

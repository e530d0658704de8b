"""The kernel's notices: read from bytes, and from the kernel."""

from __future__ import annotations

import asyncio
import errno
import os
import struct
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from profagentd.follow import inotify
from profagentd.follow.inotify import Inotify, InotifyEvent, is_exhausted, parse_events
from profagentd.follow.log import FileEvent

ISDIR, OVERFLOW = 0x40000000, 0x4000
PATIENCE_S = 10.0


def packed(watch: int, mask: int, name: bytes, padding: int = 3) -> bytes:
    """A notice as the kernel writes it."""
    padded = name + b"\0" * padding if name else b""
    return struct.pack("iIII", watch, mask, 0, len(padded)) + padded


def test_notices_are_read_one_after_the_other() -> None:
    data = packed(1, 0x2, b"a") + packed(2, 0x400, b"") + packed(3, 0x100 | ISDIR, b"\xff\xfe", 14)
    assert parse_events(data) == [
        InotifyEvent(1, 0x2, b"a"),
        InotifyEvent(2, 0x400, b""),
        InotifyEvent(3, 0x100 | ISDIR, b"\xff\xfe"),
    ]
    assert parse_events(b"") == []


@pytest.mark.parametrize(
    ("mask", "touch"),
    [
        (0x2, FileEvent.WRITTEN),
        (0x8, FileEvent.CLOSED),
        (0xA, FileEvent.WRITTEN),
        (0x4, FileEvent.HINT),
        (0x100, FileEvent.MADE),
        (0x80, FileEvent.MADE),
        (0x40, FileEvent.MOVED),
        (0x200, FileEvent.DELETED),
    ],
)
def test_a_mask_says_what_happened_to_the_name(mask: int, touch: FileEvent) -> None:
    assert InotifyEvent(1, mask, b"a").touch == touch


@pytest.mark.parametrize("mask", [0x400, 0x800, 0x2000, 0x8000])
def test_the_watched_directory_itself_may_end(mask: int) -> None:
    assert InotifyEvent(1, mask, b"").is_end
    assert not InotifyEvent(1, 0x200, b"a").is_end


def test_an_overflow_is_known() -> None:
    assert InotifyEvent(-1, OVERFLOW, b"").is_overflow
    assert not InotifyEvent(1, 0x2, b"a").is_overflow


def test_running_out_of_watches_is_known() -> None:
    assert is_exhausted(OSError(errno.ENOSPC, "no more"))
    assert not is_exhausted(OSError(errno.ENOENT, "missing"))


class Ear:
    """What an inotify delivers."""

    def __init__(self) -> None:
        self.inotify = Inotify()
        self.heard: list[InotifyEvent] = []
        self.times = 0
        self._more = asyncio.Event()
        self.inotify.deliver(self.take)

    def take(self, notices: Sequence[InotifyEvent]) -> None:
        self.heard += notices
        self.times += 1
        self._more.set()

    async def until(self, name: bytes) -> None:
        """Wait for a notice about a name."""
        while name not in [notice.name for notice in self.heard]:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), PATIENCE_S)

    def touch(self, name: bytes) -> FileEvent:
        """Everything heard about a name."""
        touch = FileEvent.HINT
        for notice in self.heard:
            touch |= notice.touch if notice.name == name else FileEvent.HINT
        return touch


@pytest.fixture
async def ear() -> AsyncIterator[Ear]:
    made = Ear()
    yield made
    made.inotify.close()


async def test_the_kernel_tells_of_content(ear: Ear, tmp_path: Path) -> None:
    watch = ear.inotify.watch_content(os.fsencode(tmp_path))
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "a").unlink()
    (tmp_path / "last").write_bytes(b"")
    await ear.until(b"last")
    assert ear.touch(b"a") == FileEvent.MADE | FileEvent.WRITTEN | FileEvent.DELETED
    assert {notice.watch for notice in ear.heard} == {watch}


async def test_the_kernel_tells_of_names_alone(ear: Ear, tmp_path: Path) -> None:
    ear.inotify.watch_names(os.fsencode(tmp_path))
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "last").mkdir()
    await ear.until(b"last")
    assert ear.touch(b"a") == FileEvent.MADE | FileEvent.MOVED
    assert ear.touch(b"b") == FileEvent.MADE
    assert ear.heard[-1].is_directory


async def test_notices_that_come_together_are_gathered(ear: Ear, tmp_path: Path) -> None:
    ear.inotify.watch_content(os.fsencode(tmp_path))
    for number in range(100):
        (tmp_path / str(number)).write_bytes(b"x")
    await ear.until(b"99")
    assert ear.times < 20


async def test_while_notices_come_the_kernel_wakes_nobody(
    ear: Ear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, heard_by = asyncio.Event(), []

    def add_reader(*_: object) -> None:
        heard_by.append(ear.times)
        waits.set()

    def take(notices: Sequence[InotifyEvent]) -> None:
        ear.take(notices)
        if ear.times < 5:
            (tmp_path / str(ear.times)).write_bytes(b"x")

    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", add_reader)
    monkeypatch.setattr(inotify, "GATHER_S", 0.001)
    monkeypatch.setattr(ear.inotify, "_deliver", take)
    ear.inotify.watch_content(os.fsencode(tmp_path))
    (tmp_path / "0").write_bytes(b"x")
    await asyncio.wait_for(waits.wait(), PATIENCE_S)
    assert heard_by == [5]


async def test_a_watch_can_be_given_up_twice(ear: Ear, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    given_up = ear.inotify.watch_content(os.fsencode(tmp_path))
    ear.inotify.watch_content(os.fsencode(tmp_path / "other"))
    ear.inotify.unwatch(given_up)
    ear.inotify.unwatch(given_up)
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "other" / "b").write_bytes(b"x")
    await ear.until(b"b")
    assert b"a" not in [notice.name for notice in ear.heard]


@pytest.mark.parametrize("kind", ["missing", "file", "link"])
async def test_only_directories_are_watched(ear: Ear, tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError, match=r"irectory|links"):
        ear.inotify.watch_content(os.fsencode(tmp_path / kind))


async def test_the_same_directory_has_one_watch_and_another_in_its_place_another(ear: Ear, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.mkdir()
    first = ear.inotify.watch_content(os.fsencode(path))
    assert ear.inotify.watch_content(os.fsencode(path)) == first
    path.rename(tmp_path / "b")
    path.mkdir()
    assert ear.inotify.watch_content(os.fsencode(path)) != first

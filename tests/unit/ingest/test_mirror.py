"""The mirror: byte-identical, inside its directory, and never through a link."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from profagent.errors import FormatError, ProtocolError, StoreError
from profagent.files import disk_full, has_room, is_full, is_full_database
from profagent.ingest.mirror import JobMirror
from profagent.ledger import checked_path
from profagent.limits import ROOM_BYTES
from tests.fakes.open_files import open_below

LOG = "data/aicore.0.m.3.0.1.1.0"


@pytest.fixture
def mirror(tmp_path: Path) -> JobMirror:
    return JobMirror(tmp_path / "job", incoming=tmp_path / "incoming", superseded=tmp_path / "superseded")


def put(mirror: JobMirror, path: str, data: bytes, generation: int = 1) -> None:
    mirror.begin(path, generation, 0, snapshot=False)
    mirror.append(path, 0, data, snapshot=False)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "path",
    [
        b"",
        b"/etc/passwd",
        b"../x",
        b"data/../../x",
        b"data/./x",
        b"data//x",
        b"data/",
        b"data/x\0y",
        b"..",
        b"x/" * 512 + b"x",
        b"data/" + b"x" * 256,
    ],
)
def test_a_path_that_could_lead_elsewhere_is_refused(path: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        checked_path(path)
    assert len(str(caught.value)) < 400


def test_a_closed_mirror_has_no_file_open(mirror: JobMirror, tmp_path: Path) -> None:
    put(mirror, LOG, b"abc")
    assert open_below(tmp_path)
    mirror.close()
    assert not open_below(tmp_path)


def test_going_on_cuts_what_was_not_committed(mirror: JobMirror) -> None:
    put(mirror, LOG, b"abcdef")
    mirror.begin(LOG, 1, 4, snapshot=False)
    mirror.append(LOG, 4, b"XY", snapshot=False)
    assert mirror.read(LOG) == b"abcdXY"
    mirror.restore(LOG, 1, 1)
    assert mirror.read(LOG) == b"a"
    mirror.restore(LOG, 1, 9)
    assert mirror.read(LOG) == b"a"
    mirror.restore("data/none", 1, 0)


def test_going_on_behind_the_end_is_an_error_and_leaves_no_hole(mirror: JobMirror) -> None:
    put(mirror, LOG, b"abc")
    for path in (LOG, "data/none"):
        with pytest.raises(StoreError, match="missing bytes"):
            mirror.begin(path, 1, 4, snapshot=False)
    assert mirror.read(LOG) == b"abc"


def test_an_earlier_generation_is_set_aside(mirror: JobMirror, tmp_path: Path) -> None:
    put(mirror, LOG, b"one")
    put(mirror, LOG, b"two", generation=2)
    put(mirror, LOG, b"three", generation=3)
    assert mirror.read(LOG) == b"three"
    assert files(tmp_path / "superseded") == {f"{LOG}.1": b"one", f"{LOG}.2": b"two"}


def test_a_snapshot_takes_its_place_whole(mirror: JobMirror, tmp_path: Path) -> None:
    path = LOG + ".done"
    mirror.begin(path, 1, 0, snapshot=True)
    mirror.append(path, 0, b"ab", snapshot=True)
    assert mirror.read(path) is None
    mirror.append(path, 2, b"cd", snapshot=True)
    assert mirror.finish_snapshot(path) == b"abcd"
    assert mirror.finish_snapshot(path) is None
    mirror.begin(path, 2, 0, snapshot=True)
    mirror.append(path, 0, b"new", snapshot=True)
    assert mirror.read(path) == b"abcd"
    assert mirror.finish_snapshot(path) == b"new"
    assert mirror.read(path) == b"new"
    assert files(tmp_path / "incoming") == {}


def test_a_snapshot_that_is_put_takes_its_place_once_it_is_whole(mirror: JobMirror, tmp_path: Path) -> None:
    path = LOG + ".done"
    (tmp_path / "incoming" / path).mkdir(parents=True)
    with pytest.raises(ProtocolError):
        mirror.put(path, 1, b"none", snapshot=True)
    assert mirror.read(path) is None
    (tmp_path / "incoming" / path).rmdir()
    mirror.put(path, 1, b"one", snapshot=True)
    mirror.put(path, 2, b"two", snapshot=True)
    assert files(tmp_path) == {f"job/{path}": b"two"}


def test_a_file_that_was_removed_becomes_another_one(tmp_path: Path) -> None:
    """Its old bytes are in no file, also where a process ended in between."""
    for number, is_over in enumerate((False, True)):
        mirror = JobMirror(tmp_path / "job", incoming=tmp_path / "incoming", superseded=tmp_path / "superseded")
        mirror.put(LOG, 1, b"never committed", snapshot=False)
        mirror.restore(LOG, 0, 0)
        mirror.put(LOG, 1, b"long" * 10, snapshot=False)
        mirror.remove(LOG)
        mirror.remove(LOG)
        assert files(tmp_path / "job").keys() == {f"data/{each}{kind}" for each in range(number) for kind in "ab"}
        mirror.put(f"data/{number}a", 1, b"short", snapshot=False)
        mirror.put(f"data/{number}b", 1, b"new", snapshot=True)
        mirror.remove(f"data/{number}c")
        mirror.put(LOG, 1, b"more", snapshot=False)
        mirror.remove(LOG)
        if is_over:
            mirror.close()
    assert files(tmp_path / "job") == {"data/0a": b"short", "data/0b": b"new", "data/1a": b"short", "data/1b": b"new"}
    assert files(tmp_path / "incoming") == files(tmp_path / "superseded") == {}


def test_a_link_in_a_files_place_is_not_followed(mirror: JobMirror, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    (mirror.directory / "data").mkdir(parents=True)
    (mirror.directory / LOG).symlink_to(outside)
    assert mirror.read(LOG) is None
    assert mirror.prefix_digest(LOG, 3) is None
    mirror.restore(LOG, 1, 0)
    with pytest.raises(StoreError):
        mirror.begin(LOG, 1, 3, snapshot=False)
    with pytest.raises(StoreError):
        mirror.append(LOG, 0, b"x", snapshot=False)
    assert outside.read_bytes() == b"secret"


@pytest.mark.parametrize("folder", ["job", "job/data", "incoming", "superseded"])
def test_a_link_in_a_folders_place_is_not_followed(folder: str, mirror: JobMirror, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "data").mkdir(parents=True)
    put(mirror, LOG, b"bytes")
    link = tmp_path / folder
    if link.exists():
        link.rename(tmp_path / "before")
    link.symlink_to(outside)
    again = JobMirror(tmp_path / "job", incoming=tmp_path / "incoming", superseded=tmp_path / "superseded")
    with pytest.raises(StoreError, match=f"{link} is a symbolic link") as caught:
        again.begin(LOG, 2, 0, snapshot=folder == "incoming")
    assert "on this host" in caught.value.hint
    assert files(outside) == {}


def test_a_snapshot_replaces_a_link_and_not_what_it_names(mirror: JobMirror, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    for folder in (mirror.directory, tmp_path / "incoming"):
        folder.mkdir()
        (folder / "info.json.0").symlink_to(outside)
    mirror.begin("info.json.0", 1, 0, snapshot=True)
    mirror.append("info.json.0", 0, b"{}", snapshot=True)
    assert mirror.finish_snapshot("info.json.0") == b"{}"
    assert (mirror.read("info.json.0"), outside.read_bytes()) == (b"{}", b"secret")


def test_something_else_than_a_file_is_no_file(mirror: JobMirror) -> None:
    (mirror.directory / LOG).mkdir(parents=True)
    os.mkfifo(mirror.directory / "pipe")
    for path in (LOG, "pipe", "pipe/below", "none"):
        assert mirror.read(path) is None
        assert mirror.prefix_digest(path, 0) is None


def test_names_that_cannot_both_be_are_told_with_their_place(mirror: JobMirror) -> None:
    (mirror.directory / LOG).mkdir(parents=True)
    put(mirror, "data/x", b"1")
    for name in (LOG, "data/x/y"):
        with pytest.raises(ProtocolError, match=f"cannot write {name} into the mirror") as caught:
            mirror.begin(name, 1, 0, snapshot=False)
        assert "on this host" in caught.value.hint


# Whether the host's disk is full, and how that is told


def _database_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("it is so")
    error.sqlite_errorcode = code
    return error


def _no_space(*_: object) -> None:
    raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


@pytest.mark.parametrize(("number", "full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_a_quota_that_is_used_up_is_a_full_disk(number: int, full: bool) -> None:
    assert is_full(OSError(number, os.strerror(number))) is full


def test_what_sqlite_means_by_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed_write = _database_error(sqlite3.SQLITE_IOERR_WRITE)
    assert is_full_database(_database_error(sqlite3.SQLITE_FULL), tmp_path)
    assert not is_full_database(failed_write, tmp_path)
    assert not is_full_database(sqlite3.ProgrammingError("no code"), tmp_path)
    monkeypatch.setattr(os, "posix_fallocate", _no_space)
    assert is_full_database(failed_write, tmp_path)
    assert not is_full_database(_database_error(sqlite3.SQLITE_CORRUPT), tmp_path)


def test_room_is_asked_for_by_taking_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda _, *place: taken.append(place))
    assert has_room(tmp_path)
    assert taken == [(0, ROOM_BYTES)]
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(os, "posix_fallocate", _no_space)
    assert not has_room(tmp_path)


def test_what_else_is_wrong_with_the_disk_is_left_to_the_next_write(tmp_path: Path) -> None:
    assert has_room(tmp_path / "missing")


def test_the_error_says_where_and_what_is_free(tmp_path: Path) -> None:
    error = disk_full(tmp_path / "not" / "there")
    mounted = next(place for place in (tmp_path, *tmp_path.parents) if place.is_mount())
    assert str(error).startswith(f"the disk at {mounted} is full: ")
    assert "MB are free" in str(error)
    assert "8 MB at least" in error.hint

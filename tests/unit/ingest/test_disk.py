"""Whether the host's disk is full, and how that is told."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from profagent import files as disk
from profagent.files import disk_full, has_room, is_full, is_full_database


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
    assert taken == [(0, disk.ROOM_BYTES)]
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

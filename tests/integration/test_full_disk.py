"""A full disk on the host: the capture pauses, says so, and goes on when there is room; nothing is lost by it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.small_disk import small_disk
from tests.integration.board import content, eventually, mirrored, running, simulated
from tests.integration.host import Host, hurry, started
from tests.integration.rows import imported_rows, query, rows_of

DISK_BYTES = 48 << 20
# Far less than the JOBs are, and more than an empty database.
FREE_BYTES = 3 << 20
PAUSED = "paused: the disk at"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_BYTES) as made:
        yield made


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A finished JOB of several MB."""
    return simulated(tmp_path / "root", 150)


@contextmanager
def recording(board: str, workspace: Path) -> Iterator[Host]:
    arguments = ("--backlog", "--until-finished", "--board", board, "--workspace", workspace)
    with started("record", *arguments) as host:
        yield host


def fill(disk: Path) -> Path:
    """Leave little space."""
    ballast = disk / "ballast"
    found = os.statvfs(disk)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - FREE_BYTES)
    return ballast


@pytest.fixture(autouse=True)
def _little_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is looked at often."""
    hurry(monkeypatch, "profagent.link.session", "ROOM_S", 0.5)


def test_a_full_disk_pauses_a_capture_until_there_is_room(disk: Path, job: Path, tmp_path: Path) -> None:
    workspace = disk / "workspace"
    ballast = fill(disk)
    with running("--root", job.parent) as board, recording(board.address, workspace) as host:
        (told,) = host.err.until(PAUSED)
        assert f"{disk} is full" in told
        assert "MB are free" in told
        assert host.process.poll() is None
        ballast.unlink()
        host.err.until("there is room again")
        ended = host.ended()
    assert (ended.code, "Traceback" in ended.err) == (0, False)
    # One that is filled again says so again.
    assert ended.err.count(PAUSED) == ended.err.count("there is room again")
    assert mirrored(workspace) == content(job)
    database = workspace / "profagent.db"
    assert query(database, "PRAGMA integrity_check") == [("ok",)]
    assert rows_of(database, job.name) == imported_rows(job, tmp_path)
    assert query(database, "SELECT grade, reason FROM ledger_entry WHERE grade = 'loss'") == []


def test_a_capture_that_is_stopped_while_it_pauses_is_incomplete_and_is_gone_on_with(
    disk: Path, job: Path, tmp_path: Path
) -> None:
    workspace = disk / "workspace"
    ballast = fill(disk)
    with running("--root", job.parent) as board:
        with recording(board.address, workspace) as host:
            host.err.until(PAUSED)
            with (disk / "rest").open("wb", buffering=0) as rest:
                assert eventually(lambda: not _takes_more(rest.fileno()))
                host.process.send_signal(signal.SIGINT)
                # It may yet give up some room, in which its end could be written.
                assert eventually(lambda: not _takes_more(rest.fileno()) and host.process.poll() is not None)
            ended = host.ended()
        assert ended.code == 4
        assert "Traceback" not in ended.err
        assert "INCOMPLETE" in ended.out
        # Its end may fit into pages that the database has: then it says what it left, otherwise why it could not end.
        full = f"not covered at the end: the disk at {disk} is full"
        assert full in ended.err or "stopped early: " in ended.out
        assert "make room" in ended.err
        ballast.unlink()
        (disk / "rest").unlink()
        with recording(board.address, workspace) as host:
            assert host.ended().code == 0
    assert mirrored(workspace) == content(job)
    database = workspace / "profagent.db"
    assert rows_of(database, job.name) == imported_rows(job, tmp_path)
    assert query(database, "SELECT count(*) FROM session") == [(1,)]


def test_a_workspace_on_a_full_disk_is_an_error_at_the_start(disk: Path, job: Path) -> None:
    with (disk / "ballast").open("wb", buffering=0) as ballast:
        assert eventually(lambda: not _takes_more(ballast.fileno()))
    with running("--root", job.parent) as board, recording(board.address, disk / "workspace") as host:
        ended = host.ended()
    assert (ended.code, "Traceback" in ended.err) == (1, False)
    assert "No space left" in ended.err or "is full" in ended.err


def _takes_more(file: int) -> bool:
    """Write some more; whether that went."""
    try:
        os.write(file, bytes(1 << 20))
    except OSError:
        return False
    return True

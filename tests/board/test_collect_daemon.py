"""Which daemon serves a `collect`: the board's own, told of the directory for the run, or a temporary one."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.link.boards_file import BoardEntry, BoardsFile
from profagent.link.credentials import own_consumer
from tests.board.busybox_path import login_settings
from tests.board.sshd import Sshd, running_sshd
from tests.integration.board import content, running
from tests.integration.host import profagent

if TYPE_CHECKING:
    from tests.board.bench import Bench


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A board whose Python is the tests' own."""
    folder = tmp_path_factory.mktemp("sshd")
    with running_sshd(folder, settings=login_settings(folder, "gnu")) as server:
        yield server


def know(home: Path, bench: Bench, address: str) -> None:
    entry = BoardEntry("euler", address, ssh=bench.friend.target)
    BoardsFile(home / ".config" / "profagent" / "boards.toml").put(entry)


def install(prefix: Path, pid: int) -> None:
    """What `deploy --prefix --init none` leaves that matters here."""
    script = prefix / "profagentd.init"
    script.write_text(f'#!/bin/sh\n[ "$1" = reload ] && kill -HUP {pid}\n')
    script.chmod(0o755)


def assert_landed(bench: Bench) -> None:
    (job,), (board_job,) = bench.jobs, bench.board_jobs
    assert content(job) == content(board_job)


def test_the_boards_own_daemon_is_told_of_the_directory(bench: Bench, home: Path, tmp_path: Path) -> None:
    roots_d = tmp_path / "prefix" / "etc" / "roots.d"
    roots_d.mkdir(parents=True)
    (roots_d / "other.conf").write_text(f"{tmp_path}/other\n")
    with running("--roots-d", roots_d) as daemon:
        install(tmp_path / "prefix", daemon.process.pid)
        know(home, bench, daemon.address)
        options = ("--board", "euler", "--prefix", tmp_path / "prefix", "--interval", "1")
        ended, released = bench.collect(*options), bench.collect(*options, "--release")
        assert ended.code == released.code == 0, ended.err + released.err
    assert "is a root of the board's daemon for this run" in ended.err
    assert "bringing a daemon" not in ended.err
    assert [path.name for path in roots_d.iterdir()] == ["other.conf"]
    # That one deletes nothing.
    assert "bringing a daemon" in released.err
    assert (len(bench.jobs), len(bench.board_jobs)) == (2, 1)


def test_a_daemon_that_deletes_by_itself_is_used_for_a_release(bench: Bench, home: Path, tmp_path: Path) -> None:
    retains = ("--retain", "delivered", "--retain-for", own_consumer())
    with running("--root", bench.remote.parent, *retains) as daemon:
        know(home, bench, daemon.address)
        ended = bench.collect("--board", "euler", "--interval", "1", "--release")
    assert ended.code == 0, ended.err
    assert "bringing a daemon" not in ended.err
    assert (len(bench.jobs), bench.board_jobs) == (1, [])


@pytest.mark.parametrize("has_roots_d", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_daemon_that_cannot_be_told_is_passed_over(
    bench: Bench, home: Path, tmp_path: Path, has_roots_d: bool
) -> None:
    prefix = tmp_path / "prefix"
    (prefix / "etc").mkdir(parents=True)
    if has_roots_d:
        # There is nothing that has it read again.
        (prefix / "etc" / "roots.d").mkdir()
    with running("--root", tmp_path / "elsewhere") as daemon:
        know(home, bench, daemon.address)
        ended = bench.collect("--board", "euler", "--prefix", prefix)
    assert ended.code == 0, ended.err
    assert "bringing a daemon" in ended.err
    assert not list(prefix.rglob("*.conf"))
    assert_landed(bench)


def test_a_program_of_the_board_with_an_absolute_path(bench: Bench, tmp_path: Path) -> None:
    ended = bench.collect("-m", bench.project / "main", "--acl-json", bench.project / "acl.json", "--env", "A=b c")
    assert ended.code == 0, ended.err
    assert_landed(bench)
    (session,) = profagent("sessions", "--json", "--workspace", bench.workspace, **bench.variables).document
    digest = hashlib.sha256((bench.project / "main").read_bytes()).hexdigest()
    assert session["labels_by_key"] == {"main": digest[:16]}
    assert (bench.project / "acl.json").read_text() == '{"other": "stays"}\n'
    assert sys.executable in (bench.project / "main").read_text().splitlines()[0]

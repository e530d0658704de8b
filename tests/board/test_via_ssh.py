"""`--via ssh`: tunnels of real commands through a real OpenSSH server, to a daemon there and to temporary ones."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.board.tunnelled import ENDED_S, assert_gone, begun, folders, know, record
from tests.integration.board import content, eventually, running, simulated
from tests.integration.host import Ended, profagent, started

if TYPE_CHECKING:
    from tests.board.sshd import Sshd


def test_a_tunnel_leads_to_the_daemon_that_runs_there(
    home: Path, friend: Sshd, root: Path, variables: dict[str, str], tmp_path: Path
) -> None:
    job = simulated(root)
    with running("--root", root, "--quiet-after", "1") as board:
        know(home, friend, board.address)
        ended = profagent(*record(tmp_path / "ws"), **variables)
        assert ended.code == 0, ended.err
        assert content(Path(ended.document["mirror"]) / job.name) == content(job)
        assert "at euler" in ended.err
        refused = profagent(*record(tmp_path / "ws", "--root", root), **variables)
    assert refused.code == 2
    assert "leave --root out" in refused.err


def test_doctor_looks_through_a_tunnel(
    home: Path, friend: Sshd, root: Path, variables: dict[str, str], tmp_path: Path
) -> None:
    with running("--root", root) as board:
        know(home, friend, board.address)
        ended = profagent("doctor", "--board", "euler", "--via", "ssh", "--json", **variables)
    assert "SSH tunnel" not in ended.err
    (looked_at,) = (each for each in ended.document["sections"] if each["about"].startswith("board euler"))
    marks = {finding["check"]: finding["mark"] for finding in looked_at["findings"]}
    assert (marks["link"], marks["daemon"]) == ("good", "good")
    assert {"clock", "npu-stack", "space"} <= set(marks)


def test_no_daemon_and_no_root_is_told(
    home: Path, friend: Sshd, variables: dict[str, str], tmp_path: Path, unused_tcp_port: int
) -> None:
    know(home, friend, f"127.0.0.1:{unused_tcp_port}")
    for arguments in (record(tmp_path / "ws"), ("watch", "--board", "euler")):
        ended = profagent(*arguments, **variables)
        assert ended.code == 3
        assert "no daemon listens" in ended.err
        assert "--root DIR" in ended.err


def test_what_says_nothing_of_a_tunnel_is_refused(
    home: Path, friend: Sshd, root: Path, variables: dict[str, str], tmp_path: Path
) -> None:
    with running("--root", root) as board:
        know(home, friend, board.address)
        for arguments, why in (
            (record(tmp_path / "ws", "--insecure"), "--insecure has no meaning for an SSH tunnel"),
            (record(tmp_path / "ws", "--keys", tmp_path), "speaks plain text"),
            (
                record(tmp_path / "ws", "--keys", tmp_path, "--root", root),
                "--keys has no meaning for a temporary daemon",
            ),
            (("watch", "--board", "euler", "--root", tmp_path), "--root goes with --via ssh"),
        ):
            ended = profagent(*arguments, **variables)
            assert ended.code == 2, ended.err
            assert why in ended.err


def test_a_tunnel_that_was_lost_is_made_again(home: Path, friend: Sshd, root: Path, variables: dict[str, str]) -> None:
    with running("--root", root) as board:
        know(home, friend, board.address)
        with started("watch", "--board", "euler", "--via", "ssh", "--json", **variables) as host:
            host.err.until("watching ")
            for session in friend.sessions():
                os.kill(session, signal.SIGKILL)
            host.err.until("no tunnel to euler")
            host.err.until("watching ", 2)
            assert host.interrupt().code == 0


def test_of_several_boards_one_that_is_away_holds_up_no_other(
    home: Path, friend: Sshd, root: Path, variables: dict[str, str], tmp_path: Path, unused_tcp_port: int
) -> None:
    with running("--root", root) as board:
        know(home, friend, board.address)
        away = f"ssh://127.0.0.1:{unused_tcp_port}"
        boards = ("--board", away, "--board", "euler", "--via", "ssh", "--workspace", tmp_path / "ws")
        with started("record", *boards, **variables) as host:
            host.err.until(f"no tunnel to {away}")
            host.err.until("euler: recording ")
            assert host.interrupt().code == 3


@pytest.fixture
def temporary(home: Path, friend: Sshd, root: Path, unused_tcp_port: int) -> tuple[str | Path, ...]:
    """Arguments of `watch` for a board on which no daemon runs."""
    know(home, friend, f"127.0.0.1:{unused_tcp_port}")
    return ("watch", "--board", "euler", "--via", "ssh", "--root", root, "--json")


def test_a_temporary_daemon_serves_one_command(
    temporary: object, root: Path, variables: dict[str, str], tmp_path: Path
) -> None:
    job = simulated(root)
    ended: Ended = profagent(*record(tmp_path / "ws", "--root", root), **variables)
    assert ended.code == 0, ended.err
    assert content(Path(ended.document["mirror"]) / job.name) == content(job)
    assert "bringing a daemon" in ended.err
    assert not folders(root)


@pytest.mark.parametrize(
    "how",
    [
        signal.SIGKILL,
        *(pytest.param(each, marks=pytest.mark.long) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)),
    ],
)
def test_nothing_is_left_when_the_command_ends(
    temporary: tuple[str | Path, ...], root: Path, variables: dict[str, str], how: signal.Signals
) -> None:
    with started(*temporary, **variables) as host:
        folder = begun(host, root)
        assert folder.stat().st_mode & 0o077 == 0
        host.process.send_signal(how)
        host.process.wait(ENDED_S)
        assert_gone(folder, root)


def test_nothing_is_left_when_the_link_drops(
    temporary: tuple[str | Path, ...], root: Path, friend: Sshd, variables: dict[str, str]
) -> None:
    with started(*temporary, **variables) as host:
        folder = begun(host, root)
        for session in friend.sessions():
            os.kill(session, signal.SIGKILL)
        assert_gone(folder, root)
        host.interrupt()
    assert eventually(lambda: not folders(root), ENDED_S)


@pytest.mark.long
def test_nothing_is_left_when_the_link_drops_in_mid_upload(
    temporary: tuple[str | Path, ...], root: Path, friend: Sshd, variables: dict[str, str]
) -> None:
    def brought() -> list[Path]:
        return [folder for folder in folders(root) if (folder / "tree" / "lib").exists()]

    with started(*temporary, **variables) as host:
        assert eventually(lambda: bool(brought()), ENDED_S)
        (folder,) = brought()
        for session in friend.sessions():
            os.kill(session, signal.SIGKILL)
        ended = host.ended()
    assert ended.code == 3, ended.err
    assert "is lost" in ended.err
    assert_gone(folder, root)

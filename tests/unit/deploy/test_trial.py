"""What is on trial on a board, and what ends it: the real script in real shells, with a service that only says so."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from profagent.deploy.layout import Layout
from profagent.deploy.lock import LOST_S
from profagent.deploy.trial import Switch, begun, confirmed, kept, script, taken_back
from profagent.deploy.units import Service, service
from tests.integration.board import eventually

SHELLS = [pytest.param(("sh",), marks=pytest.mark.long), pytest.param(("busybox", "sh"))]
OWNER = "lab 1"
OLD, NEW = "1-00000000", "2-00000000"
PATIENCE_S = 90


class Board:
    """A prefix with a version that runs, and a lock that a host has; `sh` is its shell."""

    def __init__(self, folder: Path, shell: Sequence[str]) -> None:
        self.layout = Layout.of(str(folder / "p"))
        self.shell = shell
        self.said = folder / "said"
        for name in (OLD, NEW):
            Path(self.layout.version(name)).mkdir(parents=True)
        Path(self.layout.current).symlink_to(f"versions/{OLD}")
        self.path("keys").mkdir(parents=True)
        Path(self.layout.lock("none")).mkdir()
        Path(self.layout.lock("none"), "owner").write_text(f"{OWNER}\n")
        self.heard(0)

    def path(self, name: str) -> Path:
        """A file of the settings."""
        return Path(self.layout.settings, name)

    def heard(self, ago_s: int) -> None:
        """The host was heard so long ago."""
        uptime_s = int(Path("/proc/uptime").read_text().partition(".")[0])
        Path(self.layout.lock("none"), "beat").write_text(f"{uptime_s - ago_s}\n")

    def run(self, command: str) -> int:
        """Run one of the commands."""
        return subprocess.run(
            [*self.shell, "-c", command], check=False, capture_output=True, timeout=PATIENCE_S
        ).returncode

    def service(self, restart: str = ":") -> Service:
        """It says what it is told."""
        own = service("none", self.layout, (), deletes=False)
        say = f">>{self.said} echo"
        return replace(
            own, enable=f"{say} enable", restart=f"{say} restart; {restart}", stop=f"{say} stop", forget=f"{say} forget"
        )

    def begin(self, switch: Switch, restart: str = ":") -> int:
        """Put it on trial."""
        for name in switch.written:
            Path(f"{name}.new").write_text("new")
        assert self.run(kept(self.layout, switch)) == 0
        text = script(self.layout, self.service(restart), switch, OWNER)
        Path(f"{self.layout.trial}.part", "run").write_text(text)
        return self.run(begun(self.layout, "none", OWNER))

    def is_over(self) -> bool:
        """Whether nothing is on trial any more."""
        return eventually(lambda: not Path(self.layout.trial).exists())

    def watching(self) -> list[int]:
        """The processes that wait for the host's word."""
        first = int(Path(self.layout.trial, "pid").read_text())
        return [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]

    @property
    def current(self) -> str:
        """What runs."""
        return Path(self.layout.current).readlink().name

    def is_as_before(self) -> bool:
        """Whether all files and links are so."""
        texts = [self.path(name).read_text() for name in ("board-id", "keys/board.key", "gone")]
        is_private = self.path("keys/board.key").stat().st_mode & 0o777 == 0o600
        links = (self.current, os.path.lexists(self.layout.previous))
        return texts == ["old"] * 3 and is_private and links == (OLD, False) and not self.path("keys/ca.pem").exists()


@pytest.fixture(params=SHELLS, ids=["sh", "busybox"])
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    board = Board(tmp_path, request.param)
    for name in ("board-id", "keys/board.key", "gone"):
        board.path(name).write_text("old")
    board.path("keys/board.key").chmod(0o600)
    assert board.is_as_before()
    return board


@pytest.fixture
def switch(board: Board) -> Switch:
    written = [str(board.path(name)) for name in ("board-id", "keys/board.key", "keys/ca.pem")]
    return Switch(written, [str(board.path("gone"))], NEW, OLD, OLD, "", had_service=True, stops_first=False)


def test_what_is_confirmed_stays(board: Board, switch: Switch) -> None:
    assert board.begin(switch) == 0
    assert [Path(path).read_text() for path in switch.written] == ["new"] * 3
    assert not board.path("gone").exists()
    assert (board.current, Path(board.layout.previous).readlink().name) == (NEW, OLD)
    assert board.run(confirmed(board.layout)) == 0
    assert board.is_over()
    assert board.run(taken_back(board.layout)) == 0
    assert board.current == NEW
    assert board.said.read_text().split() == ["enable", "restart"]


def test_what_is_confirmed_stays_however_slowly_it_is_tidied_up(board: Board, switch: Switch, tmp_path: Path) -> None:
    assert board.begin(switch) == 0
    rest = f"rm -rf $each/status $each/decided; sleep 4; exec {shutil.which('rm')} -rf $each"
    slow = f'#!/bin/sh\nfor each in "$@"; do :; done\nPATH={os.environ["PATH"]}\n[ ! -d $each ] || {{ {rest}; }}\n'
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rm").write_text(slow)
    (tmp_path / "bin/rm").chmod(0o755)
    assert board.run(f"PATH={tmp_path / 'bin'}:$PATH; {confirmed(board.layout)}") == 0
    assert board.is_over()
    assert board.current == NEW
    assert board.said.read_text().split() == ["enable", "restart"]


def test_what_is_refused_is_taken_back_when_the_command_ends(board: Board, switch: Switch) -> None:
    assert board.begin(switch) == 0
    assert board.run(taken_back(board.layout)) == 0
    assert board.is_as_before()
    assert not Path(board.layout.trial).exists()
    assert board.run(confirmed(board.layout)) != 0
    assert board.said.read_text().split() == ["enable", "restart", "stop", "enable", "restart"]


def test_a_service_that_does_not_start_is_told(board: Board, switch: Switch) -> None:
    assert board.begin(switch, "exit 3") == 3
    assert board.run(taken_back(board.layout)) == 0
    assert board.is_as_before()


def test_it_is_taken_back_when_the_host_is_silent(board: Board, switch: Switch) -> None:
    assert board.begin(switch) == 0
    # The end of a link is told with this; whoever watches the trial outlives it.
    for process in board.watching():
        os.kill(process, signal.SIGHUP)
    board.heard(LOST_S + 60)
    assert board.is_over()
    assert board.is_as_before()


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "another's"])
def test_it_is_taken_back_when_the_lock_is_not_the_hosts(board: Board, switch: Switch, *, is_gone: bool) -> None:
    assert board.begin(switch) == 0
    owner = Path(board.layout.lock("none"), "owner")
    owner.unlink() if is_gone else owner.write_text("desk 2\n")
    assert board.is_over()
    assert board.is_as_before()


def test_it_is_taken_back_by_the_next_one_when_nobody_watches_it(board: Board, switch: Switch) -> None:
    assert board.begin(switch) == 0
    for process in board.watching():
        os.kill(process, signal.SIGKILL)
    board.heard(LOST_S + 60)
    assert board.run(taken_back(board.layout)) == 0
    assert board.is_as_before()
    assert not Path(board.layout.trial).exists()


def test_who_has_lost_the_lock_begins_nothing(board: Board, switch: Switch) -> None:
    Path(board.layout.lock("none"), "owner").write_text("desk 2\n")
    assert board.begin(switch) == 1
    assert board.is_as_before()
    assert not board.said.exists()


def test_of_a_first_deployment_nothing_stays(board: Board, switch: Switch) -> None:
    Path(board.layout.current).unlink()
    first = replace(switch, old_current="", previous="", had_service=False)
    assert board.begin(first) == 0
    assert board.run(taken_back(board.layout)) == 0
    assert not os.path.lexists(board.layout.current)
    assert not board.path("keys/ca.pem").exists()
    assert board.said.read_text().split() == ["enable", "restart", "stop", "forget"]


def test_the_service_of_another_prefix_is_stopped_first(board: Board, switch: Switch) -> None:
    assert board.begin(replace(switch, stops_first=True)) == 0
    assert board.said.read_text().split() == ["stop", "enable", "restart"]
    assert board.run(confirmed(board.layout)) == 0

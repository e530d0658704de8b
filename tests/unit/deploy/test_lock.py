"""The lock of a board, by its commands in real shells."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from profagent.deploy.layout import Layout
from profagent.deploy.lock import LOST_S, held, owned
from tests.integration.board import eventually

SHELLS = [pytest.param(("sh",), marks=pytest.mark.long), pytest.param(("busybox", "sh"))]
PATIENCE_S = 60


@pytest.fixture(params=SHELLS, ids=["sh", "busybox"])
def shell(request: pytest.FixtureRequest) -> tuple[str, ...]:
    words: tuple[str, ...] = request.param
    return words


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.of(str(tmp_path / "p"))


@contextmanager
def holding(shell: tuple[str, ...], layout: Layout, owner: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A host's command, and what it says first."""
    command = [*shell, "-c", held(layout.lock("none"), owner)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(PATIENCE_S)


def is_owned(shell: tuple[str, ...], layout: Layout, owner: str) -> bool:
    return subprocess.run([*shell, "-c", owned(layout.lock("none"), owner)], check=False).returncode == 0


def uptime_s() -> int:
    return int(Path("/proc/uptime").read_text().partition(".")[0])


def test_one_host_has_it_and_the_other_is_told_which(shell: tuple[str, ...], layout: Layout) -> None:
    with holding(shell, layout, "lab 1") as (_, said):
        assert said == "held"
        assert is_owned(shell, layout, "lab 1")
        with holding(shell, layout, "desk 2") as (_, other):
            assert other == "busy lab"
        assert is_owned(shell, layout, "lab 1")
    assert not Path(layout.prefix).exists()
    with holding(shell, layout, "desk 2") as (_, said):
        assert said == "held"


def test_a_board_has_one_lock_but_for_those_who_touch_no_service() -> None:
    usual, mine, other = Layout.of(), Layout.of("/home/me/p"), Layout.of("/data")
    assert len({each.lock("systemd") for each in (usual, mine, other)} | {usual.lock("none"), other.lock("initd")}) == 1
    assert mine.lock("none") == "/home/me/p/deploying"


def test_what_is_below_the_prefix_stays(shell: tuple[str, ...], layout: Layout) -> None:
    Path(layout.versions).mkdir(parents=True)
    with holding(shell, layout, "lab 1"):
        pass
    assert [path.name for path in Path(layout.prefix).iterdir()] == ["versions"]


@pytest.mark.parametrize("ahead_s", [-LOST_S - 60, 3600], ids=["silent", "before a reboot"])
def test_who_is_not_heard_any_more_has_it_no_longer(shell: tuple[str, ...], layout: Layout, ahead_s: int) -> None:
    with holding(shell, layout, "lab 1") as (process, _):
        beat = Path(layout.lock("none"), "beat")
        beat.write_text(f"{max(0, uptime_s() + ahead_s)}\n")
        with holding(shell, layout, "desk 2") as (_, said):
            assert said == "held"
            assert process.stdin is not None
            # It is heard again, and finds that it has lost it.
            process.stdin.write("\n")
            process.stdin.flush()
            process.wait(PATIENCE_S)
            assert is_owned(shell, layout, "desk 2")


def test_a_word_of_the_host_is_a_beat(shell: tuple[str, ...], layout: Layout) -> None:
    with holding(shell, layout, "lab 1") as (process, _):
        beat = Path(layout.lock("none"), "beat")
        beat.write_text("0\n")
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert eventually(lambda: int(beat.read_text()) > 0)

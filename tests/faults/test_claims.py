"""What a capture claims: at whatever moment its board or its disk fails, it never says that it has what it has not."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.fakes.small_disk import small_disk
from tests.integration.board import eventually, running
from tests.integration.host import Ended, profagent, started

# A program that goes on for longer than any test, and writes all the time.
PROGRAM = ("--simulate", "--rate", "40", "--for", "300", "--model", "mobilenetv2", "--layers", "20")
FOR_S = 3.0
DISK_BYTES = 6 << 20


class Failing(NamedTuple):
    """A board whose program writes into `root`, and the daemon's process, which a test lets fail."""

    root: Path
    address: str
    process: Any


@contextmanager
def failing(folder: Path, name: str = "board") -> Iterator[Failing]:
    root = folder / name
    root.mkdir()
    with running("--root", root, *PROGRAM), running("--root", root, "--identity", name) as daemon:
        try:
            yield Failing(root, daemon.address, daemon.process)
        finally:
            with suppress(ProcessLookupError):
                daemon.process.send_signal(signal.SIGCONT)


def files_of(root: Path) -> dict[str, int]:
    """The sizes of a board's files, by path from the JOB's name on."""
    found = {}
    for path in root.glob("JOB*/data/*"):
        with suppress(FileNotFoundError):
            found[str(path.relative_to(root))] = path.stat().st_size
    return found


def missing(board: dict[str, int], workspace: Path, name: str = "board") -> list[str]:
    """The files of which the mirror has less than the board had."""
    mirror = workspace / "mirror" / name
    sizes = {path: (mirror / path).stat().st_size if (mirror / path).exists() else -1 for path in board}
    return [path for path, size in board.items() if sizes[path] < size]


def has_begun(workspace: Path, name: str = "board") -> bool:
    return any((workspace / "mirror" / name).glob("JOB*/data/aicore*.done"))


def check(ended: Ended, *, is_missing: bool) -> dict[str, Any]:
    """A capture that lacks something says so by all its words."""
    summary: dict[str, Any] = ended.document
    assert is_missing, "the fault came to nothing"
    assert (ended.code, summary["complete"], summary["exit_code"]) == (4, False, 4), ended.err
    assert summary["incomplete"]
    assert "Traceback" not in ended.err
    return summary


ENDS = [("kill", "for"), ("kill", "TERM"), ("kill", "until-finished"), ("freeze", "for"), ("freeze", "INT")]


@pytest.mark.parametrize(("fault", "end"), ENDS)
def test_a_board_that_fails_makes_a_record_incomplete(fault: str, end: str, tmp_path: Path) -> None:
    moment_s = random.uniform(0.0, 1.0)
    workspace = tmp_path / "workspace"
    ends: tuple[str, ...] = {"for": ("--for", f"{FOR_S}s"), "until-finished": ("--until-finished",)}.get(end, ())
    with failing(tmp_path) as board:
        arguments: tuple[str | Path, ...] = ("--board", board.address, "--workspace", workspace, "--json", *ends)
        with started("record", *arguments) as host:
            assert eventually(lambda: has_begun(workspace))
            time.sleep(moment_s)
            board.process.send_signal(signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
            time.sleep(0.5)  # the program goes on
            if end != "for":
                host.process.send_signal(signal.SIGINT if end == "INT" else signal.SIGTERM)
            ended = host.ended()
        lacks = missing(files_of(board.root), workspace)
    summary = check(ended, is_missing=bool(lacks))
    assert "not-covered" in summary["ledger"]["note"], f"the fault came after {moment_s:.3f} s"
    gaps = {gap["standing"] for gap in summary["coverage"]["gaps"]}
    assert gaps & ({"away"} if fault == "kill" else {"silent", "away"})
    assert summary["coverage"]["covered_us"] < summary["coverage"]["total_us"]


def test_a_board_that_comes_back_makes_it_whole_and_the_gap_stays_told(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    with (
        failing(tmp_path) as board,
        started("record", "--board", board.address, "--workspace", workspace, "--json") as host,
    ):
        assert eventually(lambda: has_begun(workspace))
        board.process.send_signal(signal.SIGSTOP)
        # Said while it is frozen, and not at the end.
        host.err.until("the board has said nothing for")
        board.process.send_signal(signal.SIGCONT)
        host.err.until("the board speaks again")
        had = files_of(board.root)
        ended = host.interrupt()
    assert (ended.code, ended.document["complete"]) == (0, True), ended.err
    assert missing(had, workspace) == []
    assert [gap["standing"] for gap in ended.document["coverage"]["gaps"] if gap["standing"] == "silent"] == ["silent"]


def test_a_full_disk_makes_a_record_incomplete_and_the_next_one_goes_on(tmp_path: Path) -> None:
    with failing(tmp_path) as board, small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        workspace, filler = disk / "workspace", disk / "filler"
        filler.write_bytes(bytes(DISK_BYTES // 8))
        arguments = ("--board", board.address, "--workspace", workspace, "--json")
        with started("record", *arguments) as host:
            host.err.until("paused: ")
            ended = host.interrupt()
        check(ended, is_missing=bool(missing(files_of(board.root), workspace)))
        filler.unlink()  # room for the session to go on, and perhaps for all that the JOB has by then
        had = files_of(board.root)
        again = profagent("record", *arguments, "--for", "0.1s")
        assert again.document["session"] == ended.document["session"]
        assert again.code in {0, 4}, again.err
        if missing(had, workspace):
            assert again.code == 4


def test_what_a_killed_record_claims_is_what_it_saw(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    with failing(tmp_path) as board:
        arguments = ("--board", board.address, "--workspace", workspace)
        with started("record", *arguments) as host:
            assert eventually(lambda: has_begun(workspace))
            host.process.kill()
        (session,) = profagent("sessions", "--workspace", workspace, "--json").document
        assert (session["complete"], session["ended_us"]) == (0, None)
        ended = profagent("record", *arguments, "--for", "0.5s", "--json")
    assert (ended.code, ended.document["session"], ended.document["complete"]) == (0, 1, True), ended.err


def test_a_night_says_which_of_its_boards_failed(tmp_path: Path) -> None:
    settings = tmp_path / "nightly.toml"
    with (
        failing(tmp_path, "killed") as killed,
        failing(tmp_path, "frozen") as frozen,
        failing(tmp_path, "fine") as fine,
    ):
        boards = [
            f'[[boards]]\nname = "{board.address}"\nrecord = {{ for = "{FOR_S}s" }}\n'
            for board in (killed, frozen, fine)
        ]
        settings.write_text('workspace = "ws"\n' + "".join(boards), "utf-8")
        with started("nightly", "run", "--config", settings, "--json") as host:
            for board in (killed, frozen, fine):
                assert eventually(lambda: has_begun(tmp_path / "ws", board.root.name))  # noqa: B023 - at once
            killed.process.kill()
            frozen.process.send_signal(signal.SIGSTOP)
            ended = host.ended()
    night = json.loads(ended.out)
    verdicts = {board["board"]: board["verdict"] for board in night["boards"]}
    assert verdicts == {killed.address: "incomplete", frozen.address: "incomplete", fine.address: "undecided"}
    assert (ended.code, night["verdict"]) == (4, "incomplete")
    (page,) = (each for each in (tmp_path / "ws" / "nightly").glob("*.html") if "-session-" not in each.name)
    text = page.read_text("utf-8")
    assert text.count("not covered at the end") >= 2
    assert "covered " in text

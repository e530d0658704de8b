"""The rounds of `ab`: in which order programs run, how their sessions are labelled, and what ends them early."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profagent.ab.report import ab_document, report_lines
from profagent.ab.rounds import AbOptions, AbRounds, AbRun
from profagent.ab.temperature import Temperature, temperature_in
from profagent.aclconfig.edit import DEFAULTS
from profagent.collect.collecting import Collected, CollectOptions
from profagent.collect.explain import Cause
from profagent.diff.comparing import Floor
from profagent.diff.diff import ComparedRun
from profagent.diff.runs import LayerName, ModelRun
from profagent.errors import ProfagentError, UnreachableError
from profagent.formats.inference_times import LatencyFrom
from profagent.ssh.connection import Person
from profagent.store.workspace import Workspace
from profagentd.simulate.board import SimulatedBoard
from tests.documents import checked

ROUNDS = 8
JOB: dict[str, Any] = {
    "simulated": False,
    "frequency_mhz": 700,
    "sampling": {"interval": 1},
    "counter_map_digest": None,
    "sdk_version": "",
    "board": "b1",
    "hostname": "euler",
}


class Board:
    """A board whose runs of `a` take `slower` times as long; `faults` are what its n-th run does instead."""

    def __init__(self, slower: float = 1.05, **a_job: object) -> None:
        self.slower, self.a_job = slower, a_job
        self.runs: list[tuple[str, dict[str, str]]] = []
        self.faults: dict[int, Callable[[], Collected]] = {}
        self.stop = asyncio.Event()

    def collecting(self, options: CollectOptions, *_: object) -> Board:
        self.runs.append((options.main, dict(options.labels)))
        return self

    async def collect(self) -> Collected:
        number = len(self.runs)
        if number in self.faults:
            return self.faults[number]()
        return Collected(0, (Path("JOB"),), (), {"session": number})

    async def temperature(self, _: CollectOptions) -> float:
        return 40.5 + len(self.runs)

    async def read(self, options: CollectOptions, session: int) -> AbRun:
        is_a = options.main == "a"
        times = (self.slower if is_a else 1.0) * np.array([[100.0, 200.0]]) + session / 100
        layers = tuple(LayerName(name, "Conv", "AA_CORE") for name in ("conv1", "conv2"))
        latencies = {LatencyFrom.CALL: times.sum(axis=1)}
        model = ModelRun("net", layers, times, np.ones(times.shape, np.int64), latencies=latencies)
        job = {**JOB, **(self.a_job if is_a else {})}
        return AbRun(session, ComparedRun(str(session), [model], {}, [job]))


OPTIONS = CollectOptions("euler", "root@euler", Person(), "a", DEFAULTS, Workspace(Path("ws")), "~/app")
WANTED = AbOptions(OPTIONS, replace(OPTIONS, main="b"), ROUNDS, "night", Floor(0.2, 0.1))


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Callable[[Board], AbRounds]:
    def on(board: Board) -> AbRounds:
        monkeypatch.setattr("profagent.ab.rounds.Collecting", board.collecting)
        monkeypatch.setattr("profagent.ab.rounds.temperature_of", board.temperature)
        monkeypatch.setattr(AbRounds, "_read", board.read)
        return AbRounds(WANTED, print, lambda *_: None, board.stop)

    return on


async def test_the_order_of_the_sides_alternates_and_sessions_are_labelled(
    rounds: Callable[[Board], AbRounds],
) -> None:
    board = Board()
    found = await rounds(board).run()
    assert "".join(main for main, _ in board.runs) == "abba" * (ROUNDS // 2)
    assert [labels for _, labels in board.runs[:3]] == [
        {"ab": "night", "side": "a", "round": "1"},
        {"ab": "night", "side": "b", "round": "1"},
        {"ab": "night", "side": "b", "round": "2"},
    ]
    (model,) = found.models
    assert model.inference.percent == pytest.approx(5.0, abs=0.01)
    assert {change.name for change in model.changes.values() if change.is_significant} == {"conv1", "conv2"}
    assert (found.exit_code, found.temperature) == (1, Temperature(40.5, 56.5))
    lines = [*report_lines(found, WANTED)]
    assert lines[0] == "comparable"
    assert lines[1].startswith("A is slower: net latency +5.00 % [")
    assert "temperature 40.5 C → 56.5 C" in lines
    assert checked("ab", ab_document(found, WANTED))["a"]["sessions"] == [1, 4, 5, 8, 9, 12, 13, 16]


@pytest.mark.parametrize(("slower", "verdict"), [(1.0, "no difference"), (0.95, "A is faster")])
async def test_what_is_not_slower_is_told_and_passes(
    rounds: Callable[[Board], AbRounds], slower: float, verdict: str
) -> None:
    found = await rounds(Board(slower)).run()
    assert found.exit_code == 0
    assert next(line for line in report_lines(found, WANTED) if "latency" in line).startswith(verdict)


async def test_programs_that_are_not_comparable_run_once_and_yield_no_difference(
    rounds: Callable[[Board], AbRounds],
) -> None:
    board = Board(frequency_mhz=600)
    found = await rounds(board).run()
    assert (len(board.runs), found.models, found.exit_code) == (2, [], 4)
    assert "%" not in "".join(report_lines(found, WANTED))


def fails(board: Board) -> Collected:
    cause = Cause("main ended with 3", "its own output above says why")
    return Collected(3, (), (cause,), {"session": len(board.runs)})


def is_stopped(board: Board) -> Collected:
    board.stop.set()
    return Collected(143, (Path("JOB"),), (), {"session": len(board.runs)})


def is_away(_: Board) -> Collected:
    raise UnreachableError.at("euler", "no route")


@pytest.mark.parametrize(
    ("fault", "code", "why"),
    [(fails, 4, "A in round 8: main ended with 3"), (is_stopped, 0, "stopped"), (is_away, 3, "cannot reach the board")],
)
async def test_what_ends_the_rounds_early_leaves_those_that_are_complete(
    rounds: Callable[[Board], AbRounds], fault: Callable[[Board], Collected], code: int, why: str
) -> None:
    board = Board(1.0)
    board.faults[16] = lambda: fault(board)
    found = await rounds(board).run()
    assert (len(found.rounds), found.exit_code, found.can_tell) == (ROUNDS - 1, code, True)
    assert any(f"7 rounds of 8 ({why}" in line for line in report_lines(found, WANTED))


@pytest.mark.parametrize("fault", [fails, is_stopped, is_away])
async def test_without_a_complete_round_there_is_no_answer(
    rounds: Callable[[Board], AbRounds], fault: Callable[[Board], Collected]
) -> None:
    board = Board()
    board.faults[2] = lambda: fault(board)
    with pytest.raises(ProfagentError):
        await rounds(board).run()


def test_the_temperature_is_in_the_drivers_file(tmp_path: Path) -> None:
    board = SimulatedBoard(tmp_path)
    assert temperature_in((board.directory / "proc/umap/pm").read_text("utf-8")) == 41.0
    assert temperature_in("") is None

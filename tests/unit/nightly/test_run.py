"""How often a night tries a board."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from profagent.errors import Failure, UnknownHostError, UsageError
from profagent.nightly import run
from profagent.nightly.night import (
    BoardOutcome,
    Night,
    Nightly,
    NightlyBoard,
    NightlyCollect,
    NightlyRecord,
    NightVerdict,
    junit_cases,
)
from profagent.nightly.page import PastBoard, write_beside
from profagent.nightly.run import (
    Ended,
    NightRun,
    Pushing,
    capture_call,
    compared,
    outcome_of,
    run_command,
    session_to_compare,
    trends_of,
)
from profagent.store.workspace import Workspace
from tests.unit.store.database import START_US, DatabaseBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _failure(error: str, code: int = 1) -> Failure:
    return Failure(error, "failed", "mend it", code)


DAY_US = 86_400_000_000
BOARD = NightlyBoard("lab1", record=NightlyRecord(until_finished=True))


def past(*verdicts: str) -> list[PastBoard]:
    """Nights of the board, newest first; the oldest is session 1."""
    return [PastBoard(BOARD.name, verdict, len(verdicts) - at) for at, verdict in enumerate(verdicts)]


@pytest.mark.parametrize(
    ("nights", "expected"),
    [
        ([], None),
        (past("good", "good"), 2),
        (past("slower", "incomplete", "failed", "good"), 1),
        (past("undecided", "slower", "good", "undecided"), 2),
        (past("slower", "undecided", "undecided"), 2),
        (past("exceeded", "slower"), 2),
        ([PastBoard("lab2", "good", 7), PastBoard(BOARD.name, "good", None), *past("good")], 1),
    ],
)
def test_a_night_is_measured_by_the_last_good_one_else_by_an_undecided_one(
    nights: list[PastBoard], expected: int | None
) -> None:
    assert session_to_compare(BOARD.name, nights) == expected


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Sessions of a layer: 6 inferences; 3; 6 that are slower, beside a model that others do not have."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    for name, count, us, models in (("A", 6, 100, ("net",)), ("B", 3, 100, ("net",)), ("C", 6, 110, ("net", "more"))):
        session = builder.session()
        for at, model in enumerate(models):
            number = builder.model(
                builder.job(session, name=f"JOB{name}{at}", frequency_mhz=700), model, layers=("conv",)
            )
            for pic in range(count):
                inference = builder.inference(session, number, pic, start_us=START_US + pic)
                builder.aicore(inference, builder.new_part(session, number, "aicore"), [7 * us])
    builder.close()
    return Workspace(tmp_path)


async def test_a_layer_that_is_slower_is_named(workspace: Workspace) -> None:
    settings = Nightly([BOARD], fail_if=["layer.median>+5%", "layer[conv22].median>+5%"])
    (found,) = await compared(settings, BOARD, workspace, 3, past("undecided"))
    assert (found.session, [each.what for each in found.slower]) == (1, ["layer conv"])
    assert found.undecided == ("layer[conv22].median>+5%: not in both runs: layer conv22",)
    assert "model more is only in NEW" in found.differences


async def test_a_nights_session_is_judged_by_the_objectives(workspace: Workspace) -> None:
    settings = Nightly([BOARD], slo=["layer[conv].max < 105us"], reports=["report"])
    outcome = BoardOutcome(BOARD.name, 3)
    night = NightRun(settings, workspace.root, workspace, "now", past(), lambda _: None)
    (workspace.root / "nightly").mkdir()
    await night._evaluate(BOARD, outcome, asyncio.Event())
    assert outcome.verdict is NightVerdict.EXCEEDED
    said = "layer[conv].max < 105us: conv of net: max is 110.000 us; 6 of 6 inferences (100.00 %) miss it"
    (headline,) = Night("now", [outcome]).headlines()
    assert headline.startswith(f"EXCEEDED: {BOARD.name}: {said}; layer[conv].max < 105us: conv of more: ")
    assert str(dict(junit_cases(Night("now", [outcome])))[BOARD.name]).startswith(f"EXCEEDED {said}")
    assert [each["verdict"] for each in outcome.document()["slo"]] == ["exceeded"]
    # The exit code of the report is that of the objective, not of a failure.
    (page,) = (workspace.root / "nightly").glob("*.html")
    assert outcome.problems == []
    assert "miss it" in page.read_text("utf-8")


async def test_too_few_inferences_tell_nothing(workspace: Workspace) -> None:
    (found,) = await compared(Nightly([BOARD], fail_if=["latency.median>+3%"]), BOARD, workspace, 2, past("undecided"))
    assert (found.session, found.can_tell, found.undecided) == (1, False, ())


async def test_a_baseline_that_is_not_there_is_a_failure(
    workspace: Workspace, answers: list[Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers += [Ended(0, {"session": 1, "records": {"aicore": 6}})]
    asked = night("lab1", [], workspace.root, baseline="v1", reports=[])
    (outcome,) = await asked.boards(asyncio.Event())
    assert outcome.verdict is NightVerdict.FAILED
    (problem,) = outcome.problems
    assert "there is no baseline 'v1'" in problem
    assert junit_cases(Night("now", [outcome])) == [("lab1", problem)]
    assert Night("now", [outcome]).exit_code == 1
    assert [line for line in outcome.lines() if "v1" in line] == [problem]


LIMIT_S = 60.0
SAYS_MUCH = """
import sys
sys.stderr.write("x" * 3_000 + "\\nprofagent: last\\n  its hint")
print('{"session": 1}')
sys.exit(3)
"""
UNTIL_INTERRUPTED = """
import json, os, signal, sys
has_terminal = os.getsid(0) == os.getsid(os.getppid())
signal.signal(signal.SIGINT, lambda *_: sys.exit(print(json.dumps({"has_terminal": has_terminal}))))
print("up", file=sys.stderr, flush=True)
signal.pause()
"""


DRIFTS_FROM = 10
NIGHTS = 24


@pytest.fixture
def drifting(tmp_path: Path) -> Workspace:
    """Nights of a layer of 1000 us with noise, 0.5 % slower in each night of the last two weeks; one other session."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    random = np.random.default_rng(1)
    for night in range(NIGHTS + 1):
        session = builder.session(started_us=START_US + night * DAY_US)
        if night < NIGHTS:
            builder.insert("session_label", session=session, key="nightly", value=f"night {night}")
        model = builder.model(builder.job(session, name=f"JOB{night}"), "net", layers=("conv",))
        us = 1000 * 1.005 ** max(0, night - DRIFTS_FROM) * random.normal(1, 0.002)
        for pic in range(6):
            start_us = START_US + night * DAY_US + pic * 10_000
            inference = builder.inference(session, model, pic, start_us=start_us, end_us=start_us + round(us) + 100)
            part = builder.new_part(session, model, "aicore")
            builder.aicore(inference, part, [round(7 * us)], start_us=start_us)
    builder.close()
    return Workspace(tmp_path)


async def test_a_drift_is_told_which_no_two_nights_show(drifting: Workspace, tmp_path: Path) -> None:
    settings = Nightly([BOARD], fail_if=["latency.median>+3%", "layer.median>+3%", "latency.p95>+3%"])
    (last,) = await compared(settings, BOARD, drifting, NIGHTS, [PastBoard(BOARD.name, "good", NIGHTS - 1)])
    assert not last.slower
    outcome = BoardOutcome(BOARD.name, NIGHTS, compared=[last])
    await NightRun(settings, tmp_path, drifting, "night", [], print).with_history(BOARD, outcome)
    assert outcome.verdict is NightVerdict.SLOWER
    (before,) = outcome.compared[1:]
    assert [slower.condition for slower in before.slower] == ["latency.median>+3%", "layer.median>+3%"]
    since = outcome.trends[0].changes[0].session
    assert since == pytest.approx(DRIFTS_FROM + 5, abs=3)
    assert before.slower[0].what == f"latency net since session {since}"
    assert before.slower[0].percent == pytest.approx(4.5, abs=1.5)
    assert f"latency net since session {since} +" in outcome.headline
    lines = [*outcome.lines()]
    assert any(line.startswith("net: a drift: ") for line in lines)
    assert any(line.startswith(f"latency from records of net from session {since} (") for line in lines)
    assert any(line.startswith("layer conv from session ") for line in lines)
    page = write_beside(tmp_path, Night("night", [outcome]), ["page"])
    assert page is not None
    text = page.read_text("utf-8")
    # The latency, and the layer: each a point a night and a line a level.
    (trend,) = outcome.trends
    assert [series.name for series in trend.series] == ["conv"]
    assert text.count("<circle") == 2 * NIGHTS
    assert text.count("<line") == 2 + len(trend.changes)
    assert "<h4>net, conv: 24 nights, from " in text


async def test_the_history_begins_at_the_baseline(drifting: Workspace) -> None:
    settings = Nightly([BOARD], baseline="release", fail_if=["latency.median>+3%"])
    connection = sqlite3.connect(drifting.database)
    with closing(connection), connection:
        connection.execute("INSERT INTO session_label VALUES (20, 'baseline', 'release')")
    assert await trends_of(settings, BOARD, drifting, NIGHTS) == []
    (trend,) = await trends_of(Nightly([BOARD]), BOARD, drifting, NIGHTS + 1)
    assert [night.session for night in trend.nights] == [*range(1, NIGHTS + 2)]


async def ran(program: str, stop: asyncio.Event, tell: Callable[[str], None], patch: pytest.MonkeyPatch) -> Ended:
    patch.setattr(run, "PROGRAM", (sys.executable, "-c", program))
    return await run_command((), LIMIT_S, stop, tell)


async def test_what_a_command_says_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    ended = await ran(SAYS_MUCH, asyncio.Event(), lines.append, monkeypatch)
    assert ended == Ended(3, {"session": 1})
    assert lines[0] == "x" * 3_000
    assert lines[-2:] == ["profagent: last", "  its hint"]


async def test_a_failure_that_a_command_prints_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = UsageError("there is no session 9", hint="look").failure()
    program = f"import sys; print('{json.dumps(printed._asdict())}'); sys.exit(2)"
    ended = await ran(program, asyncio.Event(), lambda _: None, monkeypatch)
    assert ended == Ended(2, None, printed)
    assert ended.why == "there is no session 9"


async def test_one_that_is_told_to_stop_says_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told once: a terminal's Ctrl-C does not reach it."""
    stop = asyncio.Event()
    ended = await ran(UNTIL_INTERRUPTED, stop, lambda _: stop.set(), monkeypatch)
    assert ended == Ended(0, {"has_terminal": False}, is_stopped=True)


FOLDER, WORKSPACE = Path("/nightly"), Path("/ws")
COMMON = ["--board", "lab1", "--workspace", "/ws", "--json", "--label", "place=lab", "--label", "nightly=now"]


def test_record() -> None:
    board = NightlyBoard(
        "lab1", record=NightlyRecord("10m", until_finished=True, more=["--backlog"]), labels={"place": "lab"}
    )
    ends = ["--for", "10m", "--until-finished", "--backlog"]
    assert capture_call(board, FOLDER, WORKSPACE, "now") == ["record", "--new", *COMMON, *ends]
    named = ["--counter-map", "/nightly/maps/b2.toml"]
    assert capture_call(board, FOLDER, WORKSPACE, "now", "maps/b2.toml") == ["record", "--new", *COMMON, *named, *ends]


def test_collect() -> None:
    program = NightlyCollect("out/main", "project", "src/acl.json", 1, ["a b", "-x"], ["--all"])
    board = NightlyBoard("lab1", collect=program, labels={"place": "lab"})
    assert capture_call(board, FOLDER, WORKSPACE, "now") == [
        *["collect", "-m", "out/main", *COMMON, "--output", "/ws/nightly/jobs", "--project", "/nightly/project"],
        *["--acl-json", "src/acl.json", "--interval", "1", "--all", "--", "a b", "-x"],
    ]


def test_what_came_of_it() -> None:
    assert outcome_of("lab1", Ended(0, {"session": 3, "records": {"aicore": 1, "aicpu": 0}})) == BoardOutcome("lab1", 3)
    nothing = outcome_of("lab1", Ended(0, {"session": 3, "records": {"aicore": 0, "aicpu": 0}}))
    assert (nothing.verdict, "no record" in nothing.problems[0]) == (NightVerdict.INCOMPLETE, True)
    cut = {"session": 3, "incomplete": ["not covered at the end"], "coverage": {"covered_us": 5, "total_us": 9}}
    assert outcome_of("lab1", Ended(4, cut)) == BoardOutcome(
        "lab1",
        3,
        problems=["not covered at the end"],
        is_incomplete=True,
        coverage=cut["coverage"],  # type: ignore[arg-type]
    )
    assert outcome_of("lab1", Ended(3, None, _failure("cannot reach it", 3))) == BoardOutcome(
        "lab1", None, problems=["cannot reach it"], is_away=True
    )
    assert outcome_of("lab1", Ended(4, {"session": 3})) == BoardOutcome(
        "lab1", 3, problems=["data is missing"], is_incomplete=True
    )
    assert outcome_of("lab1", Ended(1, None, _failure("the disk is full"))) == BoardOutcome(
        "lab1", None, problems=["the capture ended without a session: the disk is full"]
    )
    assert outcome_of("lab1", Ended(1, None)) == BoardOutcome(
        "lab1", None, problems=["the capture ended without a session: exit code 1"]
    )


def test_a_name_without_an_address_is_a_fault_and_not_a_board_that_is_away() -> None:
    assert not outcome_of("lab1", Ended(3, None, UnknownHostError("lab1:4710").failure())).is_away


def test_what_came_of_a_program() -> None:
    assert outcome_of(
        "lab1", Ended(0, {"session": {"session": 3, "records": {"aicore": 1}}, "causes": []})
    ) == BoardOutcome("lab1", 3)
    crashed = {"session": {"session": 3}, "causes": [{"text": "it was ended by SIGSEGV"}, {"text": "its tail is lost"}]}
    assert outcome_of("lab1", Ended(139, crashed)) == BoardOutcome(
        "lab1", 3, problems=["it was ended by SIGSEGV; its tail is lost"]
    )
    assert outcome_of("lab1", Ended(7, {"session": {"session": 3}, "causes": []})) == BoardOutcome(
        "lab1", 3, problems=["the program ended with exit code 7"]
    )
    assert outcome_of("lab1", Ended(1, {"session": None, "causes": []})) == BoardOutcome(
        "lab1", None, problems=["the capture ended without a session: exit code 1"]
    )
    own = {"session": {"session": 3}, "causes": [], "status": 4}
    assert outcome_of("lab1", Ended(4, own)) == BoardOutcome("lab1", 3, problems=["the program ended with exit code 4"])
    assert not outcome_of("lab1", Ended(3, {"session": None, "causes": [], "status": 3})).is_away
    restarted = {"session": {"session": 3}, "causes": [{"text": "nobody knows"}], "status": None}
    assert outcome_of("lab1", Ended(1, restarted)) == BoardOutcome("lab1", 3, problems=["nobody knows"], is_lost=True)
    lost = {"session": {"session": 3}, "causes": [], "status": 0}
    assert outcome_of("lab1", Ended(4, lost)) == BoardOutcome(
        "lab1", 3, problems=["data is missing"], is_incomplete=True
    )


AWAY = Ended(3, None, _failure("cannot reach it", 3))
FAILED = Ended(1, None, _failure("it crashed"))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Ended]:
    """What the commands of a night come to, one after the other."""
    found: list[Ended] = []

    async def played(
        _call: Sequence[str], _limit_s: float, _stop: asyncio.Event, _tell: Callable[[str], None]
    ) -> Ended:
        return found.pop(0)

    monkeypatch.setattr(run, "run_command", played)
    return found


def night(name: str, told: list[str], tmp_path: Path, **more: object) -> NightRun:
    settings = Nightly([NightlyBoard(name, record=NightlyRecord("1s"))], wait="0.01s", **more)  # type: ignore[arg-type]
    return NightRun(settings, tmp_path, Workspace(tmp_path), "now", [], told.append)


async def test_no_board_waits_for_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    both = asyncio.Barrier(2)

    async def played(*_: object) -> Ended:
        await both.wait()  # for ever, if one came after the other
        return FAILED

    monkeypatch.setattr(run, "run_command", played)
    settings = Nightly([NightlyBoard(name, record=NightlyRecord("1s")) for name in ("lab1", "lab2")])
    asked = NightRun(settings, tmp_path, Workspace(tmp_path), "now", [], lambda _: None)
    outcomes = await asyncio.wait_for(asked.boards(asyncio.Event()), 60)
    assert [outcome.board for outcome in outcomes] == ["lab1", "lab2"]


async def test_what_goes_wrong_behind_a_capture_is_its_boards_alone(workspace: Workspace, answers: list[Ended]) -> None:
    answers += [Ended(0, {"session": number, "records": {"aicore": 6}}) for number in (99, 1)]
    settings = Nightly([NightlyBoard(name, record=NightlyRecord("1s")) for name in ("lab1", "lab2")], reports=[])
    asked = NightRun(settings, workspace.root, workspace, "now", [], lambda _: None)
    lost, good = await asked.boards(asyncio.Event())
    assert (lost.verdict, lost.problems) == (NightVerdict.FAILED, ["the database has no session 99"])
    assert (good.session, good.problems) == (1, [])


async def test_what_comes_of_pushing_is_a_remark(answers: list[Ended], tmp_path: Path) -> None:
    asked, stop = night("lab1", [], tmp_path), asyncio.Event()
    answers += [Ended(0, [{"was_there": False}]), Ended(1, None, _failure("the lake cannot be used"))]
    assert await asked.pushed("/lake", stop) == Pushing(
        "push: 1 of 1 session came into /lake, the others were there", is_done=True
    )
    remark, is_done = await asked.pushed("/lake", stop)
    assert remark.startswith("push failed: the lake cannot be used; the next night goes on with it")
    assert not is_done
    stop.set()
    assert not (await asked.pushed("/lake", stop)).is_done


async def test_a_board_that_is_away_is_tried_again(answers: list[Ended], tmp_path: Path) -> None:
    answers += [AWAY, AWAY, FAILED]
    told: list[str] = []
    (outcome,) = await night("127.0.0.1:1", told, tmp_path).boards(asyncio.Event())
    assert (outcome.attempts, outcome.problems, outcome.is_away) == (
        3,
        ["the capture ended without a session: it crashed"],
        False,
    )
    assert told[1] == "127.0.0.1:1: cannot reach it; the next attempt is in 0 s"


async def test_it_is_tried_no_more_often_than_is_said(answers: list[Ended], tmp_path: Path) -> None:
    answers += [AWAY, AWAY]
    (outcome,) = await night("127.0.0.1:1", [], tmp_path, attempts=2).boards(asyncio.Event())
    assert (outcome.attempts, outcome.is_away) == (2, True)


async def test_a_night_that_was_stopped_begins_no_board(answers: list[Ended], tmp_path: Path) -> None:
    stop = asyncio.Event()
    stop.set()
    (outcome,) = await night("127.0.0.1:1", [], tmp_path).boards(stop)
    assert outcome.problems == ["the night was stopped before this board was reached"]

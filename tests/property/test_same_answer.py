"""A random question about a session has one answer, whoever is asked: the Python API, the command, SQL or MCP.

A further asker is a line of ASKERS: it gets a question, and gives its figure, or NOT_TOLD where it has none such.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client

import profagent
from profagent.cli.main import group
from profagent.importing.importing import import_into
from profagent.limits import MOST_ANSWER_ROWS
from profagent.link.credentials import Access
from profagent.mcp.server import Tools, make_server
from profagent.stats.session_figures import KEYS
from profagent.stats.stats import BYS, NOT_OF_INFERENCES
from profagent.store.workspace import Workspace
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job
from tests.fakes.dumps import write_files
from tests.fakes.small_job import SMALL_JOB
from tests.unit.api.lab import job_files

QUESTIONS = 200
# An asker has no such figure.
NOT_TOLD = object()
# The rows of a view that a row of `stats` is of, and the column of each part of its key.
_OF_RECORDS = {"model": "model", "layer": "layer_name", "type": "layer_type"}
_VIEWS = {"AA_CORE": "op_records", "AA_CPU": "aicpu_records"}
_FIGURES = {"count": "count(*)", "mean": "avg(duration_us)", "max": "max(duration_us)", "total": "sum(duration_us)"}


class Question(NamedTuple):
    """A figure of a row of `stats` about a session of a workspace; `skip` is that of `stats`."""

    workspace: Path
    session: int
    by: Any
    skip: int | None
    key: tuple[str, ...]
    figure: str


@functools.cache
def session_of(workspace: Path, session: int) -> profagent.Session:
    return profagent.open(workspace).session(session)


@functools.cache
def numbers_of(workspace: Path) -> list[int]:
    return profagent.open(workspace).sessions()["session"]


@functools.cache
def answer_of(workspace: Path, session: int, by: Any, skip: int | None) -> profagent.Answer:
    return session_of(workspace, session).stats(by, skip=skip)


@functools.cache
def printed(workspace: Path, session: int, by: str, skip: int | None) -> dict[str, Any]:
    words = ["stats", str(session), "--workspace", str(workspace), "--by", by, "--json"]
    words += [] if skip is None else ["--skip", str(skip)]
    found: dict[str, Any] = json.loads(CliRunner().invoke(group, words, catch_exceptions=False).stdout)
    return found


def row_of(rows: list[dict[str, Any]], question: Question) -> dict[str, Any]:
    (found,) = [row for row in rows if tuple(row[name] for name in KEYS[question.by]) == question.key]
    return found


def by_api(question: Question) -> Any:
    return row_of(answer_of(*question[:4]).table.to_dicts(), question)[question.figure]


def by_command(question: Question) -> Any:
    return row_of(printed(*question[:4])["rows"], question)[question.figure]


def by_sql(question: Question) -> Any:
    """The views have records, and no latency, warm-up or time of the calls inside of calls."""
    key = dict(zip(KEYS[question.by], question.key, strict=True))
    if question.figure not in _FIGURES or not (question.skip == 0 or question.by == "api"):
        return NOT_TOLD
    if question.by == "api":
        view, names = "api_records", {"function": "name", "type": "type"}
    elif question.by in ("layer", "type") and key["unit"] in _VIEWS:
        view, names = _VIEWS[key["unit"]], {name: _OF_RECORDS[name] for name in KEYS[question.by] if name != "unit"}
    else:
        return NOT_TOLD
    if answer_of(*question[:4]).document["unit"] != "us":
        return NOT_TOLD
    holds = [f"ifnull({column}, 'N/A') = :{name}" for name, column in names.items()]
    query = f"SELECT {_FIGURES[question.figure]} AS figure FROM {view} WHERE session = :session"
    query += " AND figures = 'final'" if view != "api_records" else ""
    session = session_of(question.workspace, question.session)
    table = session.sql(" AND ".join([query, *holds]), **{name: key[name] for name in names})
    return table["figure"][0]


async def called(workspace: Path, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result of a tool."""
    async with Client(make_server(Tools(workspace, Access()))) as client:
        return (await client.call_tool(tool, arguments)).structured_content or {}


@functools.cache
def answered(workspace: Path, session: int, by: Any, skip: int | None) -> dict[str, Any]:
    return asyncio.run(called(workspace, "stats", session=str(session), by=by, skip=skip, top=MOST_ANSWER_ROWS))


def by_mcp(question: Question) -> Any:
    return row_of(answered(*question[:4])["answer"]["rows"], question)[question.figure]


def is_same(figure: Any, expected: Any) -> bool:
    """True if two answers are one figure: SQLite sums in another order."""
    if isinstance(expected, float) and isinstance(figure, float):
        return math.isclose(figure, expected, rel_tol=1e-9)
    return bool(figure == expected)


ASKERS: dict[str, Callable[[Question], Any]] = {"api": by_api, "command": by_command, "sql": by_sql, "mcp": by_mcp}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions of small JOBs: a plain one, an odd one, one with counters and warm-up."""
    folder = tmp_path_factory.mktemp("same")
    jobs = {folder / f"JOB{'A' * 29}": job_files((1_400, 4_200, 2_100)), folder / f"JOB{'C' * 29}": SMALL_JOB}
    for job, files in jobs.items():
        write_files(job, files)
    simulated = write_job(folder, SimulationOptions(layers=6, rate=100.0), 30)
    into = Workspace(folder / "workspace")
    for job in (*jobs, simulated):
        asyncio.run(import_into(job, into, asyncio.Event()))
    return into.root


@st.composite
def questions(draw: st.DrawFn, workspace: Path) -> Question:
    session = draw(st.sampled_from(numbers_of(workspace)))
    by = draw(st.sampled_from(BYS))
    skip = None if by in NOT_OF_INFERENCES else draw(st.sampled_from([None, 0]))
    rows = answer_of(workspace, session, by, skip).table.to_dicts() or [dict.fromkeys(KEYS[by])]
    row = draw(st.sampled_from(rows))
    figure = draw(st.sampled_from([name for name in row if name not in KEYS[by]] or [KEYS[by][0]]))
    return Question(workspace, session, by, skip, tuple(row[name] for name in KEYS[by]), figure)


def test_every_asker_is_told_the_same(workspace: Path) -> None:
    told: Counter[str] = Counter()

    @settings(max_examples=QUESTIONS)
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        question = data.draw(questions(workspace))
        if question.key[0] is None:
            assert printed(*question[:4])["rows"] == []
            return
        expected = by_api(question)
        for name, asker in ASKERS.items():
            figure = asker(question)
            if figure is not NOT_TOLD:
                told[name] += 1
                assert is_same(figure, expected), (name, question, figure, expected)

    ask()
    assert told["command"] == told["mcp"] == told["api"] > QUESTIONS / 2
    assert told["sql"] >= 10


def test_the_whole_answer_is_what_the_command_prints(workspace: Path) -> None:
    """With its caveats: of each way to ask, and of a comparison and of advice as well."""
    for session in numbers_of(workspace):
        for by in BYS:
            answer = answer_of(workspace, session, by, None)
            assert answer.document == printed(workspace, session, by, None)
            over_mcp = answered(workspace, session, by, None)
            assert over_mcp["answer"] == {key: value for key, value in answer.document.items() if key != "jobs"}
            assert sorted(over_mcp["caveats"]) == sorted(answer.provenance.caveats)
    api = profagent.open(workspace)
    first, second = api.session(1), api.session("last")
    words = [["advise", "1", "--lang", "en"], ["diff", "1", "1"], ["advise", "last", "--lang", "en"]]
    answers = [first.advise(), profagent.diff(first, first), second.advise()]
    for arguments, answer in zip(words, answers, strict=True):
        result = CliRunner().invoke(group, [*arguments, "--workspace", str(workspace), "--json"])
        assert answer.document == json.loads(result.stdout), arguments


@pytest.mark.parametrize("by", ["layer", "api", "frame"])
def test_an_objective_has_one_verdict_whoever_asks(by: Any, workspace: Path, tmp_path: Path) -> None:
    objectives = ["latency.p50 < 1us", "layer.max < 1s", "frame.mean < 1us", "stage.p50 < 1us", "latency.rate > 1fps"]
    named = [word for text in objectives for word in ("--slo", text)]
    for number in numbers_of(workspace):
        session = session_of(workspace, number)
        judged = session.stats(by, slo=objectives).document
        where = [str(number), "--workspace", str(workspace), "--json", *named]
        shown = CliRunner().invoke(group, ["stats", *where, "--by", by])
        assert json.loads(shown.stdout) == judged
        assert [each["objective"] for each in judged["slo"]] == objectives
        over_mcp = asyncio.run(called(workspace, "stats", session=str(number), by=by, slo=objectives))
        assert over_mcp["answer"]["slo"] == judged["slo"]
        reported = CliRunner().invoke(group, ["report", *where, "-o", str(tmp_path / "report.html")])
        assert json.loads(reported.stdout)["slo"] == judged["slo"]
        assert session.report(tmp_path / "api.html", slo=objectives).document["slo"] == judged["slo"]

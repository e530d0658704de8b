"""The MCP server, asked by the package's own client: answers begin with their caveats, failures have code and hint."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client

import profagent
from profagent import limits
from profagent.importing.importing import import_into
from profagent.link.credentials import Access
from profagent.mcp import answers
from profagent.mcp.server import READING, Tools, make_server
from profagent.store.workspace import Workspace
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job
from tests.integration import host
from tests.unit.api.lab import copy_of, make_lab

if TYPE_CHECKING:
    from pathlib import Path

ENDLESS = "WITH RECURSIVE a(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM a) SELECT x FROM a"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace of two complete sessions, and a third, simulated one of which the last record is cut."""
    folder = tmp_path_factory.mktemp("mcp")
    root = make_lab(folder)
    job = write_job(folder, SimulationOptions(layers=6), 3, gaps=False)
    (log,) = (job / "data").glob("aicore.*.1")
    log.write_bytes(log.read_bytes()[:-100])
    asyncio.run(import_into(job, Workspace(root), asyncio.Event()))
    return root


async def asked(workspace: Path, tool: str, *, reports: Path | None = None, **arguments: Any) -> dict[str, Any]:
    """The answer of a tool, after both of its forms were compared."""
    async with Client(make_server(Tools(workspace, Access(), reports))) as client:
        result = await client.call_tool(tool, arguments)
    found: dict[str, Any] = result.structured_content or {}
    assert json.loads(result.content[0].text) == found  # type: ignore[union-attr]
    assert result.is_error == ("error" in found)
    if not result.is_error:
        assert list(found) == ["caveats", "provenance", "answer"]
    return found


async def test_only_reading_is_offered_unless_captures_are_allowed(lab: Path) -> None:
    for allow_record in (False, True):
        async with Client(make_server(Tools(lab, Access()), allow_record=allow_record)) as client:
            tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == [*READING, *(["record"] if allow_record else [])]
        assert all(tool.annotations and tool.annotations.read_only_hint == (tool.name != "record") for tool in tools)
        assert all(tool.description for tool in tools)
        assert all(tool.input_schema["additionalProperties"] is False for tool in tools)
    assert (await asked(lab, "record", board="euler"))["code"] == "usage"


def test_the_command_says_which_package_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    ended = host.profagent("mcp")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("profagent: this command needs mcp, which is not installed")
    assert "pip install mcp" in ended.err


@pytest.mark.parametrize("tool", ["stats", "layers", "advise", "ledger", "sql", "report", "sessions", "diff"])
async def test_an_incomplete_capture_is_never_told_as_a_fact(tool: str, lab: Path, tmp_path: Path) -> None:
    words: dict[str, dict[str, Any]] = {
        "sql": {"query": "SELECT 1"},
        "diff": {"base": "3", "new": "3"},
        "report": {"reports": tmp_path},
    }
    more = words.get(tool, {})
    found = await asked(lab, tool, **more)
    assert "INCOMPLETE" in found["caveats"][0]
    assert "simulated" in "".join(found["caveats"][:3])
    assert not found["provenance"]["complete"]
    assert found["provenance"]["simulated"]
    if tool not in ("sessions", "sql"):
        complete: dict[str, Any] = {"base": "1", "new": "1"} if tool == "diff" else {**more, "session": "1"}
        lines = (await asked(lab, tool, **complete))["caveats"]
        assert not [line for line in lines if "INCOMPLETE" in line or "simulated" in line]


async def test_the_figures_are_those_of_the_python_api(lab: Path) -> None:
    session = profagent.open(lab).session(2)
    expected = session.stats("model").document
    expected.pop("jobs")
    assert (await asked(lab, "stats", session="2", by="model"))["answer"] == expected
    layers = await asked(lab, "layers", session="2", top=1)
    assert layers["answer"]["rows"] == session.layers().to_dicts()[:1]
    assert "only the first 1 rows" in layers["caveats"][0]
    assert layers["caveats"][1:] == list(session.provenance.caveats)
    sql = await asked(
        lab, "sql", session="2", query="SELECT max(duration_us) AS most_us FROM op_records WHERE session = :session"
    )
    assert sql["answer"] == {"units": {"most_us": "us"}, "rows": [{"most_us": layers["answer"]["rows"][0]["max"]}]}


async def test_a_comparison_begins_with_what_may_not_be_compared(lab: Path, tmp_path: Path) -> None:
    slower = (await asked(lab, "diff", base="1", new="2", top=1))["answer"]
    assert slower["verdict"] == "layers: 1 slower"
    assert [layer["change"]["name"] for layer in slower["models"][0]["layers"]] == ["conv2"]
    # Measured against invented figures: there is no difference.
    copy_of(lab, tmp_path, "UPDATE session SET simulated = 1 WHERE session = 2")
    blocked = await asked(tmp_path, "diff", base="1", new="2")
    assert blocked["caveats"][0].startswith("COMPARABILITY: not comparable: simulated: ")
    assert blocked["caveats"][1].startswith("session 2: simulated: ")
    assert blocked["answer"]["models"] == []
    allowed = await asked(tmp_path, "diff", base="1", new="2", allow=["simulated"])
    assert any("as `allow` demands" in line for line in allowed["caveats"])
    assert not any("COMPARABILITY" in line for line in allowed["caveats"])
    assert allowed["answer"]["models"] != []


async def test_losses_have_their_meaning_and_remedy(lab: Path) -> None:
    found = (await asked(lab, "ledger"))["answer"]
    (torn,) = [each for each in found["sums"] if each["reason"] == "torn-record"]
    assert torn["grade"] == "loss"
    assert torn["text"]
    assert torn["remedy"]
    assert "torn-record" in [row["reason"] for row in found["rows"]]


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("stats", {"session": "9"}, "no session 9"),
        ("stats", {"session": "/tmp"}, "names no session"),
        ("stats", {"by": "colour"}, "by"),
        ("layers", {"top": limits.MOST_ANSWER_ROWS + 1}, "top"),
        ("colours", {}, "colours"),
        ("doctor", {"board": "127.0.0.1:1"}, "not the name of a board"),
        ("sql", {"query": "DELETE FROM session"}, "not authorized"),
        ("sql", {"query": "SELECT 1; SELECT 2"}, "one statement"),
        ("sql", {"query": "PRAGMA query_only = 0"}, "not authorized"),
        ("sql", {"query": "SELECT zeroblob(100000)"}, "too big"),
        ("sql", {"query": "SELECT printf('%.*c', 900000000, 'x')"}, "printf"),
        ("sql", {"query": "-- nothing"}, "empty"),
        ("layers", {"colour": "red"}, "colour"),
        (
            "sql",
            {"query": "WITH RECURSIVE a(x) AS (SELECT 1 UNION ALL SELECT x FROM a) SELECT count(*) FROM a"},
            "0.1 s",
        ),
    ],
)
async def test_a_failing_call_answers_with_code_and_hint(
    tool: str, arguments: dict[str, Any], said: str, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LONGEST_ANSWER_QUERY_S", 0.1)
    found = await asked(lab, tool, **arguments)
    assert found["code"] == "usage"
    assert found["exit_code"] == 2
    assert said in found["error"]
    assert found["hint"]


async def test_a_fault_is_told_as_one(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profagent.mcp.server.compare", lambda *_, **__: 1 / 0)
    found = await asked(lab, "diff", base="1", new="2")
    assert (found["code"], found["exit_code"]) == ("fault", 1)
    assert "ZeroDivisionError" in found["error"]


async def test_rows_and_bytes_of_a_query_are_bounded(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await asked(lab, "sql", query=ENDLESS, top=3)
    assert [row["x"] for row in found["answer"]["rows"]] == [1, 2, 3]
    assert any("only the first 3 rows" in line for line in found["caveats"])
    monkeypatch.setattr(answers, "LARGEST_ANSWER_BYTES", 2000)
    assert "fewer rows" in (await asked(lab, "sql", query=ENDLESS, top=1000))["hint"]


async def test_a_report_is_a_new_file_for_people(lab: Path, tmp_path: Path) -> None:
    found = await asked(lab, "report", session="2", against="1", reports=tmp_path)
    assert found["answer"]["file"] == str(tmp_path / "session-2-against-1.html")
    assert found["answer"]["verdict"] in (tmp_path / "session-2-against-1.html").read_text("utf-8")


async def test_doctor_looks_at_the_host_and_a_job(lab: Path) -> None:
    job = lab.parent / f"JOB{'A' * 29}"
    found = await asked(lab, "doctor", job=str(job))
    assert found["answer"]["sections"][0]["about"] == "this host"
    assert str(job) in found["answer"]["sections"][1]["about"]

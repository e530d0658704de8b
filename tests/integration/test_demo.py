"""`profagent demo`: the whole way in a few seconds, on any machine."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from profagent.demo.cli import DemoOptions
from profagent.demo.cli import demo as run_demo
from profagent.errors import ProfagentError
from profagent.store.workspace import Workspace
from tests.integration.board import eventually
from tests.integration.host import profagent, started
from tests.integration.rows import query, so_far

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.store.events import Event
    from tests.integration.conftest import Demo

# Whether the recording has all that its board has left.
UP_TO_DATE = "SELECT min(caught_up) FROM job HAVING max(name LIKE 'JOB%')"


def test_a_demo_shows_records_and_exports(demo: Demo) -> None:
    ended, workspace = demo.ended, demo.workspace
    lines = ended.out.splitlines()
    assert sum("resnet50.0 inference " in line and line.endswith("[simulated]") for line in lines) >= 10
    assert "[simulated]: complete" in ended.out
    exports = workspace / "exports" / "session-1"
    assert str(exports) in ended.out
    assert {folder.name for folder in exports.iterdir()} == {"timeline", "summary", "aggregate", "trace", "report.html"}
    (line, *_) = (line for line in lines if "  board  " in line and "ops/s" in line)
    assert re.search(r"NPU [\d.]+%  [\d.]+ C  profagentd .*  program [\d,]+ ops/s  ", line)
    assert {"preprocess", "infer", "postprocess"} <= set(line.split())
    named = {event["name"] for event in json.loads((exports / "trace" / "trace.json").read_text())["traceEvents"]}
    assert {"preprocess", "infer", "postprocess", "npu.hw_utilization (%)", "svp_acl_mdl_execute"} <= named
    assert any(exports.glob("timeline/JOB*/task_time_*.json"))
    assert any(exports.glob("summary/JOB*/op_summary_*.csv"))
    assert query(workspace / "profagent.db", "SELECT count(*) > 500 FROM op_records WHERE mac_busy > 0") == [(1,)]
    assert not list(demo.folder.glob("profagentd-*"))  # the board took its own directory away


def test_what_a_demo_says_to_look_at_works(demo: Demo) -> None:
    (line,) = (line.strip() for line in demo.ended.out.splitlines() if line.strip().startswith("profagent show"))
    assert "AA core metric" in profagent(*line.split()[1:]).out


def test_a_demo_that_is_interrupted_still_exports(tmp_path: Path) -> None:
    with started("demo", "--for", "60s", "--rate", "20", TMPDIR=str(tmp_path)) as host:
        host.out.until(" inference ", 10)
        (workspace,) = tmp_path.glob("profagent-demo-*")
        assert eventually(lambda: so_far(workspace / "profagent.db", UP_TO_DATE) == [(1,)])
        ended = host.interrupt()
    assert ended.code == 4, ended.err
    assert "stopped early" in ended.err
    assert any(tmp_path.glob("profagent-demo-*/exports/session-1/summary/JOB*/op_summary_*.csv"))
    assert not list(tmp_path.glob("profagentd-*"))


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[asyncio.subprocess.Process]:
    """The process of the simulated board, once it runs."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    boards, run = [], asyncio.create_subprocess_exec

    async def started_board(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        boards.append(await run(*arguments, **options))
        return boards[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started_board)
    return boards


async def test_a_board_that_ends_while_it_is_shown_ends_the_demo(
    tmp_path: Path, board: list[asyncio.subprocess.Process]
) -> None:
    shown: list[Event] = []

    def show(event: Event) -> None:
        if not shown:
            board[0].kill()
        shown.append(event)

    options = DemoOptions(Workspace.at(tmp_path / "workspace"), for_s=3600)
    with pytest.raises(ProfagentError, match=r"the simulated board ended by itself \(exit code -9\)"):
        await asyncio.wait_for(run_demo(options, show, lambda _: None, asyncio.Event()), 60)
    assert shown

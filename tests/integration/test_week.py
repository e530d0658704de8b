"""A small week: nights of two boards that a flight recorder thinned, and what the report of the last one says."""

from __future__ import annotations

import asyncio
import re
from itertools import count
from pathlib import Path

import msgspec
import pytest

from profagent.diff.diff import Operand
from profagent.formats.incident_rules import IncidentRule, KeepWhen
from profagent.importing.importing import Import, Origin
from profagent.ingest.local import list_collection
from profagent.record.options import RecordingOptions
from profagent.record.recording import Recording
from profagent.report.report import gather
from profagent.store.store import Store
from profagent.store.workspace import NothingToSync, Workspace
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job
from tests.soak.week import NECK_US, NETWORK, SLOWER_BY, SLOWER_FROM

NIGHTS = 7
INFERENCES = 40
NIGHT_US, SECOND_US = 86_400_000_000, 1_000_000
FIRST_US = 1_794_967_200_000_000  # 2026-11-18 02:00 UTC
DRIFTING = "lab2"
# Nothing is so slow: figures are all that is left of most inferences.
KEEP_WHEN = KeepWhen((IncidentRule.parse("latency > 50ms"),), 1_000, None, 0)


async def record_night(folder: Path, workspace: Workspace, store: Store, board: str, night: int) -> None:
    """Record a night of a board, whose network is slower from a night on, together with another SDK."""
    drifts = board == DRIFTING and night >= SLOWER_FROM
    network, root = folder / "detector.toml", folder / board / str(night)
    root.mkdir(parents=True)
    network.write_text(NETWORK.format(neck=NECK_US + 4900.0 * (SLOWER_BY - 1) * drifts), "utf-8")
    job = write_job(root, SimulationOptions(str(network), seed=500 + 100 * night + len(board)), INFERENCES)
    clock = count(FIRST_US + night * NIGHT_US, SECOND_US)
    # The operator of all boards changes in a night in which nothing became slower.
    labels = {"sdk": "5.2" if drifts else "5.1", "operator": "a" if night < NIGHTS - 1 else "b"}
    options = RecordingOptions(
        lambda: next(clock), source="import", labels=labels, job=job.name, reads=True, keep_when=KEEP_WHEN
    )
    importing = Import(job, list_collection(job), Recording(workspace, store, options), is_shared=True)
    await importing.begin(Origin(board), job.name)
    await importing.run(asyncio.Event())


async def history_of(workspace: Workspace, session: int) -> list[str]:
    """The lines of a session's report about its board's nights up to it."""
    shown = await gather(Operand("it", workspace.database, session), (), "en")
    written = msgspec.json.decode(msgspec.json.encode(shown))
    return [line for model in written["history"] for line in model["lines"]]


async def test_the_report_of_the_last_night_names_the_night_the_size_and_the_cause_of_a_drift(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "ws")
    workspace.root.mkdir()
    workspace.synced = NothingToSync()
    for night in range(NIGHTS):
        async with Store(workspace.database, durable=False) as store:
            for board in ("lab1", DRIFTING):
                await record_night(tmp_path, workspace, store, board, night)
    steady, drifting = [await history_of(workspace, 2 * NIGHTS - 1), await history_of(workspace, 2 * NIGHTS)]
    assert steady == [f"the level did not change in {NIGHTS} sessions"]
    assert len(drifting) == 2
    since = f"from session {2 * SLOWER_FROM + 2} (2026-11-21 02:00) on"
    for line, what in zip(drifting, ("latency from call of detector", "layer neck"), strict=True):
        assert line.startswith(f"{what} {since}: "), line
        assert line.endswith("; changed with it: label sdk: 5.1 -> 5.2"), line
    size = re.search(r"([+]\d\.\d) ± \d\.\d %", drifting[0])
    assert size is not None
    assert float(size[1]) == pytest.approx(100 * (SLOWER_BY - 1), abs=0.5)

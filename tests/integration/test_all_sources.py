"""All four sources of a board at once, for a host that knows nothing of three of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.ingest.decoder import DECODERS
from profagent.record.record import RecordOptions, record
from profagent.store.workspace import Workspace
from tests.daemon.daemon_process import content, running
from tests.integration.board import eventually

if TYPE_CHECKING:
    import pytest

EVERYTHING = "ops,marks,metrics"


async def test_an_older_host_mirrors_counts_and_notes_what_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in EVERYTHING.split(","):
        monkeypatch.delitem(DECODERS, source, raising=False)
    (tmp_path / "board").mkdir()
    simulated = ("--simulate", "--for", "2", "--rate", "20", "--metrics-hz", "10", "--root", tmp_path / "board")
    workspace = Workspace(tmp_path / "workspace")
    with running(*simulated, "--spools", EVERYTHING, "--spool-dir", tmp_path / "spools") as daemon:
        options = RecordOptions((daemon.address,), workspace, backlog=True)
        stop = asyncio.Event()
        recording = asyncio.create_task(record(options, lambda _: None, stop))
        assert await asyncio.to_thread(eventually, lambda: _have_come(tmp_path, workspace))
        stop.set()
        summary = await recording
        spools = {each.name: content(each) for each in (tmp_path / "spools").iterdir() if each.is_dir()}
    assert summary["complete"], summary["ledger"]
    assert summary["ledger"]["note"]["no-decoder"] == len(spools) == 3
    mirrors = {each.name: content(each) for each in workspace.root.glob("mirror/*/*") if each.name in spools}
    assert {name: _segments(each) for name, each in mirrors.items()} == {
        name: _segments(each) for name, each in spools.items()
    }


def _have_come(folder: Path, workspace: Workspace) -> bool:
    """Whether the JOB is here, and every segment of the three spools with its end."""
    here = {each.name: content(each) for each in workspace.root.glob("mirror/*/*")}
    jobs = {each.name: content(each) for each in (folder / "board").glob("JOB*")}
    spools = {each.name: content(each) for each in (folder / "spools").glob("*") if each.is_dir()}
    ends = [(name, path + b".done") for name, files in spools.items() for path in files if path.isdigit()]
    is_whole = all(here.get(name) == files for name, files in jobs.items())
    has_ends = all(end in spools[name] and end in here.get(name, {}) for name, end in ends)
    return len(jobs) == 1 and len(spools) == 3 and all(spools.values()) and is_whole and has_ends


def _segments(files: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {path: data for path, data in files.items() if path.isdigit()}

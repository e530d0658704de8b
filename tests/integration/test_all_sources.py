"""All four sources of a board: for a host that knows nothing of three, and of a daemon that has none of these."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profagent.ingest.decoder import DECODERS
from profagent.ingest.marks import decode
from profagent.record.options import RecordOptions
from profagent.record.record import record
from profagent.store import database
from profagent.store.workspace import Workspace
from profagentd.simulate.board import PID
from tests.daemon.daemon_process import content, running
from tests.integration.board import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

EVERYTHING = "ops,marks,metrics"
API = struct.Struct("<IIQQII")  # a call: its process and thread stand last


async def test_an_older_host_mirrors_counts_and_notes_what_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in EVERYTHING.split(","):
        monkeypatch.delitem(DECODERS, source, raising=False)
    monkeypatch.setattr(database, "VIEWS", {})
    workspace = Workspace(tmp_path / "workspace")
    summary, spools = await _recorded(tmp_path, workspace, EVERYTHING, lambda: _have_come(tmp_path, workspace))
    assert summary["complete"], summary["ledger"]
    assert summary["ledger"]["note"]["no-decoder"] == len(spools) == 3
    mirrors = {each.name: content(each) for each in workspace.root.glob("mirror/*/*") if each.name in spools}
    (marks,) = (data for name, each in spools.items() if name.startswith("MARKS") for data in _segments(each).values())
    calls = b"".join(each.read_bytes() for each in (tmp_path / "board").glob("JOB*/data/acl_api.*0"))
    assert {each.pid for each in decode(marks)[0]} == {pid for *_, pid, _ in API.iter_unpack(calls)} == {PID}
    assert {name: _segments(each) for name, each in mirrors.items()} == {
        name: _segments(each) for name, each in spools.items()
    }


async def test_a_host_that_knows_all_of_them_records_a_daemon_that_has_jobs_alone(tmp_path: Path) -> None:
    assert set(EVERYTHING.split(",")) < set(DECODERS)
    workspace = Workspace(tmp_path / "workspace")
    summary, spools = await _recorded(tmp_path, workspace, "", lambda: _jobs_are_here(tmp_path, workspace))
    assert summary["complete"], summary["ledger"]
    assert (len(summary["jobs"]), summary["records"]["aicore"] > 0) == (1, True)
    assert not spools
    assert not any(summary["events"].values())
    assert "no-decoder" not in summary["ledger"]["note"]


async def _recorded(
    folder: Path, workspace: Workspace, spools: str, is_here: Callable[[], bool]
) -> tuple[dict[str, Any], dict[str, dict[bytes, bytes]]]:
    """The summary of a simulated board with such spools that is recorded until it `is_here`, and what is in these."""
    (folder / "board").mkdir()
    simulated = ("--simulate", "--for", "2", "--rate", "20", "--metrics-hz", "10", "--root", folder / "board")
    with running(*simulated, "--spools", spools, "--spool-dir", folder / "spools") as daemon:
        options = RecordOptions((daemon.address,), workspace, backlog=True)
        stop = asyncio.Event()
        recording = asyncio.create_task(record(options, lambda _: None, stop))
        assert await asyncio.to_thread(eventually, is_here)
        stop.set()
        summary = await recording
        return summary, {each.name: content(each) for each in (folder / "spools").glob("*") if each.is_dir()}


def _have_come(folder: Path, workspace: Workspace) -> bool:
    """Whether the JOB is here, and every segment of the three spools with its end."""
    here = {each.name: content(each) for each in workspace.root.glob("mirror/*/*")}
    spools = {each.name: content(each) for each in (folder / "spools").glob("*") if each.is_dir()}
    ends = [(name, path + b".done") for name, files in spools.items() for path in files if path.isdigit()]
    has_ends = all(end in spools[name] and end in here.get(name, {}) for name, end in ends)
    return len(spools) == 3 and all(spools.values()) and has_ends and _jobs_are_here(folder, workspace)


def _jobs_are_here(folder: Path, workspace: Workspace) -> bool:
    here = {each.name: content(each) for each in workspace.root.glob("mirror/*/*")}
    jobs = {each.name: content(each) for each in (folder / "board").glob("JOB*")}
    return len(jobs) == 1 and all(here.get(name) == files for name, files in jobs.items())


def _segments(files: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {path: data for path, data in files.items() if path.isdigit()}

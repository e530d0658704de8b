"""All four sources of a board at once, for a host that knows nothing of three of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.ingest.decoder import DECODERS
from profagent.record.record import RecordOptions, record
from profagent.store.workspace import Workspace
from tests.daemon.daemon_process import content, running

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
        options = RecordOptions((daemon.address,), workspace, until_finished=True, backlog=True)
        summary = await record(options, lambda _: None, asyncio.Event())
        spools = {each.name: content(each) for each in (tmp_path / "spools").iterdir() if each.is_dir()}
    assert summary["complete"]
    assert summary["ledger"]["note"]["no-decoder"] == len(spools) == 3
    mirrors = {each.name: content(each) for each in workspace.root.glob("mirror/*/*") if each.name in spools}
    assert {name: _segments(each) for name, each in mirrors.items()} == {
        name: _segments(each) for name, each in spools.items()
    }


def _segments(files: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {path: data for path, data in files.items() if path.isdigit()}

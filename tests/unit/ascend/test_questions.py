"""Questions to sessions of other devices: beside those of a board, and what is not comparable."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from profagent.cli.main import group
from profagent.importing.importing import import_into
from profagent.store.workspace import Workspace
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job
from tests.unit.ascend.files import OP_SUMMARY, kernel, rows, summary, taken

BOARD, OTHER = "1", "2"
EXECUTIONS = 6


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated board's session, and the same layers on another device."""
    folder = tmp_path_factory.mktemp("questions")
    job = write_job(folder, SimulationOptions(layers=3), EXECUTIONS)
    workspace = folder / "workspace"
    asyncio.run(import_into(job, Workspace(workspace), asyncio.Event()))
    layers = rows(workspace, "SELECT DISTINCT name, type FROM layer ORDER BY layer_index")
    kernels = [
        kernel(name, kind, model="5", start=f"{run * 1000 + place * 100}", duration=f"{20 + place + run / 100}")
        for run in range(EXECUTIONS)
        for place, (name, kind) in enumerate(layers)
    ]
    taken(workspace, summary(folder / "op_summary.csv", OP_SUMMARY, *kernels))
    return workspace


def _asked(workspace: Path, *words: str) -> Any:
    answer = CliRunner().invoke(group, [*words, "--workspace", str(workspace), "--json"], standalone_mode=False)
    assert answer.exception is None, answer.output
    return json.loads(answer.stdout)


def test_layers_of_two_devices_stand_side_by_side_with_what_bounds_them(workspace: Path) -> None:
    found = _asked(workspace, "diff", BOARD, OTHER)
    (model,) = found["models"]
    assert [layer["what"] for layer in model["layers"]] == ["same"] * 3
    assert [layer["change"]["new"]["median"] for layer in model["layers"]] == pytest.approx([20.025, 21.025, 22.025])
    assert [layer["bounds"][1] for layer in model["layers"]] == ["mac"] * 3
    assert "device: SS928 in BASE, another Ascend device in NEW" in found["unfair"]
    assert any(line.startswith("NEW has no sampling") for line in found["unfair"])


def test_what_is_not_known_of_it_is_not_told(workspace: Path) -> None:
    found = _asked(workspace, "stats", OTHER, "--by", "type")
    assert {row["bound by"] for row in found["rows"]} == {"mac"}
    (job,) = found["jobs"]
    assert (job["frequency_mhz"], job["told_by"]) == (None, "another tool")


@pytest.mark.parametrize("words", [("trend", "--model", "model 5"), ("sessions",), ("show", "--session", OTHER)])
def test_other_questions_are_answered(words: tuple[str, ...], workspace: Path) -> None:
    assert _asked(workspace, *words)


@pytest.mark.parametrize("what", ["summary", "timeline"])
def test_it_is_exported_as_a_boards(what: str, workspace: Path) -> None:
    (written,) = _asked(workspace, "export", what, "--session", OTHER)
    assert len(written["files"]) >= 1
    assert not any("100000" in name for name in written["files"])


def test_no_counter_map_is_about_it(workspace: Path) -> None:
    answer = CliRunner().invoke(group, ["redecode", OTHER, "--workspace", str(workspace)], standalone_mode=False)
    assert "another tool" in str(answer.exception)

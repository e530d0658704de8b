"""What is on the board's disk, what is in the mirror and what is in the database: the same, for every kind of JOB."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.board import SAMPLES, batched_network, content, running, sample, simulated
from tests.integration.host import profagent
from tests.integration.rows import imported_rows, link_ledger, rows_of

SIMULATED: dict[str, Callable[[Path, Path], Path]] = {
    "segments": lambda root, _: simulated(root, 6),
    "batches": lambda root, folder: simulated(root, 4, model=batched_network(folder), pictures=7, seed=1),
    "pictures": lambda root, _: simulated(root, 3, model="resnet50", pictures=3, seed=2),
    "loaded twice": lambda root, _: simulated(root, 3, loads=2, seed=3),
    "calls lost": lambda root, _: simulated(root, 600, model="mobilenetv2", interval=0, seed=4),
}
KINDS = [*SAMPLES, *SIMULATED]


@dataclass(frozen=True)
class Captured:
    """JOBs of a board, and what one `record` made of them."""

    jobs: dict[str, Path]
    summary: dict[str, Any]

    @property
    def database(self) -> Path:
        return Path(self.summary["database"])


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    root, folder = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("host")
    jobs = {name: sample(root, name) for name in SAMPLES}
    jobs |= {name: make(root, folder) for name, make in SIMULATED.items()}
    with running("--root", root, "--quiet-after", "0.3") as daemon:
        ended = profagent(
            *("record", "--board", daemon.address, "--workspace", folder / "workspace"),
            *("--backlog", "--until-finished", "--json"),
        )
    assert ended.code == 4, ended.err  # runtime-edge has a torn record
    return Captured(jobs, ended.document)


def test_every_job_is_captured(captured: Captured) -> None:
    assert sorted(captured.summary["jobs"]) == sorted(job.name for job in captured.jobs.values())
    assert captured.summary["bytes"] == sum(map(len, _contents(captured)))


def _contents(captured: Captured) -> list[bytes]:
    return [data for job in captured.jobs.values() for data in content(job).values()]


@pytest.mark.parametrize("kind", KINDS)
def test_the_mirror_has_the_board_s_files_byte_for_byte(captured: Captured, kind: str) -> None:
    job = captured.jobs[kind]
    assert content(Path(captured.summary["mirror"]) / job.name) == content(job)


@pytest.mark.parametrize("kind", KINDS)
def test_a_capture_has_the_rows_of_an_import(captured: Captured, kind: str, tmp_path: Path) -> None:
    job = captured.jobs[kind]
    live, imported = rows_of(captured.database, job.name), imported_rows(job, tmp_path)
    for view, rows in imported.items():
        assert live[view] == rows, view
    assert link_ledger(captured.database, job.name) == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "runtime-misc"])
def test_there_is_something_to_compare(captured: Captured, kind: str) -> None:
    """Rows that are equal because there are none would prove nothing."""
    rows = rows_of(captured.database, captured.jobs[kind].name)
    assert all(rows[view] for view in ("op_records", "api_records", "inferences"))


def test_the_mirror_imports_like_the_original(captured: Captured, tmp_path: Path) -> None:
    job = captured.jobs["loaded twice"]
    mirrored = Path(captured.summary["mirror"]) / job.name
    assert imported_rows(mirrored, tmp_path / "mirror") == imported_rows(job, tmp_path / "board")


def test_the_records_of_a_job_are_counted_as_its_files_hold_them(captured: Captured) -> None:
    sizes = {"aicore": 256, "aicpu": 128, "acl_api": 32}
    held = {
        unit: sum(
            len(data) // size
            for job in captured.jobs.values()
            for path, data in content(job).items()
            if path.startswith(b"data/" + unit.encode()) and not path.endswith(b".done")
        )
        for unit, size in sizes.items()
    }
    assert captured.summary["records"] == held


def test_simulated_jobs_mark_the_session(captured: Captured) -> None:
    assert captured.summary["simulated"] is True
    assert json.dumps(captured.summary)

"""What is on the board's disk, what is in the mirror and what is in the database: the same, for every kind of JOB."""

from __future__ import annotations

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


def test_every_job_has_its_files_byte_for_byte_and_the_rows_of_an_import(captured: Captured, tmp_path: Path) -> None:
    assert sorted(captured.summary["jobs"]) == sorted(job.name for job in captured.jobs.values())
    assert captured.summary["simulated"] is True
    for kind, job in captured.jobs.items():
        assert content(Path(captured.summary["mirror"]) / job.name) == content(job), kind
        live, imported = rows_of(captured.database, job.name), imported_rows(job, tmp_path)
        for view, rows in imported.items():
            assert live[view] == rows, (kind, view)
            # Rows that are equal because there are none would prove nothing.
            assert rows or kind == "runtime-misc" or view in ("aicpu_records", "ledger"), (kind, view)
        assert link_ledger(captured.database, job.name) == [], kind


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
    assert captured.summary["bytes"] == sum(
        len(data) for job in captured.jobs.values() for data in content(job).values()
    )

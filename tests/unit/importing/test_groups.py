"""An import by groups has the rows that the general way has, which reads one file after the other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from profagent.formats.counter_maps import simulated_map
from profagent.importing import importing
from profagent.ingest import local
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job
from tests.fakes.dumps import assert_same, files_of, imported
from tests.fakes.job_copy import JOB
from tests.fakes.small_job import SMALL_JOB
from tests.fakes.ways import Way, going
from tests.property.written_jobs import recorded

if TYPE_CHECKING:
    from pathlib import Path

# How many inferences of each JOB are plain; the others are loaded again, cut, or not announced as they are.
JOBS = {name: job.files for name, job in recorded().items()} | {"everything odd": SMALL_JOB}
PLAIN = {"small": 1, "runtime-api": 8, "runtime-edge": 7, "runtime-json": 8, "runtime-misc": 3, "everything odd": 2}


def same_both_ways(folder: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> int:
    """Import by groups and by the general way; returns how many inferences were plain."""
    imported_to = partial(imported, files=files, counter_map=simulated_map())
    with going(Way.TOGETHER) as plain:
        by_groups = imported_to(folder / "groups" / JOB)
    monkeypatch.setattr(local, "group_of", lambda _name, _files: None)
    assert_same(by_groups, imported_to(folder / "general" / JOB))
    return sum(plain)


@pytest.mark.parametrize("name", JOBS)
def test_a_job_of_the_runtime_is_the_same_both_ways(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert same_both_ways(tmp_path, JOBS[name], monkeypatch) == PLAIN.get(name, 0)


def test_inferences_in_several_batches_are_the_same_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = files_of(write_job(tmp_path, SimulationOptions(model="yolov5s"), 5))
    monkeypatch.setattr(importing, "PARTS_PER_BATCH", 2)
    assert same_both_ways(tmp_path, files, monkeypatch) == 5

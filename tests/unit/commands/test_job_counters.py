"""The checks of a JOB's counters, each with its numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from profagent.doctor import examining as module
from profagent.doctor.examining import job_counters
from profagent.doctor.finding import Mark
from profagent.store.counter_maps import BUILT_IN, CounterMaps, simulated_map
from profagentd.simulate import SimulationOptions, write_job


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job(tmp_path_factory.mktemp("board"), SimulationOptions(layers=8, pictures=1, seed=5), inferences=5)


def test_a_map_that_is_right_passes_every_check(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INFERENCES", 3)
    section = job_counters(job, BUILT_IN)
    assert "simulated" in section.about
    assert len(section.findings) == 12
    for finding in section.findings:
        assert finding.mark is Mark.GOOD
        assert "3 of 5 inferences" in finding.evidence


def test_a_map_that_is_wrong_is_told_with_numbers(job: Path) -> None:
    counters = {name: replace(each, scale=9e3) for name, each in simulated_map().counters.items()}
    section = job_counters(job, CounterMaps(replace(simulated_map(), counters=counters)))
    found = {finding.check: finding for finding in section.findings}
    assert found["mac_busy <= 1"].mark is Mark.BAD
    assert "mac_busy is above 1 in" in found["mac_busy <= 1"].evidence
    assert "GB/s, and 34.1 can be" in found["ddr_read_bytes rate"].evidence


def test_without_a_map_there_is_nothing_to_check(job: Path) -> None:
    (job / "simulated").rename(job / "not-simulated")
    try:
        (finding,) = job_counters(job, BUILT_IN).findings
    finally:
        (job / "not-simulated").rename(job / "simulated")
    assert finding.mark is Mark.UNKNOWN
    assert "--counter-map" in finding.remedy

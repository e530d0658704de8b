"""What is found of random maps: never a wrong counter that is called certain, and next to every counter found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profagent.calibrate.fitting import Evidence, Fit, values_of
from profagent.calibrate.vendor_table import parse_vendor_table
from profagent.calibrate.verdict import Finding, Verdict, find_counters
from tests.fakes.counted_job import CountedJob, Place, counted_job

MAPS = 20
FOUND = 0.95


def evidence(job: CountedJob, decimals: int, *, percent: bool = False) -> dict[str, Evidence]:
    table = parse_vendor_table(job.table(decimals, percent=percent).encode(), "op_summary.csv")
    ticks = job.records["ticks"].astype(np.float64)
    return {
        name: Evidence(job.bytes, ticks, column.values, np.full(len(ticks), column.half))
        for name, column in table.columns.items()
    }


def found(job: CountedJob, decimals: int = 4, *, percent: bool = False) -> dict[str, Finding]:
    return {each.counter: each for each in find_counters(evidence(job, decimals, percent=percent), job.bytes)}


def is_right(job: CountedJob, finding: Finding) -> bool:
    """Whether it gives what the counter is, from where the counter is."""
    place = job.places[finding.counter]
    if finding.fit is None or place is None or finding.fit.offset != place.offset:
        return False
    return np.allclose(values_of(finding.fit, job.bytes), job.values[finding.counter])


def is_true(place: Place | None, fit: Fit | None) -> bool:
    """Whether it would be right of any other record as well."""
    return place is not None and fit is not None and (place.offset, place.type) == (fit.offset, fit.type)


def check_certain(job: CountedJob, findings: dict[str, Finding]) -> None:
    for counter, finding in findings.items():
        if finding.verdict is Verdict.CERTAIN:
            assert is_right(job, finding), counter
            assert is_true(job.places[counter], finding.fit), counter
            assert not finding.advice
        else:
            assert finding.advice


@pytest.mark.parametrize(("decimals", "percent"), [(4, False), (4, True), (3, False), (2, False)])
def test_counters_of_random_maps(decimals: int, *, percent: bool) -> None:
    right = 0
    for seed in range(MAPS):
        job = counted_job(np.random.default_rng(seed))
        findings = found(job, decimals, percent=percent)
        check_certain(job, findings)
        right += sum(is_right(job, finding) for finding in findings.values())
    assert right >= FOUND * MAPS * 10


@given(st.integers(0, 2**32 - 1), st.integers(2, 90), st.integers(0, 3), st.integers(0, 3), st.sampled_from([2, 3, 4]))
@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_wrong_is_certain(seed: int, rows: int, sums: int, constant: int, decimals: int) -> None:
    """Columns that are no single number, that are constant, or known from a few rows only."""
    job = counted_job(np.random.default_rng(seed), rows, sums=sums, constant=constant)
    check_certain(job, found(job, decimals))


def test_two_decimals_make_no_certainty() -> None:
    job = counted_job(np.random.default_rng(3))
    ratios = [finding for name, finding in found(job, 2).items() if not name.endswith("_bytes")]
    assert ratios
    assert all(finding.verdict is not Verdict.CERTAIN for finding in ratios)


def test_a_number_that_is_there_twice_is_refused() -> None:
    job = counted_job(np.random.default_rng(5))
    place = job.places["mac_busy"]
    assert place is not None
    size = int(place.type[1:]) // 8
    doubled = _without_bytes_elsewhere(job, place, size)
    finding = {each.counter: each for each in find_counters(doubled, next(iter(doubled.values())).records)}["mac_busy"]
    assert finding.verdict is Verdict.NOT_FOUND
    assert finding.fit is None
    assert len({rival.offset for rival in finding.rivals}) == 2


def _without_bytes_elsewhere(job: CountedJob, place: Place, size: int) -> dict[str, Evidence]:
    """Evidence in which the number stands a second time, in place of another counter."""
    other = next(each for each in job.places.values() if each and each is not place and int(each.type[1:]) // 8 >= size)
    records = job.bytes.copy()
    records[:, other.offset : other.offset + int(other.type[1:]) // 8] = 0
    records[:, other.offset : other.offset + size] = records[:, place.offset : place.offset + size]
    return {name: replace(each, records=records) for name, each in evidence(job, 4).items()}


def test_two_counters_of_the_same_bytes_are_neither() -> None:
    job = counted_job(np.random.default_rng(6))
    all_evidence = evidence(job, 4)
    all_evidence["mac_ppen"] = all_evidence["mac_busy"]
    findings = {each.counter: each for each in find_counters(all_evidence, job.bytes)}
    assert findings["mac_busy"].verdict is findings["mac_ppen"].verdict is Verdict.NOT_FOUND
    assert "mac_ppen" in findings["mac_busy"].advice


def test_a_row_of_another_record_leaves_the_counter_likely() -> None:
    job = counted_job(np.random.default_rng(7))
    all_evidence = evidence(job, 4)
    values = all_evidence["ddr_read_bytes"].values.copy()
    values[4] *= 2
    all_evidence["ddr_read_bytes"] = replace(all_evidence["ddr_read_bytes"], values=values)
    finding = {each.counter: each for each in find_counters(all_evidence, job.bytes)}["ddr_read_bytes"]
    assert finding.verdict is not Verdict.CERTAIN


def test_a_unit_that_was_not_used_says_what_is_needed() -> None:
    job = counted_job(np.random.default_rng(8))
    job.values["vec_busy"] = np.zeros(len(job.records))
    finding = found(job)["vec_busy"]
    assert finding.verdict is Verdict.NOT_FOUND
    assert "uses this unit" in finding.advice


def test_a_table_without_values_finds_nothing() -> None:
    nothing = Evidence(np.zeros((0, 256), np.uint8), np.zeros(0), np.zeros(0), np.zeros(0))
    (finding,) = find_counters({"dld": nothing}, nothing.records)
    assert finding.verdict is Verdict.NOT_FOUND
    assert finding.rows == 0

"""What is found of random maps: never a wrong counter that is called certain, and next to every counter found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profagent.calibrate.fitting import Evidence, Finding, Verdict, find_counters, values_of
from tests.fakes.counted_job import CountedJob, Place, counted_job, evidence_of, records_elsewhere

MAPS = 5
FOUND = 0.95


def found(job: CountedJob, decimals: int = 4, *, percent: bool = False) -> dict[str, Finding]:
    return {each.counter: each for each in find_counters(evidence_of(job, decimals, percent=percent), job.bytes)}


def is_right(job: CountedJob, finding: Finding) -> bool:
    """Whether it gives what the counter is, from where the counter is."""
    place = job.places[finding.counter]
    if finding.fit is None or place is None or finding.fit.offset != place.offset:
        return False
    return np.allclose(values_of(finding.fit, job.bytes), job.values[finding.counter])


def check_certain(job: CountedJob, findings: dict[str, Finding]) -> None:
    """What is certain reads every other record of that map as well, and what is not says what would settle it."""
    body, values = records_elsewhere(np.random.default_rng(0), job)
    for counter, finding in findings.items():
        assert bool(finding.advice) == (finding.verdict is not Verdict.CERTAIN)
        if finding.verdict is Verdict.CERTAIN:
            assert finding.fit is not None
            assert is_right(job, finding), counter
            assert np.allclose(values_of(finding.fit, body), values[counter]), counter


@pytest.mark.parametrize(("decimals", "percent"), [(4, False), (4, True), (3, False), (2, False)])
def test_counters_of_random_maps(decimals: int, *, percent: bool) -> None:
    right = 0
    for seed in range(MAPS):
        job = counted_job(np.random.default_rng(seed))
        findings = found(job, decimals, percent=percent)
        check_certain(job, findings)
        right += sum(is_right(job, finding) for finding in findings.values())
    assert right >= FOUND * MAPS * 10


@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 90),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([2, 3, 4]),
    st.booleans(),
)
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_wrong_is_certain(
    seed: int, rows: int, sums: int, constant: int, decimals: int, is_hostile: bool
) -> None:
    """Columns that are no single number, that are constant, or known from few rows; noise that is nearly a counter."""
    job = counted_job(np.random.default_rng(seed), rows, sums=sums, constant=constant, is_hostile=is_hostile)
    check_certain(job, found(job, decimals))


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
    return {name: replace(each, records=records) for name, each in evidence_of(job, 4).items()}


def test_two_counters_of_the_same_bytes_are_neither() -> None:
    job = counted_job(np.random.default_rng(6))
    all_evidence = evidence_of(job, 4)
    all_evidence["mac_ppen"] = all_evidence["mac_busy"]
    findings = {each.counter: each for each in find_counters(all_evidence, job.bytes)}
    assert findings["mac_busy"].verdict is findings["mac_ppen"].verdict is Verdict.NOT_FOUND
    assert "mac_ppen" in findings["mac_busy"].advice


def cycles_at_0x10(rows: int, decimals: int) -> Evidence:
    """A ratio of 0.7 to 0.99 of each layer's cycles, and nothing else in the records."""
    random = np.random.default_rng(1)
    ticks = random.integers(40_000, 60_000, rows)
    counts = (random.uniform(0.7, 0.99, rows) * ticks * 100).astype("<u4")
    records = np.zeros((rows, 256), np.uint8)
    records[:, 0x04:0x08] = ticks.astype("<u4").view(np.uint8).reshape(rows, 4)
    records[:, 0x10:0x14] = counts.view(np.uint8).reshape(rows, 4)
    values = np.round(counts / (ticks * 100.0), decimals)
    return Evidence(records, ticks.astype(np.float64), values, np.full(rows, 0.5 * 10.0**-decimals))


@pytest.mark.parametrize(("rows", "verdict"), [(12, Verdict.LIKELY), (60, Verdict.CERTAIN)])
def test_certain_is_what_would_not_agree_by_chance_in_a_thousand_million(rows: int, verdict: Verdict) -> None:
    """With three decimals a row tells a number from one that is off by a thousandth in one case of two."""
    evidence = cycles_at_0x10(rows, 3)
    (finding,) = find_counters({"mac_busy": evidence}, evidence.records)
    assert finding.fit is not None
    assert (finding.fit.offset, finding.verdict) == (0x10, verdict)

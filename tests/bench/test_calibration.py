"""How much `calibrate` finds of random maps, by how precise the vendor's table is, and how often it is wrong."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pytest

from profagent.calibrate.fitting import Finding, Verdict, find_counters, values_of
from tests.bench.measure import report, spread
from tests.fakes.counted_job import CountedJob, counted_job, evidence_of, records_elsewhere

MAPS = 200
ROWS = 90
LEAST_FOUND = 0.95
RIGHT = "right of every JOB"


@pytest.mark.parametrize("is_hostile", [False, True], ids=["near-noise", "hostile-noise"])
@pytest.mark.parametrize("decimals", [4, 3, 2])
def test_random_maps(decimals: int, *, is_hostile: bool) -> None:
    told: Counter[str] = Counter()
    seconds = []
    for seed in range(MAPS):
        job = counted_job(np.random.default_rng(seed), ROWS, is_hostile=is_hostile)
        start = time.perf_counter()
        findings = find_counters(evidence_of(job, decimals), job.bytes)
        seconds.append(time.perf_counter() - start)
        for finding in findings:
            told[f"{finding.verdict.value}, {_truth(job, finding)}"] += 1
    counters = sum(told.values())
    found = sum(count for words, count in told.items() if not words.startswith(Verdict.NOT_FOUND.value))
    report(
        f"calibrate: {MAPS} random maps, {ROWS} rows, {decimals} decimals, {'hostile' if is_hostile else 'near'} noise",
        {
            "found": f"{found / counters:.2%} of {counters:,} counters",
            **{words: f"{count / counters:.2%}" for words, count in sorted(told.items())},
            "a map": spread(seconds, "s", 3),
        },
    )
    assert {words for words in told if words.startswith(Verdict.CERTAIN.value)} <= {f"certain, {RIGHT}"}
    assert is_hostile or decimals < 4 or found >= LEAST_FOUND * counters


def _truth(job: CountedJob, finding: Finding) -> str:
    """Whether what was found gives the counter of this JOB, and of every other under its map."""
    if finding.fit is None:
        return "nothing said"
    if not np.allclose(values_of(finding.fit, job.bytes), job.values[finding.counter]):
        return "wrong"
    body, values = records_elsewhere(np.random.default_rng(0), job)
    is_right = np.allclose(values_of(finding.fit, body), values[finding.counter])
    return RIGHT if is_right else "right of this JOB, another width than shown"

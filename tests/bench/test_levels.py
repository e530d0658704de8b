"""How often `level_changes` finds a step within two nights, and how often it is wrong, beside Apache Otava.

The series are drawn anew in each run; the table names the seed.
"""

from __future__ import annotations

import json
import math
import secrets
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from profagent import level_changes
from tests.bench.measure import CHECKOUT, report, report_table

OTAVA = CHECKOUT / ".venv-bench/bin/python"
NEAR = 2
LEAST_NIGHTS = 3
MOST_FALSE = 0.15
SERIES, NIGHTS, MOST_S = 10_000, 90, 10.0

Series = NDArray[np.float64]


class Case(NamedTuple):
    """Series of so many nights, a step in standard deviations (0 for none), outliers on a share of nights, a target.

    The target is the least share of steps found, or the most false changes in 100 nights.
    """

    number: int
    nights: int
    step: float
    outliers: float
    target: float

    @property
    def text(self) -> str:
        """The case in words."""
        step = f"a step of {self.step:g} σ" if self.step else "unchanged"
        return f"{self.nights} nights, {step}{', outliers' if self.outliers else ''}"


CASES = (
    Case(8000, 30, 2.0, 0.0, 0.80),
    Case(2000, 90, 2.5, 0.0, 0.97),
    Case(2000, 30, 3.0, 0.05, 0.85),
    *(
        Case(number, nights, 0.0, outliers, MOST_FALSE)
        for outliers in (0.0, 0.05)
        for number, nights in ((6000, 15), (8000, 30), (3000, 90))
    ),
)


def drawn(case: Case, random: np.random.Generator) -> tuple[list[Series], list[int]]:
    """Return series of normal noise of 1 around 100, and the place of the step in each."""
    series, steps = [], []
    for _ in range(case.number):
        values = 100 + random.standard_normal(case.nights)
        off = random.random(case.nights) < case.outliers
        values += off * random.choice([-1, 1], case.nights) * random.uniform(5, 15, case.nights)
        place = int(random.integers(LEAST_NIGHTS, case.nights - LEAST_NIGHTS + 1))
        values[place:] += case.step * random.choice([-1, 1])
        series.append(values)
        steps.append(place)
    return series, steps


def by_otava(series: list[Series]) -> list[list[int]] | None:
    """Return the places that Otava finds, None where it is not installed."""
    if not OTAVA.exists():
        return None
    sent = json.dumps([values.tolist() for values in series]).encode()
    program = Path(__file__).with_name("otava_changes.py")
    ran = subprocess.run([OTAVA, program], input=sent, stdout=subprocess.PIPE, check=True)
    answer: list[list[int]] = json.loads(ran.stdout)
    return answer


def rate(case: Case, found: list[list[int]], steps: list[int]) -> float:
    """Return the share of steps that were found, or the number of changes in 100 nights."""
    if not case.step:
        return 100 * sum(map(len, found)) / case.number / case.nights
    hits = sum(any(abs(place - step) <= NEAR for place in places) for places, step in zip(found, steps, strict=True))
    return hits / case.number


def chance(case: Case, own: float, other: float) -> float:
    """Return three standard deviations of the difference of two rates of changes in 100 nights."""
    return 3 * math.sqrt(100 * (own + other) / (case.number * case.nights))


def test_steps_are_found_and_noise_is_not() -> None:
    seed = secrets.randbits(32)
    random = np.random.default_rng(seed)
    rows, missed = [], []
    for case in CASES:
        series, steps = drawn(case, random)
        own = rate(case, [[change.index for change in level_changes(values)] for values in series], steps)
        places = by_otava(series)
        other = None if places is None else rate(case, places, steps)
        shown = [f"{value:.1%}" if case.step else f"{value:.3f}" for value in (case.target, own)]
        rows.append([case.text, *shown, "N/A" if other is None else f"{other:.1%}" if case.step else f"{other:.3f}"])
        if case.step and own < max(case.target, other or 0.0):
            missed.append(case.text)
        if not case.step and own > min(case.target, (other or math.inf) + chance(case, own, other or 0.0)):
            missed.append(case.text)
    titles = ["series", "target", "profagent", "Otava"]
    report_table(f"steps found within {NEAR} nights; false changes in 100 nights; seed {seed}", titles, rows)
    assert not missed


def test_ten_thousand_series() -> None:
    random = np.random.default_rng(1)
    series = random.normal(100, 1, (SERIES, NIGHTS))
    # A step in every tenth series.
    series[::10, NIGHTS // 2 :] += 3
    began = time.process_time()
    for values in series:
        level_changes(values)
    took_s = time.process_time() - began
    report("changes of level", {f"{SERIES:,} series of {NIGHTS} nights": f"{took_s:.1f} s of processor time"})
    assert took_s < MOST_S

"""Rows of several JOBs together."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.stats.gathering import Gathered, LeftOut, call_rows
from tests.unit.stats.series import inferences, job


def test_jobs_share_their_rows() -> None:
    gathered = Gathered("layer", 0)
    gathered.add(job(inferences(1), [(0, 0, 0, 10), (0, 1, 0, 60)]))
    gathered.add(job(inferences(1), [(0, 0, 0, 15)], us_per_tick=2.0))
    first, second = gathered.rows()
    assert (first.key[1], first.figures.total, first.share) == ("conv1", 60.0, 60.0)
    assert (second.key[1], second.figures.number, second.figures.max, second.share) == ("conv0", 2, 30.0, 40.0)
    assert gathered.left_out() == [LeftOut("m", 2, 0)]


@pytest.mark.parametrize(("ratio", "bound"), [(0.9, "cube"), (0.2, "unexplained"), (3.0, None), (None, None)])
def test_what_bounds_a_row_follows_from_its_ratios(ratio: float | None, bound: str | None) -> None:
    gathered = Gathered("type", 0)
    gathered.add(job(inferences(1), [(0, 0, 0, 10)], ratios=ratio))
    assert [row.bound for row in gathered.rows()] == [bound]


def test_calls_of_an_unknown_begin_are_counted_only() -> None:
    rows = call_rows(
        [(("f", "x"), np.array([3.0]), 2), (("g", "x"), np.array([]), 1), (("f", "x"), np.array([5.0]), 1)]
    )
    assert [(row.key[0], row.figures.number, row.figures.total, row.share) for row in rows] == [
        ("f", 3, 8.0, 100.0),
        ("g", 1, None, None),
    ]


def test_without_records_there_are_no_rows() -> None:
    gathered = Gathered("model", None)
    gathered.add(job([], []))
    assert gathered.rows() == []

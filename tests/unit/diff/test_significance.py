"""The permutation test, against known values and its own promises."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from profagent.diff.significance import MOST_ROWS, differences, different_rows


def _p(base: np.ndarray, new: np.ndarray) -> list[float]:
    p = differences(base, new)
    assert p is not None
    return p.tolist()


def _exact_p(base: np.ndarray, new: np.ndarray) -> float:
    """By every way to deal the rows out."""
    both, count = np.concatenate([base, new])[:, 0], len(base)
    found = abs(base.mean() - new.mean())
    ways = [list(way) for way in combinations(range(len(both)), count)]
    as_far = [abs(both[way].mean() - np.delete(both, way).mean()) >= found - 1e-12 for way in ways]
    return sum(as_far) / len(ways)


@pytest.mark.parametrize("shift", [0.0, 0.8, 1.5])
def test_p_of_one_column_is_that_of_all_deals(shift: float) -> None:
    rng = np.random.default_rng(5)
    base, new = rng.random((6, 1)), rng.random((6, 1)) + shift
    assert _p(base, new)[0] == pytest.approx(_exact_p(base, new), abs=0.03)


def test_rows_that_are_alike_are_less_certain() -> None:
    rng = np.random.default_rng(9)
    base, new = 10 + rng.standard_normal((2, 30, 1))
    assert _p(np.repeat(base[:10], 3, axis=0), np.repeat(new[:10] + 1.5, 3, axis=0))[0] > 5 * _p(base, new + 1.5)[0]


def test_too_few_rows_tell_nothing_and_repeats_are_told() -> None:
    assert differences(np.ones((4, 1)), np.ones((9, 1))) is None
    assert different_rows(np.array([[1.0, 2], [1, 3], [1, 2], [np.nan, 2], [np.nan, 2]])).tolist() == [0, 1, 3]


def test_a_spike_does_not_hide_a_change() -> None:
    rng = np.random.default_rng(10)
    base, new = 100 + rng.standard_normal((2, 60, 1))
    base[0] = 100_000
    assert _p(base, new + 5)[0] < 0.01


def test_many_rows_are_averaged_in_blocks_and_answers_are_the_same_each_time() -> None:
    rng = np.random.default_rng(11)
    base, new = rng.standard_normal((2, 20 * MOST_ROWS + 3, 2))
    new[:, 1] += 0.2
    assert _p(base, new)[0] > 0.05
    assert _p(base, new)[1] < 0.01
    assert _p(base, new) == _p(base, new)

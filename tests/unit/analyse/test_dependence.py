"""How many inferences tell something new."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.diff.dependence import different_rows, in_blocks, inflation, wander
from tests.unit.analyse.noisy_runs import NOISE, alike, independent


def test_rows_that_repeat_an_earlier_one_in_all_are_left_out() -> None:
    times = np.array([[1.0, np.nan], [1.0, 2.0], [1.0, np.nan], [1.0, 2.0], [2.0, 1.0]])
    assert different_rows(times).tolist() == [0, 1, 4]


@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 1.0, 1.4), (0.5, 1.7, 3.5), (0.9, 5.0, 20.0)])
def test_rows_that_are_alike_inflate(share: float, least: float, most: float) -> None:
    found = inflation(alike(np.random.default_rng(2), 400, 50, share)).mean()
    assert least <= found <= most


def test_one_column_that_drifts_alone_is_inflated_most() -> None:
    values = independent(np.random.default_rng(2), 400, 50)
    values[:, 7] += np.linspace(0, 1, 400)
    found = inflation(values)
    assert found.argmax() == 7
    assert found[7] > 5


def test_few_rows_and_equal_values_tell_nothing() -> None:
    assert inflation(np.arange(14.0).reshape(7, 2)).tolist() == [1.0, 1.0]
    assert inflation(np.ones((100, 2))).tolist() == [1.0, 1.0]


def test_blocks_are_means_and_what_is_left_over_is_left_out() -> None:
    assert in_blocks(np.arange(14.0).reshape(7, 2), 3).tolist() == [[2.0, 3.0], [8.0, 9.0]]


def test_a_whole_run_that_wanders_may_be_off_by_more_and_by_no_more_than_its_spread() -> None:
    rng = np.random.default_rng(5)
    steady = 100 * (1 + independent(rng, 100, 1)[:, 0])
    slow = 100 * (1 + alike(rng, 100, 1, 0.9)[:, 0])
    assert wander(steady) == pytest.approx(NOISE**2 / 100, rel=0.8)
    assert 5 * wander(steady) < wander(slow) <= (2 * NOISE) ** 2
    assert wander(np.linspace(99, 101, 20)) < 0.01**2
    assert wander(np.full(50, 7.0)) == wander(np.arange(5.0)) == 0.0


def test_how_far_a_short_run_that_wanders_may_be_off_is_hardly_told_too_small() -> None:
    runs = [100 * (1 + alike(np.random.default_rng(seed), 30, 1, 0.9)[:, 0]) for seed in range(200)]
    off = np.var([run.mean() for run in runs]) / 100**2
    assert np.median([wander(run) for run in runs]) > off / 2

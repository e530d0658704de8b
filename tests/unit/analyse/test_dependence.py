"""How many inferences tell something new."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.analyse.dependence import different_rows, inflation
from tests.unit.analyse.noisy_runs import alike, independent


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

"""Figures of durations."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.stats.gathering import Figures, figures_of, mad


def test_figures_of_known_values() -> None:
    figures = figures_of(np.array([4.0, 1.0, 2.0, 100.0, 3.0]))
    assert figures == pytest.approx((5, 110.0, 22.0, 3.0, 1.0, 80.8, 100.0))


def test_a_quantile_between_two_values_is_linear() -> None:
    assert figures_of(np.array([0.0, 100.0])).p95 == pytest.approx(95.0)
    assert figures_of(np.array([1.0, 2.0])).median == 1.5


def test_a_single_value_has_no_spread() -> None:
    assert figures_of(np.array([7.0])) == Figures(1, 7.0, 7.0, 7.0, 0.0, 7.0, 7.0)


def test_what_has_no_duration_is_counted_and_in_no_figure() -> None:
    assert figures_of(np.array([]), 3) == Figures(3, None, None, None, None, None, None)
    assert figures_of(np.array([5.0]), 3)[:3] == (3, 5.0, 5.0)


def test_the_mad_is_not_scaled() -> None:
    assert mad(np.array([1.0, 2.0, 3.0, 4.0, 100.0])) == 1.0

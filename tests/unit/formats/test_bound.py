"""What bounds a layer: mac_busy, mac_ppen, vec_busy, vec_ppen, dstr, dtrans, dld, wld."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.formats.countermap import bound_by, mean_ratios


@pytest.mark.parametrize(
    ("ratios", "word"),
    [
        ((0.9, 0.71, 0, 0, 0.1, 0, 0.9, 0.9), "cube"),
        ((0.9, 0.69, 0, 0, 0.1, 0, 0.71, 0.1), "DLD"),
        ((0.9, 0.5, 0, 0, 0.71, 0, 0.1, 0.8), "Dstr"),
        ((0.9, 0.5, 0, 0, 0.72, 0, 0.1, 0.9), "WLD"),
        ((0, 0, 0.8, 0.6, 0.7, 0, 0.7, 0), "vector"),
        ((0.1, 0, 0.8, 0.6, 0.69, 0, 0.7, 0), "DLD"),
        ((0.8, 0.6, 0, 0, 0.7, 0, 0.7, 0), "mac"),
        ((0.5, 0.4, 0.6, 0.3, 0.2, 0.65, 0.2, 0.2), "Dtrans"),
        ((0.5, 0.4, 0.7, 0.3, 0.2, 0.65, 0.2, 0.2), "vec"),
        ((0.5, 0.4, 0.6, 0.3, 0.6, 0.65, 0.2, 0.2), "Dstr"),
        ((0.5, 0.4, 0.6, 0.3, 0.6, 0.65, 0.2, 0.7), "WLD"),
        ((0.4, 0.4, 0.49, 0.4, 0.4, 0.4, 0.4, 0.4), "unexplained"),
        ((0.9, 0.5, 0, 0, 0.1, 0, 1.5, 0.1), None),
        ((0.9, 0.5, 0, 0, -0.1, 0, 0.1, 0.1), None),
        ((0.9, float("nan"), 0, 0, 0.1, 0, 0.1, 0.1), None),
    ],
)
def test_a_word_for_ratios(ratios: tuple[float, ...], word: str | None) -> None:
    assert bound_by(np.array(ratios)) == word


def test_means_are_weighted_by_time() -> None:
    means = mean_ratios(np.array([[0.2, 1.0], [0.6, 0.0]]), np.array([10.0, 30.0]))
    assert means.tolist() == pytest.approx([0.5, 0.25])


def test_what_one_record_does_not_know_is_not_known() -> None:
    assert np.isnan(mean_ratios(np.array([[0.2], [np.nan]]), np.array([1.0, 1.0]))).all()
    assert np.isnan(mean_ratios(np.array([[0.2]]), np.array([0.0]))).all()

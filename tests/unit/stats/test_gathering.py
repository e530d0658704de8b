"""Durations by what they are of."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.stats.figures import JobRecords, LeftOut, left_out
from profagent.stats.stats import durations_by, ratios_by, split
from tests.unit.stats.series import Rows, inferences, job

TWO: Rows = [(0, 0, 0, 10), (0, 1, 0, 20), (0, 0, 1, 5), (1, 0, 0, 11), (1, 1, 0, 21), (1, 0, 1, 6)]
CPU: Rows = [(0, 2, 2, 3), (0, 2, 2, 4), (1, 2, 2, 5)]


def _by(records: JobRecords, by: str, keeps: list[bool] | None = None) -> dict[tuple[str, ...], list[float]]:
    kept = np.array(keeps or [True] * len(records.series.inferences))
    return {key: values.tolist() for key, values in durations_by(records, by, kept)}  # type: ignore[arg-type]


def test_each_record_is_a_value_of_its_layer() -> None:
    assert _by(job(inferences(2), TWO, CPU, us_per_tick=2.0), "layer") == {
        ("m", "conv0", "Convolution"): [20, 10, 22, 12],
        ("m", "conv1", "Convolution"): [40, 42],
    }


def test_a_model_s_value_is_an_inference_over_both_units() -> None:
    assert _by(job(inferences(2), TWO, CPU, us_per_tick=2.0), "model") == {("m",): [70 + 7, 76 + 5]}
    assert _by(job(inferences(2), TWO, CPU, us_per_tick=None), "model") == {("m",): [35, 38]}


def test_a_segment_s_value_is_its_sum_on_one_unit_in_one_inference() -> None:
    found = _by(job(inferences(2), TWO, CPU, us_per_tick=2.0), "segment")
    units = {("m", "0", "AA_CORE"): [60, 64], ("m", "1", "AA_CORE"): [10, 12], ("m", "2", "AA_CPU"): [7, 5]}
    assert found == units
    assert ("m", "2", "AA_CPU") not in _by(job(inferences(2), TWO, CPU, us_per_tick=None), "segment")


@pytest.mark.parametrize("by", ["layer", "type", "model", "segment", "aicpu"])
def test_what_is_left_out_is_in_no_value(by: str) -> None:
    records = job(inferences(2), TWO, CPU)
    alone = job(inferences(1), [(0, *row[1:]) for row in TWO if row[0]], [(0, *row[1:]) for row in CPU if row[0]])
    assert _by(records, by, [False, True]) == _by(alone, by)


def test_without_skip_the_warm_up_of_each_load_is_left_out() -> None:
    rows: Rows = [(i, 0, 0, 300 if i in (0, 20, 21) else 100) for i in range(40)]
    keeps, counts = left_out(job(inferences(20, 20), rows), None)
    assert np.flatnonzero(~keeps).tolist() == [0, 20, 21]
    assert counts == [LeftOut("m", 40, 3)]
    assert left_out(job(inferences(20, 20), rows), 0)[0].all()


def test_ratios_have_the_keys_of_the_durations() -> None:
    records = job(inferences(2), TWO, ratios=0.25)
    for by, key in (("layer", ("m", "conv1", "Convolution")), ("segment", ("m", "1", "AA_CORE")), ("model", ("m",))):
        found = list(ratios_by(records, by, np.array([False, True])))  # type: ignore[arg-type]
        (ratios, ticks) = next(each[1:] for each in found if each[0] == key)
        assert (ratios == 0.25).all()
        assert set(ticks) <= {11, 21, 6}
    assert list(ratios_by(records, "aicpu", np.array([True, True]))) == []
    assert list(ratios_by(job(inferences(2), TWO), "layer", np.array([True, True]))) == []


@pytest.mark.parametrize("largest", [300, 70_000])
def test_values_are_split_by_code_in_their_order(largest: int) -> None:
    codes = np.array([largest, 3, largest, 0, 3])
    found = [(code, values.tolist()) for code, values in split(codes, np.arange(5))]
    assert found == [(0, [3]), (3, [1, 4]), (largest, [0, 2])]
    assert list(split(codes[:0], codes[:0])) == []

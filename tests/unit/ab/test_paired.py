"""The paired test of `ab`: what it finds in drawn rounds of a drifting board, and how seldom it errs."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.ab.paired import FEWEST_ROUNDS, PairedModel, compare_rounds
from profagent.diff.comparing import ALPHA, Floor
from profagent.diff.runs import LayerName, ModelRun
from profagent.formats.inference_times import LatencyFrom

# As the simulated board draws: each layer's time varies by 2 %, in whole ticks, and 16 inferences differ.
NOISE, INFERENCES, TICKS_PER_US, LAYERS = 0.02, 16, 7, 10
FLOOR = Floor(0.2, 0.1)
ROUNDS, DRAWS = 40, 100


def rounds(seed: int, slower: float, drift: float, count: int = ROUNDS) -> tuple[ModelRun, ModelRun]:
    """A and B in rounds A B, B A, …, of a board that becomes slower by `drift`; the medians of each run."""
    rng = np.random.default_rng(seed)
    base = np.exp(np.random.default_rng(1).uniform(np.log(20), np.log(200), LAYERS))
    order = np.arange(2 * count).reshape(count, 2)
    order[1::2] = order[1::2, ::-1]
    sides = []
    for side, factor in ((0, 1 + slower), (1, 1.0)):
        ramp = 1 + drift * order[:, side] / (2 * count - 1)
        times = base * factor * ramp[:, None, None] * (1 + NOISE * rng.standard_normal((count, INFERENCES, LAYERS)))
        ticks = np.round(times * TICKS_PER_US) / TICKS_PER_US
        sides.append(stacked(np.median(ticks, axis=1), np.median(np.round(ticks.sum(axis=2)), axis=1)))
    return sides[0], sides[1]


def stacked(times: np.ndarray, latency: np.ndarray) -> ModelRun:
    names = tuple(LayerName(f"l{place}", "Conv", "AA_CORE") for place in range(times.shape[1]))
    latencies = {LatencyFrom.CALL: latency}
    return ModelRun("m", names, times, np.ones(times.shape, np.int64), latencies=latencies)


def compared(seed: int, slower: float, drift: float = 0.02, count: int = ROUNDS) -> PairedModel:
    return compare_rounds(*rounds(seed, slower, drift, count), FLOOR)


def test_one_percent_is_found_under_a_drift_of_two_percent() -> None:
    models = [compared(seed, 0.01) for seed in range(DRAWS)]
    found = [model.inference.is_significant and (model.inference.percent or 0) > 0 for model in models]
    assert np.mean(found) >= 0.95
    estimates = [model.inference for model in models]
    holds = [each.low is not None and each.high is not None and each.low <= 1.0 <= each.high for each in estimates]
    assert np.mean(holds) >= 0.9
    assert np.mean([each.percent for each in estimates]) == pytest.approx(1.0, abs=0.02)
    assert np.mean([model.drift for model in models]) == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("count", [FEWEST_ROUNDS, ROUNDS])
def test_equal_sides_seldom_raise_an_alarm_in_anything(count: int) -> None:
    alarms = 0
    for seed in range(DRAWS):
        model = compared(seed, 0.0, count=count)
        changes = [model.inference, model.layers, *model.changes.values()]
        assert all(change.p is not None for change in changes)
        alarms += any(change.p <= ALPHA for change in changes if change.p is not None)
    assert alarms / DRAWS <= 0.05


def test_one_slower_layer_is_found_among_many_and_named() -> None:
    a, b = rounds(1, 0.0, 0.02)
    a.times[:, 3] *= 1.02
    found = [each.name for each in compare_rounds(a, b, FLOOR).changes.values() if each.is_significant]
    assert found == ["l3"]
    assert not any(each.is_significant for each in compare_rounds(a, b, Floor(3.0, 0.1)).changes.values())


def test_a_fast_drift_does_not_widen_the_interval() -> None:
    """The order within the rounds alternates, so that a drift of 20 % is told apart from a difference."""
    slow, fast = (compared(2, 0.01, drift).inference for drift in (0.0, 0.2))
    widths = [each.high - each.low for each in (slow, fast) if each.high is not None and each.low is not None]
    assert widths[1] < 1.5 * widths[0]


def test_one_disturbed_round_hides_nothing() -> None:
    a, b = rounds(3, 0.01, 0.02)
    a.latencies[LatencyFrom.CALL][7] *= 0.5
    assert compare_rounds(a, b, FLOOR).inference.is_significant


def test_too_few_rounds_give_an_estimate_and_no_verdict() -> None:
    for count in (1, 2, FEWEST_ROUNDS - 1):
        change = compared(0, 0.5, count=count).inference
        assert (change.p, change.low, change.is_significant) == (None, None, False)
        assert change.percent == pytest.approx(50, abs=5)


def test_a_layer_that_few_rounds_recorded_is_not_judged() -> None:
    a, b = rounds(4, 0.05, 0.0)
    a.times[::3, 2] = b.times[1::3, 2] = np.nan
    a.times[:, 5] = np.nan
    changes = compare_rounds(a, b, FLOOR).changes
    assert (changes[2].p, changes[5].p, changes[5].percent) == (None, None, None)
    assert changes[1].is_significant

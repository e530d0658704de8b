"""The method of `diff` as a whole, by a few pairs of seeded runs; the benchmark has more."""

from __future__ import annotations

import pytest

from tests.unit.diff.noisy_runs import (
    Noise,
    alike,
    drifting,
    independent,
    repeating,
    share_found,
    share_of_alarms,
    spiking,
    wandering,
)

PAIRS = 20
SIZES = {"inferences": 30, "layers": 20}


@pytest.mark.parametrize("noise", [independent, repeating, alike, drifting, wandering, spiking])
def test_runs_without_a_change_hardly_ever_alarm(noise: Noise) -> None:
    assert share_of_alarms(noise, PAIRS, **SIZES) <= 2 / PAIRS


@pytest.mark.parametrize("noise", [independent, repeating, spiking])
def test_a_layer_that_is_five_percent_slower_is_found(noise: Noise) -> None:
    assert share_found(noise, PAIRS, **SIZES) >= 0.8

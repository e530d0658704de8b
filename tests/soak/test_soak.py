"""What a soak measures by is right."""

from __future__ import annotations

import os
import subprocess

import numpy as np
import pytest

from tests.soak.measures import MIB, Sample, sampled, trend, usual_descriptors


def samples(slope_mib_per_s: float, noise_mib: float) -> list[Sample]:
    noise = np.random.default_rng(3).normal(0, noise_mib * MIB, 300)
    return [Sample(at, int(100 * MIB + slope_mib_per_s * MIB * at + noise[at]), 20) for at in range(300)]


@pytest.mark.parametrize(("slope", "noise", "grows"), [(0.0, 1.0, False), (0.2, 1.0, True), (0.01, 0.1, False)])
def test_growth_is_a_slope_beyond_noise_and_beyond_a_warm_up(slope: float, noise: float, grows: bool) -> None:
    found = trend(samples(slope, noise))
    assert found is not None
    assert found.is_growth is grows
    assert found.slope_bytes_per_s == pytest.approx(slope * MIB, abs=0.01 * MIB)


def test_descriptors_are_compared_by_what_is_usual() -> None:
    opened = [20] * 60 + [90] + [20] * 39
    assert usual_descriptors([Sample(at, MIB, count) for at, count in enumerate(opened)]) == (20, 20)
    assert usual_descriptors([Sample(at, MIB, at) for at in range(100)]) == (57, 91)


def test_few_samples_have_no_trend() -> None:
    assert trend(samples(0.0, 1.0)[:3]) is None


def test_a_process_is_sampled_until_it_is_gone() -> None:
    own = sampled(os.getpid(), 1.0)
    assert own is not None
    assert own.rss_bytes > MIB
    assert own.descriptors > 2
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert sampled(ended.pid, 1.0) is None

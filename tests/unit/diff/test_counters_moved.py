"""Counters that explain a change."""

from __future__ import annotations

import numpy as np

from profagent.diff.comparing import counters_moved
from profagent.formats.countermap import COUNTER_NAMES


def _counters(seed: int, **means: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    columns = [rng.normal(1, 0.01, 20) * means.get(name, 0.4) for name in COUNTER_NAMES]
    return np.stack(columns, axis=1)


def test_what_moved_by_more_than_its_noise_is_told_with_its_means_largest_first() -> None:
    base = _counters(1, ddr_read_bytes=1000.0)
    found = counters_moved(base, _counters(2, ddr_read_bytes=1100.0, wld=0.6))
    assert [moved.counter for moved in found] == ["wld", "ddr_read_bytes"]
    assert (round(found[0].base, 1), round(found[0].new, 1)) == (0.4, 0.6)


def test_counters_that_never_move_hide_none_that_does() -> None:
    base, new = _counters(1), _counters(2, wld=0.6)
    base[:, 2:7] = new[:, 2:7] = 0.3
    assert [moved.counter for moved in counters_moved(base, new)] == ["wld"]


def test_a_small_move_is_none_however_sure() -> None:
    assert counters_moved(_counters(1), _counters(2, wld=0.41)) == ()
    assert counters_moved(_counters(1, ddr_read_bytes=1000.0), _counters(2, ddr_read_bytes=1015.0)) == ()


def test_a_large_move_within_the_noise_is_none() -> None:
    rng = np.random.default_rng(31)
    base, new = (rng.normal(mean, 0.1, (20, len(COUNTER_NAMES))) for mean in (0.4, 0.43))
    assert counters_moved(base, new) == ()


def test_repeats_are_not_many_and_what_is_not_known_is_left_out() -> None:
    base, new = _counters(1), _counters(2, wld=0.6)
    assert counters_moved(np.repeat(base[:3], 10, axis=0), new) == ()
    base[:, 7] = np.nan
    assert counters_moved(base, new) == ()
    assert counters_moved(np.full((9, 10), np.nan), new) == ()

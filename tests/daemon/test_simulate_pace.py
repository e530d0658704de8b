"""The schedule of a steady rate."""

from __future__ import annotations

import pytest

from profagentd.simulate.run import MAX_LAG_S, Pace


def test_inferences_are_due_on_an_absolute_grid() -> None:
    pace = Pace(100.0, 3.0, free_at=100.0)
    begins = []
    for _ in range(3_000_001):
        begins.append(pace.next_begin)
        pace.take(0.001)
    assert begins[1] == pytest.approx(100.0 + 1 / 3)
    assert begins[-1] == 100.0 + 1_000_000.0


def test_an_npu_that_is_too_slow_runs_without_a_pause_and_counts_as_late() -> None:
    pace = Pace(0.0, 10.0, free_at=0.0)
    for _ in range(4):
        pace.seen(pace.take(0.25), 0.25)
    assert pace.next_begin == 1.0
    assert (pace.late, pace.max_late_us) == (3, 450_000)


def test_waking_a_little_late_moves_nothing() -> None:
    pace = Pace(0.0, 10.0, free_at=0.0)
    for number in range(100):
        assert pace.next_begin == pytest.approx(number / 10)
        pace.seen(pace.take(0.01) + 0.05, 0.01)
    assert pace.late == 0


def test_a_stalled_host_holds_the_npu_back() -> None:
    pace = Pace(0.0, 100.0, free_at=0.0)
    pace.seen(pace.take(0.001) + 5.0, 0.001)
    assert pace.next_begin == pytest.approx(5.001 - MAX_LAG_S)
    assert (pace.late, pace.max_late_us) == (1, 5_000_000)

"""Two runs beside each other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from profagent.diff.comparing import Change, Floor, ModelDiff, compare
from profagent.stats.figures import figures_of
from tests.unit.diff.noisy_runs import independent, run

if TYPE_CHECKING:
    from profagent.diff.runs import ModelRun

SIZES = {"inferences": 30, "layers": 12}


def _diff(base: ModelRun, new: ModelRun, floor: Floor | None = None) -> ModelDiff:
    return compare([(base, new)], floor or Floor())[0]


def _significant(diff: ModelDiff) -> list[str]:
    return [change.name for change in diff.changes.values() if change.is_significant]


def test_the_layer_that_is_slower_is_told_and_no_other() -> None:
    diff = _diff(run(independent, 1, **SIZES), run(independent, 2, **SIZES, slower=5))
    assert _significant(diff) == ["l5"]
    change = diff.changes[5]
    assert change.percent == pytest.approx(5, abs=2)
    assert change.difference > 0


def test_the_floor_keeps_small_changes_out() -> None:
    base, new = run(independent, 1, **SIZES), run(independent, 2, **SIZES, slower=5)
    assert _significant(_diff(base, new, Floor(percent=8))) == []
    assert _significant(_diff(base, new, Floor(absolute=100))) == []


@pytest.mark.parametrize(("p", "counts"), [(0.03, True), (0.031, False), (None, False)])
def test_what_chance_makes_in_more_than_three_of_a_hundred_comparisons_is_no_change(
    p: float | None, *, counts: bool
) -> None:
    change = Change("layer", "l0", figures_of(np.full(9, 10.0)), figures_of(np.full(9, 11.0)), p)
    assert change.judged(Floor()).is_significant is counts


def test_too_few_inferences_tell_nothing_and_repeats_are_not_many() -> None:
    base, new = run(independent, 1, **SIZES), run(independent, 2, **SIZES, slower=5)
    few = replace(new, times=new.times[:4])
    assert _diff(base, few).total.p is None
    repeated = replace(few, times=np.tile(few.times, (20, 1)))
    found = _diff(base, repeated)
    assert (found.total.p, _significant(found)) == (None, [])
    assert found.changes[5].new.number == 80


def test_a_layer_that_one_run_lacks_has_no_change_but_the_total_has() -> None:
    base, new = run(independent, 1, **SIZES), run(independent, 2, **SIZES)
    shorter = replace(new, layers=new.layers[1:], times=new.times[:, 1:])
    diff = _diff(base, shorter)
    assert diff.matches[0].kind == "removed"
    assert 0 not in diff.changes
    assert diff.total.is_significant
    assert diff.total.difference < 0


def test_missing_records_are_passed_over_and_a_layer_with_few_is_not_tested() -> None:
    base, new = run(independent, 1, **SIZES), run(independent, 2, **SIZES, slower=5)
    new.times[3, 5] = new.times[4, 2] = np.nan
    assert _significant(_diff(base, new)) == ["l5"]
    new.times[:20, 5] = np.nan
    found = _diff(base, new)
    assert (found.changes[5].p, found.changes[5].is_significant, found.changes[5].new.number) == (None, False, 10)


def test_counters_that_moved_go_with_a_change() -> None:
    rng = np.random.default_rng(3)
    counters = [rng.normal(0.4, 0.01, (20, 10)) for _ in range(2)]
    counters[1][:, 6] += 0.1
    base = replace(run(independent, 1, **SIZES), counters={5: counters[0], 6: counters[0]})
    new = replace(run(independent, 2, **SIZES, slower=5), counters={5: counters[1], 6: counters[1]})
    diff = _diff(base, new)
    assert [moved.counter for moved in diff.changes[5].moved] == ["dld"]
    assert diff.changes[6].moved == ()

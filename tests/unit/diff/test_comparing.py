"""Two runs beside each other."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profagent.diff.comparing import Change, Floor, Match, ModelDiff, Scope, align, compare
from profagent.diff.diff import Condition, parse_condition
from profagent.diff.runs import LayerName
from profagent.diff.significance import differences, different_rows
from profagent.errors import UsageError
from profagent.formats.countermap import COUNTER_NAMES
from profagent.formats.inference_times import LatencyFrom
from profagent.limits import MOST_COMPARED
from profagent.stats.figures import DurationFigures, figures_of
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
    assert _diff(base, few).layers.p is None
    repeated = replace(few, times=np.tile(few.times, (20, 1)))
    found = _diff(base, repeated)
    assert (found.layers.p, _significant(found)) == (None, [])
    assert found.changes[5].new.number == 80


def test_a_layer_that_one_run_lacks_has_no_change_but_their_sum_has() -> None:
    base, new = run(independent, 1, **SIZES), run(independent, 2, **SIZES)
    shorter = replace(new, layers=new.layers[1:], times=new.times[:, 1:])
    diff = _diff(base, shorter)
    assert diff.matches[0].kind == "removed"
    assert 0 not in diff.changes
    assert diff.layers.is_significant
    assert diff.layers.difference < 0


def _with_latency(base: ModelRun, rest_us: float, *origins: LatencyFrom) -> ModelRun:
    """The run, whose inferences take so much longer than their layers."""
    latency = base.times.sum(axis=1) + rest_us
    return replace(base, latencies={each: latency + 50 * (each is LatencyFrom.CALL) for each in origins})


def test_a_latency_that_grew_beside_the_layers_is_told_and_no_layer() -> None:
    base = _with_latency(run(independent, 1, **SIZES), 100, *LatencyFrom)
    new = _with_latency(run(independent, 2, **SIZES), 200, *LatencyFrom)
    diff = _diff(base, new)
    assert diff.latency is diff.inference
    assert (diff.latency_from, diff.latency.is_significant, diff.layers.is_significant) == ("call", True, False)
    assert diff.latency.difference == pytest.approx(100, abs=5)
    assert _significant(diff) == []


def test_latencies_of_different_origins_are_not_compared() -> None:
    base, new = run(independent, 1, **SIZES), run(independent, 2, **SIZES)
    by_records = _with_latency(base, 100, LatencyFrom.RECORDS)
    assert _diff(by_records, _with_latency(new, 100, *LatencyFrom)).latency_from == "records"
    neither = _diff(by_records, _with_latency(new, 100, LatencyFrom.CALL))
    assert (neither.latency, neither.inference.scope) == (None, "layers")


def test_a_record_that_was_dropped_makes_no_sum_smaller() -> None:
    base, new = run(independent, 1, **SIZES), run(independent, 2, **SIZES)
    whole = _diff(base, new)
    new.times[::4, np.argmax(np.nanmean(new.times, axis=0))] = np.nan
    dropped = _diff(base, new)
    assert dropped.layers.new.median == pytest.approx(whole.layers.new.median, rel=0.01)
    assert dropped.layers.new.number == whole.layers.new.number
    assert not any(change.is_significant for change in dropped.all_changes())


def test_missing_records_are_passed_over_and_a_layer_with_few_is_not_tested() -> None:
    base, new = run(independent, 1, **SIZES), run(independent, 2, **SIZES, slower=5)
    new.times[3, 5] = new.times[4, 2] = np.nan
    assert _significant(_diff(base, new)) == ["l5"]
    new.times[:20, 5] = np.nan
    found = _diff(base, new)
    assert (found.changes[5].p, found.changes[5].is_significant, found.changes[5].new.number) == (None, False, 10)


def test_counters_that_moved_go_with_a_change() -> None:
    rng = np.random.default_rng(3)
    counters = [rng.normal(0.4, 0.01, (20, len(COUNTER_NAMES))) for _ in range(2)]
    counters[1][:, 6] += 0.1
    base = replace(run(independent, 1, **SIZES), counters={5: counters[0], 6: counters[0]})
    new = replace(run(independent, 2, **SIZES, slower=5), counters={5: counters[1], 6: counters[1]})
    diff = _diff(base, new)
    assert [moved.counter for moved in diff.changes[5].moved] == ["dld"]
    assert diff.changes[6].moved == ()


# Layers of two networks that belong together

names = st.lists(st.sampled_from("abcdefghij"), max_size=12).map(lambda found: [layer(each) for each in found])


def layer(name: str, kind: str = "Conv", unit: str = "AA_CORE") -> LayerName:
    return LayerName(name, kind, unit)


def layers(*names: str) -> list[LayerName]:
    return [layer(name) for name in names]


def same(base: int, new: int) -> Match:
    return Match("same", (base,), (new,))


def test_an_inserted_and_a_removed_layer_are_told() -> None:
    assert align(layers("a", "b", "c"), layers("a", "x", "b", "c"))[1] == Match("inserted", (), (1,))
    assert align(layers("a", "b", "c"), layers("a", "c")) == [same(0, 0), Match("removed", (1,), ()), same(2, 1)]


def test_a_layer_of_another_type_is_retyped_wherever_it_runs() -> None:
    retyped = [Match("retyped", (0,), (0,))]
    assert align([layer("a")], [layer("a", "Conv2D")]) == retyped
    assert align([layer("a")], [layer("a", "Conv2D", "AA_CPU")]) == retyped


def test_a_layer_of_another_name_in_its_place_is_renamed() -> None:
    assert align(layers("a", "b", "c"), layers("a", "x", "c"))[1] == Match("renamed", (1,), (1,))
    base, new = [layer("a"), layer("b", "Pool"), layer("c")], [layer("a"), layer("x", "Eltwise"), layer("c")]
    assert {match.kind for match in align(base, new)} == {"same", "inserted", "removed"}


def test_a_layer_on_the_other_unit_is_moved() -> None:
    assert align([layer("a")], [layer("a", unit="AA_CPU")]) == [Match("moved", (0,), (0,))]


def test_a_network_of_which_every_name_has_a_new_prefix_is_aligned_in_spite_of_an_insertion() -> None:
    base = layers(*(f"model.{i}.conv" for i in range(9)))
    new = [layer(f"net.model.{i}.conv") for i in range(9)]
    new.insert(4, layer("net.extra"))
    found = align(base, new)
    assert [match.kind for match in found].count("renamed") == 9
    assert found[4] == Match("inserted", (), (4,))


def test_layers_that_became_one_are_fused_and_the_reverse_is_split() -> None:
    base, new = layers("a", "conv", "relu", "mul", "z"), layers("a", "conv+relu+mul", "z")
    assert align(base, new) == [same(0, 0), Match("fused", (1, 2, 3), (1,)), same(4, 2)]
    assert align(new, base) == [same(0, 0), Match("split", (1,), (1, 2, 3)), same(2, 4)]


def test_a_neighbour_that_is_not_in_the_fused_layer_is_removed() -> None:
    found = align(layers("conv", "relu", "gone"), layers("conv+relu"))
    assert found == [Match("fused", (0, 1), (0,)), Match("removed", (2,), ())]


@given(names)
def test_a_network_is_itself(network: list[LayerName]) -> None:
    assert align(network, network) == [same(place, place) for place in range(len(network))]


@given(names, names)
def test_every_layer_is_in_exactly_one_match_in_order(base: list[LayerName], new: list[LayerName]) -> None:
    found = align(base, new)
    assert sorted(place for match in found for place in match.base) == list(range(len(base)))
    assert [place for match in found for place in match.new] == list(range(len(new)))


@given(names, st.randoms())
def test_layers_in_another_order_are_paired_by_name_and_occurrence(base: list[LayerName], chance: Random) -> None:
    places = list(range(len(base)))
    chance.shuffle(places)
    found = align(base, [base[place] for place in places])
    seen: dict[str, int] = {}
    for match in found:
        name = base[places[match.new[0]]].name
        k = seen[name] = seen.get(name, -1) + 1
        assert match.base == ([place for place, each in enumerate(base) if each.name == name][k],)


def test_one_of_several_layers_of_a_name_that_is_missing_shifts_no_other() -> None:
    base = layers("add", "conv1", "add", "conv2", "add")
    assert align(base, base[1:]) == [Match("removed", (0,), ()), *(same(place + 1, place) for place in range(4))]


@given(names, names)
def test_from_the_other_side_as_many_are_the_same(base: list[LayerName], new: list[LayerName]) -> None:
    count = [[match.kind for match in align(*pair)].count("same") for pair in ((base, new), (new, base))]
    assert count[0] == count[1]


@pytest.mark.parametrize("shift", [0, 40])
def test_a_large_network_is_aligned(shift: int) -> None:
    rng = np.random.default_rng(3)
    base = [layer(f"l{i}", f"T{rng.integers(5)}") for i in range(800)]
    new = [each for place, each in enumerate(base) if place % 50 != shift]
    assert [match.kind for match in align(base, new)].count("removed") == 16


# The permutation test, against known values and its own promises


def _p(base: np.ndarray, new: np.ndarray) -> list[float]:
    p = differences([*base.T], [*new.T])
    assert p is not None
    return p.tolist()


def _exact_p(base: np.ndarray, new: np.ndarray) -> float:
    """By every way to deal the rows out."""
    both, count = np.concatenate([base, new])[:, 0], len(base)
    found = abs(base.mean() - new.mean())
    ways = [list(way) for way in combinations(range(len(both)), count)]
    as_far = [abs(both[way].mean() - np.delete(both, way).mean()) >= found - 1e-12 for way in ways]
    return sum(as_far) / len(ways)


@pytest.mark.parametrize("shift", [0.0, 0.8, 1.5])
def test_p_of_one_column_is_that_of_all_deals(shift: float) -> None:
    rng = np.random.default_rng(5)
    base, new = rng.random((6, 1)), rng.random((6, 1)) + shift
    assert _p(base, new)[0] == pytest.approx(_exact_p(base, new), abs=0.03)


def test_rows_that_are_alike_are_less_certain() -> None:
    rng = np.random.default_rng(9)
    base, new = 10 + rng.standard_normal((2, 30, 1))
    assert _p(np.repeat(base[:10], 3, axis=0), np.repeat(new[:10] + 1.5, 3, axis=0))[0] > 5 * _p(base, new + 1.5)[0]


def test_too_few_rows_tell_nothing_and_repeats_are_told() -> None:
    assert differences([np.ones(4)], [np.ones(9)]) is None
    assert different_rows(np.array([[1.0, 2], [1, 3], [1, 2], [np.nan, 2], [np.nan, 2]])).tolist() == [0, 1, 3]


def test_a_spike_does_not_hide_a_change() -> None:
    rng = np.random.default_rng(10)
    base, new = 100 + rng.standard_normal((2, 60, 1))
    base[0] = 100_000
    assert _p(base, new + 5)[0] < 0.01


def test_many_rows_are_averaged_in_blocks_and_answers_are_the_same_each_time() -> None:
    rng = np.random.default_rng(11)
    base, new = rng.standard_normal((2, 20 * MOST_COMPARED + 3, 2))
    new[:, 1] += 0.2
    assert _p(base, new)[0] > 0.05
    assert _p(base, new)[1] < 0.01
    assert _p(base, new) == _p(base, new)


# `--fail-if`: what is read, what is refused where, and what holds


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("latency.median>+3%", ("latency", None, "median", ">", 3.0, "%")),
        ("layer.p95 >= +20.5 us", ("layer", None, "p95", ">=", 20.5, "us")),
        ("layer[a.b+c d].max<-1ms", ("layer", "a.b+c d", "max", "<", -1.0, "ms")),
        (" api [svp_acl_mdl_execute] . mean <= - 0.5 % ", ("api", "svp_acl_mdl_execute", "mean", "<=", -0.5, "%")),
        ("type[Conv].mad>+0%", ("type", "Conv", "mad", ">", 0.0, "%")),
        ("layers[m].p99>-3%", ("layers", "m", "p99", ">", -3.0, "%")),
    ],
)
def test_conditions_are_read(text: str, condition: tuple[object, ...]) -> None:
    assert parse_condition(text) == Condition._make((text, *condition))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "latencies.median>+5%",
            "layer",
            "layer.middle>+5%",
            "layer.median+5%",
            "layer.median>5%",
            "layer.median>+%",
        ),
        *("layer.median>+5", "layer.median>+5s", "layer.median>+5% or", "layer[].median>+5%", "layer[x.median>+5%"),
    ],
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no such condition"):
        parse_condition(text)


@pytest.mark.parametrize(("text", "rest"), [("total.median>+3%", ".median>+3%"), ("model[m].p95>+3%", "[m].p95>+3%")])
def test_a_former_condition_is_refused_with_the_words_that_take_its_place(text: str, rest: str) -> None:
    with pytest.raises(UsageError, match="an inference has two times") as error:
        parse_condition(text)
    assert (
        error.value.hint
        == f"write latency{rest} for the time that the program waits, or layers{rest} for the sum of the layers"
    )


def _change(base: float, new: float, scope: Scope = "layer", name: str = "a", *, is_significant: bool = True) -> Change:
    one, other = (DurationFigures(9, *[value] * 7) for value in (base, new))
    return Change(scope, name, one, other, 0.01, is_significant)


@pytest.mark.parametrize(
    ("text", "base", "new", "holds"),
    [
        ("layer.median>+5%", 100, 106, True),
        ("layer.median>+5%", 100, 105, False),
        ("layer.median>=+5%", 100, 105, True),
        ("layer.median<-5%", 100, 90, True),
        ("layer.median<-5%", 100, 110, False),
        ("layer.max>+5us", 100, 106, True),
        ("layer.max>+1ms", 100, 106, False),
        ("layer.max>+1ms", 100, 1200, True),
        ("layer[a].p95>+5%", 100, 106, True),
        ("layer[b].p95>+5%", 100, 106, False),
        ("type.p95>+5%", 100, 106, False),
        ("layer.median>+5%", 0, 106, False),
    ],
)
def test_what_holds(text: str, base: float, new: float, holds: bool) -> None:
    assert bool(parse_condition(text).failing([_change(base, new)])) is holds


def test_what_is_within_the_noise_never_does() -> None:
    assert parse_condition("layer.median>+5%").failing([_change(100, 200, is_significant=False)]) == []


@pytest.mark.parametrize(
    ("text", "base", "new", "p", "is_significant", "is_baseless"),
    [
        ("layer.mad>+3%", 0, 2, 0.01, True, True),
        ("layer.mad>+3%", 0, 2, None, False, True),
        ("layer.mad>+3%", 0, 2, 0.5, False, False),
        ("layer.mad>+3%", 0, 0, 0.01, True, False),
        ("layer.mad>+3%", 1, 2, 0.01, True, False),
        ("layer.mad>+3us", 0, 2, 0.01, True, False),
    ],
)
def test_nobody_can_tell_a_share_of_nothing(
    text: str, base: float, new: float, p: float | None, is_significant: bool, is_baseless: bool
) -> None:
    change = replace(_change(base, new, is_significant=is_significant), p=p)
    assert bool(parse_condition(text).baseless([change])) is is_baseless

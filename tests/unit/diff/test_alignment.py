"""Layers of two networks that belong together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profagent.diff.comparing import Match, align
from profagent.diff.runs import LayerName

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
    assert [place for match in found for place in match.base] == list(range(len(base)))
    assert [place for match in found for place in match.new] == list(range(len(new)))


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

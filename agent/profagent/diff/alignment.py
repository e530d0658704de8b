"""Which layers of one network are which of another: sequences aligned as a whole (Needleman and Wunsch)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Kind = Literal["same", "renamed", "moved", "fused", "split", "inserted", "removed"]
Pairs = list[tuple[int | None, int | None]]

# What a pair is worth: equal names, names that share a fused layer, equal types. Parts that names share add up to 1.
SAME_NAME, SHARED_LAYER, SAME_TYPE = 4.0, 2.0, 0.5
NEVER = -1e9
GAP = -0.3
ROUNDING = 1e-6
_PARTS = re.compile(r"[^\W_]+")
_DIAGONAL, _UP, _LEFT = 0, 1, 2


class LayerName(NamedTuple):
    """A layer, or fused ones joined with `+`; `unit` is where it runs."""

    name: str
    type: str
    unit: str


class Match(NamedTuple):
    """Places in both sequences that belong together; `renamed` has another name or type, `moved` another unit.

    `fused`: several of the base became one; `split`: one became several; `inserted`, `removed`: one side has none.
    """

    kind: Kind
    base: tuple[int, ...]
    new: tuple[int, ...]


def align(base: Sequence[LayerName], new: Sequence[LayerName]) -> list[Match]:
    """Every layer of both in exactly one match, in the order of the sequences."""
    return _grouped(_pairs(base, new), base, new)


def _pairs(base: Sequence[LayerName], new: Sequence[LayerName]) -> Pairs:
    """The best alignment: pairs of places, None opposite of a gap. Time and memory go with the product of lengths."""
    moves = np.full((len(base) + 1, len(new) + 1), _LEFT, np.int8)
    moves[:, 0] = _UP
    steps = GAP * np.arange(len(new) + 1)
    scores = _Scores(new)
    above = steps
    for i, layer in enumerate(base, 1):
        diagonal, up = above[:-1] + scores.of(layer), above[1:] + GAP
        best = np.append(GAP * i, np.maximum(diagonal, up))
        # Gaps in this row cost the same each, so the best of all ways to begin one is a running maximum.
        row = np.maximum.accumulate(best - steps) + steps
        entered = np.where(diagonal >= up, _DIAGONAL, _UP)
        moves[i, 1:] = np.where(row[1:] > best[1:] + ROUNDING, _LEFT, entered)
        above = row
    i, j = len(base), len(new)
    pairs: Pairs = []
    while i or j:
        move = moves[i, j]
        i, j = i - (move != _LEFT), j - (move != _UP)
        pairs.append((None if move == _LEFT else int(i), None if move == _UP else int(j)))
    return pairs[::-1]


class _Scores:
    """What a layer is worth opposite of each of a sequence."""

    def __init__(self, layers: Sequence[LayerName]) -> None:
        self._count = len(layers)
        self._places: dict[tuple[str, str], list[int]] = {}
        for place, layer in enumerate(layers):
            for word in _words(layer):
                self._places.setdefault(word, []).append(place)
        self._lengths = np.array([len(_parts(layer)) for layer in layers], np.float64)

    def of(self, layer: LayerName) -> NDArray[np.float64]:
        """The score of each pair, shape (layers,)."""
        counts = {kind: np.zeros(self._count) for kind in ("name", "type", "fused", "part")}
        for word in _words(layer):
            counts[word[0]][self._places.get(word, [])] += 1
        alike = counts["part"] / np.maximum(self._lengths + len(_parts(layer)) - counts["part"], 1)
        is_typed = counts["type"] > 0
        by_name = np.where(counts["fused"] > 0, SHARED_LAYER + alike, NEVER)
        other = np.where(is_typed, np.maximum(by_name, SAME_TYPE + alike), by_name)
        return np.where(counts["name"] > 0, SAME_NAME + is_typed, other)


def _words(layer: LayerName) -> set[tuple[str, str]]:
    """What layers may share, by kind."""
    fused = (("fused", name) for name in _fused(layer))
    return {("name", layer.name), ("type", layer.type), *fused, *(("part", part) for part in _parts(layer))}


def _fused(layer: LayerName) -> set[str]:
    return set(layer.name.split("+"))


def _parts(layer: LayerName) -> set[str]:
    return set(_PARTS.findall(layer.name))


def _grouped(pairs: Pairs, base: Sequence[LayerName], new: Sequence[LayerName]) -> list[Match]:
    """The pairs as matches, where neighbours without a partner join the pair whose fused layers they are among."""
    matches: dict[int, Match] = {}
    joined: set[int] = set()
    for at, (i, j) in enumerate(pairs):
        if i is None or j is None:
            continue
        kind: Kind = "same" if base[i] == new[j] else "moved" if base[i][:2] == new[j][:2] else "renamed"
        matches[at] = Match(kind, (i,), (j,))
        for side, layers, whole in ((0, base, new[j]), (1, new, base[i])):
            parts = _parts_of(whole, pairs, at, side, layers, joined)
            if len(parts) > 1:
                places = tuple(sorted(place for k in parts if (place := pairs[k][side]) is not None))
                matches[at] = Match("fused", places, (j,)) if side == 0 else Match("split", (i,), places)
                joined.update(parts)
    for at, (i, j) in enumerate(pairs):
        if at not in joined and j is None and i is not None:
            matches[at] = Match("removed", (i,), ())
        elif at not in joined and i is None and j is not None:
            matches[at] = Match("inserted", (), (j,))
    return [match for _, match in sorted(matches.items())]


def _parts_of(
    whole: LayerName, pairs: Pairs, at: int, side: int, layers: Sequence[LayerName], joined: set[int]
) -> list[int]:
    """A pair and its neighbours without a partner that are different layers of the other side's fused one."""
    own = pairs[at][side]
    assert own is not None, "it has a partner"
    left = _fused(whole) - _fused(layers[own])
    if not _fused(layers[own]) <= _fused(whole):
        return []
    found = [at]
    for step in (-1, 1):
        place = at + step
        while 0 <= place < len(pairs) and None in pairs[place] and place not in joined:
            layer = pairs[place][side]
            if layer is not None:
                if not _fused(layers[layer]) <= left:
                    break
                left -= _fused(layers[layer])
                found.append(place)
            place += step
    return found

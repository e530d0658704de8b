"""Which layers of one network are which of another: sequences aligned as a whole (Needleman and Wunsch)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["Kind", "LayerName", "Match", "align"]

Kind = Literal["same", "renamed", "moved", "fused", "split", "inserted", "removed"]

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
    first = _common(zip(base, new, strict=False))
    last = _common(zip(reversed(base[first:]), reversed(new[first:]), strict=False))
    ends = len(base) - last, len(new) - last
    middle = _pairs(base[first : ends[0]], new[first : ends[1]])
    pairs: list[tuple[int | None, int | None]] = [
        *((place, place) for place in range(first)),
        *((_shifted(i, first), _shifted(j, first)) for i, j in middle),
        *((ends[0] + place, ends[1] + place) for place in range(last)),
    ]
    return _grouped(pairs, base, new)


def _common(pairs: Iterable[tuple[LayerName, LayerName]]) -> int:
    count = 0
    for one, other in pairs:
        if one != other:
            break
        count += 1
    return count


def _shifted(place: int | None, by: int) -> int | None:
    return None if place is None else place + by


def _pairs(base: Sequence[LayerName], new: Sequence[LayerName]) -> list[tuple[int | None, int | None]]:
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
    return _traced(moves)


def _traced(moves: NDArray[np.int8]) -> list[tuple[int | None, int | None]]:
    i, j = moves.shape[0] - 1, moves.shape[1] - 1
    pairs: list[tuple[int | None, int | None]] = []
    while i or j:
        move = moves[i, j]
        i, j = i - (move != _LEFT), j - (move != _UP)
        pairs.append((None if move == _LEFT else int(i), None if move == _UP else int(j)))
    return pairs[::-1]


class _Scores:
    """What a layer is worth opposite of each of a sequence."""

    def __init__(self, layers: Sequence[LayerName]) -> None:
        self._names = _Index(layers, lambda layer: {layer.name})
        self._types = _Index(layers, lambda layer: {layer.type})
        self._fused = _Index(layers, _fused)
        self._parts = _Index(layers, _parts)
        self._lengths = np.array([len(_parts(layer)) for layer in layers], np.float64)

    def of(self, layer: LayerName) -> NDArray[np.float64]:
        """The score of each pair, shape (layers,)."""
        is_named, is_typed = self._names.shared(layer) > 0, self._types.shared(layer) > 0
        shared = self._parts.shared(layer)
        alike = shared / np.maximum(self._lengths + len(_parts(layer)) - shared, 1)
        by_name = np.where(self._fused.shared(layer) > 0, SHARED_LAYER + alike, NEVER)
        other = np.where(is_typed, np.maximum(by_name, SAME_TYPE + alike), by_name)
        return np.where(is_named, SAME_NAME + is_typed, other)


class _Index:
    """Which layers of a sequence have which words."""

    def __init__(self, layers: Sequence[LayerName], words_of: Callable[[LayerName], set[str]]) -> None:
        self._count = len(layers)
        self._words_of = words_of
        places: dict[str, list[int]] = {}
        for place, layer in enumerate(layers):
            for word in words_of(layer):
                places.setdefault(word, []).append(place)
        self._places = {word: np.array(found) for word, found in places.items()}

    def shared(self, layer: LayerName) -> NDArray[np.float64]:
        """How many words each of the sequence shares with a layer."""
        counts = np.zeros(self._count)
        for word in self._words_of(layer):
            if word in self._places:
                counts[self._places[word]] += 1
        return counts


def _fused(layer: LayerName) -> set[str]:
    return set(layer.name.split("+"))


def _parts(layer: LayerName) -> set[str]:
    return set(_PARTS.findall(layer.name))


def _grouped(
    pairs: Sequence[tuple[int | None, int | None]], base: Sequence[LayerName], new: Sequence[LayerName]
) -> list[Match]:
    """The pairs as matches, where neighbours without a partner join the pair whose fused layers they are among."""
    matches: dict[int, Match] = {}
    joined: set[int] = set()
    for at, (i, j) in enumerate(pairs):
        if i is None or j is None:
            continue
        matches[at] = Match(_kind(base[i], new[j]), (i,), (j,))
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
    whole: LayerName,
    pairs: Sequence[tuple[int | None, int | None]],
    at: int,
    side: int,
    layers: Sequence[LayerName],
    joined: set[int],
) -> list[int]:
    """A pair and its neighbours without a partner that are different layers of the other side's fused one."""
    own = pairs[at][side]
    left = _fused(whole) - (_fused(layers[own]) if own is not None else set())
    if own is None or not _fused(layers[own]) <= _fused(whole):
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


def _kind(base: LayerName, new: LayerName) -> Kind:
    if base == new:
        return "same"
    return "moved" if base[:2] == new[:2] else "renamed"

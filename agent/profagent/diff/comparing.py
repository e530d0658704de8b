"""Two runs beside each other: which layers are slower or faster by more than the noise, and which are others."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from profagent.diff.runs import sum_where_known
from profagent.diff.significance import differences, different_rows
from profagent.formats.countermap import COUNTER_NAMES
from profagent.formats.inference_times import LatencyFrom
from profagent.stats.figures import DurationFigures, figures_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.diff.runs import LayerName, ModelRun


Kind = Literal["same", "retyped", "renamed", "moved", "fused", "split", "inserted", "removed"]
Pairs = list[tuple[int | None, int | None]]

# What a pair is worth: equal names, names that share a fused layer, equal types. Parts that names share add up to 1.
SAME_NAME, SHARED_LAYER, SAME_TYPE = 4.0, 2.0, 0.5
NEVER = -1e9
GAP = -0.3
ROUNDING = 1e-6
_PARTS = re.compile(r"[^\W_]+")
_DIAGONAL, _UP, _LEFT = 0, 1, 2


class Match(NamedTuple):
    """Places in both sequences that belong together.

    `renamed` has another name, `retyped` another type, `moved` another unit.

    `fused`: several of the base became one; `split`: one became several; `inserted`, `removed`: one side has none.
    """

    kind: Kind
    base: tuple[int, ...]
    new: tuple[int, ...]


def align(base: Sequence[LayerName], new: Sequence[LayerName]) -> list[Match]:
    """Every layer of both in exactly one match, in the order of the sequences.

    A layer's partner is the one of its name, the k-th of several, wherever it stands: the order of a sequence may be
    that in which layers were first seen. Neighbours without a partner join the pair whose fused layers they are among.
    """
    pairs = _across(_pairs(base, new), base, new)
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


def _kind(base: LayerName, new: LayerName) -> Kind:
    if base.name != new.name:
        return "renamed"
    return "retyped" if base.type != new.type else "same" if base.unit == new.unit else "moved"


def _pairs(base: Sequence[LayerName], new: Sequence[LayerName]) -> Pairs:
    """The best alignment: pairs of places, None opposite of a gap. Time and memory go with the product of lengths."""
    moves = np.full((len(base) + 1, len(new) + 1), _LEFT, np.int8)
    moves[:, 0] = _UP
    steps = GAP * np.arange(len(new) + 1)
    scores = _Scores(new, _partners(base, new))
    above = steps
    for i, layer in enumerate(base, 1):
        diagonal, up = above[:-1] + scores.of(i - 1, layer), above[1:] + GAP
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


def _partners(base: Sequence[LayerName], new: Sequence[LayerName]) -> dict[int, int]:
    """The k-th layer of a name in the other sequence, by its place, for names that both have equally often."""
    ones, others = _by_name(base), _by_name(new)
    alike = [name for name in ones if len(ones[name]) == len(others.get(name, ()))]
    return {one: other for name in alike for one, other in zip(ones[name], others[name], strict=True)}


def _by_name(layers: Sequence[LayerName]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, layer in enumerate(layers):
        places.setdefault(layer.name, []).append(place)
    return places


def _across(pairs: Pairs, base: Sequence[LayerName], new: Sequence[LayerName]) -> Pairs:
    """The pairs, with those of one name whose order is another in both joined at the place of the second."""
    alone: dict[str, list[int]] = {}
    for i, j in pairs:
        if i is not None and j is None:
            alone.setdefault(base[i].name, []).append(i)
    found = {j: places.pop(0) for i, j in pairs if i is None and j is not None and (places := alone.get(new[j].name))}
    moved = set(found.values())
    return [(found.get(j, i) if j is not None else i, j) for i, j in pairs if j is not None or i not in moved]


class _Scores:
    """What a layer is worth opposite of each of a sequence; one that has a partner, opposite of that alone."""

    def __init__(self, layers: Sequence[LayerName], partners: Mapping[int, int]) -> None:
        self._count = len(layers)
        self._partners = partners
        self._taken = list(partners.values())
        self._places: dict[tuple[str, str], list[int]] = {}
        for place, layer in enumerate(layers):
            for word in _words(layer):
                self._places.setdefault(word, []).append(place)
        self._lengths = np.array([len(_parts(layer)) for layer in layers], np.float64)

    def of(self, place: int, layer: LayerName) -> NDArray[np.float64]:
        """The score of each pair of the base's layer at a place, shape (layers,)."""
        counts = {kind: np.zeros(self._count) for kind in ("name", "type", "fused", "part")}
        for word in _words(layer):
            counts[word[0]][self._places.get(word, [])] += 1
        alike = counts["part"] / np.maximum(self._lengths + len(_parts(layer)) - counts["part"], 1)
        is_typed = counts["type"] > 0
        by_name = np.where(counts["fused"] > 0, SHARED_LAYER + alike, NEVER)
        other = np.where(is_typed, np.maximum(by_name, SAME_TYPE + alike), by_name)
        scores = np.where(counts["name"] > 0, SAME_NAME + is_typed, other)
        own, is_open = self._partners.get(place), np.ones(self._count, np.bool_)
        is_open[self._taken if own is None else slice(None)] = False
        if own is not None:
            is_open[own] = True
        return np.where(is_open, scores, NEVER)


def _words(layer: LayerName) -> set[tuple[str, str]]:
    """What layers may share, by kind."""
    fused = (("fused", name) for name in _fused(layer))
    return {("name", layer.name), ("type", layer.type), *fused, *(("part", part) for part in _parts(layer))}


def _fused(layer: LayerName) -> set[str]:
    return set(layer.name.split("+"))


def _parts(layer: LayerName) -> set[str]:
    return set(_PARTS.findall(layer.name))


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


Scope = Literal["latency", "layers", "layer", "type", "api"]
# The chance that a comparison of two runs without a change tells of any.
ALPHA = 0.03
# Layers with records in fewer of the inferences are not tested.
LEAST_KNOWN = 0.5
# So many equal values in each run are no chance: the unit has no noise there.
FEWEST_CONSTANT = 5
# Counters explain a change that was found: they are tested among those of one layer only, and must move by so many
# hundredths of the layer's time, or so much of their bytes.
COUNTER_ALPHA = 0.01
LEAST_MOVE = 0.02


class Floor(NamedTuple):
    """A change must be at least so large, in % of the base and in the unit of the durations."""

    percent: float = 1.0
    absolute: float = 0.1


class Moved(NamedTuple):
    """A counter and its means: a ratio of the layer's time, or bytes."""

    counter: str
    base: float
    new: float


@dataclass(frozen=True, slots=True)
class Change:
    """One thing in both runs. `p` is adjusted for all comparisons, None where a run has too few inferences for it.

    `times`: how many records of a layer an inference of each run has, where that differs: the sum of more records is no
    slower layer.
    """

    scope: Scope
    name: str
    base: DurationFigures
    new: DurationFigures
    p: float | None
    is_significant: bool = False
    moved: tuple[Moved, ...] = ()
    times: tuple[float, float] | None = None

    @property
    def difference(self) -> float:
        """Of the medians."""
        return (self.new.median or 0.0) - (self.base.median or 0.0)

    @property
    def percent(self) -> float | None:
        """The difference in % of the base's median."""
        return self.difference / self.base.median * 100 if self.base.median else None

    def judged(self, floor: Floor) -> Change:
        """The change, significant where it is above the noise and the floor, and of one number of records."""
        is_noise = self.p is None or self.p > ALPHA or abs(self.difference) < floor.absolute
        is_small = self.percent is not None and abs(self.percent) < floor.percent
        return replace(self, is_significant=not (is_noise or is_small or self.times))


@dataclass(frozen=True, slots=True)
class ModelDiff:
    """A model in both runs; `changes` has one of each match with both sides, in their order.

    `latency` is None where the two runs do not know it from one origin, `latency_from`; `layers` is the change of the
    sum of layers.
    """

    name: str
    base: ModelRun
    new: ModelRun
    matches: list[Match]
    latency: Change | None
    latency_from: LatencyFrom | None
    layers: Change
    changes: dict[int, Change]
    types: list[Change]

    @property
    def inference(self) -> Change:
        """The change of an inference: of its latency, or else of the sum of its layers."""
        return self.layers if self.latency is None else self.latency

    def all_changes(self) -> list[Change]:
        """The changes of the inference, its layers and their types."""
        latency = [] if self.latency is None else [self.latency]
        return [*latency, self.layers, *self.changes.values(), *self.types]


def compare(pairs: Sequence[tuple[ModelRun, ModelRun]], floor: Floor) -> list[ModelDiff]:
    """Compare models pairwise; the chance of any false alarm in all of it is held below ALPHA."""
    return [_compared(base, new, len(pairs), floor) for base, new in pairs]


def compare_calls(
    base: Mapping[str, NDArray[np.float64]], new: Mapping[str, NDArray[np.float64]], floor: Floor
) -> list[Change]:
    """Compare the durations of the runtime's functions, in µs, where both runs have any."""
    names = sorted(name for name in base.keys() & new.keys() if len(base[name]) and len(new[name]))
    changes = []
    for name in names:
        tested = differences([base[name]], [new[name]])
        p = None if tested is None else min(1.0, float(tested[0]) * len(names))
        changes.append(Change("api", name, figures_of(base[name]), figures_of(new[name]), p).judged(floor))
    return changes


def counters_moved(base: NDArray[np.float64], new: NDArray[np.float64]) -> tuple[Moved, ...]:
    """Those that moved, of two layers' counters, shape (records, counters), NaN where not known; largest first."""
    known: NDArray[np.bool_] = ~np.isnan(np.concatenate([base, new])).any(axis=0)
    one, other = (values[:, known][different_rows(values[:, known])] for values in (base, new))
    tested = differences([*one.T], [*other.T]) if known.any() else None
    if tested is None:
        return ()
    names = [name for name, is_known in zip(COUNTER_NAMES, known.tolist(), strict=True) if is_known]
    means = zip(names, one.mean(axis=0).tolist(), other.mean(axis=0).tolist(), strict=True)
    found = [Moved(*each) for each, p in zip(means, tested, strict=True) if p <= COUNTER_ALPHA]
    least = {name: LEAST_MOVE * (base if name.endswith("_bytes") else 1.0) for name, base, _ in found}
    far = [moved for moved in found if abs(moved.new - moved.base) > least[moved.counter]]
    return tuple(sorted(far, key=lambda moved: -abs(moved.new - moved.base) / max(moved[1:])))


def _compared(base: ModelRun, new: ModelRun, comparisons: int, floor: Floor) -> ModelDiff:
    """All things of a model as columns: the sum of layers, the latency, layers that have a match, and types."""
    matches = align(base.layers, new.layers)
    paired = [at for at, match in enumerate(matches) if match.base and match.new]
    types = sorted({layer.type for layer in base.layers} & {layer.type for layer in new.layers})
    origin = _common_origin(base, new)
    ones = _columns(base, origin, [matches[at].base for at in paired], types)
    others = _columns(new, origin, [matches[at].new for at in paired], types)
    tested = differences(_of_different(base, ones), _of_different(new, others), has_total=True)
    names = [" | ".join(new.layers[place].name for place in matches[at].new) for at in paired]
    scopes: list[tuple[Scope, str]] = [("layers", new.name)]
    if origin is not None:
        scopes.append(("latency", new.name))
    first = len(scopes)
    scopes += [("layer", name) for name in names]
    scopes += [("type", name) for name in types]
    changes = []
    for column, (scope, name) in enumerate(scopes):
        one, other = ones[column], others[column]
        p = _p(one, other, None if tested is None else float(tested[column]))
        figures = figures_of(_known(one)), figures_of(_known(other))
        times = _times(base, new, matches[paired[column - first]]) if scope == "layer" else None
        p = None if p is None else min(1.0, p * comparisons)
        change = Change(scope, name, *figures, p, times=times).judged(floor)
        if change.is_significant and scope == "layer":
            change = replace(change, moved=_moved(base, new, matches[paired[column - first]]))
        changes.append(change)
    layers = dict(zip(paired, changes[first : first + len(names)], strict=True))
    latency = None if origin is None else changes[1]
    return ModelDiff(new.name, base, new, matches, latency, origin, changes[0], layers, changes[first + len(names) :])


def _common_origin(base: ModelRun, new: ModelRun) -> LatencyFrom | None:
    """Where both runs know the latency of most inferences from; a call takes longer than what it runs."""
    for origin in LatencyFrom:
        if min(float((~np.isnan(run.latency(origin))).mean()) for run in (base, new)) >= LEAST_KNOWN:
            return origin
    return None


def _columns(
    run: ModelRun, origin: LatencyFrom | None, layers: Sequence[tuple[int, ...]], types: Sequence[str]
) -> list[NDArray[np.float64]]:
    """Return the columns of a run, a value for each inference; NaN where it lacks a layer's record, or all of several.

    Those of one layer are the run's own: of many inferences, a copy of all is much.
    """
    of_types = [[place for place, layer in enumerate(run.layers) if layer.type == name] for name in types]
    sums = [
        run.times[:, each[0]] if len(each) == 1 else sum_where_known(run.times[:, each], is_completed=True)
        for each in (*map(list, layers), *of_types)
    ]
    latency = [] if origin is None else [run.latency(origin)]
    return [sum_where_known(run.times, is_completed=True), *latency, *sums]


def _of_different(run: ModelRun, columns: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """The columns without the inferences that repeat an earlier one in every layer."""
    rows = different_rows(run.times)
    return [*columns] if len(rows) == len(run.times) else [column[rows] for column in columns]


def _p(one: NDArray[np.float64], other: NDArray[np.float64], tested: float | None) -> float | None:
    """A column's; None where it cannot be told."""
    base, new = _known(one), _known(other)
    if min(len(base), len(new)) >= FEWEST_CONSTANT and not np.ptp(base) and not np.ptp(new):
        return float(base[0] == new[0])
    return None if min(len(base) / len(one), len(new) / len(other)) < LEAST_KNOWN else tested


def _times(base: ModelRun, new: ModelRun, match: Match) -> tuple[float, float] | None:
    """How many records an inference has on each side, where that differs; of fused and split layers none is told."""
    if len(match.base) > 1 or len(match.new) > 1:
        return None
    times = base.usual_records(match.base[0]), new.usual_records(match.new[0])
    return None if times[0] == times[1] else times


def _moved(base: ModelRun, new: ModelRun, match: Match) -> tuple[Moved, ...]:
    """Which counters of a match moved; of fused and split layers none is told."""
    if len(match.base) > 1 or len(match.new) > 1:
        return ()
    one, other = base.counters.get(match.base[0]), new.counters.get(match.new[0])
    return () if one is None or other is None else counters_moved(one, other)


def _known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[~np.isnan(values)]

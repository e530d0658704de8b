"""The comparison of two runs: which layers match, and which are slower or faster by more than the noise."""

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
from profagent.stats.thinned import figures_with

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.diff.runs import LayerName, ModelRun
    from profagent.formats.durations import Distribution


Kind = Literal["same", "retyped", "renamed", "moved", "fused", "split", "inserted", "removed"]
Pairs = list[tuple[int | None, int | None]]

# Scores of a pair: equal names, names that share a fused layer, equal types. The share of name parts that two layers
# have in common, at most 1, is added to the latter two.
SAME_NAME, SHARED_LAYER, SAME_TYPE = 4.0, 2.0, 0.5
NEVER = -1e9
GAP = -0.3
ROUNDING = 1e-6
_PARTS = re.compile(r"[^\W_]+")
_DIAGONAL, _UP, _LEFT = 0, 1, 2


class Match(NamedTuple):
    """Indices in both sequences that belong together.

    `renamed` has another name, `retyped` another type, `moved` another unit; `fused`: several layers of the base became
    one; `split`: one became several; `inserted` and `removed` exist on one side only.
    """

    kind: Kind
    base: tuple[int, ...]
    new: tuple[int, ...]


def align(base: Sequence[LayerName], new: Sequence[LayerName]) -> list[Match]:
    """Return matches that contain every layer of both sequences exactly once, in the order of the sequences.

    A layer's partner is the layer of its name, the k-th of several, at any position: a sequence may be in the order in
    which layers were first seen. Neighbours without a partner join the pair whose fused layers include them.

    For example, base `conv, relu, pool` and new `conv+relu, pool` give `fused (0, 1) → (0)` and `same (2) → (1)`.
    """
    pairs = _across(_pairs(base, new), base, new)
    matches: dict[int, Match] = {}
    joined: set[int] = set()
    for at, (i, j) in enumerate(pairs):
        if i is None or j is None:
            continue
        matches[at] = Match(_kind(base[i], new[j]), (i,), (j,))
        for side, layers, whole in ((0, base, new[j]), (1, new, base[i])):
            parts = _fused_neighbours(whole, pairs, at, side, layers, joined)
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
    """Return the best alignment as pairs of indices, None opposite a gap; O(len(base) * len(new)) time and memory."""
    moves = np.full((len(base) + 1, len(new) + 1), _LEFT, np.int8)
    moves[:, 0] = _UP
    steps = GAP * np.arange(len(new) + 1)
    scores = _Scores(new, _partners(base, new))
    above = steps
    for i, layer in enumerate(base, 1):
        diagonal, up = above[:-1] + scores.of(i - 1, layer), above[1:] + GAP
        best = np.append(GAP * i, np.maximum(diagonal, up))
        # Every gap in this row costs the same, so the best way to begin one is a running maximum.
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
    ones, others = _by_name(base), _by_name(new)
    alike = [name for name in ones if len(ones[name]) == len(others.get(name, ()))]
    return {one: other for name in alike for one, other in zip(ones[name], others[name], strict=True)}


def _by_name(layers: Sequence[LayerName]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, layer in enumerate(layers):
        places.setdefault(layer.name, []).append(place)
    return places


def _across(pairs: Pairs, base: Sequence[LayerName], new: Sequence[LayerName]) -> Pairs:
    """Return the pairs with unmatched layers of one name joined, at the place of the layer of the new run."""
    alone: dict[str, list[int]] = {}
    for i, j in pairs:
        if i is not None and j is None:
            alone.setdefault(base[i].name, []).append(i)
    found = {j: places.pop(0) for i, j in pairs if i is None and j is not None and (places := alone.get(new[j].name))}
    moved = set(found.values())
    return [(found.get(j, i) if j is not None else i, j) for i, j in pairs if j is not None or i not in moved]


class _Scores:
    """Scores of a layer against each layer of a sequence; a layer with a partner scores against its partner only."""

    def __init__(self, layers: Sequence[LayerName], partners: Mapping[int, int]) -> None:
        self._count = len(layers)
        self._partners = partners
        # Places that belong to a partner: no other layer may take them.
        self._taken = list(partners.values())
        # By feature, the places of the layers that have it: most layers share few, so a score needs no walk over all.
        self._places: dict[tuple[str, str], list[int]] = {}
        for place, layer in enumerate(layers):
            for word in _words(layer):
                self._places.setdefault(word, []).append(place)
        # The number of name parts of each layer, for the share of parts that two layers have in common.
        self._lengths = np.array([len(_parts(layer)) for layer in layers], np.float64)

    def of(self, place: int, layer: LayerName) -> NDArray[np.float64]:
        """Return the scores of the layer at `place` of the base against each layer, shape (layers,)."""
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
    fused = (("fused", name) for name in _fused(layer))
    return {("name", layer.name), ("type", layer.type), *fused, *(("part", part) for part in _parts(layer))}


def _fused(layer: LayerName) -> set[str]:
    return set(layer.name.split("+"))


def _parts(layer: LayerName) -> set[str]:
    return set(_PARTS.findall(layer.name))


def _fused_neighbours(
    whole: LayerName, pairs: Pairs, at: int, side: int, layers: Sequence[LayerName], joined: set[int]
) -> list[int]:
    """Return indices of a pair and its neighbours without partner that are parts of the other side's fused layer."""
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
# The chance that a comparison of two equal runs reports any change.
ALPHA = 0.03
# Layers with records in fewer of the inferences are not tested.
LEAST_KNOWN = 0.5
# This many equal values in each run are no coincidence: the unit has no noise there, and any difference is real.
FEWEST_CONSTANT = 5
# Counters only explain a change that was found: they are tested among those of one layer, and must move by this share
# of the layer's time, or of their bytes.
COUNTER_ALPHA = 0.01
LEAST_MOVE = 0.02


class Floor(NamedTuple):
    """The least size of a change, in % of the base and in the unit of the durations: a change must reach both."""

    percent: float = 1.0
    absolute: float = 0.1


class Moved(NamedTuple):
    """A counter that moved, with its mean in both runs: a ratio of the layer's time, or bytes."""

    counter: str
    base: float
    new: float


@dataclass(frozen=True, slots=True)
class Change:
    """The figures of one thing in both runs.

    `p` is adjusted for all comparisons, None if a run has too few inferences. `times` has the number of a layer's
    records in an inference of each run, if these differ: a sum of more records does not make a layer slower. With
    `is_thinned` a flight recorder left histograms of a run, which no test for noise takes.
    """

    scope: Scope
    name: str
    base: DurationFigures
    new: DurationFigures
    p: float | None
    is_significant: bool = False
    moved: tuple[Moved, ...] = ()
    times: tuple[float, float] | None = None
    is_thinned: bool = False

    @property
    def known_difference(self) -> float | None:
        """The difference of the medians, new minus base; None if histograms do not tell a median."""
        is_unknown = self.is_thinned and None in (self.base.median, self.new.median)
        return None if is_unknown else (self.new.median or 0.0) - (self.base.median or 0.0)

    @property
    def difference(self) -> float:
        """The difference of the medians, 0 if it is not known."""
        return self.known_difference or 0.0

    @property
    def percent(self) -> float | None:
        """The difference in % of the base's median."""
        found = self.known_difference
        return found / self.base.median * 100 if found is not None and self.base.median else None

    def judged(self, floor: Floor) -> Change:
        """Return the change, significant if it exceeds noise and floor, and both runs have as many records."""
        is_noise = self.p is None or self.p > ALPHA or abs(self.difference) < floor.absolute
        is_small = self.percent is not None and abs(self.percent) < floor.percent
        return replace(self, is_significant=not (is_noise or is_small or self.times))


@dataclass(frozen=True, slots=True)
class ModelDiff:
    """A model in both runs; `changes` has, by the index of its match, the change of each match with both sides.

    `latency` is None unless both runs know it from one origin, `latency_from`; `layers` is the change of the sum of
    layers.
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
        """The change of an inference: of its latency, or of the sum of its layers if no latency is known."""
        return self.layers if self.latency is None else self.latency

    def all_changes(self) -> list[Change]:
        """Return the changes of the inference, its layers and their types."""
        latency = [] if self.latency is None else [self.latency]
        return [*latency, self.layers, *self.changes.values(), *self.types]


def compare(pairs: Sequence[tuple[ModelRun, ModelRun]], floor: Floor) -> list[ModelDiff]:
    """Return the comparison of each pair; the chance of any false alarm in all of them together is below ALPHA."""
    return [_compared(base, new, len(pairs), floor) for base, new in pairs]


def compare_calls(
    base: Mapping[str, NDArray[np.float64]], new: Mapping[str, NDArray[np.float64]], floor: Floor
) -> list[Change]:
    """Return the changes of the runtime's functions that both runs call; durations are in µs."""
    names = sorted(name for name in base.keys() & new.keys() if len(base[name]) and len(new[name]))
    changes = []
    for name in names:
        tested = differences([base[name]], [new[name]])
        p = None if tested is None else min(1.0, float(tested[0]) * len(names))
        changes.append(Change("api", name, figures_of(base[name]), figures_of(new[name]), p).judged(floor))
    return changes


def counters_moved(base: NDArray[np.float64], new: NDArray[np.float64]) -> tuple[Moved, ...]:
    """Return the counters that moved between the records of two layers, the largest change first.

    The arrays have the shape (records, counters), NaN where a counter is unknown.
    """
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
    matches = align(base.layers, new.layers)
    paired = [at for at, match in enumerate(matches) if match.base and match.new]
    types = sorted({layer.type for layer in base.layers} & {layer.type for layer in new.layers})
    origin = common_origin(base, new)
    ones = columns_of(base, origin, [matches[at].base for at in paired], types)
    others = columns_of(new, origin, [matches[at].new for at in paired], types)
    is_thinned = base.thinned is not None or new.thinned is not None
    # The kept inferences are those around the slow ones: they tell nothing of the rest.
    tested = None if is_thinned else differences(_of_different(base, ones), _of_different(new, others), has_total=True)
    thinned = (
        _thinned_columns(base, origin, [matches[at].base for at in paired], types),
        _thinned_columns(new, origin, [matches[at].new for at in paired], types),
    )
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
        p = None if is_thinned else _p(one, other, None if tested is None else float(tested[column]))
        figures = [
            _figures(_known(values), of_run[column] if of_run else None, run.inferences)
            for values, of_run, run in zip((one, other), thinned, (base, new), strict=True)
        ]
        times = differing_records(base, new, matches[paired[column - first]]) if scope == "layer" else None
        p = None if p is None else min(1.0, p * comparisons)
        change = Change(scope, name, figures[0], figures[1], p, times=times, is_thinned=is_thinned).judged(floor)
        if change.is_significant and scope == "layer":
            change = replace(change, moved=_moved(base, new, matches[paired[column - first]]))
        changes.append(change)
    layers = dict(zip(paired, changes[first : first + len(names)], strict=True))
    latency = None if origin is None else changes[1]
    return ModelDiff(new.name, base, new, matches, latency, origin, changes[0], layers, changes[first + len(names) :])


def common_origin(base: ModelRun, new: ModelRun) -> LatencyFrom | None:
    """Return the origin from which both runs know the latency of most inferences: a call outlasts its records."""
    for origin in LatencyFrom:
        if min(run.known_of(origin) for run in (base, new)) >= LEAST_KNOWN:
            return origin
    return None


def columns_of(
    run: ModelRun, origin: LatencyFrom | None, layers: Sequence[tuple[int, ...]], types: Sequence[str]
) -> list[NDArray[np.float64]]:
    """Return the columns of a run, a value for each inference; NaN where the records of all its layers are missing.

    They are the sum of layers, the latency unless `origin` is None, and those of `layers` and `types`.
    A column of one layer is a view of the run's times: copies of all columns of many inferences need much memory.
    """
    of_types = [[place for place, layer in enumerate(run.layers) if layer.type == name] for name in types]
    sums = [
        run.times[:, each[0]] if len(each) == 1 else sum_where_known(run.times[:, each], is_completed=True)
        for each in (*map(list, layers), *of_types)
    ]
    latency = [] if origin is None else [run.latency(origin)]
    return [sum_where_known(run.times, is_completed=True), *latency, *sums]


class _Thinned(NamedTuple):
    """Times of thinned inferences, None if only sums are known; the mean is that of all inferences, or None."""

    durations: Distribution | None
    mean: float | None = None


def _thinned_columns(
    run: ModelRun, origin: LatencyFrom | None, layers: Sequence[tuple[int, ...]], types: Sequence[str]
) -> list[_Thinned]:
    """Return what was thinned of each of `columns_of`, empty without a flight recorder."""
    thinned = run.thinned
    if thinned is None:
        return []
    found = [_Thinned(thinned.layers if thinned.layers.number else None, run.time(range(len(run.layers))))]
    if origin is not None:
        found.append(_Thinned(thinned.latencies[origin]))
    of_types = [tuple(place for place, layer in enumerate(run.layers) if layer.type == name) for name in types]
    for places in (*layers, *of_types):
        known = [thinned.by_layer[place] for place in places if place in thinned.by_layer]
        is_single = len(places) == len(known) == 1 and known[0].durations is not None
        found.append(_Thinned(known[0].durations) if is_single else _Thinned(None, run.time(places)))
    return found


def _figures(values: NDArray[np.float64], thinned: _Thinned | None, inferences: int) -> DurationFigures:
    if thinned is None:
        return figures_of(values)
    found = DurationFigures(inferences, *[None] * 7)
    if thinned.durations is not None:
        found = figures_with(values, thinned.durations if thinned.durations.number else None)
    return found if thinned.mean is None else found._replace(mean=thinned.mean, total=thinned.mean * found.number)


def _of_different(run: ModelRun, columns: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """Return the columns without the inferences that repeat an earlier one in every layer."""
    rows = different_rows(run.times)
    return [*columns] if len(rows) == len(run.times) else [column[rows] for column in columns]


def _p(one: NDArray[np.float64], other: NDArray[np.float64], tested: float | None) -> float | None:
    base, new = _known(one), _known(other)
    if min(len(base), len(new)) >= FEWEST_CONSTANT and not np.ptp(base) and not np.ptp(new):
        return float(base[0] == new[0])
    return None if min(len(base) / len(one), len(new) / len(other)) < LEAST_KNOWN else tested


def differing_records(base: ModelRun, new: ModelRun, match: Match) -> tuple[float, float] | None:
    """Return the records of a layer in an inference of both runs; None if they are as many, or of several layers."""
    if len(match.base) > 1 or len(match.new) > 1:
        return None
    times = base.usual_records(match.base[0]), new.usual_records(match.new[0])
    return None if times[0] == times[1] else times


def _moved(base: ModelRun, new: ModelRun, match: Match) -> tuple[Moved, ...]:
    if len(match.base) > 1 or len(match.new) > 1:
        return ()
    one, other = base.counters.get(match.base[0]), new.counters.get(match.new[0])
    return () if one is None or other is None else counters_moved(one, other)


def _known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[~np.isnan(values)]

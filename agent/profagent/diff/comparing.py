"""Two runs beside each other: which layers are slower or faster by more than the noise, and which are others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from profagent.diff.alignment import align
from profagent.diff.counters_moved import counters_moved
from profagent.diff.dependence import different_rows, in_blocks, inflation, wander
from profagent.diff.permutation import FEWEST_ROWS, permutation_test
from profagent.stats.figures import MAD_TO_SIGMA, Figures, figures_of, mad

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.diff.alignment import Match
    from profagent.diff.counters_moved import Moved
    from profagent.diff.model_runs import ModelRun

__all__ = ["ALPHA", "Change", "Floor", "ModelDiff", "Scope", "compare", "compare_calls"]

Scope = Literal["total", "model", "layer", "type", "api"]
# The chance that a comparison of two runs without a change tells of any.
ALPHA = 0.03
# A change that is so many standard errors above the critical one is found in 80 % of comparisons.
POWER_SIGMA = 0.84
# Successive inferences are averaged as long as so many averages are left.
FEWEST_BLOCKS = 10
# Layers with records in fewer of the inferences are not tested.
LEAST_KNOWN = 0.5
# So many equal values in each run are no chance: the unit has no noise there.
FEWEST_CONSTANT = 5


class Floor(NamedTuple):
    """A change must be at least so large, in % of the base and in the unit of the durations."""

    percent: float = 1.0
    absolute: float = 0.1


@dataclass(frozen=True, slots=True)
class Change:
    """One thing in both runs. `p` is adjusted for all comparisons, None where a run has too few inferences for it."""

    scope: Scope
    name: str
    base: Figures
    new: Figures
    p: float | None
    is_significant: bool = False
    moved: tuple[Moved, ...] = ()

    @property
    def difference(self) -> float:
        """Of the medians."""
        return (self.new.median or 0.0) - (self.base.median or 0.0)

    @property
    def percent(self) -> float | None:
        """The difference in % of the base's median."""
        return self.difference / self.base.median * 100 if self.base.median else None

    def exceeds(self, floor: Floor) -> bool:
        """Whether it is above the noise and the floor."""
        if self.p is None or self.p > ALPHA or abs(self.difference) < floor.absolute:
            return False
        return self.percent is None or abs(self.percent) >= floor.percent


@dataclass(frozen=True, slots=True)
class ModelDiff:
    """A model in both runs; `changes` has one of each match with both sides, in their order.

    `smallest_seen` is the smallest change of a usual layer, in %, that could have been found; None where none could.
    """

    name: str
    base: ModelRun
    new: ModelRun
    matches: list[Match]
    total: Change
    changes: dict[int, Change]
    types: list[Change]
    smallest_seen: float | None


def compare(pairs: Sequence[tuple[ModelRun, ModelRun]], floor: Floor) -> list[ModelDiff]:
    """Compare models pairwise; the chance of any false alarm in all of it is held below ALPHA."""
    return [_diff(_Compared(base, new), base, new, len(pairs), floor) for base, new in pairs]


def compare_calls(
    base: Mapping[str, NDArray[np.float64]], new: Mapping[str, NDArray[np.float64]], floor: Floor
) -> list[Change]:
    """Compare the durations of the runtime's functions, in µs, where both runs have any."""
    names = sorted(name for name in base.keys() & new.keys() if len(base[name]) and len(new[name]))
    changes = []
    for name in names:
        one, other = base[name][:, np.newaxis], new[name][:, np.newaxis]
        p = None
        if min(len(one), len(other)) >= FEWEST_ROWS:
            size = inflation(one) / len(one) + inflation(other) / len(other)
            tested = permutation_test(one, other, size / (1 / len(one) + 1 / len(other)), ALPHA)
            p = min(1.0, float(tested.p[0]) * len(names))
        change = Change("api", name, figures_of(base[name]), figures_of(new[name]), p)
        changes.append(replace(change, is_significant=change.exceeds(floor)))
    return changes


class _Compared:
    """One model of both runs: the things that are compared as columns, and the test of all of them."""

    def __init__(self, base: ModelRun, new: ModelRun) -> None:
        self._base, self._new = base, new
        self.matches = align(base.layers, new.layers)
        self.paired = [at for at, match in enumerate(self.matches) if match.base and match.new]
        self.types = sorted({layer.type for layer in base.layers} & {layer.type for layer in new.layers})
        self._columns = [self._of(run, side) for side, run in enumerate((base, new))]
        rows = [different_rows(run.times) for run in (base, new)]
        self._sizes = [len(each) for each in rows]
        one, other = (_filled(columns[row]) for columns, row in zip(self._columns, rows, strict=True))
        self.tested = None
        if min(self._sizes) >= FEWEST_ROWS:
            length = _block_length(one, other)
            one, other = in_blocks(one, length), in_blocks(other, length)
            stretch = _stretch(one, other)
            self._size = stretch * (1 / len(one) + 1 / len(other)) / length
            self.tested = permutation_test(one, other, stretch, ALPHA)

    def p(self, column: int) -> float | None:
        """The column's, adjusted for all of the model's; None where it cannot be told."""
        base, new = (_known(columns[:, column]) for columns in self._columns)
        if min(len(base), len(new)) >= FEWEST_CONSTANT and not np.ptp(base) and not np.ptp(new):
            return float(base[0] == new[0])
        if self.tested is None or min(len(base) / len(self._base.times), len(new) / len(self._new.times)) < LEAST_KNOWN:
            return None
        return float(self.tested.p[column])

    def figures(self, column: int) -> tuple[Figures, Figures]:
        """Of all inferences, those that repeat others too."""
        base, new = (figures_of(_known(columns[:, column])) for columns in self._columns)
        return base, new

    def moved(self, at: int) -> tuple[Moved, ...]:
        """Which counters of a match moved; of fused and split layers none is told."""
        match = self.matches[at]
        if len(match.base) > 1 or len(match.new) > 1:
            return ()
        base, new = self._base.counters.get(match.base[0]), self._new.counters.get(match.new[0])
        return () if base is None or new is None else counters_moved(base, new)

    def smallest_seen(self) -> float | None:
        """In % of its time, the median over the layers; None where no change can be told."""
        if self.tested is None:
            return None if self.p(0) is None else 0.0
        found = []
        for column in range(1, 1 + len(self.paired)):
            base, new = (_known(columns[:, column]) for columns in self._columns)
            if len(base) and len(new) and np.median(base):
                sigma = MAD_TO_SIGMA * (mad(base) + mad(new)) / 2
                least = (self.tested.critical + POWER_SIGMA) * sigma * float(self._size[column]) ** 0.5
                found.append(least / float(np.median(base)) * 100)
        return float(np.median(found)) if found else None

    def _of(self, run: ModelRun, side: int) -> NDArray[np.float64]:
        """The run's total, layers that have a match, and types, as columns; NaN where an inference lacks a record."""
        places = [(match.base, match.new)[side] for match in (self.matches[at] for at in self.paired)]
        types = [[place for place, layer in enumerate(run.layers) if layer.type == name] for name in self.types]
        return np.stack([run.totals(), *(run.times[:, list(each)].sum(axis=1) for each in (*places, *types))], axis=1)


def _diff(compared: _Compared, base: ModelRun, new: ModelRun, comparisons: int, floor: Floor) -> ModelDiff:
    names = [" | ".join(new.layers[place].name for place in compared.matches[at].new) for at in compared.paired]
    scopes: list[tuple[Scope, str]] = [
        ("model", new.name),
        *(("layer", name) for name in names),
        *(("type", name) for name in compared.types),
    ]
    changes = []
    for column, (scope, name) in enumerate(scopes):
        p = compared.p(column)
        change = Change(scope, name, *compared.figures(column), None if p is None else min(1.0, p * comparisons))
        if change.exceeds(floor):
            moved = compared.moved(compared.paired[column - 1]) if scope == "layer" else ()
            change = replace(change, is_significant=True, moved=moved)
        changes.append(change)
    layers = dict(zip(compared.paired, changes[1 : 1 + len(names)], strict=True))
    types, seen = changes[1 + len(names) :], compared.smallest_seen()
    return ModelDiff(new.name, base, new, compared.matches, changes[0], layers, types, seen)


def _block_length(base: NDArray[np.float64], new: NDArray[np.float64]) -> int:
    """How many successive inferences to average so that neighbours are hardly alike any more."""
    wanted = max(float(inflation(columns).min()) for columns in (base, new))
    return max(1, min(round(wanted), min(len(base), len(new)) // FEWEST_BLOCKS))


def _stretch(base: NDArray[np.float64], new: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how much the variance of each difference is larger than that of independent rows.

    Rows may still be alike, and each run may be off as a whole, which is the first column.
    """
    independent = 1 / len(base) + 1 / len(new)
    alike = (inflation(base) / len(base) + inflation(new) / len(new)) / independent
    spread = np.array([(mad(one) + mad(other)) / 2 for one, other in zip(base.T, new.T, strict=True)]) * MAD_TO_SIGMA
    off = (wander(base[:, 0]) + wander(new[:, 0])) * np.median(base, axis=0) ** 2
    own = np.where(spread > 0, spread, np.inf)
    stretch: NDArray[np.float64] = alike + off / own**2 / independent
    return stretch


def _filled(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """The columns with their medians where a value is missing."""
    missing = np.isnan(columns)
    medians = np.nanmedian(np.where(missing.all(axis=0), 0.0, columns), axis=0)
    return np.where(missing, medians, columns)


def _known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[~np.isnan(values)]

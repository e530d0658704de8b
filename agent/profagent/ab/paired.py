"""The paired test of `ab`: sides A and B ran side by side in rounds A B, B A, A B …, and each round gives a difference.

Both runs of a round are neighbours, so that a drift of the board hardly differs between them. What is left of it has
one sign in rounds A B and the other in rounds B A, and is removed. If the sides do not differ, the sign of each round's
difference is arbitrary. So signs are dealt many times, and a column's p is the share of deals in which any column has
as large a mean, relative to its spread; this accounts for the number of columns, as in `diff`.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.diff.comparing import ALPHA, LEAST_KNOWN, align, columns_of, common_origin, differing_records
from profagent.diff.significance import DEALS, FURTHEST, SEED
from profagent.limits import REMEMBERED_DEALS
from profagent.stats.figures import MAD_TO_SIGMA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from profagent.diff.comparing import Floor, Match, Scope
    from profagent.diff.runs import LayerName, ModelRun
    from profagent.formats.inference_times import LatencyFrom

    Rows = NDArray[np.float64]

# With seven rounds, two of 128 deals of signs are as extreme as equal signs: with fewer, p could never be below 3 %.
FEWEST_ROUNDS = 7
# Probability that the interval of an estimate has the true difference.
CONFIDENCE = 0.95


class PairedChange(NamedTuple):
    """Difference of one thing between the sides: `percent` is A relative to B, with its interval of CONFIDENCE.

    `a` and `b` are medians over the rounds, in µs. `p` is adjusted for all comparisons, None with too few rounds.
    `times` has the records of a layer in an inference of B and of A, if these numbers differ.
    """

    scope: Scope
    name: str
    a: float | None
    b: float | None
    percent: float | None
    low: float | None
    high: float | None
    p: float | None
    times: tuple[float, float] | None
    is_significant: bool = False

    def judged(self, floor: Floor) -> PairedChange:
        """Return the change, significant if it exceeds noise and floor, and both sides have as many records."""
        if self.p is None or self.p > ALPHA or self.times or self.percent is None or self.b is None:
            return self
        is_large = abs(self.percent) >= floor.percent and abs(self.percent) / 100 * self.b >= floor.absolute
        return self._replace(is_significant=is_large)


class PairedModel(NamedTuple):
    """Model on both sides; `changes` has the change of each match with both sides, by the index of the match.

    `drift` is by how many % the inferences of both sides became slower from the first round to the last.
    """

    name: str
    a_layers: Sequence[LayerName]
    b_layers: Sequence[LayerName]
    matches: list[Match]
    latency: PairedChange | None
    latency_from: LatencyFrom | None
    layers: PairedChange
    changes: dict[int, PairedChange]
    drift: float | None

    @property
    def inference(self) -> PairedChange:
        """The change of an inference: of its latency, or of the sum of its layers if no latency is known."""
        return self.layers if self.latency is None else self.latency


def compare_rounds(a: ModelRun, b: ModelRun, floor: Floor, models: int = 1) -> PairedModel:
    """Return the comparison of two sides, whose inferences are the medians of each round; the first round is A B.

    The chance of any false alarm in all of the `models` together is about ALPHA.
    """
    matches, origin = align(b.layers, a.layers), common_origin(b, a)
    paired = [at for at, match in enumerate(matches) if match.base and match.new]
    ones = np.stack(columns_of(a, origin, [matches[at].new for at in paired], ()), axis=1)
    others = np.stack(columns_of(b, origin, [matches[at].base for at in paired], ()), axis=1)
    names: list[tuple[Scope, str]] = [("layers", a.name)]
    if origin is not None:
        names.append(("latency", a.name))
    first = len(names)
    names += [("layer", " | ".join(a.layers[place].name for place in matches[at].new)) for at in paired]
    times = [None] * first + [differing_records(b, a, matches[at]) for at in paired]
    figures = zip(*_medians(ones, others), *_estimates(ones, others), strict=True)
    changes = [
        _change(scope, name, [_known(each) for each in figure], time)
        for (scope, name), figure, time in zip(names, figures, times, strict=True)
    ]
    judged = [each._replace(p=each.p and min(1.0, each.p * models)).judged(floor) for each in changes]
    of_layers = dict(zip(paired, judged[first:], strict=True))
    latency = None if origin is None else judged[1]
    drift = _drift(ones[:, first - 1], others[:, first - 1])
    return PairedModel(a.name, a.layers, b.layers, matches, latency, origin, judged[0], of_layers, drift)


def _change(
    scope: Scope, name: str, figures: Sequence[float | None], times: tuple[float, float] | None
) -> PairedChange:
    a, b, percent, low, high, p = figures
    return PairedChange(scope, name, a, b, percent, low, high, p, times)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _medians(*sides: Rows) -> list[Rows]:
    with warnings.catch_warnings():
        # A layer may have no record in any round.
        warnings.simplefilter("ignore", RuntimeWarning)
        return [np.nanmedian(side, axis=0) for side in sides]


def _estimates(a: Rows, b: Rows) -> tuple[Rows, Rows, Rows, Rows]:
    """Return percent, low, high and p of each column of times, shape (rounds, columns); NaN if not known."""
    differences = _logs(a) - _logs(b)
    is_known = ~np.isnan(differences)
    is_testable = is_known.sum(axis=0) >= max(FEWEST_ROUNDS, LEAST_KNOWN * len(differences))
    balanced = np.where(is_known, _without_order(differences), 0.0)
    deals = _deals(len(balanced))
    means = _ratio(balanced.sum(axis=0), is_known.sum(axis=0))
    p = np.where(is_testable, _p(deals, np.where(is_testable, balanced, 0.0)), np.nan)
    # The means of arbitrary subsets of the rounds are spread as the uncertainty of the mean (Hartigan).
    is_in = (deals > 0).astype(np.float64)
    subsets = _ratio(is_in @ balanced, is_in @ is_known)
    # A subset without any round tells nothing.
    subsets = np.where(np.isnan(subsets), means, subsets)
    low, high = np.quantile(subsets, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    low, high = (np.where(is_testable, limit, np.nan) for limit in (low, high))
    percent, low, high = (np.expm1(each) * 100 for each in (means, low, high))
    return percent, low, high, p


def _logs(times: Rows) -> Rows:
    # A median of 0 has no ratio to anything.
    return np.log(np.where(times > 0, times, np.nan))


def _ratio(sums: Rows, counts: NDArray[np.number]) -> Rows:
    ratio: Rows = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=np.asarray(counts) > 0)
    return ratio


def _without_order(differences: Rows) -> Rows:
    """Return the differences without the part that depends on which side ran first, and without spikes."""
    rounds = len(differences)
    with warnings.catch_warnings():
        # A column may be unknown in all rounds of an order.
        warnings.simplefilter("ignore", RuntimeWarning)
        # A limit around 0 treats both signs alike, as the deals do.
        reach = FURTHEST * MAD_TO_SIGMA * np.nanmedian(np.abs(differences), axis=0)
        found = np.where(reach > 0, differences.clip(-reach, reach), differences)
        orders = [slice(first, None, 2) for first in range(min(2, rounds))]
        centres = np.stack([np.nanmean(found[order], axis=0) for order in orders])
        for order, centre in zip(orders, centres, strict=True):
            found[order] -= centre
        # Two means were fitted: what is left varies less than the differences themselves.
        balanced: Rows = np.nanmean(centres, axis=0) + found * np.sqrt(rounds / max(rounds - 2, 1))
    return balanced


@lru_cache(REMEMBERED_DEALS)
def _deals(rounds: int) -> Rows:
    """Return signs of the rounds' differences, shape (deals, rounds); equal each time."""
    return np.where(np.random.default_rng(SEED).random((DEALS, rounds)) < 1 / 2, -1.0, 1.0)


def _p(deals: Rows, balanced: Rows) -> Rows:
    norms = np.sqrt((balanced**2).sum(axis=0))
    units = np.divide(balanced, norms, out=np.zeros(balanced.shape), where=norms > 0)
    largest = np.abs(deals @ units).max(axis=1)
    exceeding = (largest[:, np.newaxis] >= np.abs(units.sum(axis=0)) - 1e-9).sum(axis=0)
    p: Rows = (exceeding + 1) / (DEALS + 1)
    return p


def _drift(a: Rows, b: Rows) -> float | None:
    logs = (_logs(a) + _logs(b)) / 2
    known = (~np.isnan(logs)).nonzero()[0]
    if len(known) < FEWEST_ROUNDS:
        return None
    slope = np.polyfit(known, logs[known], 1)[0]
    return float(np.expm1(slope * (len(logs) - 1)) * 100)

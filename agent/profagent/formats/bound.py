"""What bounds a layer, by its ratios: thresholds of the format page 11 and the manual's Memory Bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from profagent.formats.countermap import COUNTER_NAMES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

__all__ = ["RATIOS", "bound_by", "bound_mark", "mean_ratios", "ratios_of"]

RATIOS = COUNTER_NAMES[:8]

CUBE_IS_FINE = 0.7
VECTOR_IS_FINE = 0.5
SUSPECTS = (("Dstr", 4, 0.7), ("DLD", 6, 0.7), ("WLD", 7, 0.8))
UNEXPLAINED = 0.5
# Rounding of the counters may lift a ratio above the whole.
LARGEST_PLAUSIBLE = 1.01


def ratios_of(counters: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64] | None:
    """The columns of RATIOS, shape (records, ratios), NaN where one is not known; None where there is no counter."""
    if not counters:
        return None
    not_known = np.full_like(next(iter(counters.values())), np.nan)
    return np.column_stack([counters.get(name, not_known) for name in RATIOS])


def mean_ratios(ratios: NDArray[np.float64], ticks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means weighted by time of ratios, shape (records, ratios); NaN where one is not known."""
    total = ticks.sum()
    means: NDArray[np.float64] = ticks @ ratios / total if total else np.full(ratios.shape[1], np.nan)
    return means


def bound_mark(likely: Collection[str]) -> str:
    """A `?` where what bounds a layer rests on counters that are not certain: on all ratios, not on bytes."""
    return "?" if any(name in RATIOS for name in likely) else ""


def bound_by(ratios: NDArray[np.float64]) -> str | None:
    """A word for mac_busy, mac_ppen, vec_busy, vec_ppen, dstr, dtrans, dld and wld, fractions of the time.

    None where one is not known or cannot be. `cube` and `vector`: the unit is used well; `Dstr`, `DLD`, `WLD`: that
    transfer is above its threshold, of several the one furthest above; `unexplained`: nothing is above a half; else
    the transfer that takes most of the time where Memory Bound is above 1, or what else does: `mac`, `vec`, or
    transforming (`Dtrans`).
    """
    if np.isnan(ratios).any() or ratios.min() < 0 or ratios.max() > LARGEST_PLAUSIBLE:
        return None
    mac_busy, mac_ppen, _, vec_ppen = ratios[:4]
    if mac_ppen > CUBE_IS_FINE:
        return "cube"
    excess, suspect = max((ratios[place] - threshold, name) for name, place, threshold in SUSPECTS)
    if excess > 0:
        return suspect
    if not mac_busy and vec_ppen > VECTOR_IS_FINE:
        return "vector"
    return "unexplained" if ratios.max() < UNEXPLAINED else _largest_of(ratios)


def _largest_of(ratios: NDArray[np.float64]) -> str:
    mac_busy, _, vec_busy, vec_ppen, dstr, dtrans, dld, wld = ratios
    most, transfer = max((dstr, "Dstr"), (dld, "DLD"), (wld, "WLD"))
    if most > max(mac_busy, vec_ppen):
        return transfer
    return max((mac_busy, "mac"), (vec_busy, "vec"), (dtrans, "Dtrans"))[1]

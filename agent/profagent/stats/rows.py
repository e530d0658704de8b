"""Rows of figures: what several JOBs have by key, each with its share of the time and what bounds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.countermap import bound_by, mean_ratios
from profagent.stats.figures import Figures, figures_of
from profagent.stats.gathering import LeftOut, durations_by, left_out, ratios_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from profagent.stats.gathering import By, JobRecords, Key

__all__ = ["Gathered", "Row", "call_rows"]


class Row(NamedTuple):
    """The figures of one thing; `share` is of the time of all rows, in %."""

    key: Key
    figures: Figures
    share: float | None
    bound: str | None


class Gathered:
    """Durations and ratios of several JOBs by key; `skip` as of `left_out`."""

    def __init__(self, by: By, skip: int | None) -> None:
        self._by: By = by
        self._skip = skip
        self._durations: dict[Key, list[NDArray[np.float64]]] = {}
        self._ratios: dict[Key, list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = {}
        self._left_out: list[LeftOut] = []

    def add(self, job: JobRecords) -> None:
        """Take a JOB in, without the inferences that are left out of it."""
        keeps, counts = left_out(job, self._skip)
        self._left_out += counts
        for key, durations in durations_by(job, self._by, keeps):
            self._durations.setdefault(key, []).append(durations)
        for key, ratios, ticks in ratios_by(job, self._by, keeps):
            self._ratios.setdefault(key, []).append((ratios, ticks))

    def rows(self) -> list[Row]:
        """A row for each key, by falling total."""
        figures = {key: figures_of(np.concatenate(parts)) for key, parts in self._durations.items()}
        return _with_shares(figures, {key: self._bound(key) for key in figures})

    def left_out(self) -> list[LeftOut]:
        """The counts of each model, over all JOBs."""
        sums: dict[str, LeftOut] = {}
        for model, inferences, number in self._left_out:
            before = sums.get(model, LeftOut(model, 0, 0))
            sums[model] = LeftOut(model, before.inferences + inferences, before.left_out + number)
        return list(sums.values())

    def _bound(self, key: Key) -> str | None:
        if key not in self._ratios:
            return None
        ratios, ticks = (np.concatenate(parts) for parts in zip(*self._ratios[key], strict=True))
        return bound_by(mean_ratios(ratios, ticks))


def call_rows(calls: Iterable[tuple[Key, NDArray[np.float64], int]]) -> list[Row]:
    """A row for each function from its calls' known durations and how many calls there are; keys may be repeated."""
    found: dict[Key, tuple[list[NDArray[np.float64]], list[int]]] = {}
    for key, durations, count in calls:
        parts, counts = found.setdefault(key, ([], []))
        parts.append(durations)
        counts.append(count)
    figures = {key: figures_of(np.concatenate(parts), sum(counts)) for key, (parts, counts) in found.items()}
    return _with_shares(figures, {})


def _with_shares(figures: Mapping[Key, Figures], bounds: Mapping[Key, str | None]) -> list[Row]:
    all_time = sum(row.total or 0.0 for row in figures.values())
    rows = [
        Row(key, row, row.total / all_time * 100 if row.total is not None and all_time else None, bounds.get(key))
        for key, row in figures.items()
    ]
    return sorted(rows, key=lambda row: (-(row.figures.total or 0.0), row.key))

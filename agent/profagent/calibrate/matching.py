"""Which rows of the vendor's table are which records, though some of either are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from profagent.calibrate.vendor_table import VendorTable

__all__ = ["NAME_ONLY", "Matched", "match_rows"]

# Another inference of the same model looks like this, and a clock that ticks otherwise than is thought.
NAME_ONLY = "name, and their times differ"
NAME_AND_TIME = "name and time"

# So much of the smaller of the two must find its like, or the two are not of one inference.
LEAST_SHARE = 0.5
# Rows times records that are compared: a layer table has thousands of layers, not more.
MOST_PAIRS = 10_000_000
# Beyond the rounding of a time: the vendor's own arithmetic.
SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class Matched:
    """Row `rows[i]` of the table is record `records[i]`; `by` says what told so."""

    rows: npt.NDArray[np.intp]
    records: npt.NDArray[np.intp]
    by: str


def match_rows(
    table: VendorTable, names: Sequence[str | None], time_us: npt.NDArray[np.float64] | None
) -> Matched | None:
    """Match a table with the records of one inference, given their layers' names and times; None where they differ.

    Both are in the order of execution, unless someone sorted the table: then only what names and times tell counts. A
    row that might be one of several records is left out.
    """
    if table.rows * len(names) > MOST_PAIRS:
        return None
    for by, alike in _ways(table, names, time_us):
        needed = max(LEAST_SHARE * min(alike.shape), 1)
        if min(alike.any(axis=0).sum(), alike.any(axis=1).sum()) < needed:
            continue
        places = [_certain_pairs(alike)]
        if by == NAME_AND_TIME:
            places.append(_only_pairs(alike))
        for rows, records in places:
            if len(rows) >= needed:
                return Matched(rows, records, by)
    return None


def _ways(
    table: VendorTable, names: Sequence[str | None], time_us: npt.NDArray[np.float64] | None
) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """What rows and records are told by, best first: an array (rows, records) that says which may be the same."""
    same_name = np.array(table.names, object)[:, None] == np.array(names, object)[None, :]
    has_names = any(table.names) and any(names)
    same_time = None
    if time_us is not None and not np.isnan(table.time_us.values).all():
        apart = np.abs(table.time_us.values[:, None] - time_us[None, :])
        same_time = apart <= table.time_us.half + SLACK * time_us[None, :]
    if has_names and same_time is not None:
        yield NAME_AND_TIME, same_name & same_time
    if same_time is not None:
        yield "time", same_time
    if has_names:
        yield ("name" if same_time is None else NAME_ONLY), same_name
    if same_time is None and table.rows == len(names):
        yield "sequence", np.eye(table.rows, dtype=np.bool_)


def _certain_pairs(alike: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Pairs of a longest common subsequence, without those that another such sequence pairs otherwise."""
    before, after = _lengths(alike), _lengths(alike[::-1, ::-1])[::-1, ::-1]
    on_longest = alike & (before[:-1, :-1] + 1 + after[1:, 1:] == before[-1, -1])
    return _only_pairs(on_longest)


def _only_pairs(alike: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Pairs of which neither is alike to another, in whatever order."""
    rows, records = (alike & (alike.sum(axis=0) == 1)[None, :] & (alike.sum(axis=1) == 1)[:, None]).nonzero()
    return rows, records


def _lengths(alike: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """The length of the longest common subsequence of the first i rows and the first j records, at [i, j]."""
    lengths = np.zeros((alike.shape[0] + 1, alike.shape[1] + 1), dtype=np.int32)
    for row, may_match in enumerate(alike):
        best = np.maximum(lengths[row, 1:], lengths[row, :-1] + may_match)
        lengths[row + 1, 1:] = np.maximum.accumulate(best)
    return lengths

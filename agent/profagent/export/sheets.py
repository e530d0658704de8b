"""Tables of one kind in columns, many at a time, as rows, as CSV and as JSON.

Formatting numbers costs more than the rest of a CSV file. Most numbers are below some thousand units of their last
decimal, and their texts are looked up in tables.
"""

from __future__ import annotations

import functools
import operator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.tables.table import Column, cell_text, csv_cell, csv_heading, sheet_pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TypeAlias, TypeVar

    from numpy.typing import NDArray

    from profagent.tables.table import Cell

    T = TypeVar("T")
    Values: TypeAlias = NDArray[np.float64] | NDArray[np.int64] | "Coded"

# Numbers below this many units of their last decimal have a text in a table, of 8 MB for each number of decimals.
TEXTS = 1 << 17
# A product with a power of ten has an error below 1e-6 in the range of the tables. A number that is at least this much
# nearer to an integer than to the middle between two is certain to be rounded to it.
SURELY_NEAREST = 0.5 - 1e-6
_TAIL_DIGITS = 3


class Coded(NamedTuple):
    """Column with few distinct cells: `code` is the index in `cells` of each row's cell."""

    code: NDArray[np.integer]
    cells: Sequence[Cell]


class Sheets(NamedTuple):
    """Tables with the same columns, one after the other; `ends` has the row after the last one of each table.

    A column of numbers is an array, with NaN for unknown values; a column of other cells is Coded.
    """

    columns: Sequence[Column]
    values: Sequence[Values]
    ends: NDArray[np.integer]

    def rows(self) -> list[list[tuple[Cell, ...]]]:
        """Return the rows of each table."""
        cells = list(zip(*map(_cells, self.values), strict=True))
        return [cells[begin:end] for begin, end in self._cuts()]

    def texts(self, sheet_format: str) -> Iterator[bytes]:
        """Yield the content of a file for each table, empty for a table without rows. `sheet_format` is csv or json."""
        if sheet_format != "csv":
            for rows in self.rows():
                yield b"".join(sheet_pieces(self.columns, rows, sheet_format)) if rows else b""
            return
        heading = csv_heading(self.columns)
        lines = list(map(",".join, zip(*map(_csv_texts, self.columns, self.values), strict=True)))
        for begin, end in self._cuts():
            yield "\n".join([heading + lines[begin], *lines[begin + 1 : end], ""]).encode() if begin < end else b""

    def _cuts(self) -> Iterable[tuple[int, int]]:
        return pairwise([0, *self.ends.tolist()])


def _cells(values: Values) -> list[Cell]:
    if isinstance(values, Coded):
        return _take(values.cells, values.code)
    cells: list[Cell] = values.tolist()
    return [None if cell != cell else cell for cell in cells]  # noqa: PLR0124 - NaN alone differs from itself


def _csv_texts(column: Column, values: Values) -> list[str]:
    if isinstance(values, Coded):
        return _take([csv_cell(column, cell) for cell in values.cells], values.code)
    if column.decimals is None:
        return list(map(str, values.tolist()))
    return fixed(values.astype(np.float64, copy=False), column.decimals)


def _take(cells: Sequence[T], places: NDArray[np.integer]) -> list[T]:
    found = np.empty(len(cells), object)
    found[:] = cells
    return found[places].tolist()  # type: ignore[no-any-return]


def fixed(values: NDArray[np.float64], decimals: int) -> list[str]:
    """Return numbers as texts with this many decimals, rounded as Python rounds; `N/A` for NaN."""
    unit = 10**decimals
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = values * unit
        nearest = np.rint(scaled)
        # Negative numbers and -0.0 have a sign in their text, which the tables lack; NaN fails every comparison.
        is_sure = (np.abs(scaled - nearest) < SURELY_NEAREST) & ~np.signbit(values)
        is_short = is_sure & (nearest < TEXTS)
        tail_unit = unit if decimals else 10**_TAIL_DIGITS
        is_split = is_sure & ~is_short & (nearest < TEXTS * tail_unit)
    texts = np.empty(len(values), object)
    texts[is_short] = _short_texts(decimals)[nearest[is_short].astype(np.int64)]
    # A larger number is the text of its units and the text of its decimals.
    head, tail = np.divmod(nearest[is_split].astype(np.int64), tail_unit)
    texts[is_split] = list(map(operator.add, _short_texts(0)[head].tolist(), _tail_texts(decimals)[tail].tolist()))
    # Python formats the rest: it decides between two texts that are equally near.
    others = ~(is_short | is_split)
    column = Column("", decimals)
    texts[others] = [cell_text(column, cell) for cell in _cells(values[others])]
    return texts.tolist()


@functools.cache
def _short_texts(decimals: int) -> NDArray[np.object_]:
    return np.array([f"{number / 10**decimals:.{decimals}f}" for number in range(TEXTS)], object)


@functools.cache
def _tail_texts(decimals: int) -> NDArray[np.object_]:
    if not decimals:
        return np.array([f"{number:0{_TAIL_DIGITS}}" for number in range(10**_TAIL_DIGITS)], object)
    return np.array([f".{number:0{decimals}}" for number in range(10**decimals)], object)

"""Tables by columns, many of the same kind at a time: as rows, as CSV and as JSON.

The text of a number costs more than all else of a CSV file. Most are below some thousand units of their last decimal:
those texts are looked up.
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

# Numbers below so many units of their last decimal have a text that is looked up: 8 MB for each count of decimals.
TEXTS = 1 << 17
# A product with a power of ten is off by less, as long as it has a text: the nearest integer is sure if it is nearer.
SURELY_NEAREST = 0.5 - 1e-6
_TAIL_DIGITS = 3


class Coded(NamedTuple):
    """A column of few different cells: `code` is the place of each row's in `cells`."""

    code: NDArray[np.integer]
    cells: Sequence[Cell]


class Sheets(NamedTuple):
    """Tables with the same columns, one behind the other; `ends` has the row behind each one's last.

    A column of numbers is an array, with NaN for what is not known; a column of other cells is Coded.
    """

    columns: Sequence[Column]
    values: Sequence[Values]
    ends: NDArray[np.integer]

    def rows(self) -> list[list[tuple[Cell, ...]]]:
        """Return the rows of each table."""
        cells = list(zip(*map(_cells, self.values), strict=True))
        return [cells[begin:end] for begin, end in self._cuts()]

    def texts(self, sheet_format: str) -> Iterator[bytes]:
        """Give the content of a file for each table, nothing for one without rows. `sheet_format` is csv or json."""
        if sheet_format != "csv":
            for rows in self.rows():
                yield b"".join(sheet_pieces(self.columns, rows, sheet_format)) if rows else b""
            return
        heading = csv_heading(self.columns)
        lines = list(map(",".join, zip(*map(_texts, self.columns, self.values), strict=True)))
        for begin, end in self._cuts():
            yield "\n".join([heading + lines[begin], *lines[begin + 1 : end], ""]).encode() if begin < end else b""

    def _cuts(self) -> Iterable[tuple[int, int]]:
        return pairwise([0, *self.ends.tolist()])


def _cells(values: Values) -> list[Cell]:
    if isinstance(values, Coded):
        return _taken(values.cells, values.code)
    cells: list[Cell] = values.tolist()
    return [None if cell != cell else cell for cell in cells]  # noqa: PLR0124 - NaN alone differs from itself


def _texts(column: Column, values: Values) -> list[str]:
    """Return the cells of a column as a CSV file has them."""
    if isinstance(values, Coded):
        return _taken([csv_cell(column, cell) for cell in values.cells], values.code)
    if column.decimals is None:
        return list(map(str, values.tolist()))
    return fixed(values.astype(np.float64, copy=False), column.decimals)


def _taken(cells: Sequence[T], places: NDArray[np.integer]) -> list[T]:
    found = np.empty(len(cells), object)
    found[:] = cells
    return found[places].tolist()  # type: ignore[no-any-return]


def fixed(values: NDArray[np.float64], decimals: int) -> list[str]:
    """Return numbers with so many decimals, rounded as Python does; `N/A` for NaN."""
    unit = 10**decimals
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = values * unit
        nearest = np.rint(scaled)
        # -0.0 has its sign in the text; NaN is in no comparison.
        is_sure = (np.abs(scaled - nearest) < SURELY_NEAREST) & ~np.signbit(values)
        is_short = is_sure & (nearest < TEXTS)
        tail_unit = unit if decimals else 10**_TAIL_DIGITS
        is_split = is_sure & ~is_short & (nearest < TEXTS * tail_unit)
    texts = np.empty(len(values), object)
    texts[is_short] = _short(decimals)[nearest[is_short].astype(np.int64)]
    head, tail = np.divmod(nearest[is_split].astype(np.int64), tail_unit)
    texts[is_split] = list(map(operator.add, _short(0)[head].tolist(), _tails(decimals)[tail].tolist()))
    others = ~(is_short | is_split)
    column = Column("", decimals)
    texts[others] = [cell_text(column, cell) for cell in _cells(values[others])]
    return texts.tolist()


@functools.cache
def _short(decimals: int) -> NDArray[np.object_]:
    """Texts of the numbers below TEXTS units of the last decimal."""
    return np.array([f"{number / 10**decimals:.{decimals}f}" for number in range(TEXTS)], object)


@functools.cache
def _tails(decimals: int) -> NDArray[np.object_]:
    """Texts of what stands behind the units; without decimals, of the last digits of a whole number."""
    if not decimals:
        return np.array([f"{number:0{_TAIL_DIGITS}}" for number in range(10**_TAIL_DIGITS)], object)
    return np.array([f".{number:0{decimals}}" for number in range(10**decimals)], object)

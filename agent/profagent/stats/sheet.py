"""The figures of `stats` as a table, and the remarks that go with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagent.cli.table import Cell, Column
from profagent.errors import UsageError
from profagent.formats.bound import bound_mark
from profagent.stats.gathering import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from profagent.stats.gathering import LeftOut
    from profagent.stats.rows import Row

__all__ = ["column_names", "left_out_lines", "sorted_rows", "stats_cells", "stats_columns", "stats_object"]

FIGURES = ("count", "total", "share", "mean", "median", "mad", "p95", "max")
BOUND = "bound by"
_TIME = 3
_RATIO = 2
_WITHOUT_BOUND = ("aicpu", "api")


def column_names(by: str) -> tuple[str, ...]:
    """The columns of an answer, without units: what `--sort` takes and JSON has for keys."""
    return (*KEYS[by], *FIGURES, *(() if by in _WITHOUT_BOUND else (BOUND,)))


def stats_columns(by: str, unit: str) -> list[Column]:
    """The columns of an answer, with units in their titles."""
    return [_column(name, unit) for name in column_names(by)]


def stats_cells(by: str, row: Row, likely: Sequence[str] = ()) -> tuple[Cell, ...]:
    """A row's values in the order of the columns; what rests on `likely` counters is marked."""
    number, total, *others = row.figures
    bound = row.bound and row.bound + bound_mark(likely)
    return (*row.key, number, total, row.share, *others, *(() if by in _WITHOUT_BOUND else (bound,)))


def stats_object(by: str, row: Row) -> dict[str, Cell]:
    """A row as values for JSON by the columns' names; None is 'not known'."""
    return dict(zip(column_names(by), stats_cells(by, row), strict=True))


def sorted_rows(by: str, rows: Sequence[Row], column: str | None) -> list[Row]:
    """The rows by a column, largest number first, words by the alphabet, what is not known last.

    Raises UsageError where the answer has no such column.
    """
    if column is None:
        return list(rows)
    names = column_names(by)
    if column not in names:
        raise UsageError(f"there is no column {column!r} by {by}", hint=f"sort by one of: {', '.join(names)}")
    place = names.index(column)

    def rank(row: Row) -> tuple[bool, Any]:
        value = stats_cells(by, row)[place]
        return value is None, "" if value is None else value if isinstance(value, str) else -value

    return sorted(rows, key=rank)


def left_out_lines(counts: Sequence[LeftOut], skip: int | None) -> Iterator[str]:
    """`left out as warm-up: 2 of 100 inferences of yolov5s (--skip 0 keeps them)`, for each model that has some."""
    why, way = ("as warm-up", " (--skip 0 keeps them)") if skip is None else (f"by --skip {skip}", "")
    for model, inferences, number in counts:
        if number:
            yield f"left out {why}: {number} of {inferences} inferences of {model}{way}"


def _column(name: str, unit: str) -> Column:
    match name:
        case "count":
            return Column(name)
        case "share":
            return Column("share(%)", _RATIO)
        case _ if name in FIGURES:
            return Column(f"{name}({unit})", _TIME)
    return Column(name)

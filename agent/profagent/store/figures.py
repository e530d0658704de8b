"""Figures of sessions that are to outlive their records: written once, read as they were told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

__all__ = ["StoredFigures", "StoredRow", "figures_of_session", "left_out_of", "write_figures"]

_ROW = "key, number, total, mean, median, mad, p95, max, share, bound"


class StoredRow(NamedTuple):
    """The figures of one thing, None where not known; `share` is in %, the others are in the unit of all rows."""

    key: tuple[str, ...]
    number: int
    total: float | None
    mean: float | None
    median: float | None
    mad: float | None
    p95: float | None
    max: float | None
    share: float | None
    bound: str | None


class StoredFigures(NamedTuple):
    """Rows by falling total, of what `by` says, in `unit` (us or ticks)."""

    by: str
    unit: str
    rows: Sequence[StoredRow]


def write_figures(
    connection: sqlite3.Connection,
    session: int,
    figures: Sequence[StoredFigures],
    left_out: Sequence[tuple[str, int, int]],
) -> None:
    """Keep a session's figures in place of those kept before; `left_out`: model, its inferences, those left out."""
    for table in ("figure", "figure_left_out"):
        connection.execute(f"DELETE FROM {table} WHERE session = ?", (session,))  # noqa: S608 - one of two names
    connection.executemany(
        f"INSERT INTO figure (session, by, place, unit, {_ROW}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (
            (session, each.by, place, each.unit, json.dumps(row.key), *row[1:])
            for each in figures
            for place, row in enumerate(each.rows)
        ),
    )
    connection.executemany("INSERT INTO figure_left_out VALUES (?, ?, ?, ?)", ((session, *row) for row in left_out))


def figures_of_session(connection: sqlite3.Connection, session: int, by: str) -> StoredFigures | None:
    """The figures that were kept; None where none were."""
    rows = connection.execute(
        f"SELECT unit, {_ROW} FROM figure WHERE session = ? AND by = ? ORDER BY place",  # noqa: S608 - constants
        (session, by),
    ).fetchall()
    if not rows:
        return None
    return StoredFigures(by, rows[0][0], [StoredRow(tuple(json.loads(key)), *others) for _, key, *others in rows])


def left_out_of(connection: sqlite3.Connection, session: int) -> list[tuple[str, int, int]]:
    """Each model, its inferences, and how many of them the figures leave out."""
    rows = connection.execute(
        "SELECT model, inferences, left_out FROM figure_left_out WHERE session = ? ORDER BY model", (session,)
    )
    return [tuple(row) for row in rows]

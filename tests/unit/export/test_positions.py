"""Rows of a stream, gathered by position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.export.positions import ByPosition
from tests.unit.export.rows import aicore_row

if TYPE_CHECKING:
    from profagent.store.selection import AicoreRow


def _rows(*positions: int) -> ByPosition[AicoreRow]:
    return ByPosition(aicore_row(i)._replace(position=position) for i, position in enumerate(positions))


def test_each_position_has_its_rows() -> None:
    rows = _rows(0, 0, 2)
    assert [[row.ticks for row in rows.at(position)] for position in range(4)] == [[0, 1], [], [2], []]


def test_rows_that_nobody_read_are_passed_over() -> None:
    rows = _rows(0, 0, 1, 1)
    next(rows.at(0))
    assert [row.ticks for row in rows.at(1)] == [2, 3]


def test_looking_ahead_takes_nothing() -> None:
    rows = _rows(1)
    assert (rows.has(0), rows.has(1), rows.has(1)) == (False, True, True)
    assert [row.ticks for row in rows.at(1)] == [0]
    assert not rows.has(1)


def test_a_stream_may_be_empty() -> None:
    assert not _rows().has(0)

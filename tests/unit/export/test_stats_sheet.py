"""The table of `stats`: columns, order, and the line about what was left out."""

from __future__ import annotations

import pytest

from profagent.errors import UsageError
from profagent.stats.cli import (
    column_names,
    left_out_lines,
    sorted_rows,
    stats_cells,
    stats_columns,
    stats_object,
)
from profagent.stats.gathering import KEYS, Figures, LeftOut, Row

ROWS = [
    Row(("m", "b", "T"), Figures(2, 30.0, 15.0, 15.0, 5.0, 20.0, 20.0), 75.0, "cube"),
    Row(("m", "a", "T"), Figures(1, 10.0, 10.0, 10.0, 0.0, 10.0, 10.0), 25.0, None),
    Row(("m", "c", "T"), Figures(3, None, None, None, None, None, None), None, "DLD"),
]


@pytest.mark.parametrize("by", KEYS)
def test_every_row_has_a_value_for_each_column(by: str) -> None:
    row = ROWS[0]._replace(key=("k",) * len(KEYS[by]))
    assert len(column_names(by)) == len(stats_columns(by, "us")) == len(stats_cells(by, row))


def test_titles_have_units() -> None:
    titles = [column.title for column in stats_columns("layer", "ticks")]
    assert titles[3:8] == ["count", "total(ticks)", "share(%)", "mean(ticks)", "median(ticks)"]


def test_a_row_as_an_object() -> None:
    assert stats_object("layer", ROWS[0]) == {
        "model": "m",
        "layer": "b",
        "type": "T",
        "count": 2,
        "total": 30.0,
        "share": 75.0,
        "mean": 15.0,
        "median": 15.0,
        "mad": 5.0,
        "p95": 20.0,
        "max": 20.0,
        "bound by": "cube",
    }


@pytest.mark.parametrize(
    ("column", "order"), [(None, "bac"), ("layer", "abc"), ("count", "cba"), ("total", "bac"), ("bound by", "cba")]
)
def test_rows_by_a_column(column: str | None, order: str) -> None:
    assert "".join(row.key[1] for row in sorted_rows("layer", ROWS, column)) == order


def test_a_column_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError) as error:
        sorted_rows("api", [], "layer")
    assert "function" in error.value.hint
    assert "bound by" not in error.value.hint


def test_what_was_left_out_is_told_of_each_model() -> None:
    counts = [LeftOut("m", 100, 2), LeftOut("n", 50, 0)]
    assert list(left_out_lines(counts, None)) == ["left out as warm-up: 2 of 100 inferences of m (--skip 0 keeps them)"]
    assert list(left_out_lines(counts, 2)) == ["left out by --skip 2: 2 of 100 inferences of m"]

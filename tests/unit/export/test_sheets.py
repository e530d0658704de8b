"""Tables as CSV and as JSON, in pieces."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from profagent.cli.table import ROWS_PER_PIECE, Column, sheet_pieces

COLUMNS = (Column("Name"), Column("Time(us)", 3), Column("Bytes", 0))


def _csv(rows: list[tuple[Any, ...]]) -> bytes:
    return b"".join(sheet_pieces(COLUMNS, rows, "csv"))


def test_csv_has_a_heading_fixed_decimals_and_plain_line_ends() -> None:
    assert _csv([("conv", 1.5, 2048.0), ("relu", None, None)]) == (
        b"Name,Time(us),Bytes\nconv,1.500,2048\nrelu,N/A,N/A\n"
    )


@pytest.mark.parametrize("name", ["a,b", 'say "x"', "two\nlines", "检测", "=1+1", "", "a\rb"])
def test_csv_gives_back_any_name_as_it_was(name: Any) -> None:
    text = _csv([(name, 1.0, 1.0)]).decode()
    assert list(csv.reader(io.StringIO(text, newline="")))[1][0] == name


@pytest.mark.parametrize("count", [0, 1, ROWS_PER_PIECE, ROWS_PER_PIECE + 1, 3 * ROWS_PER_PIECE])
def test_any_number_of_rows_comes_whole(count: Any) -> None:
    rows = [(f"layer{i}", float(i), None) for i in range(count)]
    assert len(json.loads(b"".join(sheet_pieces(COLUMNS, rows, "json")))) == count
    assert _csv(rows).count(b"\n") == count + 1


@pytest.mark.parametrize("sheet_format", ["csv", "json"])
def test_rows_are_not_gathered_before_the_first_piece(sheet_format: Any) -> None:
    numbers = iter(range(10 * ROWS_PER_PIECE))
    next(iter(sheet_pieces(COLUMNS, ((str(i), 1.0, None) for i in numbers), sheet_format)))
    assert next(numbers) == ROWS_PER_PIECE

"""Tables as CSV and JSON, in pieces of bytes while their rows come."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Literal

import msgspec

from profagent.cli.table import UNKNOWN, Cell, Column, cell_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["SheetFormat", "as_object", "sheet_pieces"]

SheetFormat = Literal["csv", "json"]

ROWS_PER_PIECE = 500
# The csv module leaves a bare \r unquoted where lines end in \n, and readers take it for the end of a line.
NEEDS_QUOTES = re.compile(r'[,"\r\n]')


def sheet_pieces(
    columns: Sequence[Column], rows: Iterable[Sequence[Cell]], sheet_format: SheetFormat
) -> Iterator[bytes]:
    r"""A table as UTF-8: CSV with lines that end in `\n`, or a JSON array of objects, keys in the columns' order."""
    return (_csv_pieces if sheet_format == "csv" else _json_pieces)(columns, rows)


def as_object(columns: Sequence[Column], row: Sequence[Cell]) -> dict[str, Cell]:
    """A row by its columns' titles; numbers stay numbers, rounded; what is not known is `N/A`."""
    return {column.title: _json_cell(column, value) for column, value in zip(columns, row, strict=True)}


def _json_cell(column: Column, value: Cell) -> Cell:
    if value is None:
        return UNKNOWN
    if isinstance(value, str) or column.decimals is None:
        return value
    return round(value, column.decimals or None)


def _csv_pieces(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> Iterator[bytes]:
    heading = _csv_line(column.title for column in columns)
    remaining = iter(rows)
    while chunk := list(islice(remaining, ROWS_PER_PIECE)):
        lines = [_csv_line(map(cell_text, columns, row)) for row in chunk]
        yield (heading + "".join(lines)).encode()
        heading = ""
    yield heading.encode()


def _csv_line(texts: Iterable[str]) -> str:
    return ",".join(_quoted(text) if NEEDS_QUOTES.search(text) else text for text in texts) + "\n"


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _json_pieces(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> Iterator[bytes]:
    encode = msgspec.json.Encoder().encode
    remaining = iter(rows)
    before = b"[\n"
    while chunk := [encode(as_object(columns, row)) for row in islice(remaining, ROWS_PER_PIECE)]:
        yield before + b",\n".join(chunk)
        before = b",\n"
    yield b"\n]\n" if before == b",\n" else b"[]\n"

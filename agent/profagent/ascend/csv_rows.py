"""Rows of CSV files, read by the thousand, with tolerance for everything odd in them."""

from __future__ import annotations

import csv
from io import BufferedReader, FileIO, TextIOWrapper
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.ascend.families import Family, families
from profagent.ascend.kernels import TextColumn
from profagent.ascend.texts import NulBytes, numbers, times_ns
from profagent.errors import ResultError
from profagent.formats.cells import text_of
from profagent.limits import CSV_PIECE_BYTES, CSV_ROWS_PER_BLOCK, LONGEST_CELL_BYTES, LONGEST_CSV_LINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

BYTE_ORDER_MARK = "\ufeff"

Row = list[str]


class Sheet(NamedTuple):
    """Header of a CSV file's table, and the family that it belongs to."""

    header: tuple[str, ...]
    family: Family | None


class _LongLineError(csv.Error):
    """Error in a line that the reader of rows has not counted."""


class CsvLines(FileIO):
    """File without its NUL bytes, which ends reading in a line that is longer than any real one.

    `line_bytes` is the length of the last line so far, `is_ended` is True if it has an end.
    """

    def __init__(self, file: Path, offset: int = 0) -> None:
        super().__init__(file)
        # Bytes of the file that were read, with its NUL bytes.
        self.offset = self.seek(offset)
        self.nuls = NulBytes()
        self.line_bytes = 0
        self.is_ended = True
        # True once a byte was read that `cell_of` writes as an escape, which few files have.
        self.may_have_escapes = False

    def readinto(self, buffer: Any) -> int:
        """Read bytes into the buffer and return their number, as any raw file does. Raises _LongLineError."""
        while count := super().readinto(buffer) or 0:
            read = self.nuls.without(bytes(buffer[:count]), self.offset, b"")
            self.offset += count
            # A piece of NUL bytes only is no end of the file, which an empty result would mean.
            if not read:
                continue
            self.may_have_escapes = self.may_have_escapes or b"'" in read or b"\\" in read
            end = max(read.rfind(b"\n"), read.rfind(b"\r"))
            self.line_bytes = self.line_bytes + len(read) if end < 0 else len(read) - end - 1
            self.is_ended = not self.line_bytes
            if self.line_bytes > LONGEST_CSV_LINE_BYTES:
                raise _LongLineError(f"it has more than {LONGEST_CSV_LINE_BYTES >> 20} MiB")
            buffer[: len(read)] = read
            return len(read)
        return 0


def read_sheet(file: Path) -> Sheet:
    """Return the header and family of a CSV file. Raises ResultError if it has no header."""
    with _opened(CsvLines(file)) as text:
        try:
            first, _ = _first_row(text)
            "".join(first or ()).encode()
        except UnicodeEncodeError as error:
            raise ResultError(file, 1, "it is not UTF-8: save it as UTF-8") from error
        except csv.Error as error:
            raise ResultError(file, 1, f"it is not valid CSV from here on: {error}") from error
    if not first:
        raise ResultError(file, 1, "it is empty")
    return sheet_of(first)


def _first_row(text: TextIOWrapper) -> tuple[Row | None, int]:
    reader = csv.reader(text)
    row = next((row for row in reader if "".join(row).strip(f"{BYTE_ORDER_MARK} \t")), None)
    return row, reader.line_num


def _opened(lines: CsvLines) -> TextIOWrapper:
    # Surrogates stand for bytes that are not UTF-8, so that these damage their own row only.
    return TextIOWrapper(BufferedReader(lines, CSV_PIECE_BYTES), "utf-8", "surrogateescape", newline="")


def sheet_of(row: Row) -> Sheet:
    """Return the header and family of a table from its header row."""
    # Each of several joined files keeps its byte order mark.
    header = tuple(name.strip(f"{BYTE_ORDER_MARK} \t") for name in row)
    return Sheet(header, families().of_header(header))


class Damage(NamedTuple):
    """Rows or lines that are damaged: the first line, their number, and the description of the damage."""

    line: int
    number: int
    what: str


class Rows:
    """Rows of a CSV file after its header, without empty lines.

    An iteration yields lists of about CSV_ROWS_PER_BLOCK rows, each with the number of the line after it, and
    continues after lines that are no CSV. Afterwards `damages` has the lines that were not read, or not as they
    were.
    """

    def __init__(self, file: Path, offset: int = 0, before: int = 0) -> None:
        """Prepare to read a file; with an offset, only its rows from there on, after `before` lines."""
        self.lines = CsvLines(file, offset)
        self.damages: list[Damage] = []
        self._before = before

    def __iter__(self) -> Iterator[tuple[list[Row], int]]:
        """Yield the rows in lists, each with the number of the line after it."""
        csv.field_size_limit(LONGEST_CELL_BYTES)
        with _opened(self.lines) as text:
            # The header was read before, by another reader if there is an offset.
            before = self._before or _first_row(text)[1]
            reader = csv.reader(text, strict=True)
            is_more = True
            while is_more:
                rows: list[Row] = []
                begin = reader.line_num
                try:
                    # `extend` has the rows before a damage in the list when the error comes.
                    rows.extend(islice(reader, CSV_ROWS_PER_BLOCK))
                    is_more = bool(rows)
                except csv.Error as error:
                    is_more = not isinstance(error, _LongLineError)
                    read = sum(1 + sum(cell.count("\n") for cell in row) for row in rows)
                    lost = max(reader.line_num - begin - read, 1)
                    what = f"it is not valid CSV from here on: {error}: {lost:,} lines from it on are not read"
                    self.damages.append(Damage(before + begin + read + 1, lost, what))
                if rows := [row for row in rows if row]:
                    yield self._texts(rows), before + reader.line_num + 1

    def _texts(self, rows: list[Row]) -> list[Row]:
        return [list(map(text_of, row)) for row in rows] if self.lines.may_have_escapes else rows


class RowBlock:
    """Rows of one width as columns."""

    def __init__(self, rows: Sequence[Row]) -> None:
        # One zip for all columns takes half the time of a loop for each.
        self._columns = list(zip(*rows, strict=True))
        self.count = len(rows)

    def texts(self, place: int) -> Sequence[str]:
        """Return a column of texts."""
        return self._columns[place]

    def coded(self, place: int) -> TextColumn:
        """Return a column of texts that recur."""
        return TextColumn.of(self.texts(place))

    def numbers(self, place: int) -> NDArray[np.float64]:
        """Return a column of numbers; NaN where unknown."""
        # Adding 0 turns -0.0 into 0.0: the readers of numbers disagree on which of them `-0` is.
        return np.array(numbers(self.texts(place))) + 0.0

    def times_ns(self, place: int, scale_ns: int) -> NDArray[np.int64]:
        """Return a column of times as whole nanoseconds; -1 where unknown."""
        return times_ns(self.texts(place), scale_ns)

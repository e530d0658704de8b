"""Rows of CSV files, read by the thousand, with all that may be odd in them."""

from __future__ import annotations

import csv
from io import BufferedReader, FileIO, TextIOWrapper
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.ascend.families import Family, families
from profagent.ascend.kernels import Texts
from profagent.ascend.texts import Nuls, numbers, times_ns
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
    """The header of a CSV file, and how many bytes of it belong to the mark before it."""

    header: tuple[str, ...]
    family: Family | None


class _LongLineError(csv.Error):
    """Of a line that the reader of rows has not counted."""


class CsvLines(FileIO):
    """A file without its NUL bytes, that is read no further than in a line longer than any real one.

    `line_bytes` is how much of the last line is read, `is_ended` whether it has an end.
    """

    def __init__(self, file: Path, offset: int = 0) -> None:
        super().__init__(file)
        self.offset = self.seek(offset)
        self.nuls = Nuls()
        self.line_bytes = 0
        self.is_ended = True
        self.may_have_escapes = False  # what `cell_of` leaves in few files

    def readinto(self, buffer: Any) -> int:
        """As for any file."""
        while count := super().readinto(buffer) or 0:
            read = self.nuls.without(bytes(buffer[:count]), self.offset, b"")
            self.offset += count
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
    """What a CSV file is, by its header. Raises ResultError where it has none."""
    with _opened(CsvLines(file)) as text:
        try:
            first, _ = _first_row(text)
            "".join(first or ()).encode()
        except UnicodeEncodeError as error:
            raise ResultError(file, 1, "it is not UTF-8: save it as UTF-8") from error
        except csv.Error as error:
            raise ResultError(file, 1, f"it is no CSV any more: {error}") from error
    if not first:
        raise ResultError(file, 1, "it is empty")
    return sheet_of(first)


def _first_row(text: TextIOWrapper) -> tuple[Row | None, int]:
    """The first row that is not blank, None where there is none, and how many lines there are up to its end."""
    reader = csv.reader(text)
    row = next((row for row in reader if "".join(row).strip(f"{BYTE_ORDER_MARK} \t")), None)
    return row, reader.line_num


def _opened(lines: CsvLines) -> TextIOWrapper:
    # Bytes that are not UTF-8 take no other row with them.
    return TextIOWrapper(BufferedReader(lines, CSV_PIECE_BYTES), "utf-8", "surrogateescape", newline="")


def sheet_of(row: Row) -> Sheet:
    """Return what a table is by its header."""
    # Files that were joined keep the mark of their encoding.
    header = tuple(name.strip(f"{BYTE_ORDER_MARK} \t") for name in row)
    return Sheet(header, families().of_header(header))


class Damage(NamedTuple):
    """From which line on how many rows or lines are not as they should be, and how."""

    line: int
    number: int
    what: str


class Rows:
    """The rows of a CSV file behind its first, without empty lines.

    An iteration gives lists of about CSV_ROWS_PER_BLOCK, each with the number of the line behind it, and reads on
    behind what is no CSV. Behind it `damages` has what is not read, or not as it was.
    """

    def __init__(self, file: Path, offset: int = 0, before: int = 0) -> None:
        """With an offset only the rows from there on, `before` so many lines."""
        self.lines = CsvLines(file, offset)
        self.damages: list[Damage] = []
        self._before = before

    def __iter__(self) -> Iterator[tuple[list[Row], int]]:
        """Read them from the beginning."""
        csv.field_size_limit(LONGEST_CELL_BYTES)
        with _opened(self.lines) as text:
            # The first was read before.
            before = self._before or _first_row(text)[1]
            reader = csv.reader(text, strict=True)
            is_more = True
            while is_more:
                rows: list[Row] = []
                begin = reader.line_num
                try:
                    # What came before a damage is in the list.
                    rows.extend(islice(reader, CSV_ROWS_PER_BLOCK))
                    is_more = bool(rows)
                except csv.Error as error:
                    is_more = not isinstance(error, _LongLineError)
                    read = sum(1 + sum(cell.count("\n") for cell in row) for row in rows)
                    lost = max(reader.line_num - begin - read, 1)
                    what = f"it is no CSV any more: {error}: {lost:,} lines from it on are not read"
                    self.damages.append(Damage(before + begin + read + 1, lost, what))
                if rows := [row for row in rows if row]:
                    yield self._texts(rows), before + reader.line_num + 1

    def _texts(self, rows: list[Row]) -> list[Row]:
        return [list(map(text_of, row)) for row in rows] if self.lines.may_have_escapes else rows


class RowBlock:
    """Rows of one width by their columns."""

    def __init__(self, rows: Sequence[Row]) -> None:
        # Half the time of the same column by column.
        self._columns = list(zip(*rows, strict=True))
        self.count = len(rows)

    def texts(self, place: int) -> Sequence[str]:
        """Return a column."""
        return self._columns[place]

    def coded(self, place: int) -> Texts:
        """Return a column of texts that come again and again."""
        return Texts.of(self.texts(place))

    def numbers(self, place: int) -> NDArray[np.float64]:
        """Return a column of numbers; NaN where one is not known."""
        # Of -0 the formats that numbers are written in make 0 and -0.
        return np.array(numbers(self.texts(place))) + 0.0

    def times_ns(self, place: int, scale_ns: int) -> NDArray[np.int64]:
        """Return a column of times as whole nanoseconds; -1 where one is not known."""
        return times_ns(self.texts(place), scale_ns)

"""Rows of a CSV file as columns, read by pyarrow, as long as they are written as nearly all tools write them.

Everything odd is left to `csv_rows`, which gives the same columns for all rows: NUL and other control characters, bytes
that are not UTF-8, text that `text_of` would change, a quote or a line end inside a cell, a row of another width, an
empty line, another header, a last line without an end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import csv

from profagent.ascend.kernels import TextColumn
from profagent.ascend.texts import UNKNOWN_NS, numbers, times_ns
from profagent.limits import CSV_COLUMNS_BYTES, CSV_ROWS_PER_BLOCK, LARGEST_INTEGER, LONGEST_CELL_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_BYTE_ORDER_MARK = "\ufeff"
# Decimals that whole nanoseconds need, by the scale of the unit.
_DIGITS = {1: 0, 1_000: 3, 1_000_000: 6}
_PRECISION = 28
# Scalars are made once: making one of a Python text takes longer than most calls that use it.
_BETWEEN_CELLS, _BETWEEN_ROWS, _NO_TEXT, _NOT_KNOWN = map(pa.scalar, ('","', '"],["', "", "N/A"))
_NOTHING = pa.scalar(None, pa.string())
_NAN = pa.scalar(math.nan)
_TAB, _LINE_FEED, _RETURN, _QUOTE = b'\t\n\r"'


def _each_of(codes: bytes) -> NDArray[np.bool_]:
    return np.isin(np.arange(256), [*codes])


# Bytes after which a quote begins a cell or is doubled, and bytes before which a quote ends a cell or is doubled.
_BEFORE, _BEHIND = _each_of(b',\n"'), _each_of(b',\n\r"')


class PlainBlock:
    """Rows as columns of texts."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._columns = columns
        self.count = len(columns[0])

    def cells(self) -> Iterator[tuple[int, str]]:
        """Yield pairs of a number of rows, CSV_ROWS_PER_BLOCK or the rest, and the JSON of these rows."""
        *others, last = map(_escaped, self._columns)
        # Each row ends with the separator of rows, so that any slice of the joined texts becomes JSON without a loop.
        last = pc.binary_join_element_wise(last, _BETWEEN_ROWS, _NO_TEXT)
        rows = pc.binary_join_element_wise(*others, last, _BETWEEN_CELLS)
        _, offsets, texts = rows.buffers()
        at = np.frombuffer(offsets, np.int32)
        for begin in range(0, self.count, CSV_ROWS_PER_BLOCK):
            end = min(begin + CSV_ROWS_PER_BLOCK, self.count)
            text = str(texts[int(at[begin]) : int(at[end])], "utf-8").removesuffix(_BETWEEN_ROWS.as_py())
            yield end - begin, f'[["{text}"]]'

    def texts(self, place: int) -> list[str]:
        """Return a column of texts."""
        return self.coded(place).all()

    def coded(self, place: int) -> TextColumn:
        """Return a column of texts that recur."""
        found = self._columns[place].dictionary_encode()
        return TextColumn(found.dictionary.to_pylist(), found.indices.to_numpy().astype(np.int64))

    def numbers(self, place: int) -> NDArray[np.float64]:
        """Return a column of numbers; NaN where unknown."""
        column = self._columns[place]
        try:
            known = pc.if_else(pc.equal(column, _NOT_KNOWN), _NOTHING, column)
            found: NDArray[np.float64] = pc.fill_null(pc.cast(known, pa.float64()), _NAN).to_numpy()
        except pa.ArrowInvalid:
            found = np.array(numbers(self.texts(place)))
        return found + 0.0

    def times_ns(self, place: int, scale_ns: int) -> NDArray[np.int64]:
        """Return a column of times as whole nanoseconds; -1 where unknown."""
        column = pc.ascii_trim(self._columns[place], "\t ")
        try:
            exact = pc.cast(column, pa.decimal128(_PRECISION, _DIGITS[scale_ns]))
        except pa.ArrowInvalid:
            return times_ns(self.texts(place), scale_ns)
        low, high = np.frombuffer(exact.buffers()[1], "<i8").reshape(-1, 2).T
        return np.where((high == low >> 63) & (low >= -LARGEST_INTEGER), low, UNKNOWN_NS)


def _escaped(column: pa.Array) -> pa.Array:
    texts = column.buffers()[2].to_pybytes()
    for plain, escaped in (('"', '\\"'), ("\t", "\\t")):
        if plain.encode() in texts:
            column = pc.replace_substring(column, plain, escaped)
    return column


class CsvRows:
    """Rows of a CSV file after its header, up to the first odd one.

    An iteration yields blocks. Afterwards `offset` and `lines` are the bytes and lines that it has read.
    """

    def __init__(self, file: Path, header: Sequence[str], first_words: Collection[str]) -> None:
        """Prepare to read a file; a row whose first cell is one of `first_words` may be a header."""
        self._file, self._header = file, header
        self._first_words = frozenset([*first_words, header[0]])
        self.offset = self.lines = 0

    def __iter__(self) -> Iterator[PlainBlock]:
        """Yield the blocks of the file from its beginning."""
        with self._file.open("rb") as data:
            first = data.readline(LONGEST_CELL_BYTES)
            if not self._is_header(first):
                return
            self.offset, self.lines = len(first), 1
            piece, is_over = b"", False
            # Lines so long that a block of them exceeds this size are left to the other reader.
            while not is_over and len(piece) < LONGEST_CELL_BYTES:
                read = data.read(CSV_COLUMNS_BYTES)
                is_over = not read
                piece += read
                size = _size_of_blocks(piece, is_whole=is_over)
                if size:
                    block = self._block(piece[:size])
                    if block is None:
                        return
                    self.offset, self.lines = self.offset + size, self.lines + block.count
                    yield block
                    piece = piece[size:]

    def _is_header(self, line: bytes) -> bool:
        if not line.endswith(b"\n") or b'"' in line:
            return False
        names = line.decode(errors="replace").rstrip("\r\n").split(",")
        return [name.strip(f"{_BYTE_ORDER_MARK} \t") for name in names] == [*self._header]

    def _block(self, piece: bytes) -> PlainBlock | None:
        """Return whole lines as columns, or None if one of them is odd."""
        codes = np.frombuffer(piece, np.uint8)
        if not _is_plain(piece, codes):
            return None
        names = [str(place) for place in range(len(self._header))]
        try:
            table = csv.read_csv(
                pa.BufferReader(piece),
                csv.ReadOptions(use_threads=False, block_size=len(piece) + 1, column_names=names),
                csv.ParseOptions(),
                csv.ConvertOptions(check_utf8=not piece.isascii(), column_types=dict.fromkeys(names, pa.string())),
            )
        except pa.ArrowInvalid:
            return None
        columns = [column.combine_chunks() for column in table.columns]
        firsts = columns[0].unique().to_pylist()
        may_have_header = any(text in self._first_words or text.startswith(_BYTE_ORDER_MARK) for text in firsts)
        has_all = len(columns[0]) == np.count_nonzero(codes == _LINE_FEED)
        return PlainBlock(columns) if has_all and not may_have_header else None


def _size_of_blocks(piece: bytes, *, is_whole: bool) -> int:
    """Return the bytes of the full blocks of CSV_ROWS_PER_BLOCK lines; for the last piece, of all its whole lines."""
    if is_whole and piece.endswith(b"\n"):
        return len(piece)
    ends = np.flatnonzero(np.frombuffer(piece, np.uint8) == _LINE_FEED)
    number = len(ends) // CSV_ROWS_PER_BLOCK * CSV_ROWS_PER_BLOCK
    return int(ends[number - 1]) + 1 if number else 0


def _is_plain(piece: bytes, codes: NDArray[np.uint8]) -> bool:
    if b"'" in piece or b"\\" in piece or piece.startswith(_BYTE_ORDER_MARK.encode()):
        return False
    feeds, returns, tabs = (np.count_nonzero(codes == code) for code in (_LINE_FEED, _RETURN, _TAB))
    if np.count_nonzero(codes < ord(" ")) != feeds + returns + tabs:
        return False
    if returns and returns != piece.count(b"\r\n"):
        return False
    quotes = np.flatnonzero(codes == _QUOTE)
    if len(quotes) % 2:
        return False
    return bool(_BEFORE[codes[quotes[::2] - 1]].all() and _BEHIND[codes[quotes[1::2] + 1]].all())

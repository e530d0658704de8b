"""Rows of a CSV file by columns, read by pyarrow: of those that are written as nearly all tools write them.

What is odd is left to `csv_rows`, which makes the same of all others: NUL and other control characters, bytes that are
not UTF-8, what `text_of` would change, a quote or an end of a line inside of a cell, a row of another width, an empty
line, a further header, a last line without an end.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import csv

from profagent.ascend.kernels import Texts
from profagent.ascend.texts import UNKNOWN_NS, numbers, times_ns
from profagent.limits import CSV_COLUMNS_BYTES, CSV_ROWS_PER_BLOCK, LARGEST_INTEGER, LONGEST_CELL_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_BYTE_ORDER_MARK = "\ufeff"
# Digits behind the point that are whole nanoseconds.
_DIGITS = {1: 0, 1_000: 3, 1_000_000: 6}
_PRECISION = 28
# To make one of a Python text takes longer than most calls with it.
_BETWEEN_CELLS, _BETWEEN_ROWS, _NO_TEXT, _NOT_KNOWN = map(pa.scalar, ('","', '"],["', "", "N/A"))
_NOTHING = pa.scalar(None, pa.string())
_NAN = pa.scalar(math.nan)
_TAB, _LINE_FEED, _RETURN, _QUOTE = b'\t\n\r"'


def _each_of(codes: bytes) -> NDArray[np.bool_]:
    return np.isin(np.arange(256), [*codes])


# By the code of a byte: whether a quote behind it begins a cell or is doubled, and one before it ends one or is that.
_BEFORE, _BEHIND = _each_of(b',\n"'), _each_of(b',\n\r"')


class PlainBlock:
    """Rows as columns of texts."""

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        self._columns = columns
        self.count = len(columns[0])

    def cells(self) -> Iterator[tuple[int, str]]:
        """Yield numbers of rows, CSV_ROWS_PER_BLOCK or the rest, and their JSON."""
        *others, last = map(_escaped, self._columns)
        # With an end behind each row the texts of all rows stand together as JSON.
        last = pc.binary_join_element_wise(last, _BETWEEN_ROWS, _NO_TEXT)
        rows = pc.binary_join_element_wise(*others, last, _BETWEEN_CELLS)
        _, offsets, texts = rows.buffers()
        at = np.frombuffer(offsets, np.int32)
        for begin in range(0, self.count, CSV_ROWS_PER_BLOCK):
            end = min(begin + CSV_ROWS_PER_BLOCK, self.count)
            text = str(texts[int(at[begin]) : int(at[end])], "utf-8").removesuffix(_BETWEEN_ROWS.as_py())
            yield end - begin, f'[["{text}"]]'

    def texts(self, place: int) -> list[str]:
        """Return a column."""
        return self.coded(place).all()

    def coded(self, place: int) -> Texts:
        """Return a column of texts that come again and again."""
        found = self._columns[place].dictionary_encode()
        return Texts(found.dictionary.to_pylist(), found.indices.to_numpy().astype(np.int64))

    def numbers(self, place: int) -> NDArray[np.float64]:
        """Return a column of numbers; NaN where one is not known."""
        column = self._columns[place]
        try:
            known = pc.if_else(pc.equal(column, _NOT_KNOWN), _NOTHING, column)
            found: NDArray[np.float64] = pc.fill_null(pc.cast(known, pa.float64()), _NAN).to_numpy()
        except pa.ArrowInvalid:
            found = np.array(numbers(self.texts(place)))
        return found + 0.0

    def times_ns(self, place: int, scale_ns: int) -> NDArray[np.int64]:
        """Return a column of times as whole nanoseconds; -1 where one is not known."""
        column = pc.ascii_trim(self._columns[place], "\t ")
        try:
            exact = pc.cast(column, pa.decimal128(_PRECISION, _DIGITS[scale_ns]))
        except pa.ArrowInvalid:
            return times_ns(self.texts(place), scale_ns)
        low, high = np.frombuffer(exact.buffers()[1], "<i8").reshape(-1, 2).T
        return np.where((high == low >> 63) & (low >= -LARGEST_INTEGER), low, UNKNOWN_NS)


def _escaped(column: pa.Array) -> pa.Array:
    """The texts as JSON has them between quotes."""
    texts = column.buffers()[2].to_pybytes()
    for plain, escaped in (('"', '\\"'), ("\t", "\\t")):
        if plain.encode() in texts:
            column = pc.replace_substring(column, plain, escaped)
    return column


class CsvRows:
    """The rows of a CSV file behind its header, up to what is odd.

    An iteration gives blocks. Behind it `offset` and `lines` are the bytes and lines that it has read.
    """

    def __init__(self, file: Path, header: Sequence[str], first_words: Collection[str]) -> None:
        """A row whose first cell is one of `first_words` may be a header."""
        self._file, self._header = file, header
        self._first_words = frozenset([*first_words, header[0]])
        self.offset = self.lines = 0

    def __iter__(self) -> Iterator[PlainBlock]:
        """Read the file from its beginning."""
        with self._file.open("rb") as data:
            first = data.readline(LONGEST_CELL_BYTES)
            if not self._is_header(first):
                return
            self.offset, self.lines = len(first), 1
            piece, is_over = b"", False
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
        """Whole lines as columns; None where one of them is odd."""
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
    """How many bytes are blocks of CSV_ROWS_PER_BLOCK lines; of a piece that is all that is left, all whole lines."""
    if is_whole and piece.endswith(b"\n"):
        return len(piece)
    ends = np.flatnonzero(np.frombuffer(piece, np.uint8) == _LINE_FEED)
    number = len(ends) // CSV_ROWS_PER_BLOCK * CSV_ROWS_PER_BLOCK
    return int(ends[number - 1]) + 1 if number else 0


def _is_plain(piece: bytes, codes: NDArray[np.uint8]) -> bool:
    """Whether lines have no byte that a reader may take in another way."""
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

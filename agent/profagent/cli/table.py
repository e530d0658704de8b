"""A table as aligned text, where wide characters take two columns of a terminal; as CSV and as JSON."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


# What a value is when it is not known, and what stands for the total layer's own (manual, 'AA Core').
UNKNOWN = "N/A"
DASH = "-"

Cell = float | int | str | None
"""None is 'not known'."""


class Column(NamedTuple):
    """A column; numbers are rounded to `decimals`, None for columns of text and of whole numbers."""

    title: str
    decimals: int | None = None


_RATIO = 2
_TIME = 3

_TIMES = (
    Column("Total Time Ratio(%)", _RATIO),
    Column("Total Time(us)", _TIME),
    Column("Count"),
    *(Column(title, _TIME) for title in ("Avg(us)", "Max(us)", "Min(us)")),
)
_RATIOS = (
    *("Time Ratio", "Mac Busy Ratio", "Mac Ppen Ratio", "Vec Busy Ratio", "Vec Ppen Ratio", "Dstr Ratio"),
    *("Dtrans Ratio", "DLD Ratio", "WLD Ratio", "Memory Bound"),
)
OP_SUMMARY = (
    *map(Column, ("Layer Id", "Ori Layer Name", "Layer Name", "Layer Type")),
    Column("Time(us)", _TIME),
    *(Column(title, _RATIO) for title in _RATIOS),
    *(Column(title, 0) for title in ("DDR Read(byte)", "DDR Write(byte)", "DDR Total(byte)")),
)
OP_STATISTIC = (Column("Task ID"), Column("Stream ID"), Column("OP Name"), Column("Task Type"), *_TIMES)
ACL_STATISTIC = (Column("Process ID"), Column("Thread ID"), Column("Type"), Column("Name"), *_TIMES)
FREQUENCY = (Column("Device Id"), Column("Frequency(MHz)"))


def cell_text(column: Column, value: Cell) -> str:
    """A value as text."""
    if value is None:
        return UNKNOWN
    if isinstance(value, str) or column.decimals is None:
        return str(value)
    return f"{value:.{column.decimals}f}"


# What means something in Markdown, and how it is written there.
_MARKDOWN = str.maketrans({**{sign: "\\" + sign for sign in "|\\`*_"}, "<": "&lt;", ">": "&gt;"})


def markdown(text: str) -> str:
    """A line or a cell of Markdown that shows the text as it is."""
    return printable(text).translate(_MARKDOWN)


BARS = "▁▂▃▄▅▆▇█"
# What varies by less of its largest value is shown as level.
LEAST_SPAN = 0.02


def sparkline(values: Sequence[float | None]) -> str:
    """A bar for each value, the lowest for the least; a space where there is none."""
    known = [value for value in values if value is not None]
    if not known:
        return " " * len(values)
    least, most = min(known), max(known)
    span = max(most - least, LEAST_SPAN * abs(most)) or 1.0
    return "".join(" " if value is None else BARS[round((value - least) / span * (len(BARS) - 1))] for value in values)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(time_us: int | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time in UTC; `N/A` for one that is not known, or that no calendar has."""
    try:
        return UNKNOWN if time_us is None else (_EPOCH + timedelta(microseconds=time_us)).strftime(form)
    except OverflowError:
        return UNKNOWN


GAP = "  "
# So much of a word is shown where a terminal is too narrow for a table.
LONGEST_WORD = 24
WIDE = ("W", "F")
# Marks that stand on the character before them, and format characters, take no column.
ZERO_WIDTH = ("Mn", "Me", "Cf")


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """A heading, a rule, and a line for each row; columns without any text but names are aligned to the right."""
    texts = [[printable(cell_text(column, value)) for column, value in zip(columns, row, strict=True)] for row in rows]
    titles = [column.title for column in columns]
    widths = [max(map(text_width, cells)) for cells in zip(titles, *texts, strict=True)]
    to_right = [
        all(not isinstance(value, str) or value in (DASH, UNKNOWN) for value in values)
        for values in (zip(*rows, strict=True) if rows else ((),) * len(columns))
    ]
    yield _line(titles, widths, to_right)
    yield GAP.join("-" * width for width in widths)
    for cells in texts:
        yield _line(cells, widths, to_right)


def fitted_lines(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int, *, less: Sequence[str] = ()
) -> Iterator[str]:
    """The table in so many columns of a terminal (0: as wide as it is); a last line tells what was left out.

    Long words are cut first, then the columns `less` go, in their order, then those on the right.
    """
    widest = max(map(text_width, table_lines(columns, rows)))
    if not width or widest <= width:
        yield from table_lines(columns, rows)
        return
    cut = [[_cut(cell) for cell in row] for row in rows]
    places = list(range(len(columns)))
    left_out: list[str] = []
    for title in (*less, *(column.title for column in reversed(columns[1:]) if column.title not in less)):
        if _table_width(columns, cut, places) <= width:
            break
        if any(columns[place].title == title for place in places):
            places = [place for place in places if columns[place].title != title]
            left_out.append(title)
    yield from table_lines([columns[place] for place in places], [[row[place] for place in places] for row in cut])
    if left_out:
        yield f"(not shown in {width} columns: {', '.join(left_out)})"


def _table_width(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], places: Sequence[int]) -> int:
    chosen = [[row[place] for place in places] for row in rows]
    return max(map(text_width, table_lines([columns[place] for place in places], chosen)))


def text_width(text: str) -> int:
    """Columns of a terminal that a text takes."""
    return len(text) if text.isascii() else sum(map(_width, text))


def printable(text: str) -> str:
    """A text that moves no cursor, whatever a board names its models."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _cut(cell: Cell) -> Cell:
    if not isinstance(cell, str) or len(cell) <= LONGEST_WORD:
        return cell
    return f"{cell[: LONGEST_WORD - 1]}…"


def _width(character: str) -> int:
    if unicodedata.category(character) in ZERO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in WIDE else 1


def _line(cells: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]) -> str:
    padded = (
        " " * (width - text_width(cell)) + cell if right else cell + " " * (width - text_width(cell))
        for cell, width, right in zip(cells, widths, to_right, strict=True)
    )
    return GAP.join(padded).rstrip()


ROWS_PER_PIECE = 500
# The csv module leaves a bare \r unquoted where lines end in \n, and readers take it for the end of a line.
NEEDS_QUOTES = re.compile(r'[,"\r\n]')


def sheet_pieces(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], sheet_format: str) -> Iterator[bytes]:
    r"""A table as UTF-8: CSV with lines that end in `\n`, or a JSON array of objects, keys in the columns' order."""
    return SHEETS[sheet_format](columns, rows)


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


# By the name of the format, which is a file's ending as well.
SHEETS = {"csv": _csv_pieces, "json": _json_pieces}

"""Tables as aligned text, as CSV and as JSON.

Wide characters take two columns of a terminal. On a terminal, rich fits a table to the width and colours have a
meaning; a pipe gets plain text, uncut.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import accumulate, islice
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import click
import msgspec

from profagent.formats.cells import cell_of
from profagent.limits import ROWS_PER_PIECE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import ConsoleOptions
    from rich.measure import Measurement
    from rich.text import Text


# Texts of an unknown value, and of values that the total row cannot have (manual, 'AA Core').
UNKNOWN = "N/A"
DASH = "-"

Cell = float | int | str | None
"""Value of a cell; None is unknown."""


class Column(NamedTuple):
    """Column of a table; numbers are rounded to `decimals`, None for texts and whole numbers."""

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
    """Return a value as text."""
    if value is None:
        return UNKNOWN
    if isinstance(value, str) or column.decimals is None:
        return str(value)
    return f"{value:.{column.decimals}f}"


# Characters with a meaning in Markdown, and their escaped forms.
_MARKDOWN = str.maketrans({**{sign: "\\" + sign for sign in "|\\`*_"}, "<": "&lt;", ">": "&gt;"})


def markdown(text: str) -> str:
    """Return Markdown that shows a text unchanged, in a line or a cell."""
    return printable(text).translate(_MARKDOWN)


def markdown_lines(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    """Return the lines of a table in Markdown."""
    yield f"| {' | '.join(column.title for column in columns)} |"
    yield f"|{'|'.join('---' if column.decimals is None else '---:' for column in columns)}|"
    for row in rows:
        yield f"| {' | '.join(markdown(cell_text(*each)) for each in zip(columns, row, strict=True))} |"


BARS = "▁▂▃▄▅▆▇█"
# Values that vary by a smaller share of the largest one are drawn as nearly level.
LEAST_SPAN = 0.02


def sparkline(values: Sequence[float | None]) -> str:
    """Return a bar for each value, the lowest bar for the least; a space for None."""
    known = [value for value in values if value is not None]
    if not known:
        return " " * len(values)
    least, most = min(known), max(known)
    # All values may be 0: any span then draws them level.
    span = max(most - least, LEAST_SPAN * abs(most)) or 1.0
    return "".join(" " if value is None else BARS[round((value - least) / span * (len(BARS) - 1))] for value in values)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(time_us: int | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time in UTC; `N/A` for an unknown time, or for one beyond the calendar."""
    try:
        return UNKNOWN if time_us is None else (_EPOCH + timedelta(microseconds=time_us)).strftime(form)
    except OverflowError:
        return UNKNOWN


def counted(count: int, what: str) -> str:
    """Return `1 finding`, `2 findings`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


GAP = "  "
# Least width of a column of names in a narrow terminal; a date fits into it.
LEAST_NAME = 20
WIDE = ("W", "F")
# Combining marks and format characters take no column.
ZERO_WIDTH = ("Mn", "Me", "Cf")

Tone = Literal["loss", "note", "slower", "faster"]
TONES: dict[Tone, dict[str, Any]] = {
    "loss": {"color": "red", "bold": True},
    "note": {"dim": True},
    "slower": {"color": "red"},
    "faster": {"color": "green"},
}
# A line of the ledger, which may begin with its subject.
_ENTRY = re.compile(r"(?:[^:]*: )?(loss|note): (?!none)")


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """Yield a heading, a rule, and a line for each row; columns of numbers are aligned to the right."""
    texts = [[printable(cell_text(column, value)) for column, value in zip(columns, row, strict=True)] for row in rows]
    titles = [column.title for column in columns]
    widths = [max(map(text_width, cells)) for cells in zip(titles, *texts, strict=True)]
    to_right = _are_numeric(columns, rows)
    yield _line(titles, widths, to_right)
    yield GAP.join("-" * width for width in widths)
    for cells in texts:
        yield _line(cells, widths, to_right)


def _are_numeric(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[bool]:
    return [
        all(not isinstance(value, str) or value in (DASH, UNKNOWN) for value in values)
        for values in (zip(*rows, strict=True) if rows else ((),) * len(columns))
    ]


def fitted_lines(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    width: int,
    *,
    less: Sequence[str] = (),
    tones: Sequence[Tone | None] = (),
) -> Iterator[str]:
    """Yield a table for this width of a terminal (0: no terminal, as `table_lines`), each row in its tone.

    The widest names are shortened first; then the columns `less` are left out in their order, then those on the
    right. A last line names the columns that were left out.
    """
    if not width:
        yield from table_lines(columns, rows)
        return
    texts = [[printable(cell_text(column, value)) for column, value in zip(columns, row, strict=True)] for row in rows]
    is_number = _are_numeric(columns, rows)
    least = _least_widths(columns, texts, is_number)
    places, left_out = [*range(len(columns))], []
    for title in (*less, *(column.title for column in reversed(columns[1:]) if column.title not in less)):
        if sum(least[place] + len(GAP) for place in places) - len(GAP) <= width:
            break
        going = [place for place in places if columns[place].title == title]
        places = [place for place in places if place not in going]
        left_out += [title for _ in going]
    chosen = [(columns[place].title, is_number[place], [row[place] for row in texts]) for place in places]
    yield from _rendered(chosen, tones or [None] * len(rows), width)
    if left_out:
        yield from wrap(f"(not shown in {width} columns: {', '.join(left_out)}; --wide shows all)", width)


def _least_widths(columns: Sequence[Column], texts: Sequence[Sequence[str]], is_number: Sequence[bool]) -> list[int]:
    cells = zip(*texts, strict=True) if texts else ((),) * len(columns)
    widest = [max(map(text_width, each), default=0) for each in cells]
    names = (wide if number else min(wide, LEAST_NAME) for wide, number in zip(widest, is_number, strict=True))
    return [max(text_width(column.title), wide) for column, wide in zip(columns, names, strict=True)]


def _rendered(
    columns: Sequence[tuple[str, bool, Sequence[str]]], tones: Sequence[Tone | None], width: int
) -> Iterator[str]:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - pipes need none of it
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.style import Style  # noqa: PLC0415 - as above
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for title, is_number, _ in columns:
        table.add_column(Text(title), justify="right" if is_number else "left", no_wrap=is_number)
    for cells, tone in zip(zip(*(each for _, _, each in columns), strict=True), tones, strict=True):
        shown = (Text(cell) if number else _Name(cell) for cell, (_, number, _) in zip(cells, columns, strict=True))
        table.add_row(*shown, style=None if tone is None else Style(**TONES[tone]))
    console = Console(width=width, color_system="standard" if has_colours() else None, file=StringIO())
    with console.capture() as captured:
        console.print(table)
    yield from (line.rstrip() for line in captured.get().splitlines())


class _Name(NamedTuple):
    """Cell that rich may shorten, in the middle, because names differ at their ends."""

    text: str

    def __rich_measure__(self, *_: object) -> Measurement:
        from rich.measure import Measurement  # noqa: PLC0415 - pipes need none of it

        width = text_width(self.text)
        return Measurement(min(width, LEAST_NAME), width)

    def __rich_console__(self, _: object, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text  # noqa: PLC0415 - pipes need none of it

        yield Text(shortened(self.text, options.max_width))


def shortened(text: str, width: int) -> str:
    """Return a text cut in its middle to this width of a terminal."""
    if text_width(text) <= width:
        return text
    if width < 1:
        return ""
    # One column is for the ellipsis; the beginning gets the odd one of the others.
    end = _beginning(text[::-1], (width - 1) // 2)[::-1]
    return f"{_beginning(text, width - 1 - text_width(end))}…{end}"


def _beginning(text: str, width: int) -> str:
    widths = accumulate(map(_width, text))
    return "".join(character for character, upto in zip(text, widths, strict=True) if upto <= width)


def has_colours() -> bool:
    """Return True if standard output shows colours, and its reader wants them."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def toned(line: str, tone: Tone | None = None) -> str:
    """Return a line in a tone, by default that of the loss or note that the line is about."""
    if tone is None and (about := _ENTRY.match(line)) is not None:
        tone = cast("Tone", about[1])
    if tone is None or not has_colours():
        return line
    style = TONES[tone]
    return click.style(line, fg=style.get("color"), bold=style.get("bold"), dim=style.get("dim"))


def text_width(text: str) -> int:
    """Return the number of terminal columns of a text."""
    return len(text) if text.isascii() else sum(map(_width, text))


def printable(text: str) -> str:
    """Return a text without characters that move a cursor, whatever a board names its models."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


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


NEEDS_QUOTES = re.compile(r'[,"]')
# UTF-8 of characters that steer a terminal: DEL and C1, and marks that change the direction of text. In JSON they occur
# only within texts.
_STEERING = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]")


def json_text(document: Any) -> bytes:
    """Return a document as JSON in UTF-8, with the characters that steer a terminal escaped."""
    return _STEERING.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), msgspec.json.encode(document))


def sheet_pieces(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], sheet_format: str) -> Iterator[bytes]:
    """Yield a table as UTF-8: CSV with line feeds, or a JSON array of objects with keys in the columns' order."""
    return SHEETS[sheet_format](columns, rows)


def as_object(columns: Sequence[Column], row: Sequence[Cell]) -> dict[str, Cell]:
    """Return a row by its columns' titles: numbers stay numbers, rounded; unknown values are `N/A`."""
    return {column.title: _json_cell(column, value) for column, value in zip(columns, row, strict=True)}


def _json_cell(column: Column, value: Cell) -> Cell:
    if value is None:
        return UNKNOWN
    if isinstance(value, str) or column.decimals is None:
        return value
    return round(value, column.decimals or None)


def _csv_pieces(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> Iterator[bytes]:
    heading = csv_heading(columns)
    remaining = iter(rows)
    while chunk := list(islice(remaining, ROWS_PER_PIECE)):
        lines = [",".join(map(csv_cell, columns, row)) + "\n" for row in chunk]
        yield (heading + "".join(lines)).encode()
        heading = ""
    yield heading.encode()


def csv_heading(columns: Sequence[Column]) -> str:
    """Return the first line of a CSV file."""
    return ",".join(csv_cell(column, column.title) for column in columns) + "\n"


def csv_cell(column: Column, value: Cell) -> str:
    """Return a value as a cell of a CSV file."""
    if not isinstance(value, str):
        return cell_text(column, value)
    text = cell_of(value)
    doubled = text.replace('"', '""')
    return f'"{doubled}"' if NEEDS_QUOTES.search(text) else text


def _json_pieces(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> Iterator[bytes]:
    remaining = iter(rows)
    before = b"[\n"
    while chunk := [json_text(as_object(columns, row)) for row in islice(remaining, ROWS_PER_PIECE)]:
        yield before + b",\n".join(chunk)
        before = b",\n"
    yield b"\n]\n" if before == b",\n" else b"[]\n"


# Writer of each format; the name of the format is the suffix of its files, too.
SHEETS = {"csv": _csv_pieces, "json": _json_pieces}

"""Summaries: CSV read by the thousand rows, its columns found by name."""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from functools import cache
from io import BufferedReader, FileIO, TextIOWrapper
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent import ledger
from profagent.ascend.families import NOT_KNOWN, Family, families, places
from profagent.ascend.kernels import CORE_TIMES, PIPES, Called, Kernels, counters_in, largest_shares, type_on
from profagent.ascend.texts import UNKNOWN_NS, Nuls, encoded, numbers, times_ns
from profagent.errors import ResultError
from profagent.formats.cells import text_of
from profagent.formats.records import AI_CPU
from profagent.limits import (
    CSV_PIECE_BYTES,
    CSV_ROWS_PER_BLOCK,
    LARGEST_INTEGER,
    LONGEST_CELL_BYTES,
    LONGEST_CSV_LINE_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from profagent.ascend.draft import Draft
    from profagent.ledger import Entry

BYTE_ORDER_MARK = "\ufeff"
_SCALES_NS = {"(ns)": 1, "(us)": 1_000, "(ms)": 1_000_000}

Row = list[str]
Columns = list[tuple[str, ...]]


class Sheet(NamedTuple):
    """The header of a CSV file, and how many bytes of it belong to the mark before it."""

    header: tuple[str, ...]
    family: Family | None


class _LongLineError(csv.Error):
    """Of a line that the reader of rows has not counted."""


class _Lines(FileIO):
    """A file without its NUL bytes, that is read no further than in a line longer than any real one.

    `line_bytes` is how much of the last line is read, `is_ended` whether it has an end.
    """

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.nuls = Nuls()
        self.line_bytes = self.offset = 0
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
    with _opened(_Lines(file)) as text:
        try:
            first, _ = _first_row(text)
            "".join(first or ()).encode()
        except UnicodeEncodeError as error:
            raise ResultError(file, 1, "it is not UTF-8: save it as UTF-8") from error
        except csv.Error as error:
            raise ResultError(file, 1, f"it is no CSV any more: {error}") from error
    if not first:
        raise ResultError(file, 1, "it is empty")
    return _sheet_of(first)


def _first_row(text: TextIOWrapper) -> tuple[Row | None, int]:
    """The first row that is not blank, None where there is none, and how many lines there are up to its end."""
    reader = csv.reader(text)
    row = next((row for row in reader if "".join(row).strip(f"{BYTE_ORDER_MARK} \t")), None)
    return row, reader.line_num


def _opened(lines: _Lines) -> TextIOWrapper:
    # Bytes that are not UTF-8 take no other row with them.
    return TextIOWrapper(BufferedReader(lines, CSV_PIECE_BYTES), "utf-8", "surrogateescape", newline="")


def _sheet_of(row: Row) -> Sheet:
    # Files that were joined keep the mark of their encoding.
    header = tuple(name.strip(f"{BYTE_ORDER_MARK} \t") for name in row)
    return Sheet(header, families().of_header(header))


class _Damage(NamedTuple):
    """From which line on how many rows or lines are not as they should be, and how."""

    line: int
    number: int
    what: str


class Rows:
    """The rows of a CSV file behind its first, without empty lines.

    An iteration gives lists of about CSV_ROWS_PER_BLOCK, each with the number of the line behind it, and reads on
    behind what is no CSV. Behind it `damages` has what is not read, or not as it was.
    """

    def __init__(self, file: Path) -> None:
        self.lines = _Lines(file)
        self.damages: list[_Damage] = []

    def __iter__(self) -> Iterator[tuple[list[Row], int]]:
        """Read the file from its beginning."""
        csv.field_size_limit(LONGEST_CELL_BYTES)
        with _opened(self.lines) as text:
            # It was read before.
            _, before = _first_row(text)
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
                    self.damages.append(_Damage(before + begin + read + 1, lost, what))
                if rows := [row for row in rows if row]:
                    yield self._texts(rows), before + reader.line_num + 1

    def _texts(self, rows: list[Row]) -> list[Row]:
        return [list(map(text_of, row)) for row in rows] if self.lines.may_have_escapes else rows


class _Table:
    """A table of a file, on its way into the draft."""

    def __init__(self, draft: Draft, log: int, sheet: Sheet, *, has_kernels: bool) -> None:
        family = sheet.family
        self.header, self._family, self._draft, self._log = sheet.header, family, draft, log
        self._into = "" if family is None or (family.into == "kernels" and not has_kernels) else family.into
        self._at = places(sheet.header, families().columns)
        self._count = 0
        self.damages: list[_Damage] = []

    def take(self, rows: list[Row], line: int) -> None:
        """Further rows; `line` is that behind the last."""
        if not rows:
            return
        width = len(self.header)
        try:
            cells = encoded(rows)
        except UnicodeEncodeError:
            readable = [list(map(_readable, row)) for row in rows]
            bad = [place for place, row in enumerate(rows) if row != readable[place]]
            rows, cells = readable, encoded(readable)
            what = f"it is not UTF-8: {len(bad):,} such rows are here with \N{REPLACEMENT CHARACTER} in them"
            self.damages.append(_Damage(line - len(rows) + bad[0], len(bad), what))
        self._draft.add_block(self._log, self._count + 1, len(rows), cells)
        self._count += len(rows)
        if {*map(len, rows)} != {width}:
            odd = [(line - len(rows) + place, len(row)) for place, row in enumerate(rows) if len(row) != width]
            what = (
                f"the row has {odd[0][1]} cells, its header {width}; {len(odd)} such rows are kept and not counted in"
            )
            self.damages.append(_Damage(odd[0][0], len(odd), what))
            # The others mean nothing.
            rows = [row for row in rows if len(row) == width]
        if rows and self._into:
            _take(self._draft, self._log, self._into, self.header, list(zip(*rows, strict=True)), self._at)

    def end(self) -> None:
        """All rows have come."""
        name = None if self._family is None else self._family.name
        self._draft.end_file(self._log, "summary", name, self.header, self._count)


def _readable(cell: str) -> str:
    """The cell with a mark in the place of each byte that is not UTF-8."""
    return cell.encode(errors="surrogateescape").decode(errors="replace")


def import_sheet(draft: Draft, log: int, file: Path, sheet: Sheet, *, has_kernels: bool) -> None:
    """Bring the rows into the draft: of each table that the file has, where several were joined.

    Raises ResultError at last for lines and rows that are not as they should be.
    """
    rows = Rows(file)
    tables = [_Table(draft, log, sheet, has_kernels=has_kernels)]
    headers: list[int] = []
    try:
        for block, line in rows:
            begin = 0
            for place, row in _headers(block, sheet.header):
                tables[-1].take(block[begin:place], line - len(block) + place)
                begin = place + 1
                headers.append(line - len(block) + place)
                if row.header != tables[-1].header:
                    part = draft.begin_table(log, headers[-1])
                    tables.append(_Table(draft, part, row, has_kernels=has_kernels))
            tables[-1].take(block[begin:], line)
    finally:
        for table in tables:
            table.end()
    damages = sorted([*rows.damages, *(damage for table in tables for damage in table.damages)])
    for entry in _entries(rows.lines, headers, is_damaged=bool(damages)):
        draft.note(log, entry)
    if damages:
        raise _all_damages(file, damages)


def _entries(lines: _Lines, headers: Sequence[int], *, is_damaged: bool) -> Iterator[Entry]:
    if headers:
        what = f"line {headers[0]:,}: a header stands there, one of {len(headers) + 1:,}: what is below is read by it"
        yield ledger.entry(ledger.JOINED_RESULT, what, count=len(headers))
    if not lines.is_ended and not is_damaged:
        what = "its last line has no end: if the file was cut there, the last cell is not what it was"
        yield ledger.entry(ledger.JOINED_RESULT, what)
    yield from lines.nuls.entries()


def _all_damages(file: Path, damages: Sequence[_Damage]) -> ResultError:
    """One error of all of them: of each kind the first, with how many there are."""
    kinds: dict[str, list[_Damage]] = defaultdict(list)
    for damage in damages:
        kinds[re.sub(r"\d+", "", damage.what)].append(damage)
    firsts = [found[0] for found in kinds.values()]
    more = sum(len(found) - 1 for found in kinds.values())
    texts = [firsts[0].what, *(f"line {each.line}: {each.what}" for each in firsts[1:])]
    texts += [f"and {more:,} more like these"] if more else []
    count = sum(each.number for each in damages)
    return ResultError(file, firsts[0].line, "; ".join(texts), unread=(None, None, count))


def _headers(rows: Sequence[Row], first: Sequence[str]) -> Iterator[tuple[int, Sheet]]:
    """The places of rows that are a header, of this table or of any that is known."""
    words = _first_words()
    for place, row in enumerate(rows):
        if row[0] in words or row[0] == first[0] or row[0].startswith(BYTE_ORDER_MARK):
            sheet = _sheet_of(row)
            if sheet.family is not None or sheet.header == first:
                yield place, sheet


@cache
def _first_words() -> frozenset[str]:
    """The names that a header begins with, as far as they are known."""
    names = chain(*families().columns.values(), *families().steps.values())
    return frozenset(
        [*names, *(each for family in families().family for need in family.needs for each in need.split("|"))]
    )


def _take(draft: Draft, log: int, into: str, header: Sequence[str], columns: Columns, at: dict[str, int]) -> None:
    """What rows of a family mean beside being rows."""
    if into == "kernels":
        draft.add_kernels(log, _kernels(header, columns, at))
    elif into == "calls":
        for called in _called(header, columns, at):
            draft.add_calls(called)
    elif into == "shares":
        draft.add_shares(_shares(header, columns, at), len(columns[0]))
    elif into == "steps":
        _add_steps(draft, log, header, columns, at)


def _scale_ns(name: str) -> int:
    return next((scale for unit, scale in _SCALES_NS.items() if unit in name), 1_000)


def _kernels(header: Sequence[str], columns: Columns, at: dict[str, int]) -> Kernels:
    count = len(columns[0])

    def of(meaning: str) -> Sequence[str]:
        return columns[at[meaning]] if meaning in at else ("",) * count

    def time(meaning: str) -> list[int]:
        if meaning not in at:
            return [UNKNOWN_NS] * count
        return times_ns(columns[at[meaning]], _scale_ns(header[at[meaning]]))

    model = [name or number for name, number in zip(of("model_name"), of("model"), strict=True)]
    step = of("step")
    if NOT_KNOWN.intersection(step):
        step = ["" if each in NOT_KNOWN else each for each in step]
    duration = columns[at["duration"]]
    durations = _durations(duration, _scale_ns(header[at["duration"]]))
    pipes: list[list[float]] = []
    if any(name in at for name in PIPES):
        pipes = largest_shares(_counters(header, columns), len(columns[0]))
    types, units = of("type"), of("unit")
    if AI_CPU in units:
        types = list(map(type_on, units, types))
    return Kernels(of("name"), types, time("start"), durations, of("device"), of("stream"), model, step, pipes)


def _counters(header: Sequence[str], columns: Columns) -> dict[str, NDArray[np.float64]]:
    return {name: np.array(numbers(columns[header.index(name)])) for name in counters_in(header)}


def _shares(header: Sequence[str], columns: Columns, at: dict[str, int]) -> list[float]:
    """The share of each of PIPES in a kernel whose rows are its cores, in the time of the cores that took longer."""
    counters = _counters(header, columns)
    means = {name: values[:1] for name, values in counters.items()}
    for prefix, meaning in CORE_TIMES.items():
        times = np.array(numbers(columns[at[meaning]])) if meaning in at else np.ones(len(columns[0]))
        for name, values in counters.items():
            if name.startswith(prefix):
                known = ~np.isnan(values) & (times > 0)
                weights = times[known] if name != header[at.get(meaning, -1)] else None
                means[name] = np.array([np.average(values[known], weights=weights) if known.any() else math.nan])
    return [share for (share,) in largest_shares(means, 1)]


def _durations(texts: Sequence[str], scale_ns: int) -> list[int]:
    """As `times_ns`; a float holds every duration to the nanosecond, whatever its digits."""
    found = np.array(numbers(texts))
    if not (np.abs(found) * scale_ns < LARGEST_INTEGER).all():
        return times_ns(texts, scale_ns)
    exact: list[int] = np.rint(found * scale_ns).astype(np.int64).tolist()
    return exact


def _called(header: Sequence[str], columns: Columns, at: dict[str, int]) -> Iterator[Called]:
    scale = _scale_ns(header[at["total"]]) / 1_000
    names = columns[at["call"]]
    levels = columns[at["level"]] if "level" in at else ("Runtime",) * len(names)
    unknown = [math.nan] * len(names)
    figures = (numbers(columns[at[name]]) if name in at else unknown for name in _FIGURES)
    for name, level, *values in zip(names, levels, *figures, strict=True):
        # What has no number stays a row of the file.
        if all(map(math.isfinite, values)):
            count, total, mean, most = values
            yield Called(name, level, int(count), total * scale, mean * scale, most * scale)


_FIGURES = ("count", "total", "mean", "most")
# What a step's time is the sum of, where no column tells it.
_PARTS_OF_STEP = ("Computing", "Communication(Not Overlapped)", "Free")


def _add_steps(draft: Draft, log: int, header: Sequence[str], columns: Columns, at: dict[str, int]) -> None:
    known = {name: numbers(columns[place]) for name, place in places(header, families().steps).items()}
    nothing = ("",) * len(columns[0])
    models, devices, kinds = (columns[at[name]] if name in at else nothing for name in ("model", "device", "type"))
    for place, step in enumerate(columns[at["step"]]):
        # A stage of a cluster is of several devices, each of which has rows of its own.
        if kinds[place] == "stage":
            continue
        parts = {name: values[place] for name, values in known.items() if not name or math.isfinite(values[place])}
        total = sum(parts.get(name, 0.0) for name in _PARTS_OF_STEP)
        draft.add_step(log, step or "N/A", {"": total, **parts}, models[place], devices[place])

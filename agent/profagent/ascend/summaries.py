"""Summaries: CSV files with one table or several, and the meaning of the columns of their families."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from profagent import ledger
from profagent.ascend.csv_rows import BYTE_ORDER_MARK, Damage, RowBlock, Rows, sheet_of
from profagent.ascend.families import families, places
from profagent.ascend.kernels import (
    CORE_TIMES,
    PIPES,
    CallTotals,
    Kernels,
    TextColumn,
    counters_in,
    largest_shares,
    type_on,
)
from profagent.ascend.texts import UNKNOWN_NS, encoded
from profagent.errors import ResultError
from profagent.formats.records import AI_CPU
from profagent.limits import LARGEST_INTEGER, WORTH_COLUMNS_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from profagent.ascend.csv_columns import CsvRows, PlainBlock
    from profagent.ascend.csv_rows import CsvLines, Row, Sheet
    from profagent.ascend.draft import Draft
    from profagent.ledger import Entry

    Block = PlainBlock | RowBlock

_SCALES_NS = {"(ns)": 1, "(us)": 1_000, "(ms)": 1_000_000}
# Families that may have very many rows: executed operators, and families that are stored as rows only.
_OF_MANY_ROWS = ("kernels", "")


class _SummaryTable:
    """Table of a file, whose rows are added to the draft."""

    def __init__(self, draft: Draft, log: int, sheet: Sheet, *, has_kernels: bool) -> None:
        family = sheet.family
        self.header, self._family, self._draft, self._log = sheet.header, family, draft, log
        self._into = "" if family is None or (family.into == "kernels" and not has_kernels) else family.into
        self._at = places(sheet.header, families().columns)
        # Number of rows so far.
        self._count = 0
        self.damages: list[Damage] = []

    def take(self, rows: list[Row], line: int) -> None:
        """Add rows; `line` is the number of the line after the last one."""
        if not rows:
            return
        width = len(self.header)
        try:
            cells = encoded(rows)
        except UnicodeEncodeError:
            readable = [list(map(_with_replacements, row)) for row in rows]
            bad = [place for place, row in enumerate(rows) if row != readable[place]]
            rows, cells = readable, encoded(readable)
            what = f"it is not UTF-8: {len(bad):,} such rows are here with \N{REPLACEMENT CHARACTER} in them"
            self.damages.append(Damage(line - len(rows) + bad[0], len(bad), what))
        self._add_rows(len(rows), cells)
        if {*map(len, rows)} != {width}:
            odd = [(line - len(rows) + place, len(row)) for place, row in enumerate(rows) if len(row) != width]
            what = (
                f"the row has {odd[0][1]} cells, its header {width}; {len(odd)} such rows are kept and not counted in"
            )
            self.damages.append(Damage(odd[0][0], len(odd), what))
            # A row of another width cannot be read by the header, so it is stored and has no meaning.
            rows = [row for row in rows if len(row) == width]
        if rows and self._into:
            self._add_meaning(RowBlock(rows))

    def take_plain(self, block: PlainBlock) -> None:
        """Add rows that all have the header's width."""
        for count, cells in block.cells():
            self._add_rows(count, cells)
        self._add_meaning(block)

    def _add_rows(self, rows: int, cells: str) -> None:
        self._draft.add_block(self._log, self._count + 1, rows, cells)
        self._count += rows

    def _add_meaning(self, block: Block) -> None:
        draft, log = self._draft, self._log
        if self._into == "kernels":
            draft.add_kernels(log, _kernels(self.header, block, self._at))
        elif self._into == "calls":
            for called in _called(self.header, block, self._at):
                draft.add_calls(called)
        elif self._into == "shares":
            draft.add_shares(_shares(self.header, block, self._at), block.count)
        elif self._into == "steps":
            _add_steps(draft, log, self.header, block, self._at)

    def end(self) -> None:
        """End the table: all rows were added."""
        name = None if self._family is None else self._family.name
        self._draft.end_file(self._log, "summary", name, self.header, self._count)


def _with_replacements(cell: str) -> str:
    return cell.encode(errors="surrogateescape").decode(errors="replace")


def import_sheet(draft: Draft, log: int, file: Path, sheet: Sheet, *, has_kernels: bool) -> None:
    """Add the rows of a file to the draft: of each of its tables, if several files were joined.

    Raises ResultError at the end if there were damaged lines and rows.
    """
    tables = [_SummaryTable(draft, log, sheet, has_kernels=has_kernels)]
    headers: list[int] = []
    offset = before = 0
    try:
        if (plain := _plain_rows(file, sheet)) is not None:
            for columns in plain:
                tables[-1].take_plain(columns)
            # The fast reader stops at the first odd row; the other one continues from there.
            offset, before = plain.offset, plain.lines
        rows = Rows(file, offset, before)
        for block, line in rows:
            begin = 0
            for place, row in _headers(block, sheet.header):
                tables[-1].take(block[begin:place], line - len(block) + place)
                begin = place + 1
                headers.append(line - len(block) + place)
                if row.header != tables[-1].header:
                    part = draft.begin_table(log, headers[-1])
                    tables.append(_SummaryTable(draft, part, row, has_kernels=has_kernels))
            tables[-1].take(block[begin:], line)
    finally:
        for table in tables:
            table.end()
    damages = sorted([*rows.damages, *(damage for table in tables for damage in table.damages)])
    for entry in _entries(rows.lines, headers, is_damaged=bool(damages)):
        draft.note(log, entry)
    if damages:
        raise _all_damages(file, damages)


def _plain_rows(file: Path, sheet: Sheet) -> CsvRows | None:
    """Return a faster reader of regular rows; None without pyarrow, or if loading it costs more than it saves."""
    if file.stat().st_size < WORTH_COLUMNS_BYTES or (sheet.family and sheet.family.into not in _OF_MANY_ROWS):
        return None
    try:
        from profagent.ascend.csv_columns import CsvRows  # noqa: PLC0415 - pyarrow is an extra
    except ImportError:
        return None
    return CsvRows(file, sheet.header, _first_words())


def _entries(lines: CsvLines, headers: Sequence[int], *, is_damaged: bool) -> Iterator[Entry]:
    if headers:
        what = f"line {headers[0]:,}: a header stands there, one of {len(headers) + 1:,}: what is below is read by it"
        yield ledger.entry(ledger.JOINED_RESULT, what, count=len(headers))
    if not lines.is_ended and not is_damaged:
        what = "its last line has no end: if the file was cut there, the last cell is not what it was"
        yield ledger.entry(ledger.JOINED_RESULT, what)
    yield from lines.nuls.entries()


def _all_damages(file: Path, damages: Sequence[Damage]) -> ResultError:
    kinds: dict[str, list[Damage]] = defaultdict(list)
    for damage in damages:
        # Damages of one kind differ only in their numbers.
        kinds[re.sub(r"\d+", "", damage.what)].append(damage)
    firsts = [found[0] for found in kinds.values()]
    more = sum(len(found) - 1 for found in kinds.values())
    texts = [firsts[0].what, *(f"line {each.line}: {each.what}" for each in firsts[1:])]
    texts += [f"and {more:,} more like these"] if more else []
    count = sum(each.number for each in damages)
    return ResultError(file, firsts[0].line, "; ".join(texts), unread=(None, None, count))


def _headers(rows: Sequence[Row], first: Sequence[str]) -> Iterator[tuple[int, Sheet]]:
    words = _first_words()
    for place, row in enumerate(rows):
        if row[0] in words or row[0] == first[0] or row[0].startswith(BYTE_ORDER_MARK):
            sheet = sheet_of(row)
            if sheet.family is not None or sheet.header == first:
                yield place, sheet


@cache
def _first_words() -> frozenset[str]:
    names = chain(*families().columns.values(), *families().steps.values())
    return frozenset(
        [*names, *(each for family in families().family for need in family.needs for each in need.split("|"))]
    )


def _scale_ns(name: str) -> int:
    return next((scale for unit, scale in _SCALES_NS.items() if unit in name), 1_000)


def _kernels(header: Sequence[str], block: Block, at: dict[str, int]) -> Kernels:
    def of(meaning: str) -> TextColumn:
        return block.coded(at[meaning]) if meaning in at else TextColumn.same("", block.count)

    unknown = np.full(block.count, UNKNOWN_NS)
    start = block.times_ns(at["start"], _scale_ns(header[at["start"]])) if "start" in at else unknown
    model = of("model")
    if "model_name" in at:
        model = TextColumn.of(
            [name or number for name, number in zip(of("model_name").all(), model.all(), strict=True)]
        )
    pipes = largest_shares(_counters(header, block), block.count) if any(name in at for name in PIPES) else []
    types, units = of("type"), of("unit")
    if AI_CPU in units.values:
        types = TextColumn.of(list(map(type_on, units.all(), types.all())))
    durations = _durations_ns(block, at["duration"], _scale_ns(header[at["duration"]]))
    return Kernels(
        of("name"), types, start, durations, of("device"), of("stream"), model, of("step").known_or(""), pipes
    )


def _counters(header: Sequence[str], block: Block) -> dict[str, NDArray[np.float64]]:
    return {name: block.numbers(header.index(name)) for name in counters_in(header)}


def _shares(header: Sequence[str], block: Block, at: dict[str, int]) -> list[float]:
    """Return the share of each of PIPES in a kernel whose rows are its cores, relative to the slower cores' time."""
    counters = _counters(header, block)
    means = {name: values[:1] for name, values in counters.items()}
    for prefix, meaning in CORE_TIMES.items():
        times = block.numbers(at[meaning]) if meaning in at else np.ones(block.count)
        for name, values in counters.items():
            if name.startswith(prefix):
                known = ~np.isnan(values) & (times > 0)
                weights = times[known] if name != header[at.get(meaning, -1)] else None
                means[name] = np.array([np.average(values[known], weights=weights) if known.any() else math.nan])
    return [float(share) for (share,) in largest_shares(means, 1)]


def _durations_ns(block: Block, place: int, scale_ns: int) -> NDArray[np.int64]:
    # A double holds every duration to the nanosecond, unlike absolute times, which `times_ns` reads.
    found = block.numbers(place) * scale_ns
    return np.rint(np.where(np.abs(found) < LARGEST_INTEGER, found, UNKNOWN_NS)).astype(np.int64)


def _called(header: Sequence[str], block: Block, at: dict[str, int]) -> Iterator[CallTotals]:
    scale = _scale_ns(header[at["total"]]) / 1_000
    names = block.texts(at["call"])
    levels = block.texts(at["level"]) if "level" in at else ["Runtime"] * block.count
    unknown = np.full(block.count, math.nan)
    figures = ((block.numbers(at[name]) if name in at else unknown).tolist() for name in _FIGURES)
    for name, level, *values in zip(names, levels, *figures, strict=True):
        # A row without all figures has no totals, and remains a row of the file.
        if all(map(math.isfinite, values)):
            count, total, mean, most = values
            yield CallTotals(name, level, int(count), total * scale, mean * scale, most * scale)


_FIGURES = ("count", "total", "mean", "most")
# Parts whose sum is a step's time, if no column has that.
_PARTS_OF_STEP = ("Computing", "Communication(Not Overlapped)", "Free")


def _add_steps(draft: Draft, log: int, header: Sequence[str], block: Block, at: dict[str, int]) -> None:
    known = {name: block.numbers(place).tolist() for name, place in places(header, families().steps).items()}
    nothing = [""] * block.count
    models, devices, kinds = (block.texts(at[name]) if name in at else nothing for name in ("model", "device", "type"))
    for place, step in enumerate(block.texts(at["step"])):
        # A stage of a cluster comprises several devices, and each of these has rows of its own.
        if kinds[place] == "stage":
            continue
        parts = {name: values[place] for name, values in known.items() if not name or math.isfinite(values[place])}
        total = sum(parts.get(name, 0.0) for name in _PARTS_OF_STEP)
        draft.add_step(log, step or "N/A", {"": total, **parts}, models[place], devices[place])

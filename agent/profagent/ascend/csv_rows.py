"""Summaries: CSV read by the thousand rows, its columns found by name."""

from __future__ import annotations

import csv
import math
from functools import partial
from io import BufferedReader, FileIO, TextIOWrapper
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.ascend.families import NOT_KNOWN, Family, families, places
from profagent.ascend.kernels import PIPES, Called, Kernels, type_on
from profagent.ascend.texts import UNKNOWN_NS, encoded, numbers, times_ns
from profagent.errors import ResultError
from profagent.formats.records import AI_CPU
from profagent.store.database import LARGEST_INTEGER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from profagent.ascend.draft import Draft

ROWS_PER_BLOCK = 1_000
# A call stack or the names of fused operators may be long.
LONGEST_CELL = 16 << 20
LONGEST_LINE = 2 * LONGEST_CELL
PIECE_BYTES = 256 << 10
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
    """A file that is read no further than in a line longer than any real one."""

    _begun = 0

    def readinto(self, buffer: Any) -> int:
        """As for any file."""
        count = super().readinto(buffer) or 0
        read = bytes(buffer[:count])
        end = max(read.rfind(b"\n"), read.rfind(b"\r"))
        self._begun = self._begun + count if end < 0 else count - end - 1
        if self._begun > LONGEST_LINE:
            raise _LongLineError(f"it has more than {LONGEST_LINE >> 20} MiB")
        return count


def _opened(file: Path, encoding: str) -> TextIOWrapper:
    return TextIOWrapper(BufferedReader(_Lines(file), PIECE_BYTES), encoding, newline="")


def read_sheet(file: Path) -> Sheet:
    """What a CSV file is, by its header. Raises ResultError where it has none."""
    with _opened(file, "utf-8-sig") as text:
        try:
            first = next(csv.reader(text), None)
        except (UnicodeDecodeError, csv.Error) as error:
            raise _damaged(file, 1, error) from error
    if not first:
        raise ResultError(file, 1, "it is empty")
    header = tuple(name.strip() for name in first)
    return Sheet(header, families().of_header(header))


def blocks(file: Path) -> Iterator[tuple[list[Row], int]]:
    """The rows, without empty lines, in lists of about ROWS_PER_BLOCK, each with the number of the line behind it.

    Raises ResultError at what is damaged, after what came before.
    """
    csv.field_size_limit(LONGEST_CELL)
    # A mark at its beginning is of the header, which was read before.
    with _opened(file, "utf-8") as text:
        next(csv.reader(text))
        reader = csv.reader(text, strict=True)
        error: Exception | None = None
        while error is None:
            rows: list[Row] = []
            try:
                # What came before a damage is in the list.
                rows.extend(islice(reader, ROWS_PER_BLOCK))
                if not rows:
                    return
            except (UnicodeDecodeError, csv.Error) as damage:
                error = damage
            if rows := [row for row in rows if row]:
                yield rows, reader.line_num + 2
        raise _damaged(file, reader.line_num + 1 + isinstance(error, _LongLineError), error)


def import_sheet(draft: Draft, log: int, file: Path, sheet: Sheet, *, has_kernels: bool) -> None:
    """Bring the rows into the draft. Raises ResultError as `blocks`, and at last for odd rows."""
    family, width = sheet.family, len(sheet.header)
    count, into = 0, "" if family is None or (family.into == "kernels" and not has_kernels) else family.into
    at = places(sheet.header, families().columns)
    odd: list[tuple[int, int]] = []
    try:
        for rows, line in blocks(file):
            draft.add_block(log, count + 1, len(rows), encoded(rows))
            count += len(rows)
            if {*map(len, rows)} != {width}:
                odd += [(line - len(rows) + place, len(row)) for place, row in enumerate(rows) if len(row) != width]
                rows = [row for row in rows if len(row) == width]  # noqa: PLW2901 - the others mean nothing
            if rows and into:
                _take(draft, log, into, sheet.header, list(zip(*rows, strict=True)), at)
    finally:
        draft.end_file(log, "summary", None if family is None else family.name, sheet.header, count)
    if odd:
        line, cells = odd[0]
        what = f"{cells} cells, its header {width}"
        raise ResultError(file, line, f"the row has {what}; {len(odd)} such rows are kept and not counted in")


def _take(draft: Draft, log: int, into: str, header: Sequence[str], columns: Columns, at: dict[str, int]) -> None:
    """What rows of a family mean beside being rows."""
    if into == "kernels":
        draft.add_kernels(log, _kernels(header, columns, at))
    elif into == "calls":
        for called in _called(header, columns, at):
            draft.add_calls(called)
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
        pipes = [_largest(header, columns, families().columns[name]) for name in PIPES]
    types, units = of("type"), of("unit")
    if AI_CPU in units:
        types = list(map(type_on, units, types))
    return Kernels(of("name"), types, time("start"), durations, of("device"), of("stream"), model, step, pipes)


def _largest(header: Sequence[str], columns: Columns, names: Sequence[str]) -> list[float]:
    """The largest of several columns: a kernel of the vector core has 0 or N/A in those of the cube core."""
    found = [numbers(columns[header.index(name)]) for name in names if name in header]
    if not found:
        return [math.nan] * len(columns[0])
    largest: list[float] = np.fmax.reduce(np.array(found)).tolist() if len(found) > 1 else found[0]
    return largest


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


def _damaged(file: Path, line: int, error: Exception) -> ResultError:
    if isinstance(error, UnicodeDecodeError):
        return ResultError(file, _line_of_bad_bytes(file), "it is not UTF-8: save it as UTF-8")
    return ResultError(file, line, f"it is no CSV any more: {error}")


def _line_of_bad_bytes(file: Path) -> int:
    with file.open("rb") as data:
        for number, line in enumerate(iter(partial(data.readline, LONGEST_LINE), b""), 1):
            try:
                line.decode("utf-8-sig")
            except UnicodeDecodeError:
                return number
    return 1

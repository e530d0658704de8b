"""Draft of one source: its files as they are, and the kernels, steps and calls from them in the store's own tables.

A step of a device is an inference, a stream in it a segment, a kernel a record; without steps, an execution of a graph
is an inference, or everything together is one. Times are whole nanoseconds: the clock of these JOBs makes a tick of
each.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections import Counter, defaultdict
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from profagent import ledger
from profagent.ascend.families import NO_MODEL, NOT_KNOWN
from profagent.ascend.kernels import (
    PIPES,
    CallTotals,
    DraftInference,
    DraftLayers,
    DraftModels,
    DraftSegment,
    Kernels,
    ProgramStep,
    TextColumn,
    distinct_rows,
    step_names,
)
from profagent.formats.figure_states import FigureState
from profagent.formats.inference_times import share_within
from profagent.formats.names import LogKind
from profagent.formats.records import FIRST_WALL_US, SINGLE_OPERATORS
from profagent.limits import LARGEST_INTEGER
from profagent.store.database import RECORDS_PER_PART, refused
from profagent.store.drafts import DRAFT, STORE, new_draft, take_over
from profagent.store.records import NewInference, RecordRows, insert_rows
from profagent.store.rows import LedgerRows, LogRows, Numbers, replace_layers
from profagent.store.sessions import NO_MAP, MapUsed, SessionStart, add_ended_session, write_figures
from profagent.store.subset import last_numbers
from profagent.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from profagent.ledger import Entry
    from profagent.store.rows import LogRow

T = TypeVar("T")
DEVICE_FOLDER = re.compile(r"(?:^|/)device_(\d+)/")
# Clock frequency at which one tick, which is 100 cycles, takes a nanosecond.
_NANOSECOND_CLOCK_MHZ = 100_000
# Kinds of files: those with kernels, and those that are stored as rows only.
_KERNELS, _ROWS = LogKind.AICORE.value, "ascend"
# Stream in the key of an inference that has no stream.
_NO_STREAM = -1
# Number of a draft's only session, JOB and board.
ONE = 1
# Columns of `write_figures` that steps and calls lack: bound, time in an inference, subject.
_NO_MORE = (None, None, None)
# Label of a summary over all steps, and the parts of a step that lie outside of it.
ALL_STEPS = "all steps"
_OUTSIDE = frozenset({"Data Aug Bound"})


class Draft:
    """Source on its way into the store. Raises StoreError for every error of SQLite."""

    def __init__(self, file: Path, store: Path | None, device: str) -> None:
        """Begin a draft: in the store itself if `store` is given, else in a file that is taken over later."""
        self._file, self._store, self._device = file, store, device
        self._connection = new_draft(file, store)
        # Rows that go into the store at once are numbered after those that it has: its last number of each table.
        self._before = last_numbers(self._connection, DRAFT if store is None else STORE)
        # Schema of the large tables of rows and records.
        self._rows_in = DRAFT if store is None else STORE
        numbers = Numbers.of(self._connection)
        self._logs, self._ledger = LogRows(self._connection, ONE, numbers), LedgerRows(self._connection, ONE, ONE)
        self._records = RecordRows(self._connection, ONE, ONE, numbers)
        # Files by their number.
        self._files: dict[int, LogRow] = {}
        # Models and layers get their numbers at their first kernel.
        self._models = DraftModels(self._model_number)
        self._layers = DraftLayers(self._models)
        # Inferences by model, device and step.
        self._inferences: dict[tuple[int, int | str, int | str], DraftInference] = {}
        # Segments by their number, which starts at 1.
        self._segments: list[DraftSegment] = []
        # Device of each file: that of its folder, or else the source's.
        self._devices: dict[int, str] = {}
        # Number of a segment by file, and by device, stream, model and step: files do not share segments.
        self._segment_number: dict[tuple[int, tuple[str, ...]], int] = {}
        # Number of records of each file.
        self._record_counts: dict[int, int] = defaultdict(int)
        # Times in µs of each step and of each of its parts, and the file that they come from.
        self._steps: dict[tuple[ProgramStep, str], list[float]] = defaultdict(list)
        self._step_files: dict[tuple[ProgramStep, str], int] = {}
        # Totals of calls by function and level.
        self._calls: dict[tuple[str, str], CallTotals] = {}
        # True once a kernel has a share of one of PIPES.
        self._has_pipes = False
        # Shares of PIPES of the only kernel, with the number of rows that each was computed from.
        self._shares: list[tuple[NDArray[np.float64], int]] = []
        # Number of kernels and steps of each file that have no duration.
        self._untimed: dict[int, int] = defaultdict(int)
        # Number of kernels of each file that have no start.
        self._unplaced: dict[int, int] = defaultdict(int)
        self.rows = self.kernels = self.losses = self.notes = 0
        # Families of the files; the tables of a database count as one.
        self.families: list[str] = []

    def begin_file(self, path: str, size: int, *, has_kernels: bool = False) -> int:
        """Register a file, or a table of a database, and return its number."""
        row = self._logs.add_file(path, _KERNELS if has_kernels else _ROWS, size)
        self._files[row.number] = row
        found = DEVICE_FOLDER.search(path)
        self._devices[row.number] = self._device if found is None else found[1]
        return row.number

    def begin_table(self, log: int, line: int) -> int:
        """Register another table of a file, whose header stands in this line, and return its number."""
        file = self._files[log]
        return self.begin_file(f"{file.path} from line {line}", 0, has_kernels=file.kind == _KERNELS)

    def add_block(self, log: int, first: int, rows: int, cells: str) -> None:
        """Store rows as they are: a JSON array of them, of which `first` is the row number of the first one."""
        of = self._before["log"] + log, self._before["session"] + ONE
        self._execute(f"INSERT INTO {self._rows_in}.ascend_block VALUES (?, ?, ?, ?, ?)", (*of, first, rows, cells))  # noqa: S608
        self.rows += rows

    def end_file(self, log: int, kind: str, family: str | None, header: Sequence[str], rows: int) -> None:
        """End a file, with the number of its rows; `family` is None if it is unknown."""
        columns = json.dumps(header, ensure_ascii=False)
        shown = "database" if kind == "table" else family or "other"
        self.families += [shown] if shown not in self.families else []
        self._execute(
            "INSERT INTO ascend_file VALUES (?, 1, ?, ?, ?, ?)", (log, kind, family or "other", columns, rows)
        )
        if family is None:
            self.note(log, ledger.entry(ledger.UNKNOWN_FAMILY, f"{rows:,} rows of a {kind}"))

    def note(self, log: int | None, entry: Entry) -> None:
        """Add an entry to the ledger."""
        if entry.grade == ledger.LOSS:
            self.losses += entry.count
        else:
            self.notes += entry.count
        self._write(self._ledger.insert, log, "content", entry)

    def add_step(self, log: int, number: str, parts: Mapping[str, float], model: str = "", device: str = "") -> None:
        """Add the time of a step and those of its parts, in µs; the step itself has an empty name. NaN is unknown."""
        step = ProgramStep(
            number, "" if model in NOT_KNOWN else model, self._devices[log] if device in NOT_KNOWN else device
        )
        for name, time_us in parts.items():
            if not math.isfinite(time_us):
                self._untimed[log] += 1
                continue
            # A tool that exports iterations one by one writes all steps beside each: each step is counted from one
            # file.
            if self._step_files.setdefault((step, name), log) == log:
                self._steps[step, name].append(time_us)

    def figures_taken(self) -> list[str]:
        """Return the names of those of steps and calls that the draft has already."""
        return [name for name, known in (("steps", self._steps), ("calls", self._calls)) if known]

    def add_calls(self, called: CallTotals) -> None:
        """Add the totals of a function's calls to earlier totals of it."""
        before = self._calls.get(called[:2])
        if before is not None:
            count, total = before.times + called.times, before.total + called.total
            called = called._replace(
                times=count, total=total, mean=total / count if count else 0.0, most=max(before.most, called.most)
            )
        self._calls[called.name, called.level] = called

    def add_kernels(self, log: int, kernels: Kernels) -> None:
        """Add kernels of a file in its order; kernels without a duration remain rows of the file."""
        known = kernels.duration_ns >= 0
        if not known.all():
            self._untimed[log] += int((~known).sum())
            kernels = kernels.where(known)
        if not len(kernels.duration_ns):
            return
        device, model = kernels.device.known_or(self._devices[log]), kernels.model.known_or(NO_MODEL)
        kernels = kernels._replace(device=device, model=model)
        keys, _, which = distinct_rows([model, kernels.name, kernels.type])
        layers = np.array([self._layers[key] for key in keys])[which]
        kernels = kernels._replace(step=self._with_steps(kernels, layers))
        self._write_kernels(log, kernels, layers, self._segment_numbers(log, kernels))

    def add_shares(self, shares: Sequence[float], rows: int) -> None:
        """Add the shares of PIPES in the only kernel, from this number of rows, which are its cores; NaN is unknown."""
        self._shares.append((np.array(shares), rows))

    def _write_shares(self) -> None:
        """Write the shares to the only kernel; if there are several, note that the shares are not counted."""
        shares, weights = (np.array(each) for each in zip(*self._shares, strict=True))
        if self.kernels != 1:
            what = f"shares of pipes, of one kernel, where {self.kernels:,} kernels are told"
            self.note(None, ledger.entry(ledger.NOT_COUNTED, what, count=int(weights.sum())))
            return
        means = np.average(shares, axis=0, weights=weights).tolist()
        columns = ", ".join(f"{name} = ?" for name in PIPES)
        table = f"{self._rows_in}.aicore"
        self._execute(f"UPDATE {table} SET {columns} WHERE segment = ?", (*means, self._before["segment"] + 1))  # noqa: S608 - names of pipes
        self._has_pipes = True

    def _with_steps(self, kernels: Kernels, layers: NDArray[np.int64]) -> TextColumn:
        if "" not in kernels.step.values:
            return kernels.step
        if {*kernels.step.values} == {""} and {*kernels.model.values} == {NO_MODEL}:
            return TextColumn.same("#0", len(layers))
        steps = kernels.step.all()
        devices, models = kernels.device.all(), kernels.model.all()
        for place, (step, device, model, layer) in enumerate(zip(steps, devices, models, layers.tolist(), strict=True)):
            if not step:
                times = self._models[model].times
                number = times[device, layer]
                times[device, layer] = number + 1
                steps[place] = f"#{0 if model == NO_MODEL else number}"
        return TextColumn.of(steps)

    def _segment_numbers(self, log: int, kernels: Kernels) -> NDArray[np.int64]:
        keys, firsts, which = distinct_rows([kernels.device, kernels.stream, kernels.model, kernels.step])
        for key, first in zip(keys, firsts, strict=True):
            if (log, key) not in self._segment_number:
                self._new_segment(log, key, int(kernels.start_ns[first]))
        return np.array([self._segment_number[log, key] for key in keys])[which]

    def _write_kernels(self, log: int, kernels: Kernels, layers: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        start, ticks = kernels.start_ns, kernels.duration_ns
        self._unplaced[log] += int((start < 0).sum())
        sequence, before = np.empty_like(ticks), np.empty_like(ticks)
        order = np.argsort(numbers, kind="stable")
        edges = [0, *((np.diff(numbers[order]) != 0).nonzero()[0] + 1).tolist(), len(order)]
        for begin, end in pairwise(edges):
            rows_of_segment = order[begin:end]
            segment = self._segments[int(numbers[rows_of_segment[0]]) - 1]
            sequence[rows_of_segment] = segment.records + np.arange(len(rows_of_segment))
            # A kernel with an unknown start is placed after the kernels before it, as if they ran one after another.
            behind = segment.ticks + np.cumsum(ticks[rows_of_segment]) - ticks[rows_of_segment]
            before[rows_of_segment] = np.where(
                start[rows_of_segment] >= 0, start[rows_of_segment] - segment.begin_ns, behind
            )
            segment.add(
                start[rows_of_segment],
                segment.begin_ns + before[rows_of_segment] + ticks[rows_of_segment],
                int(ticks[rows_of_segment].sum()),
            )
        pipes = {name: pipe for name, pipe in zip(PIPES, kernels.pipes, strict=False) if not np.isnan(pipe).all()}
        columns = {
            "record": self._next_keys(log, len(ticks)),
            "segment": numbers + self._before["segment"],
            "sequence": sequence,
            "layer_index": layers,
            "ticks": ticks,
            "ticks_before": before,
            **pipes,
        }
        self._write(insert_rows, self._connection, f"{self._rows_in}.aicore", columns)
        self._has_pipes = self._has_pipes or bool(pipes)
        self.kernels += len(ticks)

    def _next_keys(self, log: int, count: int) -> NDArray[np.int64]:
        first = self._record_counts[log]
        self._record_counts[log] += count
        keys = self._records.keys(self._files[log], np.arange(first, first + count))
        return keys + self._before["part"] * RECORDS_PER_PART

    def _new_segment(self, log: int, key: tuple[str, ...], start_ns: int) -> None:
        device, stream, model, step = key
        of = self._models[model].number, _number_or_text(device), _number_or_text(step)
        inference = self._inferences.setdefault(of, DraftInference(len(self._inferences) + 1))
        number = self._segment_number[log, key] = len(self._segments) + 1
        net = int(stream) if _is_number(stream) else 0
        self._segments.append(DraftSegment(number, log, inference, net, max(start_ns, 0)))

    def times_us(self) -> tuple[int, int] | None:
        """Return when the first kernel began and the last one ended; None if no kernel has a wall-clock time."""
        starts_us = [(each.start_ns or 0) // NS_PER_US for each in self._inferences.values()]
        known_us = [start_us for start_us in starts_us if start_us >= FIRST_WALL_US]
        return (min(known_us), max(each.end_ns for each in self._segments) // NS_PER_US) if known_us else None

    def finish(
        self, identity: str, name: str, address: str, times_us: tuple[int, int], labels: Mapping[str, str]
    ) -> int | None:
        """Write everything that follows from all files; return the session, or None for a draft in a file."""
        for log, untimed in self._untimed.items():
            what = f"{untimed:,} kernels or steps have no duration: they are rows only"
            self.note(log, ledger.entry(ledger.NOT_COUNTED, what, count=untimed))
        for log, unplaced in self._unplaced.items():
            if unplaced:
                what = f"{unplaced:,} kernels have no start: they are in no timeline and in no trace"
                self.note(log, ledger.entry(ledger.NOT_COUNTED, what, count=unplaced))
        if self._shares:
            self._write_shares()
        used = MapUsed("Ascend pipes", None, "dstr,dtrans,dld") if self._has_pipes else NO_MAP
        start = SessionStart(
            identity=identity,
            hostname="",
            board_model="",
            source="import",
            address=address,
            started_us=times_us[0],
            simulated=False,
            sdk_version=labels.get("cann", ""),
            decoded_with=used,
            labels=labels,
        )
        self._write(add_ended_session, self._connection, start, times_us[1])
        self._execute(
            "INSERT INTO job (job, board, name, directory, state, family, frequency_mhz, caught_up)"
            " VALUES (1, 1, ?, ?, 'finished', 'ascend', ?, 1)",
            (name, address, _NANOSECOND_CLOCK_MHZ),
        )
        self._execute("INSERT INTO session_job VALUES (1, 1)")
        self._write(self._write_files)
        self._write(self._write_inferences)
        self._write(write_figures, self._connection, ONE, self._figures(), ())
        session = None if self._store is None else take_over(self._connection)
        self._execute("COMMIT")
        self._connection.close()
        return session

    def abandon(self) -> None:
        """Close the draft without a commit."""
        self._connection.close()

    def _model_number(self, name: str) -> int:
        model_id = int(name) if _is_number(name) else int(NO_MODEL)
        shown = SINGLE_OPERATORS if name == NO_MODEL else f"model {name}" if name.isdecimal() else name
        return self._logs.model(shown, model_id)

    def _write_files(self) -> None:
        for number, model in self._models.by_number.items():
            self._logs.use(number, _KERNELS)
            layers = ((index, 0, index, *layer) for layer, index in model.layers.items())
            replace_layers(self._connection, number, layers)
        for row in self._files.values():
            row.model = min(self._models.by_number, default=None) if row.kind == _KERNELS else None
        self._logs.write(ONE)

    def _write_inferences(self) -> None:
        for segment in self._segments:
            segment.inference.end_ns = max(segment.inference.end_ns, segment.end_ns)
        steps: dict[tuple[int, int | str], list[int | str]] = defaultdict(list)
        for model, device, step in self._inferences:
            steps[model, device].append(step)
        numbers, devices = (
            {of: _numbers_by_name(each) for of, each in steps.items()},
            _numbers_by_name([of[1] for of in steps]),
        )
        inferences = {}
        for (model, device, step), each in self._inferences.items():
            key = (model, numbers[model, device][step], 0, 0, devices[device], _NO_STREAM)
            times = (*_times_us(each.start_ns, each.end_ns), None, None, None, 1)
            inferences[each.number] = NewInference(ONE, key, 0, times, (1, FigureState.FINAL.value, None))
        self._records.add_inferences(inferences, map(_segment_row, self._segments))
        self._records.write()

    def _figures(self) -> Iterable[tuple[Any, ...]]:
        names = step_names({step for step, _ in self._steps})
        several = {of for of, number in Counter(step[1:] for step in names).items() if number > 1}
        times: dict[tuple[str, str], list[float]] = defaultdict(list)
        for (step, name), values in self._steps.items():
            if step[1:] in several:
                times[names[step].replace(f"step {step.number}", ALL_STEPS, 1), name] += values
        times |= {(names[step], name): values for (step, name), values in self._steps.items()}
        whole_us = sum(sum(values) for (_, name), values in self._steps.items() if not name)
        for place, ((label, name), values) in enumerate(times.items()):
            of_us = sum(times.get((label, ""), ())) if name else whole_us
            figures = _step_figures(name, np.array(values), of_us)
            yield ("step", place, "us", (label, name), *figures, *_NO_MORE)
        total = sum(each.total for each in self._calls.values())
        for place, each in enumerate(sorted(self._calls.values(), key=lambda each: -each.total)):
            share = each.total / total * 100 if total else None
            called = (each.times, each.total, each.mean, None, None, None, None, each.most, share)
            yield ("api", place, "us", (each.name, each.level), *called, *_NO_MORE)

    def _execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._write(self._connection.execute, sql, values)

    def _write(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function that writes. Raises StoreError in place of sqlite3.Error."""
        try:
            return function(*arguments)
        except sqlite3.Error as error:
            raise refused(self._store or self._file, error) from error


def _step_figures(name: str, values: NDArray[np.float64], whole_us: float) -> tuple[float | None, ...]:
    """Return the figures of a step or a part, with its share of the whole; None if it lies outside of the step."""
    total, middle = float(values.sum()), float(np.median(values))
    return (
        len(values),
        total,
        float(values.mean()),
        middle,
        float(np.median(np.abs(values - middle))),
        *np.quantile(values, (0.95, 0.99)).tolist(),
        float(values.max()),
        None if name in _OUTSIDE else share_within(total, whole_us),
    )


def _segment_row(segment: DraftSegment) -> tuple[Any, ...]:
    begin_ns = None if segment.inference.start_ns is None else segment.begin_ns
    of = segment.number, segment.log, segment.inference.number, _KERNELS, segment.number - 1, segment.net
    # The records of a file mix the kernels of several streams, so a count of records does not tell which of them are
    # the segment's.
    return (*of, *_times_us(begin_ns, segment.end_ns), segment.ticks, None)


def _times_us(begin_ns: int | None, end_ns: int) -> tuple[int | None, int | None]:
    return (None, None) if begin_ns is None else (begin_ns // NS_PER_US, -(-end_ns // NS_PER_US))


def _number_or_text(text: str) -> int | str:
    return int(text) if _is_number(text) else text


def _numbers_by_name(names: Sequence[int | str]) -> dict[int | str, int]:
    """Return a number for each device or step; those without a number get numbers above all others."""
    behind = count(max((each for each in names if isinstance(each, int)), default=-1) + 1)
    return {each: each if isinstance(each, int) else next(behind) for each in dict.fromkeys(names)}


def _is_number(text: str) -> bool:
    return text.strip().isdecimal() and int(text) <= LARGEST_INTEGER

"""What one source comes to: its files as they are, and from these kernels, steps and calls in the store's own tables.

A step of a device (without steps: an execution of a graph, or all) is an inference, a stream in it a segment, a kernel
a record. Times are whole nanoseconds: the clock of these JOBs makes a tick of each.
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
    NS_PER_US,
    PIPES,
    Called,
    Inference,
    Kernels,
    Layers,
    Models,
    ProgramStep,
    Segment,
    Texts,
    different,
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from profagent.ledger import Entry
    from profagent.store.rows import LogRow

T = TypeVar("T")
DEVICE_FOLDER = re.compile(r"(?:^|/)device_(\d+)/")
# With such a clock a tick is a nanosecond.
_NANOSECOND_CLOCK_MHZ = 100_000
# Kinds of files: with kernels, and those that are kept as rows only.
_KERNELS, _ROWS = LogKind.AICORE.value, "ascend"
# As in the key of an inference.
_NO_STREAM = -1
# The session, JOB and board of a draft.
ONE = 1
# Columns of `write_figures` that no step or call has: what bounds it, its time in an inference, what it is about.
_NO_MORE = (None, None, None)
# What a summary over steps stands under, and parts that lie between the steps.
ALL_STEPS = "all steps"
_OUTSIDE = frozenset({"Data Aug Bound"})


class Draft:
    """One source on its way into the store. What SQLite refuses raises StoreError."""

    def __init__(self, file: Path, store: Path | None, device: str) -> None:
        """With `store` it is in the store when it is finished, else it is a file to be taken over."""
        self._file, self._store, self._device = file, store, device
        self._connection = new_draft(file, store)
        # Of what goes into the store at once: the numbers there that ours come behind.
        self._before = last_numbers(self._connection, DRAFT if store is None else STORE)
        self._rows_in = DRAFT if store is None else STORE
        numbers = Numbers.of(self._connection)
        self._logs, self._ledger = LogRows(self._connection, ONE, numbers), LedgerRows(self._connection, ONE, ONE)
        self._records = RecordRows(self._connection, ONE, ONE, numbers)
        self._files: dict[int, LogRow] = {}
        self._models = Models(self._model_number)
        self._layers = Layers(self._models)
        self._inferences: dict[tuple[int, int | str, int | str], Inference] = {}
        self._segments: list[Segment] = []
        self._devices: dict[int, str] = {}
        # By file, and by device, stream, model and step: a file's records are those of its own segments.
        self._numbers: dict[tuple[int, tuple[str, ...]], int] = {}
        # By file: how many records it has.
        self._counts: dict[int, int] = defaultdict(int)
        self._steps: dict[tuple[ProgramStep, str], list[float]] = defaultdict(list)
        self._step_files: dict[tuple[ProgramStep, str], int] = {}
        self._calls: dict[tuple[str, str], Called] = {}
        self._has_pipes = False
        # Shares of PIPES of one kernel, and of how many rows they are.
        self._shares: list[tuple[NDArray[np.float64], int]] = []
        # By file: how many kernels and steps have no duration.
        self._untimed: dict[int, int] = defaultdict(int)
        # By file: how many kernels have no start.
        self._unplaced: dict[int, int] = defaultdict(int)
        self.rows = self.kernels = self.losses = self.notes = 0
        # Of its files; the tables of a database are one.
        self.families: list[str] = []

    def begin_file(self, path: str, size: int, *, has_kernels: bool = False) -> int:
        """Note a file, or a table of a database; returns its number."""
        row = self._logs.add_file(path, _KERNELS if has_kernels else _ROWS, size)
        self._files[row.number] = row
        found = DEVICE_FOLDER.search(path)
        self._devices[row.number] = self._device if found is None else found[1]
        return row.number

    def begin_table(self, log: int, line: int) -> int:
        """Note a further table of a file, whose header stands in that line; returns its number."""
        file = self._files[log]
        return self.begin_file(f"{file.path} from line {line}", 0, has_kernels=file.kind == _KERNELS)

    def add_block(self, log: int, first: int, rows: int, cells: str) -> None:
        """Keep rows as they are: a JSON array of them."""
        of = self._before["log"] + log, self._before["session"] + ONE
        self._put(f"INSERT INTO {self._rows_in}.ascend_block VALUES (?, ?, ?, ?, ?)", (*of, first, rows, cells))  # noqa: S608
        self.rows += rows

    def end_file(self, log: int, kind: str, family: str | None, header: Sequence[str], rows: int) -> None:
        """All of the file has come; a family that is not known is None."""
        columns = json.dumps(header, ensure_ascii=False)
        shown = "database" if kind == "table" else family or "other"
        self.families += [shown] if shown not in self.families else []
        self._put("INSERT INTO ascend_file VALUES (?, 1, ?, ?, ?, ?)", (log, kind, family or "other", columns, rows))
        if family is None:
            self.note(log, ledger.entry(ledger.UNKNOWN_FAMILY, f"{rows:,} rows of a {kind}"))

    def note(self, log: int | None, entry: Entry) -> None:
        """Keep an entry of the ledger."""
        if entry.grade == ledger.LOSS:
            self.losses += entry.count
        else:
            self.notes += entry.count
        self._have(self._ledger.insert, log, "content", entry)

    def add_step(self, log: int, number: str, parts: Mapping[str, float], model: str = "", device: str = "") -> None:
        """A step's time and those of its parts, in µs; the step itself has no name. NaN is not known."""
        step = ProgramStep(
            number, "" if model in NOT_KNOWN else model, self._devices[log] if device in NOT_KNOWN else device
        )
        for name, time_us in parts.items():
            if not math.isfinite(time_us):
                self._untimed[log] += 1
                continue
            # A tool that exports iterations one by one writes all steps beside each.
            if self._step_files.setdefault((step, name), log) == log:
                self._steps[step, name].append(time_us)

    def told(self) -> list[str]:
        """Which of steps and calls are known."""
        return [name for name, known in (("steps", self._steps), ("calls", self._calls)) if known]

    def add_calls(self, called: Called) -> None:
        """Calls of a function; further ones of the same are added."""
        before = self._calls.get(called[:2])
        if before is not None:
            count, total = before.times + called.times, before.total + called.total
            called = called._replace(
                times=count, total=total, mean=total / count if count else 0.0, most=max(before.most, called.most)
            )
        self._calls[called.name, called.level] = called

    def add_kernels(self, log: int, kernels: Kernels) -> None:
        """Kernels of a file, in its order; those without a duration stay rows of the file."""
        known = kernels.duration_ns >= 0
        if not known.all():
            self._untimed[log] += int((~known).sum())
            kernels = kernels.where(known)
        if not len(kernels.duration_ns):
            return
        device, model = kernels.device.known_or(self._devices[log]), kernels.model.known_or(NO_MODEL)
        kernels = kernels._replace(device=device, model=model)
        keys, _, which = different([model, kernels.name, kernels.type])
        layers = np.array([self._layers[key] for key in keys])[which]
        kernels = kernels._replace(step=self._steps_of(kernels, layers))
        self._write_kernels(log, kernels, layers, self._segments_of(log, kernels))

    def add_shares(self, shares: Sequence[float], rows: int) -> None:
        """The share of each of PIPES in the only kernel, by so many of its cores; NaN is not known."""
        self._shares.append((np.array(shares), rows))

    def _write_shares(self) -> None:
        """What is told of one kernel is told of that kernel alone."""
        shares, weights = (np.array(each) for each in zip(*self._shares, strict=True))
        if self.kernels != 1:
            what = f"shares of pipes, of one kernel, where {self.kernels:,} kernels are told"
            self.note(None, ledger.entry(ledger.NOT_COUNTED, what, count=int(weights.sum())))
            return
        means = np.average(shares, axis=0, weights=weights).tolist()
        columns = ", ".join(f"{name} = ?" for name in PIPES)
        table = f"{self._rows_in}.aicore"
        self._put(f"UPDATE {table} SET {columns} WHERE segment = ?", (*means, self._before["segment"] + 1))  # noqa: S608 - names of pipes
        self._has_pipes = True

    def _steps_of(self, kernels: Kernels, layers: NDArray[np.int64]) -> Texts:
        """Each kernel's step: where none is told, which execution of its graph it is of."""
        if "" not in kernels.step.values:
            return kernels.step
        if {*kernels.step.values} == {""} and {*kernels.model.values} == {NO_MODEL}:
            return Texts.same("#0", len(layers))
        steps = kernels.step.all()
        devices, models = kernels.device.all(), kernels.model.all()
        for place, (step, device, model, layer) in enumerate(zip(steps, devices, models, layers.tolist(), strict=True)):
            if not step:
                times = self._models[model].times
                number = times[device, layer]
                times[device, layer] = number + 1
                steps[place] = f"#{0 if model == NO_MODEL else number}"
        return Texts.of(steps)

    def _segments_of(self, log: int, kernels: Kernels) -> NDArray[np.int64]:
        """Each kernel's segment, by its number; those that are new begin with their first kernel here."""
        keys, firsts, which = different([kernels.device, kernels.stream, kernels.model, kernels.step])
        for key, first in zip(keys, firsts, strict=True):
            if (log, key) not in self._numbers:
                self._new_segment(log, key, int(kernels.start_ns[first]))
        return np.array([self._numbers[log, key] for key in keys])[which]

    def _write_kernels(self, log: int, kernels: Kernels, layers: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """Rows of the kernels; their segments end with the last of them."""
        start, ticks = kernels.start_ns, kernels.duration_ns
        self._unplaced[log] += int((start < 0).sum())
        sequence, before = np.empty_like(ticks), np.empty_like(ticks)
        order = np.argsort(numbers, kind="stable")
        edges = [0, *((np.diff(numbers[order]) != 0).nonzero()[0] + 1).tolist(), len(order)]
        for begin, end in pairwise(edges):
            ours = order[begin:end]
            segment = self._segments[int(numbers[ours[0]]) - 1]
            sequence[ours] = segment.records + np.arange(len(ours))
            # One whose start is not known stands behind those before it.
            behind = segment.ticks + np.cumsum(ticks[ours]) - ticks[ours]
            before[ours] = np.where(start[ours] >= 0, start[ours] - segment.begin_ns, behind)
            segment.add(start[ours], segment.begin_ns + before[ours] + ticks[ours], int(ticks[ours].sum()))
        pipes = {name: pipe for name, pipe in zip(PIPES, kernels.pipes, strict=False) if not np.isnan(pipe).all()}
        columns = {
            "record": self._keys_of(log, len(ticks)),
            "segment": numbers + self._before["segment"],
            "sequence": sequence,
            "layer_index": layers,
            "ticks": ticks,
            "ticks_before": before,
            **pipes,
        }
        self._have(insert_rows, self._connection, f"{self._rows_in}.aicore", columns)
        self._has_pipes = self._has_pipes or bool(pipes)
        self.kernels += len(ticks)

    def _keys_of(self, log: int, count: int) -> NDArray[np.int64]:
        """Keys of the file's next records."""
        first = self._counts[log]
        self._counts[log] += count
        keys = self._records.keys(self._files[log], np.arange(first, first + count))
        return keys + self._before["part"] * RECORDS_PER_PART

    def _new_segment(self, log: int, key: tuple[str, ...], start_ns: int) -> None:
        device, stream, model, step = key
        of = self._models[model].number, _number(device), _number(step)
        inference = self._inferences.setdefault(of, Inference(len(self._inferences) + 1))
        number = self._numbers[log, key] = len(self._segments) + 1
        net = int(stream) if _is_number(stream) else 0
        self._segments.append(Segment(number, log, inference, net, max(start_ns, 0)))

    def times_us(self) -> tuple[int, int] | None:
        """When the first kernel began and the last ended; None where no wall clock tells it."""
        starts_us = [(each.start_ns or 0) // NS_PER_US for each in self._inferences.values()]
        known_us = [start_us for start_us in starts_us if start_us >= FIRST_WALL_US]
        return (min(known_us), max(each.end_ns for each in self._segments) // NS_PER_US) if known_us else None

    def finish(
        self, identity: str, name: str, address: str, times_us: tuple[int, int], labels: Mapping[str, str]
    ) -> int | None:
        """Write what follows from all of it, and make it a draft, or the session of the store that is returned."""
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
        self._have(add_ended_session, self._connection, start, times_us[1])
        self._put(
            "INSERT INTO job (job, board, name, directory, state, family, frequency_mhz, caught_up)"
            " VALUES (1, 1, ?, ?, 'finished', 'ascend', ?, 1)",
            (name, address, _NANOSECOND_CLOCK_MHZ),
        )
        self._put("INSERT INTO session_job VALUES (1, 1)")
        self._have(self._write_files)
        self._have(self._write_inferences)
        self._have(write_figures, self._connection, ONE, self._figures(), ())
        session = None if self._store is None else take_over(self._connection)
        self._put("COMMIT")
        self._connection.close()
        return session

    def abandon(self) -> None:
        """Let go of it."""
        self._connection.close()

    def _model_number(self, name: str) -> int:
        model_id = int(name) if _is_number(name) else int(NO_MODEL)
        shown = SINGLE_OPERATORS if name == NO_MODEL else f"model {name}" if name.isdecimal() else name
        return self._logs.model(shown, model_id)

    def _write_files(self) -> None:
        """The files, and the models whose kernels they have."""
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
        numbers, devices = {of: _numbered(each) for of, each in steps.items()}, _numbered([of[1] for of in steps])
        inferences = {}
        for (model, device, step), each in self._inferences.items():
            key = (model, numbers[model, device][step], 0, 0, devices[device], _NO_STREAM)
            times = (*_times_us(each.start_ns, each.end_ns), None, None, None, 1)
            inferences[each.number] = NewInference(ONE, key, 0, times, (1, FigureState.FINAL.value, None))
        self._records.add_inferences(inferences, map(_segment_row, self._segments))
        self._records.write()

    def _figures(self) -> Iterable[tuple[Any, ...]]:
        """Of steps and calls, as `stats` tells them; first a summary over the steps of a model on a device."""
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

    def _put(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._have(self._connection.execute, sql, values)

    def _have(self, function: Callable[..., T], *arguments: object) -> T:
        """Call what writes."""
        try:
            return function(*arguments)
        except sqlite3.Error as error:
            raise refused(self._store or self._file, error) from error


def _step_figures(name: str, values: NDArray[np.float64], whole_us: float) -> tuple[float | None, ...]:
    """The figures of a step or a part of it, and its share of the whole, None where it does not lie inside of it."""
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


def _segment_row(segment: Segment) -> tuple[Any, ...]:
    begin_ns = None if segment.inference.start_ns is None else segment.begin_ns
    of = segment.number, segment.log, segment.inference.number, _KERNELS, segment.number - 1, segment.net
    # Kernels of several streams stand among each other: how many each has does not say which they are.
    return (*of, *_times_us(begin_ns, segment.end_ns), segment.ticks, None)


def _times_us(begin_ns: int | None, end_ns: int) -> tuple[int | None, int | None]:
    return (None, None) if begin_ns is None else (begin_ns // NS_PER_US, -(-end_ns // NS_PER_US))


def _number(text: str) -> int | str:
    """A device or step by its number; what has none that the store holds as it is."""
    return int(text) if _is_number(text) else text


def _numbered(told: Sequence[int | str]) -> dict[int | str, int]:
    """The number of each; those that have none come behind all others."""
    behind = count(max((each for each in told if isinstance(each, int)), default=-1) + 1)
    return {each: each if isinstance(each, int) else next(behind) for each in dict.fromkeys(told)}


def _is_number(text: str) -> bool:
    return text.strip().isdecimal() and int(text) <= LARGEST_INTEGER

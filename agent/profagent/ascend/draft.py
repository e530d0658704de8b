"""What one source comes to: its files as they are, and from these kernels, steps and calls in the store's own tables.

A step of a device (without steps: an execution of a graph, or all) is an inference, a stream in it a segment, a kernel
a record. Times are whole nanoseconds: the clock of these JOBs makes a tick of each.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from profagent.ascend.families import NO_MODEL, NOT_KNOWN
from profagent.ascend.kernels import NS_PER_US, PIPES, Called, Inference, Kernels, Model, Segment
from profagent.formats.names import display_text
from profagent.formats.records import NANOSECOND_CLOCK_MHZ
from profagent.store.database import LARGEST_INTEGER, RECORDS_PER_PART
from profagent.store.drafts import new_draft

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from profagent.ingest.changes import Entry

# The session, JOB and board of a draft.
ONE = 1
SINGLE_OPERATORS = "single-op"
_ADD_KERNELS = (
    "INSERT INTO aicore (record, segment, sequence, layer_index, ticks, ticks_before) VALUES (?, ?, ?, ?, ?, ?)"
)
_ADD_KERNELS_WITH_PIPES = (
    f"INSERT INTO aicore (record, segment, sequence, layer_index, ticks, ticks_before, {', '.join(PIPES)})"  # noqa: S608
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class Draft:
    """One source on its way into the store."""

    def __init__(self, file: Path, name: str, directory: str, device: str) -> None:
        self._connection = new_draft(file)
        self._device = device
        self._models: dict[str, Model] = {}
        self._inferences: dict[tuple[int, str, str], Inference] = {}
        self._segments: dict[tuple[str, str, str, str], Segment] = {}
        self._by_number: list[Segment] = []
        self._parts: dict[int, tuple[int, int]] = {}
        self._last_part = 0
        self._steps: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._calls: dict[tuple[str, str], Called] = {}
        self.rows = self.kernels = self.entries = 0
        self._put(
            "INSERT INTO job (job, board, name, directory, state, frequency_mhz, caught_up) VALUES (1, 1, ?, ?,"
            " 'finished', ?, 1)",
            (display_text(name), directory, NANOSECOND_CLOCK_MHZ),
        )
        self._put("INSERT INTO session_job VALUES (1, 1)")

    def begin_file(self, path: str, size: int, *, has_kernels: bool = False) -> int:
        """Note a file, or a table of a database; returns its number."""
        cursor = self._connection.execute(
            "INSERT INTO log (job, path, shown_path, kind, generation, offset, complete) VALUES (1, ?, ?, ?, 1, ?, 1)",
            (path, display_text(path), "aicore" if has_kernels else "ascend", size),
        )
        return int(cursor.lastrowid or 0)

    def add_block(self, log: int, first: int, rows: int, cells: str) -> None:
        """Keep rows as they are: a JSON array of them."""
        self._put("INSERT INTO ascend_block VALUES (?, 1, ?, ?, ?)", (log, first, rows, cells))
        self.rows += rows

    def end_file(self, log: int, kind: str, family: str, header: Sequence[str], rows: int) -> None:
        """All of the file has come."""
        columns = json.dumps(header, ensure_ascii=False)
        self._put("INSERT INTO ascend_file VALUES (?, 1, ?, ?, ?, ?)", (log, kind, family, columns, rows))

    def note(self, log: int | None, entry: Entry) -> None:
        """Keep an entry of the ledger."""
        self.entries += 1
        self._put(
            "INSERT INTO ledger_entry (session, job, log, origin, grade, reason, detail, first, last, count)"
            " VALUES (1, 1, ?, 'content', ?, ?, ?, ?, ?, ?)",
            (log, entry.grade, entry.reason, display_text(entry.detail), entry.first, entry.last, entry.count),
        )

    def add_step(self, step: str, parts: Mapping[str, float]) -> None:
        """A step's time and those of its parts, in µs; the step itself has no name."""
        for name, time_us in parts.items():
            self._steps[step, name].append(time_us)

    def has_steps(self) -> bool:
        """Whether any step is known."""
        return bool(self._steps)

    def has_calls(self) -> bool:
        """Whether any call is known."""
        return bool(self._calls)

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
        if kernels.duration_ns and min(kernels.duration_ns) < 0:
            known = [place for place, duration in enumerate(kernels.duration_ns) if duration >= 0]
            kernels = kernels.at(known)
        if not kernels.name:
            return
        models = kernels.model
        if NOT_KNOWN.intersection(models):
            models = [NO_MODEL if model in NOT_KNOWN else model for model in models]
        layers = self._layers(models, kernels.name, kernels.type)
        steps = self._steps_of(kernels, models, layers)
        segments = self._segments_of(
            log, list(zip(kernels.device, kernels.stream, models, steps, strict=True)), kernels
        )
        self._write_kernels(log, kernels, layers, segments)

    def _layers(self, models: Sequence[str], names: Sequence[str], types: Sequence[str]) -> NDArray[np.int64]:
        """Each kernel's layer in its model."""
        keys = list(zip(models, names, types, strict=True))
        indexes = {}
        for model, name, kind in dict.fromkeys(keys):
            known = self._models.get(model)
            if known is None:
                known = self._models[model] = Model(len(self._models) + 1)
            indexes[model, name, kind] = known.layers.setdefault((name, kind), len(known.layers))
        return np.fromiter(map(indexes.__getitem__, keys), np.int64, len(keys))

    def _steps_of(self, kernels: Kernels, models: Sequence[str], layers: NDArray[np.int64]) -> Sequence[str]:
        """Each kernel's step: where none is told, which execution of its graph it is of."""
        told = {*kernels.step}
        if "" not in told:
            return kernels.step
        if told == {""} and {*models} == {NO_MODEL}:
            return (" 0",) * len(models)
        steps = list(kernels.step)
        for place, (step, device, model, layer) in enumerate(
            zip(kernels.step, kernels.device, models, layers.tolist(), strict=True)
        ):
            if not step:
                times = self._models[model].times
                number = times[device, layer]
                times[device, layer] = number + 1
                steps[place] = f" {0 if model == NO_MODEL else number}"
        return steps

    def _segments_of(self, log: int, keys: Sequence[tuple[str, str, str, str]], kernels: Kernels) -> NDArray[np.int64]:
        """Each kernel's segment, by its number; those that are new begin with their first kernel here."""
        numbers = {}
        for key in dict.fromkeys(keys):
            segment = self._segments.get(key)
            if segment is None:
                segment = self._new_segment(log, key, kernels.start_ns[keys.index(key)])
            numbers[key] = segment.number
        return np.fromiter(map(numbers.__getitem__, keys), np.int64, len(keys))

    def _write_kernels(self, log: int, kernels: Kernels, layers: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """Rows of the kernels; their segments end with the last of them."""
        start, ticks = np.array(kernels.start_ns, np.int64), np.array(kernels.duration_ns, np.int64)
        sequence, before = np.empty_like(ticks), np.empty_like(ticks)
        order = np.argsort(numbers, kind="stable")
        edges = [0, *((np.diff(numbers[order]) != 0).nonzero()[0] + 1).tolist(), len(order)]
        for begin, end in pairwise(edges):
            ours = order[begin:end]
            segment = self._by_number[int(numbers[ours[0]]) - 1]
            sequence[ours] = segment.records + np.arange(len(ours))
            # One whose start is not known stands behind those before it.
            behind = segment.ticks + np.cumsum(ticks[ours]) - ticks[ours]
            before[ours] = np.where(start[ours] >= 0, start[ours] - segment.begin_ns, behind)
            segment.add(start[ours], segment.begin_ns + before[ours] + ticks[ours], int(ticks[ours].sum()))
        columns = [numbers, sequence, layers, ticks, before]
        rows: list[Iterable[Any]] = [self._record_numbers(log, len(ticks)), *(column.tolist() for column in columns)]
        if kernels.pipes is not None:
            # SQLite takes NaN for NULL.
            rows += [column.tolist() for column in kernels.pipes.T]
        sql = _ADD_KERNELS if kernels.pipes is None else _ADD_KERNELS_WITH_PIPES
        self._connection.executemany(sql, zip(*rows, strict=True))
        self.kernels += len(ticks)

    def _record_numbers(self, log: int, count: int) -> Iterable[int]:
        """Keys of the file's next records: of another part when one is full."""
        part, used = self._parts.get(log, (0, RECORDS_PER_PART))
        if used + count > RECORDS_PER_PART:
            self._last_part += 1
            part, first = self._last_part, used if log in self._parts else 0
            self._put("INSERT INTO part VALUES (?, ?, 1, ?)", (part, log, first))
            used = 0
        self._parts[log] = part, used + count
        return range(part * RECORDS_PER_PART + used, part * RECORDS_PER_PART + used + count)

    def _new_segment(self, log: int, key: tuple[str, str, str, str], start_ns: int) -> Segment:
        device, stream, model, step = key
        of = self._models[model].number
        inference = self._inferences.get((of, device, step))
        if inference is None:
            number = int(step) if _is_number(step) else len(self._inferences)
            inference = Inference(len(self._inferences) + 1, of, _number(device or self._device), number)
            self._inferences[of, device, step] = inference
        segment = Segment(len(self._segments) + 1, log, inference, _number(stream), max(start_ns, 0))
        self._segments[key] = segment
        self._by_number.append(segment)
        return segment

    def finish(
        self, identity: str, hostname: str, address: str, times_us: tuple[int, int], labels: Mapping[str, str]
    ) -> None:
        """Write what follows from all of it, and make it a draft."""
        counter_map = "Ascend pipes" if self._has_pipes() else None
        self._put("INSERT INTO board (board, identity, hostname, model) VALUES (1, ?, ?, '')", (identity, hostname))
        self._put(
            "INSERT INTO session (session, board, source, address, started_us, ended_us, simulated, daemon_version,"
            " sdk_version, counter_map, counter_map_likely) VALUES (1, 1, 'import', ?, ?, ?, 0, '', ?, ?, ?)",
            (
                address,
                *times_us,
                labels.get("cann", ""),
                counter_map,
                None if counter_map is None else "dstr,dtrans,dld",
            ),
        )
        self._many("INSERT INTO session_label VALUES (1, ?, ?)", labels.items())
        self._write_models()
        self._write_inferences()
        self._many("INSERT INTO figure VALUES (1, ?, ?, ?, 'us', ?, ?, ?, ?, ?, ?, ?, ?, NULL)", self._figures())
        self._connection.execute("COMMIT")
        self._connection.close()

    def abandon(self) -> None:
        """Let go of it."""
        self._connection.close()

    def _write_models(self) -> None:
        for name, model in self._models.items():
            number = int(name) if _is_number(name) else int(NO_MODEL)
            shown = SINGLE_OPERATORS if name == NO_MODEL else f"model {name}" if name.isdecimal() else name
            self._put(
                "INSERT INTO model (model, job, name, model_id, aicore) VALUES (?, 1, ?, ?, 1)",
                (model.number, shown, number),
            )
            self._many(
                "INSERT INTO layer VALUES (?, ?, 0, ?, ?, ?)",
                ((model.number, index, index, *layer) for layer, index in model.layers.items()),
            )
        self._put("UPDATE log SET model = (SELECT min(model) FROM model) WHERE kind = 'aicore'")

    def _write_inferences(self) -> None:
        for segment in self._segments.values():
            segment.inference.end_ns = max(segment.inference.end_ns, segment.end_ns)
        self._many(
            "INSERT INTO inference (inference, session, model, device_id, batch_num, input_pic_num, current_pic_count,"
            " load, start_us, end_us, complete, whole, figures) VALUES (?, 1, ?, ?, 0, 0, ?, 0, ?, ?, 1, 1, 'final')",
            (
                (
                    each.number,
                    each.model,
                    each.device,
                    each.step,
                    None if each.start_ns is None else each.start_ns // NS_PER_US,
                    None if each.start_ns is None else -(-each.end_ns // NS_PER_US),
                )
                for each in self._inferences.values()
            ),
        )
        self._many(
            "INSERT INTO segment VALUES (?, ?, ?, 'aicore', ?, ?, ?, ?, ?)",
            (
                (
                    each.number,
                    each.log,
                    each.inference.number,
                    each.number - 1,
                    each.net,
                    each.begin_ns // NS_PER_US if each.inference.start_ns is not None else None,
                    -(-each.end_ns // NS_PER_US) if each.inference.start_ns is not None else None,
                    each.ticks,
                )
                for each in self._segments.values()
            ),
        )

    def _figures(self) -> Iterable[tuple[Any, ...]]:
        """Of steps and calls, as `stats` tells them."""
        wholes = {step: sum(times) for (step, name), times in self._steps.items() if not name}
        for place, ((step, name), times) in enumerate(self._steps.items()):
            values = np.array(times)
            middle = float(np.median(values))
            whole = wholes.get(step, 0.0) if name else sum(wholes.values())
            yield (
                "step",
                place,
                json.dumps([step, name]),
                len(values),
                float(values.sum()),
                float(values.mean()),
                middle,
                float(np.median(np.abs(values - middle))),
                float(np.quantile(values, 0.95)),
                float(values.max()),
                float(values.sum()) / whole * 100 if whole else None,
            )
        total = sum(each.total for each in self._calls.values())
        for place, each in enumerate(sorted(self._calls.values(), key=lambda each: -each.total)):
            share = each.total / total * 100 if total else None
            figures = (each.times, each.total, each.mean, None, None, None, each.most, share)
            yield ("api", place, json.dumps([each.name, each.level]), *figures)

    def _has_pipes(self) -> bool:
        found = " OR ".join(f"{name} IS NOT NULL" for name in PIPES)
        return bool(self._connection.execute(f"SELECT EXISTS (SELECT 1 FROM aicore WHERE {found})").fetchone()[0])  # noqa: S608

    def _put(self, sql: str, values: Sequence[Any] = ()) -> None:
        self._connection.execute(sql, values)

    def _many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._connection.executemany(sql, rows)


def encoded(rows: Sequence[Any]) -> str:
    """Rows as the JSON of a block."""
    return msgspec.json.encode(rows).decode()


def _number(text: str) -> int:
    """A device or stream; 0 where it has no number that the store holds."""
    return int(text) if _is_number(text) else 0


def _is_number(text: str) -> bool:
    return text.strip().isdecimal() and int(text) <= LARGEST_INTEGER

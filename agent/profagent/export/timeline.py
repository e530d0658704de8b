"""`profagent export timeline`: the vendor's timelines as Chrome trace JSON (manual, 'timeline').

Times in a file are µs after its origin, which its metadata gives. Viewers hold times as doubles, and doubles near an
absolute time are a quarter of a µs apart: neighbours would overlap, and viewers would drop them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from profagent.cli.progress import progress
from profagent.export.job_files import NO_CHOICE, JobFileWriter, export_jobs, name_with_model
from profagent.formats.names import LogKind
from profagent.formats.records import CYCLES_PER_TICK, is_on_ai_cpu
from profagent.store.columns import Segments, pages
from profagent.store.queries import call_logs, calls, earliest_call_us, layers_of
from profagent.store.selection import InferenceRow, Selection
from profagent.tables.table import UNKNOWN
from profagent.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from profagent.cli.progress import Progress
    from profagent.export.job_files import ExportedJob
    from profagent.store.columns import Page
    from profagent.store.database import Running
    from profagent.store.queries import CallLog, CallRow, LayerRow
    from profagent.store.selection import Choice


# Times in `.done` files and aicpu records are whole µs, so neighbours may seem to overlap by less than one.
SLACK_NS = 1000
# The manual's default for logs whose names carry no stream.
DEFAULT_STREAM = 0
TASK_TYPES = ("AA CORE", "AA CPU")


TraceEvent = dict[str, Any]
_NAMES = {
    LogKind.AICORE: ("record", "layer_index", "ticks", "ticks_before"),
    LogKind.AICPU: ("record", "layer_index", "begin_us", "end_us"),
}


class Task(NamedTuple):
    """Record of either unit; `base_us` is the start of its segment, or its own start for aicpu. None is unknown."""

    is_aicpu: bool
    layer_index: int | None
    base_us: float | None
    ticks_before: int
    ticks: int
    end_us: float | None


async def export_timeline(
    database: Path,
    directory: Path,
    *,
    session: int | None = None,
    job: str | None = None,
    choice: Choice = NO_CHOICE,
) -> list[ExportedJob]:
    """Write Chrome traces: task_time for the chosen inferences, acl for all API calls.

    Arguments as for `export_jobs`.
    """

    async def write(connection: Running, files: JobFileWriter) -> None:
        selection = await Selection.of(connection, files.scope, choice)
        # All files of a JOB share one origin, so that a reader can lay them over each other.
        starts_us = (await selection.earliest_us(), await earliest_call_us(connection, files.scope))
        origin_us = min((time for time in starts_us if time is not None), default=0)
        with progress("export", "inferences") as shown:
            await _write_tasks(connection, selection, files, origin_us, shown)
        await _write_calls(connection, files, origin_us)

    return await export_jobs(database, directory, session, job, write)


async def _write_tasks(
    connection: Running, selection: Selection, files: JobFileWriter, origin_us: float, shown: Progress
) -> None:
    inferences = [row async for row in selection.inferences()]
    tasks = _tasks(connection, inferences, files.scope.job.frequency_mhz)
    following = await anext(tasks, None)
    for group in await selection.groups():
        layers = await layers_of(connection, group.model)
        title = files.title(f"NPU {group.device_id}, {group.model_name}")
        events = TaskEvents(group.device_id, origin_us, files.scope.job.frequency_mhz, layers, title)

        async def batches(group: int = group.group, events: TaskEvents = events) -> AsyncIterator[list[TraceEvent]]:
            nonlocal following
            while following is not None and following[0].group == group:
                yield list(events.of_inference(*following))
                shown(following[0].position + 1, len(inferences))
                following = await anext(tasks, None)

        await _write_trace(files, task_time_name(group), batches(), events, origin_us, group)


async def _tasks(
    connection: Running, inferences: Sequence[InferenceRow], frequency_mhz: int | None
) -> AsyncIterator[tuple[InferenceRow, list[Task]]]:
    groups = [row.group for row in inferences]
    segments = await connection.run(Segments.chosen)
    for query in await connection.run(lambda found: pages(found, segments, _NAMES, groups)):
        page = await connection.run(query.read)
        rows = _task_rows(page, frequency_mhz)
        for place in range(page.first, page.end):
            yield inferences[place], rows.get(place, [])


def _task_rows(page: Page, frequency_mhz: int | None) -> dict[int, list[Task]]:
    aicore, aicpu = page.aicore, page.aicpu
    base_us, before = aicore.segments.start_us[aicore.segment], aicore.columns["ticks_before"]
    begin_us, end_us = aicpu.columns["begin_us"], aicpu.columns["end_us"]
    none = np.zeros(len(aicpu), np.int64)
    columns = (
        np.repeat([False, True], [len(aicore), len(aicpu)]),
        np.concatenate([aicore.layer, aicpu.layer]),
        np.concatenate([base_us, begin_us]),
        np.concatenate([before, none]),
        np.concatenate([aicore.duration, none]),
        np.concatenate([np.full(len(aicore), np.nan), end_us]),
    )
    us_per_tick = np.nan if frequency_mhz is None else CYCLES_PER_TICK / frequency_mhz
    start_us = np.nan_to_num(np.concatenate([base_us + before * us_per_tick, begin_us]), nan=-np.inf)
    record, inference = (
        np.concatenate(each)
        for each in ((aicore.columns["record"], aicpu.columns["record"]), (aicore.inference, aicpu.inference))
    )
    order = np.lexsort((record, start_us, inference))
    found: dict[int, list[Task]] = defaultdict(list)
    for place, is_aicpu, layer, base, ran_before, ticks, end in zip(
        inference[order].tolist(), *(each[order].tolist() for each in columns), strict=True
    ):
        found[place].append(
            Task(
                is_aicpu,
                None if layer < 0 else layer,
                _integer_if_exact(base),
                ran_before,
                ticks,
                _integer_if_exact(end),
            )
        )
    return found


def _integer_if_exact(time_us: float) -> float | None:
    # An integer keeps all digits in later sums and in the JSON; NaN is an unknown time.
    return None if math.isnan(time_us) else int(time_us) if time_us.is_integer() else time_us


async def _write_calls(connection: Running, files: JobFileWriter, origin_us: float) -> None:
    for log in await call_logs(connection, files.scope):
        events = CallEvents(origin_us, files.title(log.model_name))
        name = acl_name(log.device_id, log.model_name, log.model_id, log.batch_num)
        batches = (list(events.of_calls(page)) async for page in calls(connection, files.scope, log.log))
        await _write_trace(files, name, batches, events, origin_us, log)


async def _write_trace(
    files: JobFileWriter,
    name: str,
    batches: AsyncIterator[Sequence[TraceEvent]],
    events: TaskEvents | CallEvents,
    origin_us: float,
    subject: InferenceRow | CallLog,
) -> None:
    def metadata() -> dict[str, Any]:
        return {**files.provenance, "origin_us": origin_us, "unplaced": events.unplaced}

    # Metadata come last in the file, because `unplaced` is known only when all events were made.
    await files.stream(name, trace_pieces(batches, metadata), subject)
    files.unplaced += events.unplaced


def task_time_name(row: InferenceRow) -> str:
    """Return the name task_time_{device_id}.{model}.{model_id}.{batch_num}."""
    return name_with_model(f"task_time_{row.device_id}.", row.model_name, f".{row.model_id}.{row.batch_num}")


def acl_name(device_id: int, model_name: str, model_id: int, batch_num: int) -> str:
    """Return the name acl_{device_id}.{model}.{model_id}.{batch_num}."""
    return name_with_model(f"acl_{device_id}.", model_name, f".{model_id}.{batch_num}")


def _span(name: str, pid: int, tid: int, ts: float, dur: float, args: dict[str, Any]) -> TraceEvent:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def _name_event(kind: str, pid: int, tid: int, name: str) -> TraceEvent:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


@dataclass
class _Lanes:
    """Tracks of one stream and unit: an event that begins before its forerunner ends is drawn on the next lane."""

    title: str
    tids: list[int] = field(default_factory=list)
    """Track number of each lane that has a title in the file."""
    ends_ns: list[int] = field(default_factory=list)
    """End of the latest event of each lane."""

    def take(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """Return the first free lane, which may be new, and the start of the event, moved behind the lane's latest."""
        for lane, busy_until_ns in enumerate(self.ends_ns):
            if busy_until_ns - SLACK_NS <= start_ns:
                start = max(start_ns, busy_until_ns)
                self.ends_ns[lane] = start + end_ns - start_ns
                return lane, start
        self.ends_ns.append(end_ns)
        return len(self.ends_ns) - 1, start_ns


class TaskEvents:
    """Events of one task_time file; `unplaced` counts the records without a known place in time."""

    def __init__(
        self, device_id: int, origin_us: float, frequency_mhz: int | None, layers: Mapping[int, LayerRow], title: str
    ) -> None:
        self.unplaced = 0
        self._name_event = title
        # A device stands for a process; number 0 is special to viewers.
        self._pid = device_id + 1
        self._origin_ns = _whole_ns(origin_us)
        self._frequency_mhz = frequency_mhz
        self._layers = layers
        # Lanes by the title of their stream and unit.
        self._lanes: dict[str, _Lanes] = {}
        # Number of tracks that have a title in the file.
        self._tracks = 0

    def of_inference(self, inference: InferenceRow, tasks: Iterable[Task]) -> Iterator[TraceEvent]:
        """Yield the events of an inference's records; Task Id counts the placed ones from 0.

        Viewers need names first: the event that names the device comes before all others, one that names a
        track before its events.
        """
        stream = DEFAULT_STREAM if inference.stream_id is None else inference.stream_id
        task_id = 0
        for task in tasks:
            span = self._span_ns(task)
            if span is None:
                self.unplaced += 1
                continue
            layer = None if task.layer_index is None else self._layers.get(task.layer_index)
            task_type = TASK_TYPES[task.is_aicpu or (layer is not None and is_on_ai_cpu(layer.type))]
            title = f"stream {stream} {task_type}"
            lanes = self._lanes.setdefault(title, _Lanes(title))
            lane, start_ns = lanes.take(*span)
            if not self._tracks:
                yield _name_event("process_name", self._pid, 0, self._name_event)
            if lane == len(lanes.tids):
                yield self._add_track(lanes)
            args = {"Task Type": task_type, "Stream Id": stream, "Task Id": task_id}
            duration_us = (span[1] - span[0]) / NS_PER_US
            yield _span(
                UNKNOWN if layer is None else layer.name,
                self._pid,
                lanes.tids[lane],
                start_ns / NS_PER_US,
                duration_us,
                args,
            )
            task_id += 1

    def _span_ns(self, task: Task) -> tuple[int, int] | None:
        if task.base_us is None:
            return None
        base_ns = _whole_ns(task.base_us) - self._origin_ns
        if task.is_aicpu:
            end_ns = _whole_ns(task.end_us or 0) - self._origin_ns
            return (base_ns, end_ns) if base_ns <= end_ns else None
        if self._frequency_mhz is None:
            return None
        # The end is computed as the start of the next record is, so that neighbours meet exactly.
        ns_per_tick = CYCLES_PER_TICK * NS_PER_US / self._frequency_mhz
        start = round(task.ticks_before * ns_per_tick)
        return base_ns + start, base_ns + round((task.ticks_before + task.ticks) * ns_per_tick)

    def _add_track(self, lanes: _Lanes) -> TraceEvent:
        self._tracks += 1
        lanes.tids.append(self._tracks)
        title = lanes.title if len(lanes.tids) == 1 else f"{lanes.title} ({len(lanes.tids)})"
        return _name_event("thread_name", self._pid, self._tracks, title)


class CallEvents:
    """Events of one acl file; `unplaced` counts the calls without a known begin."""

    def __init__(self, origin_us: float, title: str) -> None:
        self.unplaced = 0
        self._origin_us = origin_us
        self._name_event = title
        # Processes (with None) and threads that have a name in the file.
        self._named: set[tuple[int, int | None]] = set()

    def of_calls(self, calls: Iterable[CallRow]) -> Iterator[TraceEvent]:
        """Yield the events of calls; a process and a thread are named before their first call."""
        named = self._named
        for call in calls:
            if call.begin_us is None or call.end_us < call.begin_us:
                self.unplaced += 1
                continue
            if (call.pid, None) not in named:
                named.add((call.pid, None))
                yield _name_event("process_name", call.pid, 0, f"process {call.pid}, {self._name_event}")
            if (call.pid, call.tid) not in named:
                named.add((call.pid, call.tid))
                yield _name_event("thread_name", call.pid, call.tid, f"Thread {call.tid}")
            args = {"Mode": call.type, "Process_Id": call.pid, "Thread_Id": call.tid}
            start_us, duration_us = call.begin_us - self._origin_us, call.end_us - call.begin_us
            yield _span(call.name, call.pid, call.tid, start_us, duration_us, args)


async def trace_pieces(
    batches: AsyncIterator[Sequence[TraceEvent]], metadata: Callable[[], Mapping[str, Any]]
) -> AsyncIterator[bytes]:
    """Yield the pieces of a JSON object with traceEvents and metadata; none without events.

    `metadata` is called after the last event.
    """
    encode = msgspec.json.Encoder().encode
    before = b'{"traceEvents":[\n'
    async for batch in batches:
        if batch:
            yield before + b",\n".join(map(encode, batch))
            before = b",\n"
    if before == b",\n":
        yield b'\n],"displayTimeUnit":"ms","metadata":' + encode(metadata()) + b"}\n"


def _whole_ns(time_us: float) -> int:
    # Whole µs and the rest are converted apart: a time since 1970 in ns has more digits than a double holds.
    whole = int(time_us)
    return whole * NS_PER_US + round((time_us - whole) * NS_PER_US)

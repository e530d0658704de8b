"""Records of a JOB as numpy columns, for figures over all of them: rows never become Python objects one by one.

SQLite joins a column's numbers to one text, which numpy reads: two fifths of the time that fetching rows takes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.countermap import COUNTER_NAMES
from profagent.formats.inference_times import (
    EXECUTE,
    EXECUTE_ASYNC,
    SYNCHRONIZE,
    UNUSED,
    Calls,
    Spans,
    whole_spans,
)
from profagent.limits import ROWS_PER_READ, SAMPLED_FILES, SAMPLED_RECORDS
from profagent.store.database import KNOWN, RECORDS_PER_PART, fetched, fetched_one

if TYPE_CHECKING:
    from collections.abc import Sequence

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.store.database import Row
    from profagent.store.queries import Scope


_INFERENCES = """
SELECT inference, m.model, m.name, device_id, batch_num, input_pic_num, current_pic_count, start_us, end_us
FROM inference i JOIN model m USING (model) WHERE i.session = :session AND m.job = :job AND {known}
ORDER BY m.name, m.model, device_id, start_us IS NULL, start_us, load, current_pic_count, inference
"""
_SEGMENTS = """
SELECT group_concat(segment), group_concat(inference), group_concat(log), group_concat(net),
       group_concat(kind = 'aicore')
FROM (SELECT g.segment, g.inference, g.log, g.net, g.kind
      FROM inference i JOIN segment g USING (inference) JOIN model m USING (model)
      WHERE i.session = :session AND m.job = :job AND {known})
"""
# Times that are not known are NULL, or 0 where the runtime has none.
_CPU_SPANS = """
SELECT group_concat(inference), group_concat(ifnull(begin_us, 'nan')), group_concat(ifnull(end_us, 'nan'))
FROM (SELECT inference, CASE WHEN min(ifnull(g.start_us, 0)) > 0 THEN min(g.start_us) END AS begin_us,
             CASE WHEN count(*) = count(g.end_us) THEN max(g.end_us) END AS end_us
      FROM inference i JOIN segment g USING (inference) JOIN model m USING (model)
      WHERE i.session = :session AND m.job = :job AND g.kind = 'aicpu' AND {known} GROUP BY inference)
"""
# Whichever session fetched them: a call comes later than the inference that it ran.
_EXECUTIONS = f"""
SELECT l.model, group_concat(api), group_concat(begin_us), group_concat(end_us)
FROM log l JOIN part p USING (log) CROSS JOIN api r ON r.record BETWEEN p.part << 24 AND (p.part << 24) + 0xFFFFFF
WHERE l.job = :job AND l.kind = 'acl_api' AND r.api IN ({EXECUTE}, {EXECUTE_ASYNC}, {SYNCHRONIZE}) GROUP BY l.model
"""  # noqa: S608 - numbers of calls
_PARTS = """
SELECT group_concat(part), group_concat(log), group_concat(model)
FROM (SELECT part, log, model FROM log JOIN part USING (log)
      WHERE job = :job AND kind IN ('aicore', 'aicpu') ORDER BY part)
"""
_READ = """
SELECT max(record), group_concat(segment), group_concat(ifnull(layer_index, -1)), group_concat({duration})
FROM (SELECT record, segment, layer_index, {columns} FROM {kind} WHERE record BETWEEN ? AND ? ORDER BY record
      LIMIT {rows})
"""
_DURATIONS = {
    "aicore": {"duration": "ticks", "columns": "ticks"},
    "aicpu": {"duration": "end_us - begin_us", "columns": "begin_us, end_us"},
}
_COUNTERS = f"""
SELECT segment, ifnull(layer_index, -1), ticks, {", ".join(COUNTER_NAMES)} FROM aicore
WHERE record BETWEEN ? AND ?
"""  # noqa: S608 - names of counters
_CALLS = """
SELECT ifnull(n.name, 'unknown(' || r.api || ')'), ifnull(n.type, 'N/A'), count(*),
       group_concat(r.pid << 32 | r.tid) FILTER (WHERE r.begin_us <> 0),
       group_concat(r.begin_us) FILTER (WHERE r.begin_us <> 0), group_concat(r.end_us) FILTER (WHERE r.begin_us <> 0)
FROM log l JOIN part p USING (log) CROSS JOIN api r ON r.record BETWEEN p.part << 24 AND (p.part << 24) + 0xFFFFFF
LEFT JOIN api_name n USING (api) WHERE l.job = :job AND l.kind = 'acl_api' AND p.session = :session
GROUP BY r.api ORDER BY r.api
"""


class CallSeries(NamedTuple):
    """Calls of one of the runtime's functions: its name and type, and how many calls there are.

    `duration` and `own` in µs are of calls with a known begin; `own` leaves out what calls inside a call took.
    """

    key: tuple[str, str]
    number: int
    duration: NDArray[np.float64]
    own: NDArray[np.float64]


class InferenceOf(NamedTuple):
    """An inference that has records. `load` counts the model's loads: picture counts begin anew with each."""

    model: int
    model_name: str
    device_id: int
    batch_num: int
    input_pic_num: int
    load: int
    current_pic_count: int = 0


@dataclass(frozen=True, slots=True)
class RecordSeries:
    """Records of one unit as columns of one length, in the order of their files.

    `inference` is the place in the list of inferences, `layer` the layer's index or -1, `net` the number of the
    segment, `duration` in ticks (aicore) or µs (aicpu).
    """

    inference: NDArray[np.int64]
    layer: NDArray[np.int64]
    net: NDArray[np.int64]
    duration: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CounterSeries:
    """Some aicore records with their counters, shape (records, counters) as in COUNTER_NAMES, NaN where not known."""

    records: RecordSeries
    values: NDArray[np.float64]


class JobSeries(NamedTuple):
    """A JOB's inferences in the order in which each model ran them, and the records of both units.

    `whole` and `calls` are of each inference: the first begin to the last end of its records, and its call.
    """

    inferences: list[InferenceOf]
    aicore: RecordSeries
    aicpu: RecordSeries
    counters: CounterSeries | None
    whole: Spans
    calls: Spans


async def read_series(readers: Sequence[aiosqlite.Connection], scope: Scope) -> JobSeries:
    """All that a session has of a JOB's inferences whose figures are final; `counters` is None without a counter map.

    Several `readers` share the work: SQLite lets the threads of a process run side by side.
    """
    named = {"session": scope.session.session, "job": scope.job.job, "clockless": scope.job.frequency_mhz is None}
    connection = readers[0]
    inferences, numbers, npu = await _inferences(connection, named)
    columns = await fetched_one(connection, _SEGMENTS.format(known=KNOWN), named)
    segments = _Segments(columns, await fetched_one(connection, _PARTS, named), numbers)
    whole = whole_spans([segments.where_used(npu, "aicore"), await _cpu_spans(connection, named, numbers)])
    calls = await _calls(connection, named, inferences, whole)
    counters = None if scope.session.counter_map is None else await _counters(connection, segments)
    aicore, aicpu = [await _records(readers, kind, segments) for kind in _DURATIONS]
    return JobSeries(inferences, aicore, aicpu, counters, whole, calls)


async def call_series(connection: aiosqlite.Connection, scope: Scope) -> list[CallSeries]:
    """Return the calls of a JOB by function."""
    named = {"session": scope.session.session, "job": scope.job.job}
    rows = await fetched(connection, _CALLS, named)
    if not rows:
        return []
    columns = [tuple(map(_integers, texts)) for *_, texts in ((*row[:3], row[3:]) for row in rows)]
    threads, begins, ends = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    places = np.cumsum([len(begin) for _, begin, _ in columns])[:-1]
    durations, own = (ends - begins).astype(np.float64), own_durations(threads, begins, ends)
    parts = zip(rows, np.split(durations, places), np.split(own, places), strict=True)
    return [CallSeries((name, kind), count, *found) for (name, kind, count, *_), *found in parts]


def own_durations(
    threads: NDArray[np.int64], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return each call's duration without that of the calls that lie in it, in the same thread."""
    own = (ends - begins).astype(np.float64)
    for thread in np.unique(threads):
        places = np.flatnonzero(threads == thread)
        places = places[np.lexsort((-ends[places], begins[places]))]
        # A call lies in another only where one that began before is not over.
        is_inside = np.append(False, begins[places][1:] < np.maximum.accumulate(ends[places])[:-1])
        holders: list[int] = []
        for place in places[is_inside | np.append(is_inside[1:], False)].tolist():
            while holders and ends[holders[-1]] < ends[place]:
                holders.pop()
            if holders:
                own[holders[-1]] -= ends[place] - begins[place]
            holders.append(place)
    return own


class _Segments:
    """Which inference each of the JOB's segments is of, and in which parts of logs their records are.

    An inference is of the session that fetched its first record: another may have fetched the log that has the others.
    """

    def __init__(self, segments: Row, parts: Row, inferences: NDArray[np.int64]) -> None:
        columns = np.stack([_integers(text) for text in segments])
        columns = columns[:, np.argsort(columns[0])]
        self._numbers, of_inference, self._logs, self._nets, self._is_aicore = columns
        self._inferences = _places(inferences, of_inference)
        self._parts, self._log_of_part, self._model_of_part = map(_integers, parts)

    def parts(self, kind: str) -> NDArray[np.int64]:
        """The parts of logs that have segments on a unit, rising."""
        return self._parts[self._has_segments(kind)]

    def some_parts(self) -> list[int]:
        """Up to SAMPLED_FILES aicore parts of each model, evenly taken."""
        ours = self._has_segments("aicore")
        parts, models = self._parts[ours], self._model_of_part[ours]
        return [part for model in np.unique(models) for part in _evenly(parts[models == model]).tolist()]

    def where_used(self, spans: Spans, kind: str) -> Spans:
        """The spans of inferences, as those of a unit: UNUSED where one has no segment there, and no time is known."""
        has_segment = np.zeros(len(spans.begin_us), np.bool_)
        has_segment[self._inferences[self._is_aicore == (kind == "aicore")]] = True
        is_used = has_segment | ~np.isnan(spans.begin_us)
        return Spans(*(np.where(is_used, each, none) for each, none in zip(spans, UNUSED, strict=True)))

    def _has_segments(self, kind: str) -> NDArray[np.bool_]:
        """Which parts are of a log that has segments on a unit."""
        return np.isin(self._log_of_part, self._logs[self._is_aicore == (kind == "aicore")])

    def records(
        self, segment: NDArray[np.int64], layer: NDArray[np.int64], duration: NDArray[np.float64]
    ) -> tuple[RecordSeries, NDArray[np.bool_]]:
        """Those of these records that are of the JOB's inferences, and which they are."""
        if not len(segment) or not len(self._numbers):
            return _joined([]), np.zeros(len(segment), np.bool_)
        starts = np.append(0, (segment[1:] != segment[:-1]).nonzero()[0] + 1)
        lengths = np.diff(np.append(starts, len(segment)))
        found = np.searchsorted(self._numbers, segment[starts]).clip(max=len(self._numbers) - 1)
        is_ours = np.repeat(self._numbers[found] == segment[starts], lengths)
        place = np.repeat(found, lengths)[is_ours]
        return RecordSeries(self._inferences[place], layer[is_ours], self._nets[place], duration[is_ours]), is_ours


async def _inferences(
    connection: aiosqlite.Connection, named: dict[str, int]
) -> tuple[list[InferenceOf], NDArray[np.int64], Spans]:
    """The inferences, their numbers in the database, and when they ran on the NPU."""
    found: list[InferenceOf] = []
    numbers: list[int] = []
    times: list[Row] = []
    load, before, count_before = 0, None, -1
    rows = await fetched(connection, _INFERENCES.format(known=KNOWN), named)
    for number, model, name, device, batch, pictures, stored, *time in rows:
        count = int(stored)
        load = (load + (count <= count_before)) if before == (model, device) else 0
        before, count_before = (model, device), count
        found.append(InferenceOf(model, name, device, batch, pictures, load, count))
        numbers.append(number)
        times.append(tuple(time))
    begin, end = np.array(times, np.float64).reshape(-1, 2).T
    return found, np.array(numbers, np.int64), Spans(begin, end)


async def _cpu_spans(connection: aiosqlite.Connection, named: dict[str, int], numbers: NDArray[np.int64]) -> Spans:
    """When the inferences with these numbers ran on the CPU, UNUSED where one did not."""
    inferences, *times = await fetched_one(connection, _CPU_SPANS.format(known=KNOWN), named)
    places = _places(numbers, _integers(inferences))
    begin, end = (np.full(len(numbers), each) for each in UNUSED)
    begin[places], end[places] = map(_floats, times)
    return Spans(begin, end)


async def _calls(
    connection: aiosqlite.Connection, named: dict[str, int], inferences: Sequence[InferenceOf], whole: Spans
) -> Spans:
    """The call of each inference: of its own model's."""
    found = Spans(*np.full((2, len(inferences)), np.nan))
    models = np.array([each.model for each in inferences], np.int64)
    for model, api, *times in await fetched(connection, _EXECUTIONS, named):
        ours = models == model
        calls = Calls(_integers(api), *map(_floats, times))
        for column, known in zip(found, calls.spans(whole.at(ours)), strict=True):
            column[ours] = known
    return found


def _places(numbers: NDArray[np.int64], some: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where some of the numbers stand among them."""
    order = np.argsort(numbers)
    return order[np.searchsorted(numbers, some, sorter=order)]


async def _records(readers: Sequence[aiosqlite.Connection], kind: str, segments: _Segments) -> RecordSeries:
    shares = [parts for parts in np.array_split(segments.parts(kind), len(readers)) if len(parts)]
    walks = [_walk(kind, segments, *each) for each in zip(readers, shares, strict=False)]
    return _joined([part for parts in await asyncio.gather(*walks) for part in parts])


async def _walk(
    kind: str, segments: _Segments, connection: aiosqlite.Connection, parts: NDArray[np.int64]
) -> list[RecordSeries]:
    """The records between the first and the last of these parts."""
    query = _READ.format(kind=kind, rows=ROWS_PER_READ, **_DURATIONS[kind])
    # Whole numbers are read in a third of the time; differences of times from 2^63 on are none.
    durations = _integers if kind == "aicore" else _floats
    first: int | None = int(parts[0]) * RECORDS_PER_PART
    last = (int(parts[-1]) + 1) * RECORDS_PER_PART - 1
    found = []
    while first is not None:
        read, segment, layer, duration = await fetched_one(connection, query, (first, last))
        found.append(segments.records(_integers(segment), _integers(layer), durations(duration).astype(np.float64))[0])
        first = None if read is None else read + 1
    return found


async def _counters(connection: aiosqlite.Connection, segments: _Segments) -> CounterSeries | None:
    firsts = [part * RECORDS_PER_PART for part in segments.some_parts()]
    rows = [
        row for first in firsts for row in await fetched(connection, _COUNTERS, (first, first + SAMPLED_RECORDS - 1))
    ]
    if not rows:
        return None
    table = np.array(rows, np.float64)
    segment, layer = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
    records, is_ours = segments.records(segment, layer, table[:, 2])
    return CounterSeries(records, table[is_ours, 3:])


def _joined(parts: Sequence[RecordSeries]) -> RecordSeries:
    none = np.empty(0, np.int64)
    return RecordSeries(
        np.concatenate([none, *(part.inference for part in parts)]),
        np.concatenate([none, *(part.layer for part in parts)]),
        np.concatenate([none, *(part.net for part in parts)]),
        np.concatenate([np.empty(0), *(part.duration for part in parts)]),
    )


def _evenly(parts: NDArray[np.int64]) -> NDArray[np.int64]:
    """SAMPLED_FILES of these, as far apart from each other as can be; all where there are no more."""
    places = np.arange(len(parts)) * SAMPLED_FILES // len(parts)
    return parts[np.diff(places, prepend=-1) > 0]


def _integers(text: str | None) -> NDArray[np.int64]:
    return np.fromstring(text or "", np.int64, sep=",")


def _floats(text: str | None) -> NDArray[np.float64]:
    return np.fromstring(text or "", np.float64, sep=",")

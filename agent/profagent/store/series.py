"""Records of a JOB as numpy columns, for figures over all of them: rows never become Python objects one by one.

SQLite joins a column's numbers to one text, which numpy reads: two fifths of the time that fetching rows takes.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.countermap import COUNTER_NAMES
from profagent.store.database import KNOWN, RECORDS_PER_PART, fetched, fetched_one

if TYPE_CHECKING:
    from collections.abc import Sequence

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.store.database import Row
    from profagent.store.queries import Scope


# Connections that read a JOB's records side by side, each some of them.
READERS = 2
ROWS_PER_READ = 500_000
# Counters are read of so many files of a model, evenly taken, and of so many records of each.
SAMPLED_FILES = 100
SAMPLED_RECORDS = 10_000

_INFERENCES = """
SELECT inference, m.model, m.name, device_id, batch_num, input_pic_num, current_pic_count
FROM inference i JOIN model m USING (model) WHERE i.session = :session AND m.job = :job AND {known}
ORDER BY m.name, m.model, device_id, start_us IS NULL, start_us, load, current_pic_count, inference
"""
_SEGMENTS = """
SELECT group_concat(segment), group_concat(inference), group_concat(log), group_concat(net),
       group_concat(kind = 'aicore'), group_concat(ticks)
FROM (SELECT g.segment, g.inference, g.log, g.net, g.kind, g.ticks
      FROM inference i JOIN segment g USING (inference) JOIN model m USING (model)
      WHERE i.session = :session AND m.job = :job AND {known})
"""
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
SELECT ifnull(n.name, 'unknown(' || r.api || ')'), ifnull(n.type, 'N/A'), group_concat(r.end_us - r.begin_us)
       FILTER (WHERE r.begin_us <> 0), count(*)
FROM log l JOIN part p USING (log) CROSS JOIN api r ON r.record BETWEEN p.part << 24 AND (p.part << 24) + 0xFFFFFF
LEFT JOIN api_name n USING (api) WHERE l.job = :job AND l.kind = 'acl_api' AND p.session = :session
GROUP BY r.api ORDER BY r.api
"""


class InferenceOf(NamedTuple):
    """An inference that has records. `load` counts the model's loads: picture counts begin anew with each."""

    model: int
    model_name: str
    device_id: int
    batch_num: int
    input_pic_num: int
    load: int


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
    """A JOB's inferences in the order in which each model ran them, and the records of both units."""

    inferences: list[InferenceOf]
    aicore: RecordSeries
    aicpu: RecordSeries
    counters: CounterSeries | None


async def read_series(readers: Sequence[aiosqlite.Connection], scope: Scope, *, has_layers: bool = True) -> JobSeries:
    """All that a session has of a JOB's inferences whose figures are final; `counters` is None without a counter map.

    Several `readers` share the work: SQLite lets the threads of a process run side by side.

    Without layers `aicore` has one row for each segment, the sum of its records, which takes a tenth of the time.
    """
    named = {"session": scope.session.session, "job": scope.job.job, "clockless": scope.job.frequency_mhz is None}
    connection = readers[0]
    inferences, numbers = await _inferences(connection, named)
    columns = await fetched_one(connection, _SEGMENTS.format(known=KNOWN), named)
    segments = _Segments(columns, await fetched_one(connection, _PARTS, named), numbers)
    counters = None if scope.session.counter_map is None else await _counters(connection, segments)
    aicore = await _records(readers, "aicore", segments) if has_layers else segments.sums()
    return JobSeries(inferences, aicore, await _records(readers, "aicpu", segments), counters)


async def call_series(
    connection: aiosqlite.Connection, scope: Scope
) -> list[tuple[tuple[str, str], NDArray[np.float64], int]]:
    """The runtime's functions: name and type, durations in µs of calls with a known begin, and how many calls."""
    named = {"session": scope.session.session, "job": scope.job.job}
    rows = await fetched(connection, _CALLS, named)
    return [((name, kind), _floats(durations), count) for name, kind, durations, count in rows]


class _Segments:
    """Which inference each of the JOB's segments is of, and in which parts of logs their records are.

    An inference is of the session that fetched its first record: another may have fetched the log that has the others.
    """

    def __init__(self, segments: Row, parts: Row, inferences: NDArray[np.int64]) -> None:
        columns = np.stack([_integers(text) for text in segments])
        columns = columns[:, np.argsort(columns[0])]
        self._numbers, of_inference, self._logs, self._nets, self._is_aicore, self._ticks = columns
        order = np.argsort(inferences)
        self._inferences = order[np.searchsorted(inferences, of_inference, sorter=order)]
        self._parts, self._log_of_part, self._model_of_part = map(_integers, parts)

    def parts(self, kind: str) -> NDArray[np.int64]:
        """The parts of logs that have segments on a unit, rising."""
        return self._parts[self._has_segments(kind)]

    def some_parts(self) -> list[int]:
        """Up to SAMPLED_FILES aicore parts of each model, evenly taken."""
        ours = self._has_segments("aicore")
        parts, models = self._parts[ours], self._model_of_part[ours]
        return [part for model in np.unique(models) for part in _evenly(parts[models == model]).tolist()]

    def sums(self) -> RecordSeries:
        """The aicore segments, each as one record without a layer."""
        ours = self._is_aicore.nonzero()[0]
        ticks = self._ticks[ours].astype(np.float64)
        return RecordSeries(self._inferences[ours], np.full(len(ours), -1), self._nets[ours], ticks)

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
) -> tuple[list[InferenceOf], NDArray[np.int64]]:
    """The inferences, and their numbers in the database."""
    found: list[InferenceOf] = []
    numbers: list[int] = []
    load, before, count_before = 0, None, -1
    rows = await fetched(connection, _INFERENCES.format(known=KNOWN), named)
    for number, model, name, device, batch, pictures, stored in rows:
        count = int(stored)
        load = (load + (count <= count_before)) if before == (model, device) else 0
        before, count_before = (model, device), count
        found.append(InferenceOf(model, name, device, batch, pictures, load))
        numbers.append(number)
    return found, np.array(numbers, np.int64)


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

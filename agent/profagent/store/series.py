"""Records of a JOB as numpy columns, for figures over all of them: rows never become Python objects one by one.

SQLite joins a column's numbers to one text, which numpy reads: two fifths of the time that fetching rows takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.countermap import COUNTER_NAMES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from profagent.store.queries import Scope

__all__ = ["CounterSeries", "InferenceOf", "JobSeries", "RecordSeries", "call_series", "read_series"]

ROWS_PER_READ = 500_000
# Counters are read of so many files of a model, evenly taken, and of so many records of each.
SAMPLED_FILES = 100
SAMPLED_RECORDS = 10_000

_INFERENCES = """
SELECT inference, m.model, m.name, device_id, batch_num, input_pic_num, current_pic_count
FROM inference i JOIN model m USING (model) WHERE i.session = :session AND m.job = :job
ORDER BY m.name, m.model, device_id, start_us IS NULL, start_us, stretch, current_pic_count, inference
"""
_SEGMENTS = """
SELECT g.segment, g.inference, g.net FROM segment g JOIN inference i USING (inference) JOIN model m USING (model)
WHERE i.session = :session AND m.job = :job ORDER BY g.segment
"""
_PARTS = """
FROM part p JOIN log l USING (log)
WHERE l.job = :job AND l.kind = :kind AND p.log IN (SELECT log FROM part WHERE session = :session)
"""
_KEYS = f"SELECT min(p.part) << 24, (max(p.part) << 24) + 0xFFFFFF {_PARTS}"
_READ = """
SELECT max(record), group_concat(segment), group_concat(ifnull(layer_index, -1)), group_concat({duration})
FROM (SELECT record, segment, layer_index, {columns} FROM {kind} WHERE record BETWEEN ? AND ? ORDER BY record
      LIMIT {rows})
"""
_DURATIONS = {
    "aicore": {"duration": "ticks", "columns": "ticks"},
    "aicpu": {"duration": "end_us - begin_us", "columns": "begin_us, end_us"},
}
_SAMPLED_PARTS = f"""
SELECT part FROM (SELECT p.part, row_number() OVER (PARTITION BY l.model ORDER BY p.part) - 1 AS place,
                         count(*) OVER (PARTITION BY l.model) AS parts {_PARTS})
WHERE place = 0 OR place * :files / parts > (place - 1) * :files / parts
"""  # noqa: S608 - constants of this module
_COUNTERS = f"""
SELECT segment, ifnull(layer_index, -1), ticks, {", ".join(COUNTER_NAMES)} FROM aicore
WHERE record BETWEEN :part << 24 AND (:part << 24) + :records - 1
"""  # noqa: S608 - names of counters
_CALLS = """
SELECT ifnull(n.name, 'unknown(' || r.api || ')'), ifnull(n.type, 'N/A'), group_concat(r.end_us - r.begin_us)
       FILTER (WHERE r.begin_us <> 0), count(*)
FROM log l JOIN part p USING (log) JOIN api r ON r.record BETWEEN p.part << 24 AND (p.part << 24) + 0xFFFFFF
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


def read_series(connection: sqlite3.Connection, scope: Scope) -> JobSeries:
    """All that a session has of a JOB's inferences; `counters` is None where no counter map is known."""
    named = {"session": scope.session.session, "job": scope.job.job}
    inferences, places = _inferences(connection, named)
    segments = _Segments(connection, named, places)
    counters = None if scope.session.counter_map is None else _counters(connection, named, segments)
    aicore, aicpu = (_records(connection, {**named, "kind": kind}, segments) for kind in ("aicore", "aicpu"))
    return JobSeries(inferences, aicore, aicpu, counters)


def call_series(
    connection: sqlite3.Connection, scope: Scope
) -> Iterator[tuple[tuple[str, str], NDArray[np.float64], int]]:
    """The runtime's functions: name and type, durations in µs of calls with a known begin, and how many calls."""
    named = {"session": scope.session.session, "job": scope.job.job}
    for name, kind, durations, count in connection.execute(_CALLS, named):
        yield (name, kind), _floats(durations), count


class _Segments:
    """Which inference each of the JOB's segments is of."""

    def __init__(self, connection: sqlite3.Connection, named: dict[str, int], places: dict[int, int]) -> None:
        rows = connection.execute(_SEGMENTS, named).fetchall()
        self._numbers = np.array([row[0] for row in rows], np.int64)
        self._inferences = np.array([places[row[1]] for row in rows], np.int64)
        self._nets = np.array([row[2] for row in rows], np.int64)

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


def _inferences(connection: sqlite3.Connection, named: dict[str, int]) -> tuple[list[InferenceOf], dict[int, int]]:
    rows = connection.execute(_INFERENCES, named).fetchall()
    loads = [0] * len(rows)
    for place, (before, row) in enumerate(pairwise(rows), 1):
        if before[1:4] == row[1:4]:
            loads[place] = loads[place - 1] + (int(row[6]) <= int(before[6]))
    inferences = [InferenceOf._make((*row[1:6], load)) for row, load in zip(rows, loads, strict=True)]
    return inferences, {row[0]: place for place, row in enumerate(rows)}


def _records(connection: sqlite3.Connection, named: dict[str, int | str], segments: _Segments) -> RecordSeries:
    kind = str(named["kind"])
    query = _READ.format(kind=kind, rows=ROWS_PER_READ, **_DURATIONS[kind])
    # Whole numbers are read in a third of the time; differences of times from 2^63 on are none.
    durations = _ticks if kind == "aicore" else _floats
    first, last = connection.execute(_KEYS, named).fetchone()
    found = []
    while first is not None:
        read, segment, layer, duration = connection.execute(query, (first, last)).fetchone()
        found.append(segments.records(_integers(segment), _integers(layer), durations(duration))[0])
        first = None if read is None else read + 1
    return _joined(found)


def _counters(connection: sqlite3.Connection, named: dict[str, int], segments: _Segments) -> CounterSeries | None:
    parts = connection.execute(_SAMPLED_PARTS, {**named, "kind": "aicore", "files": SAMPLED_FILES}).fetchall()
    of_part = [{"part": part, "records": SAMPLED_RECORDS} for (part,) in parts]
    rows = [row for part in of_part for row in connection.execute(_COUNTERS, part)]
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


def _ticks(text: str | None) -> NDArray[np.float64]:
    return _integers(text).astype(np.float64)


def _integers(text: str | None) -> NDArray[np.int64]:
    return np.fromstring(text or "", np.int64, sep=",")


def _floats(text: str | None) -> NDArray[np.float64]:
    return np.fromstring(text or "", np.float64, sep=",")

"""The one reader of records: those of chosen inferences as numpy columns, in bounded pages.

Records have no index on their segment. Their place follows from the logs of the segments: most logs have one inference,
and all parts of such a log are its own. In a log that has several, the records are counted by segment once.

SQLite joins the integers of a column to one text, which numpy parses: that takes a third of the time of fetching rows,
and releases the interpreter to other threads. Counters are fetched as rows, because a text would not be exact.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.formats.inference_times import UNUSED, Calls, Spans
from profagent.formats.names import LogKind
from profagent.formats.records import RECORD_BYTES, api_name
from profagent.limits import CALLS_NEAR_US, RECORDS_PER_CHUNK, RECORDS_PER_PAGE, ROWS_PER_PAGE
from profagent.store.database import RECORDS_PER_PART, fetched_of, keys_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.store.database import Row

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    # The first and last record of each segment of a log, and how many it has, by its number.
    Places = Mapping[int, tuple[int, int, int]]

UNITS = (LogKind.AICORE, LogKind.AICPU)
# Columns that hold integers below 2^63 alone; times of the CPU may be larger.
_WHOLE = frozenset({"record", "segment", "sequence", "layer_index", "ticks", "ticks_before"})
# Columns that a record's duration is computed from.
TIMES = {LogKind.AICORE: ("ticks",), LogKind.AICPU: ("begin_us", "end_us")}
TABLES = {LogKind.AICORE: "aicore", LogKind.AICPU: "aicpu", LogKind.ACL_API: "api"}

# Type of a function that the database has no name for.
UNKNOWN_TYPE = "N/A"
# Stands for NULL in a column of times, which is parsed as integers.
_NO_TIME = -(2**63)
# CROSS JOIN, here and below, keeps SQLite from reordering the loops.
_SEGMENTS = f"""
SELECT group_concat(segment), group_concat(place), group_concat(log), group_concat(kind = 'aicpu'), group_concat(net),
       group_concat(CAST(ifnull(start_us, {_NO_TIME}) AS INTEGER)),
       group_concat(CAST(ifnull(end_us, {_NO_TIME}) AS INTEGER)), group_concat(ordinal),
       group_concat(ifnull(records, -1))
FROM ({{}})
"""  # noqa: S608 - a number
_OF_INFERENCES = "SELECT g.*, q.key AS place FROM json_each(?) q CROSS JOIN segment g ON g.inference = q.value"
_OF_SESSION = """
SELECT g.*, g.inference AS place FROM (SELECT DISTINCT log FROM part WHERE session = ?) CROSS JOIN segment g USING (log)
"""
_OF_CHOSEN = "SELECT g.*, c.position AS place FROM temp.chosen c CROSS JOIN segment g USING (inference)"
_PARTS = """
SELECT group_concat(part), group_concat(log), group_concat(offset)
FROM (SELECT part, log, offset FROM json_each(:logs) q CROSS JOIN part p ON p.log = q.value JOIN log USING (log)
      WHERE :session IS NULL OR session = :session ORDER BY part)
"""
_LAST = "SELECT max(record) FROM {table} WHERE record BETWEEN ? AND ?"
_PLACES = "SELECT segment, min(record), max(record), count(*) FROM {kind} WHERE record BETWEEN ? AND ? GROUP BY segment"
_RECORDS = """
SELECT {columns} FROM json_each(?) q CROSS JOIN {kind} r
  ON r.record BETWEEN json_extract(q.value, '$[0]') AND json_extract(q.value, '$[1]')
"""
_CALL_PARTS = "SELECT part, log, offset, ifnull(model, 0) FROM part JOIN log USING (log) WHERE kind = 'acl_api'"
# Times from 2^63 on are REAL; the cast limits them to SQLite's largest integer.
_CALLS = """
SELECT group_concat(api), group_concat(CAST(begin_us AS INTEGER)), group_concat(CAST(end_us AS INTEGER)),
       group_concat(pid), group_concat(tid)
FROM api WHERE record BETWEEN ? AND ?
"""
_CALL_NAMES = "SELECT api, name, type FROM api_name"


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments of inferences as columns of one length, in the order of their numbers.

    `inference` is the place of the segment's inference in the list that was asked for. `start_us` and `end_us` are NaN
    where unknown. `records` is the number of the segment's records if they stand together in its log in the order of
    `ordinal`, else -1.
    """

    number: Ints
    inference: Ints
    log: Ints
    is_aicpu: NDArray[np.bool_]
    net: Ints
    start_us: Floats
    end_us: Floats
    ordinal: Ints
    records: Ints

    @classmethod
    def chosen(cls, connection: sqlite3.Connection) -> Segments:
        """Return the segments of the inferences of a Selection, whose places are their positions."""
        return cls._of(connection.execute(_SEGMENTS.format(_OF_CHOSEN)))

    @classmethod
    def of(cls, connection: sqlite3.Connection, inferences: list[int]) -> Segments:
        """Return the segments of the inferences with these numbers, whose places are those in the list."""
        return cls._of(connection.execute(_SEGMENTS.format(_OF_INFERENCES), (json.dumps(inferences),)))

    @classmethod
    def of_session(cls, connection: sqlite3.Connection, session: int) -> Segments:
        """Return the segments of the logs of which a session fetched a part; an inference's place is its number."""
        return cls._of(connection.execute(_SEGMENTS.format(_OF_SESSION), (session,)))

    @classmethod
    def _of(cls, cursor: sqlite3.Cursor) -> Segments:
        columns = [_numbers(text) for text in cursor.fetchone()]
        # By number, as `_places_of` needs it; the query has the order of its loops.
        order = np.argsort(columns[0])
        number, inference, log, is_aicpu, net, start, end, ordinal, records = (column[order] for column in columns)
        start_us, end_us = (np.where(time == _NO_TIME, np.nan, time) for time in (start, end))
        return cls(number, inference, log, is_aicpu == 1, net, start_us, end_us, ordinal, records)

    def __len__(self) -> int:
        return len(self.number)

    def at(self, places: NDArray[np.intp] | NDArray[np.bool_]) -> Segments:
        """Return the segments at these places, in their order."""
        return Segments(*(getattr(self, name)[places] for name in self.__slots__))

    def on_cpu(self, inferences: int) -> Spans:
        """Return the first begin to the last end of `inferences` inferences on the CPU; UNUSED without a segment.

        A time is NaN where that of a segment is unknown: the runtime writes 0 where it has none.
        """
        found = self.of_unit(LogKind.AICPU)
        begin_us, end_us = (np.full(inferences, each) for each in UNUSED)
        np.minimum.at(begin_us, found.inference, np.where(found.start_us > 0, found.start_us, np.nan))
        np.maximum.at(end_us, found.inference, found.end_us)
        return Spans(begin_us, end_us)

    def of_unit(self, kind: LogKind) -> Segments:
        """Return the segments of one unit."""
        return self.at(self.is_aicpu == (kind is LogKind.AICPU))


@dataclass(frozen=True, slots=True)
class RecordTable:
    """Records of one unit as columns of one length, by inference and then in the order of the log.

    `segment` is the place of the record's segment in `segments`. `columns` are those that were asked for: `sequence`,
    `layer_index` (-1 if unknown), `ticks` and `ticks_before` of aicore as integers; `begin_us` and `end_us` of aicpu
    and the counters as float64, NaN if unknown.
    """

    kind: LogKind
    segments: Segments
    segment: NDArray[np.integer]
    columns: Mapping[str, NDArray[Any]]

    @classmethod
    def joined(cls, tables: Sequence[RecordTable], kind: LogKind, segments: Segments) -> RecordTable:
        """Return the records of several tables of the same segments; an empty table where there are none."""
        if not tables:
            names = ("layer_index", *TIMES[kind])
            return cls(kind, segments, np.empty(0, np.int32), {name: np.empty(0, np.int64) for name in names})
        columns = {name: np.concatenate([each.columns[name] for each in tables]) for name in tables[0].columns}
        return cls(kind, segments, np.concatenate([each.segment for each in tables]), columns)

    def narrowed(self) -> RecordTable:
        """Return the records in columns of fewer bits, where the numbers fit. Sums of such columns may overflow."""
        columns = {name: narrow(column) for name, column in self.columns.items()}
        return RecordTable(self.kind, self.segments, narrow(self.segment), columns)

    @property
    def inference(self) -> Ints:
        """Place of each record's inference."""
        inference: Ints = self.segments.inference[self.segment]
        return inference

    @property
    def net(self) -> Ints:
        """Number of each record's segment in its network."""
        net: Ints = self.segments.net[self.segment]
        return net

    @property
    def layer(self) -> NDArray[np.integer]:
        """Place of each record's layer in its model, -1 if unknown."""
        return self.columns["layer_index"]

    @property
    def duration(self) -> NDArray[Any]:
        """Duration of each record, in ticks (aicore) or µs (aicpu)."""
        if self.kind is LogKind.AICORE:
            return self.columns["ticks"]
        duration: Floats = self.columns["end_us"] - self.columns["begin_us"]
        return duration

    def __len__(self) -> int:
        return len(self.segment)


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Query for the columns `names` of one unit's records in ranges of keys, for any connection to the database.

    Records that belong to none of the `segments` are left out. `runs` has the places of the segments in the order of
    the ranges, and the number of records of each; None where that is unknown.
    """

    kind: LogKind
    names: tuple[str, ...]
    ranges: Ints
    segments: Segments
    runs: tuple[NDArray[np.intp], Ints] | None = None

    def read(self, connection: sqlite3.Connection) -> RecordTable:
        """Read the records; those of each inference stand together."""
        at, columns = self._in_runs(connection)
        order: NDArray[np.intp] | slice = slice(None)
        if (at < 0).any():
            (order,) = (at >= 0).nonzero()
        inference = self.segments.inference[at[order]]
        if (inference[1:] < inference[:-1]).any():
            by_inference = np.argsort(inference, kind="stable")
            order = by_inference if isinstance(order, slice) else order[by_inference]
        named = {name: column[order] for name, column in zip(self.names, columns, strict=True)}
        return RecordTable(self.kind, self.segments, at[order], named)

    def _in_runs(self, connection: sqlite3.Connection) -> tuple[NDArray[np.intp], list[NDArray[Any]]]:
        """Return the place of each record's segment, -1 for none of the segments, and the columns.

        Reading a record's segment costs as much as the rest of the record. It is not read where the numbers of records
        are known, and their sum is what was read.
        """
        if self.runs is not None:
            places, counts = self.runs
            columns = self._columns(connection, self.names)
            # A different number means that records are missing or belong to other segments: then each one's segment is
            # read.
            if len(columns[0]) == counts.sum():
                return np.repeat(places, counts), columns
        segment, *columns = self._columns(connection, ("segment", *self.names))
        return _places_of(segment, self.segments.number), columns

    def _columns(self, connection: sqlite3.Connection, names: Sequence[str]) -> list[NDArray[Any]]:
        whole = [name for name in names if name in _WHOLE]
        others = [name for name in names if name not in _WHOLE]
        columns = dict(
            zip([*whole, *others], [*self._whole(connection, whole), *self._others(connection, others)], strict=True)
        )
        return [columns[name] for name in names]

    def _whole(self, connection: sqlite3.Connection, names: Sequence[str]) -> Iterable[Ints]:
        shown = [f"ifnull(r.{name}, -1)" if name == "layer_index" else f"r.{name}" for name in names]
        if not shown:
            return ()
        cursor = self._execute(connection, ", ".join(f"group_concat({each})" for each in shown))
        return map(_numbers, cursor.fetchone())

    def _others(self, connection: sqlite3.Connection, names: Sequence[str]) -> Iterable[Floats]:
        if not names:
            return ()
        cursor = self._execute(connection, ", ".join(f"r.{name}" for name in names))
        rows = iter(functools.partial(cursor.fetchmany, ROWS_PER_PAGE), [])
        table = np.concatenate([np.empty((0, len(names))), *(_table_of(page, len(names)) for page in rows)])
        return map(np.ascontiguousarray, table.T)

    def _execute(self, connection: sqlite3.Connection, columns: str) -> sqlite3.Cursor:
        query = _RECORDS.format(columns=columns, kind=self.kind)
        return connection.execute(query, (json.dumps(self.ranges.tolist()),))


def chunks(
    connection: sqlite3.Connection,
    segments: Segments,
    kind: LogKind,
    names: Sequence[str],
    session: int | None = None,
) -> Iterator[RecordQuery]:
    """Yield queries for all records of a unit in the order of their files, about RECORDS_PER_CHUNK at a time.

    With a `session`, only the records that it fetched. An inference's records may be spread over two chunks.
    """
    ours = segments.of_unit(kind)
    part, log, size = _parts_of(connection, ours.log, session)
    if not len(part):
        return
    count = size // RECORD_BYTES[kind]
    if (count > RECORDS_PER_CHUNK).any():
        # A part that may be too long is cut into pieces, and then the segments in each piece are unknown.
        pieces = [
            each
            for number, bytes_ in zip(part.tolist(), size.tolist(), strict=True)
            for each in _of_chunks(connection, kind, number, bytes_)
        ]
        first, last, count = np.array(pieces, np.int64).T
        runs = None
    else:
        first, last = part * RECORDS_PER_PART, (part + 1) * RECORDS_PER_PART - 1
        runs = _runs_of(ours, log)
    # A chunk ends before the range that would make it too large.
    number = (np.cumsum(count) - count) // RECORDS_PER_CHUNK
    for some in np.split(np.arange(len(count)), number.searchsorted(np.unique(number))[1:]):
        ranges = np.stack([first[some], last[some]], axis=1)
        yield RecordQuery(kind, tuple(names), ranges, ours, None if runs is None else runs.within(some))


class _Runs(NamedTuple):
    """Segments in the order of the parts that hold them: place of the segment, place of its part, number of records."""

    place: NDArray[np.intp]
    part: NDArray[np.intp]
    records: Ints

    def within(self, parts: NDArray[np.intp]) -> tuple[NDArray[np.intp], Ints]:
        """Return places and record counts of the segments in successive parts."""
        begin, end = np.searchsorted(self.part, (parts[0], parts[-1] + 1)).tolist()
        return self.place[begin:end], self.records[begin:end]


def _runs_of(segments: Segments, log_of_part: Ints) -> _Runs | None:
    """Return the segments by part and ordinal.

    None where a log has several parts, or records of a segment do not stand together: then the order of records is not
    that of segments.
    """
    by_log = np.argsort(log_of_part, kind="stable")
    logs = log_of_part[by_log]
    if (logs[1:] == logs[:-1]).any() or (segments.records < 0).any():
        return None
    part = by_log[np.searchsorted(logs, segments.log)]
    order = np.lexsort((segments.ordinal, part))
    return _Runs(order, part[order], segments.records[order])


def _of_chunks(connection: sqlite3.Connection, kind: LogKind, part: int, size: int) -> Iterator[tuple[int, int, int]]:
    first, last = keys_of(part)
    count = size // RECORD_BYTES[kind]
    if count <= RECORDS_PER_CHUNK:
        yield first, last, count
        return
    (found,) = connection.execute(_LAST.format(table=TABLES[kind]), (first, last)).fetchone()
    for begin in range(first, first if found is None else found + 1, RECORDS_PER_CHUNK):
        end = min(begin + RECORDS_PER_CHUNK - 1, found)
        yield begin, end, end - begin + 1


def sample(
    connection: sqlite3.Connection, segments: Segments, kind: LogKind, names: Sequence[str], records: int
) -> RecordTable:
    """Return the first `records` records of each log of these segments, fewer where a log has fewer."""
    first = _parts_of(connection, segments.log)[0] * RECORDS_PER_PART
    ranges = np.stack([first, first + records - 1], axis=1)
    return RecordQuery(kind, tuple(names), ranges, segments).read(connection)


@dataclass(frozen=True, slots=True)
class CallTable:
    """API calls as integer columns of one length, in the order of the part of a log.

    `log` and `model` are numbers of the database. `begin_us` is 0 where unknown.
    """

    log: Ints
    model: Ints
    api: Ints
    begin_us: Ints
    end_us: Ints
    pid: Ints
    tid: Ints

    @classmethod
    def joined(cls, tables: Iterable[CallTable]) -> CallTable:
        """Return the calls of several tables as one."""
        columns = zip(*([getattr(table, name) for name in cls.__slots__] for table in tables), strict=True)
        return cls(*([np.concatenate(each) for each in columns] or [np.empty(0, np.int64)] * len(cls.__slots__)))

    def at(self, places: NDArray[np.intp] | NDArray[np.bool_] | slice) -> CallTable:
        """Return the calls at these places, in their order."""
        return CallTable(*(getattr(self, name)[places] for name in self.__slots__))

    def __len__(self) -> int:
        return len(self.api)


def call_tables(
    connection: sqlite3.Connection, *, session: int | None = None, job: int | None = None, log: int | None = None
) -> Iterator[CallTable]:
    """Yield the API calls that a session fetched, of a JOB or of a log, about RECORDS_PER_CHUNK at a time."""
    chosen = {name: key for name, key in (("session", session), ("job", job), ("log", log)) if key is not None}
    query = "".join((_CALL_PARTS, *(f" AND {name} = :{name}" for name in chosen), " ORDER BY part"))
    for part, of_log, size, model in connection.execute(query, chosen).fetchall():
        for first, last, _ in _of_chunks(connection, LogKind.ACL_API, part, size):
            columns = [_numbers(text) for text in connection.execute(_CALLS, (first, last)).fetchone()]
            about = (np.full(len(columns[0]), each) for each in (of_log, model))
            yield CallTable(*about, *columns)


# A log of calls has a name that sorts between these.
_PARTS_OF_CALLS = (
    "SELECT part FROM model m JOIN log l ON l.job = m.job AND l.path BETWEEN 'data/ac' AND 'data/ad'"
    " JOIN part USING (log) WHERE m.model = ?1 AND l.model = ?1 AND l.kind = 'acl_api'"
)
_NEXT_CALL = "SELECT record, begin_us, end_us FROM api WHERE record BETWEEN ? AND ? ORDER BY record LIMIT 1"
_LAST_CALL = "SELECT record, begin_us FROM api WHERE record BETWEEN ? AND ? ORDER BY record DESC LIMIT 1"
_CALLS_BETWEEN = "SELECT api, begin_us, end_us FROM api WHERE record BETWEEN ? AND ?"


def calls_near(connection: sqlite3.Connection, model: int, whole: Spans) -> tuple[Calls, float]:
    """Return the calls of a model around the spans of inferences, and when its newest call began; -inf without one.

    A log has its calls in the order of their ends, so a few of a great many are read.
    """
    rows: list[Row] = []
    latest_us = -np.inf
    for (part,) in connection.execute(_PARTS_OF_CALLS, (model,)).fetchall():
        first, end = keys_of(part)
        for last, begin_us in connection.execute(_LAST_CALL, (first, end)).fetchall():
            latest_us = max(latest_us, float(begin_us))
            for from_us, to_us in _times_around(whole):
                begin = _first_call(connection, first, last, from_us)
                end = _first_call(connection, begin, last, to_us)
                rows += connection.execute(_CALLS_BETWEEN, (begin, end)).fetchall()
                first = end + 1
    api, begins, ends = np.array(rows, np.float64).reshape(-1, 3).T
    return Calls(api.astype(np.int64), begins, ends), latest_us


def _times_around(whole: Spans) -> list[tuple[float, float]]:
    """Return the times around inferences in which their calls begin and end, apart and in order.

    Of a backlog, inferences come that lie far from each other.
    """
    order = np.argsort(whole.begin_us)
    begins = whole.begin_us[order] - CALLS_NEAR_US
    ends = np.maximum.accumulate(whole.end_us[order] + CALLS_NEAR_US)
    breaks = np.flatnonzero(begins[1:] > ends[:-1])
    return [*zip(begins[[0, *breaks + 1]].tolist(), ends[[*breaks, -1]].tolist(), strict=True)]


def _first_call(connection: sqlite3.Connection, first: int, last: int, time_us: float) -> int:
    """Return the key of the first call between two keys that ends at a time or later, or the last key."""
    while first < last:
        middle = (first + last) // 2
        ((_, _, end_us),) = connection.execute(_NEXT_CALL, (middle, last)).fetchall()
        first, last = (first, middle) if end_us >= time_us else (middle + 1, last)
    return first


class CallNames(dict[int, tuple[str, str]]):
    """Names and types of the API's functions by number; an unknown number gets a name of its own."""

    @classmethod
    def of(cls, connection: sqlite3.Connection) -> CallNames:
        """Return the names that a database has."""
        return cls((api, (name, kind)) for api, name, kind in connection.execute(_CALL_NAMES))

    def __missing__(self, api: int) -> tuple[str, str]:
        return api_name(api), UNKNOWN_TYPE


class PageQuery(NamedTuple):
    """Query for a page of inferences: those at the places from `first` to before `end`."""

    first: int
    end: int
    segments: Segments
    units: tuple[RecordQuery, ...]

    def read(self, connection: sqlite3.Connection) -> Page:
        """Read the page by a connection to the database."""
        return Page(self.first, self.end, self.segments, *(each.read(connection) for each in self.units))


class Page(NamedTuple):
    """Inferences at successive places, with all of their segments and records."""

    first: int
    end: int
    segments: Segments
    aicore: RecordTable
    aicpu: RecordTable

    @property
    def units(self) -> tuple[RecordTable, RecordTable]:
        """Records of both units."""
        return self.aicore, self.aicpu

    @property
    def records(self) -> int:
        """Number of records of both units."""
        return len(self.aicore) + len(self.aicpu)


def pages(
    connection: sqlite3.Connection,
    segments: Segments,
    names: Mapping[LogKind, Sequence[str]],
    groups: Sequence[object],
    most: int = RECORDS_PER_PAGE,
) -> Iterator[PageQuery]:
    """Yield queries for pages of complete inferences, with about `most` records and at least one inference each.

    `groups` has a value for each inference: a page has inferences of one value only.
    """
    ranges = {kind: ranges_of(connection, kind, segments.of_unit(kind)) for kind in UNITS}
    return _pages(segments, ranges, names, groups, most)


def _pages(
    segments: Segments,
    ranges: Mapping[LogKind, Ranges],
    names: Mapping[LogKind, Sequence[str]],
    groups: Sequence[object],
    most: int,
) -> Iterator[PageQuery]:
    counts = np.zeros(len(groups), np.int64)
    for found in ranges.values():
        np.add.at(counts, found.inference, found.count)
    ordered = segments.at(np.argsort(segments.inference, kind="stable"))
    first = 0
    for end in _ends_of_pages(counts, groups, most):
        begin, stop = np.searchsorted(ordered.inference, (first, end)).tolist()
        ours = ordered.at(np.arange(begin, stop))
        # Back in the order of numbers, which the search for a record's segment needs.
        ours = ours.at(np.argsort(ours.number))
        units = (
            RecordQuery(kind, tuple(names[kind]), ranges[kind].within(first, end), ours.of_unit(kind)) for kind in UNITS
        )
        yield PageQuery(first, end, ours, tuple(units))
        first = end


def _ends_of_pages(counts: Ints, groups: Sequence[object], most: int) -> Iterator[int]:
    records = 0
    for place, count in enumerate(counts.tolist()):
        if place and (groups[place] != groups[place - 1] or records + count > most):
            yield place
            records = 0
        records += count
    if len(counts):
        yield len(counts)


@dataclass(frozen=True, slots=True)
class Ranges:
    """Key ranges of records, as columns by inference: first key, last key and approximate number of records."""

    inference: Ints
    first: Ints
    last: Ints
    count: Ints

    def within(self, first: int, end: int) -> Ints:
        """Return the ranges of the inferences at the places from `first` to before `end`, none of them twice."""
        begin, stop = np.searchsorted(self.inference, (first, end)).tolist()
        found = np.stack([self.first[begin:stop], self.last[begin:stop]], axis=1)
        # Ranges overlap where records of several segments of one log alternate; a record must not be read twice.
        ordered = found[np.argsort(found[:, 0], kind="stable")]
        return found if (ordered[1:, 0] > ordered[:-1, 1]).all() else _merged(ordered)


def ranges_of(
    connection: sqlite3.Connection,
    kind: LogKind,
    segments: Segments,
    places_of: Callable[[int], Places] | None = None,
) -> Ranges:
    """Return the key ranges of the records of segments of one unit.

    `places_of` answers for a log with several inferences in place of `places_in`, for a caller that remembers its
    answers.
    """
    # By log, with the segments of a log in their order: reduceat needs each log's segments together.
    order = np.argsort(segments.log, kind="stable")
    logs, begins = np.unique(segments.log[order], return_index=True)
    inference = segments.inference[order]
    lasts, firsts = (each.reduceat(inference, begins) if len(logs) else begins for each in (np.maximum, np.minimum))
    # A log may have further inferences that were not asked for, and their records must not be read.
    is_shared = _has_others(connection, logs) | (lasts != firsts)
    part, log_of_part, size = _parts_of(connection, logs[~is_shared])
    of_part = firsts[~is_shared][np.searchsorted(logs[~is_shared], log_of_part)]
    first = part * RECORDS_PER_PART
    alone = np.stack([of_part, first, first + RECORDS_PER_PART - 1, size // RECORD_BYTES[kind]], axis=1)
    rows: list[tuple[int, int, int, int]] = []
    for log in logs[is_shared].tolist():
        places = places_of(log) if places_of else places_in(connection, kind, log)
        ours = segments.at(segments.log == log)
        for number, inference_of in zip(ours.number.tolist(), ours.inference.tolist(), strict=True):
            if number in places:
                rows.append((inference_of, *places[number]))
    found = np.concatenate([alone, np.array(rows, np.int64).reshape(-1, 4)])
    return Ranges(*found[np.lexsort((found[:, 1], found[:, 0]))].T)


def places_in(connection: sqlite3.Connection, kind: LogKind, log: int) -> Places:
    """Return the first key, last key and number of records of each segment of a log."""
    places: dict[int, tuple[int, int, int]] = {}
    for part in _parts_of(connection, np.array([log]))[0].tolist():
        for segment, first, last, count in connection.execute(_PLACES.format(kind=kind), keys_of(part)):
            before = places.get(segment, (first, last, 0))
            places[segment] = before[0], last, before[2] + count
    return places


_OTHERS = "SELECT log FROM segment WHERE log IN ({}) GROUP BY log HAVING min(inference) < max(inference)"


def _has_others(connection: sqlite3.Connection, logs: Ints) -> NDArray[np.bool_]:
    shared = [log for (log,) in fetched_of(connection, _OTHERS, (), logs.tolist())]
    return np.isin(logs, shared)


def _places_of(values: Ints, numbers: Ints) -> NDArray[np.intp]:
    """Return the place of each value among rising numbers, -1 if it is none of them.

    Equal values mostly stand together, so each run is looked up once.
    """
    begins = np.append(True, values[1:] != values[:-1]).nonzero()[0] if len(values) else np.empty(0, np.intp)
    at = np.searchsorted(numbers, values[begins])
    at[np.append(numbers, -1)[at] != values[begins]] = -1
    return np.repeat(at, np.diff(np.append(begins, len(values))))


def _parts_of(connection: sqlite3.Connection, logs: Ints, session: int | None = None) -> list[Ints]:
    """Return three columns: parts of logs, rising, the log of each part, and the size of that log in bytes.

    With a session, only the parts that it fetched.
    """
    parameters = {"logs": json.dumps(np.unique(logs).tolist()), "session": session}
    row = connection.execute(_PARTS, parameters).fetchone()
    return [_numbers(text) for text in row]


def narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Return integers in as few bits as they need, with room for one more: there may be millions of them."""
    if values.dtype.kind == "i" and values.size:
        least, most = int(values.min()), int(values.max())
        for kind in (np.int16, np.int32):
            if np.iinfo(kind).min < least and most < np.iinfo(kind).max:
                return values.astype(kind)
    return values


def _numbers(text: str | None) -> Ints:
    return np.fromstring(text or "", np.int64, sep=",")


def _merged(ranges: Ints) -> Ints:
    last = np.maximum.accumulate(ranges[:, 1])
    begins = np.append(True, ranges[1:, 0] > last[:-1]).nonzero()[0]
    return np.stack([ranges[begins, 0], np.maximum.reduceat(ranges[:, 1], begins)], axis=1)


def _table_of(rows: Sequence[Row], width: int) -> Floats:
    try:
        # `fromiter` takes two thirds of the time of `array`, but cannot convert NULL.
        return np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * width).reshape(len(rows), width)
    except TypeError:
        return np.array(rows, np.float64)

"""Rows of records, of their segments and inferences, and the times at which segments ran.

Rows wait for `write`, so that each table gets one insert for each batch.
"""

from __future__ import annotations

import json
from array import array
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from profagent.formats.countermap import PART_SLACK, RATES, SHARES
from profagent.formats.figure_states import FigureState
from profagent.formats.names import LogKind
from profagent.formats.records import SegmentColumns, place, ticks_to_us
from profagent.limits import LARGEST_INTEGER, LARGEST_RATIO, ROWS_TOGETHER
from profagent.store.database import RECORDS_PER_PART, Part, fetched_of, keys_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.formats.board_files import Done
    from profagent.formats.names import LogName
    from profagent.formats.records import Unit
    from profagent.ingest.changes import ApiRecords, InferenceTimed
    from profagent.ingest.feed import Group
    from profagent.store.database import Row
    from profagent.store.rows import LogRow, Numbers

# A model's number, and the fields of an inference's file names; the stream is -1 where they carry none.
FileKey = tuple[int, int | str, int, int, int, int]

# The columns `whole`, `figures` and `why` of an inference.
State = tuple[int, str, str | None]

_SHARED = ("record", "segment", "sequence", "layer_index")
_AICORE = (*_SHARED, "ticks", "ticks_before")
_AICPU = (*_SHARED, "begin_us", "end_us")
_API = ("api", "begin_us", "end_us", "pid", "tid")
_TABLES = {LogKind.AICORE: "aicore", LogKind.AICPU: "aicpu", LogKind.ACL_API: "api"}
# The models and picture counts come as one JSON array: CROSS JOIN has each pair looked up by the unique index.
_INFERENCES = (
    "SELECT inference, load, whole, figures, why, model, current_pic_count, batch_num, input_pic_num, device_id,"
    " ifnull(stream_id, -1) FROM json_each(?) k CROSS JOIN inference ON model = json_extract(k.value, '$[0]')"
    " AND current_pic_count = json_extract(k.value, '$[1]')"
)
_ADD_INFERENCE = (
    "INSERT INTO inference (inference, session, model, current_pic_count, batch_num, input_pic_num, device_id,"
    " stream_id, load, start_us, end_us, cache_hit, cache_miss, online_batch_num, complete, whole, figures, why)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, nullif(?, -1), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ADD_SEGMENT = (
    "INSERT INTO segment (segment, log, inference, kind, ordinal, net, start_us, end_us, ticks, records)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_GROW_SEGMENT = "UPDATE segment SET ticks = ticks + ?, records = records + ? WHERE segment = ?"
_TIME = (
    "UPDATE inference SET start_us = ?, end_us = ?, cache_hit = ?, cache_miss = ?, online_batch_num = ?, complete = ?"
    " WHERE inference = ?"
)
# Raises the stored bounds of a JOB's counters, which say whether any of its records can be implausible.
_BOUND = "UPDATE counter_bound SET excess = max(excess, ?), bytes_per_tick = max(bytes_per_tick, ?) WHERE job = ?"
# The columns that a `.done` sets, without one.
_UNTIMED: Row = (None, None, None, None, None, 0)
_SEGMENTS = (
    "SELECT segment, kind, net, ordinal, ticks, iif(kind = 'aicpu', g.end_us, NULL), i.start_us, inference, whole"
    " FROM segment g JOIN inference i USING (inference) WHERE inference IN ({})"
)


def file_key(model: int, name: LogName) -> FileKey:
    """Return the key of the inferences in a file."""
    assert name.current_pic_count is not None, "only files of an inference have records of segments"
    count = name.current_pic_count
    stream = -1 if name.stream is None else name.stream
    # SQLite's integers have 63 bits.
    stored = count if count <= LARGEST_INTEGER else str(count)
    return (model, stored, name.batch_num or 0, name.input_pic_num or 0, name.device or 0, stream)


def inferences_of(connection: sqlite3.Connection, keys: Iterable[FileKey]) -> dict[FileKey, list[Row]]:
    """Return the inferences in files by key: number, load, whole, figures and why of each."""
    wanted = json.dumps([*{key[:2] for key in keys}])
    found: dict[FileKey, list[Row]] = {}
    for row in connection.execute(_INFERENCES, (wanted,)).fetchall():
        found.setdefault(row[5:], []).append(row[:5])
    return found


class NewInference(Struct):
    """Inference that a batch adds. `times` are the columns of its `.done`, `state` those of its figures."""

    session: int
    key: FileKey
    load: int
    times: Row = _UNTIMED
    state: State = (0, FigureState.PENDING.value, None)

    @property
    def row(self) -> Row:
        """Columns of the row behind its number."""
        return (self.session, *self.key, self.load, *self.times, *self.state)


class RecordRows:
    """Records of one JOB that a batch adds, for one session."""

    def __init__(self, connection: sqlite3.Connection, session: int, job: int, numbers: Numbers) -> None:
        self._connection = connection
        self._session, self._job = session, job
        self._numbers = numbers
        # Numbers of stored and new inferences by file key and load.
        self._inferences: dict[tuple[FileKey, int], int] = {}
        # Inferences whose segments have to be placed in time again.
        self._touched: set[int] = set()
        # False where records themselves get no rows, as in memory once figures are final.
        self.keeps = True
        # Rows that wait for `write`, by table; `_grown` has ticks, records and number of segments that became longer.
        self._new_parts: list[Row] = []
        self._new_inferences: dict[int, NewInference] = {}
        self._new_segments: list[Row] = []
        self._grown: list[tuple[int, int, int]] = []
        self._times: list[Row] = []
        # Records that wait, by table and column names: for each log the arrays of its columns.
        self._records: dict[tuple[str, tuple[str, ...]], list[Sequence[NDArray[Any]]]] = {}

    def load(self, keys: Collection[FileKey]) -> None:
        """Look up the inferences in these files."""
        for key, rows in inferences_of(self._connection, keys).items():
            self._inferences.update({(key, load): number for number, load, *_ in rows})

    def touch(self, inferences: Iterable[int]) -> None:
        """Have these inferences' segments placed anew: something on which their times depend has changed."""
        self._touched.update(inferences)

    def add(self, unit: Unit, logs: Sequence[LogRow], *, fetched: int = 0) -> None:
        """Add records and their segments; `logs` are the rows of the unit's logs.

        The first `fetched` records of a log were stored before: they stay with the session that fetched them.
        """
        keys, sessions = self._keys(unit, logs, fetched)
        columns = unit.columns
        shared = (keys, self._segments(unit, logs, sessions), columns["sequence"], columns["layer_index"])
        if unit.kind is LogKind.AICPU:
            self._wait("aicpu", _AICPU, (*shared, columns["begin_us"], columns["end_us"]))
        else:
            ticks = (columns["ticks"], columns["ticks_before"])
            self._wait("aicore", (*_AICORE, *unit.counters), (*shared, *ticks, *unit.counters.values()))

    def add_calls(self, row: LogRow, change: ApiRecords) -> None:
        """Add the records of an acl_api log."""
        if len(change.number):
            keys = self.keys(row, change.number)
            self._wait("api", ("record", *_API), (keys, *(change.records[name] for name in _API)))

    def keys(self, row: LogRow, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return keys for further records of a log, given by ascending numbers, in parts of this session."""
        self._extend(row, int(numbers[0]), int(numbers[-1]))
        return _in_parts(row.parts, numbers)[0]

    def add_inferences(self, inferences: Mapping[int, NewInference], segments: Iterable[Row]) -> None:
        """Add inferences by number, and their segments, both complete as they are."""
        self._new_inferences.update(inferences)
        self._new_segments.extend(segments)

    def set_times(self, model: int, change: InferenceTimed) -> None:
        """Write the times from a `.done` of one load, or clear them; nothing where the load has no record."""
        inference = self._inferences.get((file_key(model, change.name), change.load))
        if inference is None:
            return
        times = _UNTIMED if change.done is None else _done_times(change.done)
        if inference in self._new_inferences:
            self._new_inferences[inference].times = times
        else:
            self._times.append((*times, inference))
        self._touched.add(inference)

    def add_plain(
        self, unit: Unit, logs: Sequence[LogRow], groups: Sequence[Group], states: Sequence[State]
    ) -> list[int]:
        """Add one unit of inferences that came complete, and return each log's inference.

        `groups` and `states` are those of the unit's logs.
        """
        self.add(unit, logs)
        numbers: list[int] = []
        for row, group, state in zip(logs, groups, states, strict=True):
            number = self._inferences[self._key(row), 0]
            inference = self._new_inferences[number]
            assert group.aicore_done.done is not None, "the .done of a group was read"
            inference.times, inference.state = _done_times(group.aicore_done.done), state
            numbers.append(number)
        return numbers

    def place_new(self, frequency_mhz: int | None) -> None:
        """Set the times of waiting aicore segments whose inferences have no other stored segment."""
        if frequency_mhz is not None:
            rows = [self._segment_row(segment) for segment in self._new_segments]
            times = {number: (start, end) for start, end, number in _placed(rows, frequency_mhz)}
            self._new_segments = [
                (*segment[:6], *times[segment[0]], *segment[8:]) if segment[0] in times else segment
                for segment in self._new_segments
            ]
        self._touched.clear()

    def _segment_row(self, segment: Row) -> Row:
        number, _, inference, kind, ordinal, net, _, end_us, ticks, _ = segment
        new = self._new_inferences[inference]
        return (number, kind, net, ordinal, ticks, end_us, new.times[0], inference, new.state[0])

    def void(self, row: LogRow, *, keeps_parts: bool) -> None:
        """Remove all records of a log; `keeps_parts` is for records that are decoded again under the same keys."""
        # Rows of this log may still wait in memory; they have to be in the tables to be deleted.
        self.write()
        assert row.name is not None, "a log with records has a name"
        self._connection.executemany(
            f"DELETE FROM {_TABLES[row.name.kind]} WHERE record BETWEEN ? AND ?",  # noqa: S608 - a table's name
            [keys_of(part.number) for part in row.parts],
        )
        found = self._connection.execute(
            "DELETE FROM segment WHERE log = ? RETURNING inference", (row.number,)
        ).fetchall()
        self._let_go({number for (number,) in found}, has_times=row.name.kind is not LogKind.AICORE)
        row.segment = None
        if not keeps_parts:
            self._connection.execute("DELETE FROM part WHERE log = ?", (row.number,))
            row.parts.clear()

    def write(self) -> None:
        """Insert the rows that wait."""
        self._connection.executemany(
            "INSERT INTO part (part, log, session, first_record) VALUES (?, ?, ?, ?)", self._new_parts
        )
        inferences = ((number, *inference.row) for number, inference in self._new_inferences.items())
        self._connection.executemany(_ADD_INFERENCE, inferences)
        self._connection.executemany(_ADD_SEGMENT, self._new_segments)
        self._connection.executemany(_GROW_SEGMENT, self._grown)
        self._connection.executemany(_TIME, self._times)
        self._new_inferences.clear()
        for waiting in (self._new_parts, self._new_segments, self._grown, self._times):
            waiting.clear()
        for (table, names), logs in self._records.items():
            # All logs of a table together: for one small file, the calls of numpy cost more than their work.
            columns = dict(zip(names, map(np.concatenate, zip(*logs, strict=True)), strict=True))
            insert_rows(self._connection, table, columns)
            if table == "aicore":
                self._connection.execute(_BOUND, (*_worst(columns), self._job))
        self._records.clear()

    def place(self, frequency_mhz: int | None) -> None:
        """Set the times of the aicore segments of every touched inference, once the frequency is known."""
        if frequency_mhz is not None and self._touched:
            rows = fetched_of(self._connection, _SEGMENTS, (), list(self._touched))
            self._connection.executemany(
                "UPDATE segment SET start_us = ?, end_us = ? WHERE segment = ?", _placed(rows, frequency_mhz)
            )
        self._touched.clear()

    def _keys(self, unit: Unit, logs: Sequence[LogRow], fetched: int) -> tuple[NDArray[np.int64], list[int]]:
        """Return the records' keys, and each segment's session: the one that fetched its first record here."""
        begins, counts = unit.before.records, unit.records
        for row, first, count in zip(logs, begins.tolist(), counts.tolist(), strict=True):
            # A log that was passed over before has no parts, so that all of its records are new.
            new = max(first, fetched) if row.parts else first
            if new < first + count:
                self._extend(row, new, first + count - 1)
        bases = np.array([_base(row.parts[0]) for row in logs], np.int64)
        keys = np.arange(len(unit)) + (bases + begins - unit.first).repeat(counts)
        sessions = [logs[log].parts[0].session for log in unit.seg_log.tolist()]
        for log, row in enumerate(logs):
            if len(row.parts) > 1:
                here = slice(int(unit.first[log]), int(unit.first[log] + counts[log]))
                numbers = np.arange(begins[log], begins[log] + counts[log])
                keys[here], part = _in_parts(row.parts, numbers)
                for segment in (unit.seg_log == log).nonzero()[0].tolist():
                    sessions[segment] = row.parts[part[unit.seg_first[segment] - here.start]].session
        return keys, sessions

    def _extend(self, row: LogRow, first: int, last: int) -> None:
        parts = row.parts
        if not parts or parts[-1].session != self._session:
            parts.append(self._new_part(row, first))
        # A part's key range holds RECORDS_PER_PART records; a longer log continues in the next part.
        while last >= parts[-1].first_record + RECORDS_PER_PART:
            parts.append(self._new_part(row, parts[-1].first_record + RECORDS_PER_PART))

    def note_fetched(self, row: LogRow) -> None:
        """Give this session a part of the log, though its rows are in the source's own table."""
        if all(part.session != self._session for part in row.parts):
            row.parts.append(self._new_part(row, 0))

    def _new_part(self, row: LogRow, first_record: int) -> Part:
        part = Part(self._numbers.take("part"), first_record, self._session)
        self._new_parts.append((part.number, row.number, part.session, first_record))
        return part

    def _segments(self, unit: Unit, logs: Sequence[LogRow], sessions: Sequence[int]) -> NDArray[np.int64]:
        """Return the segment of each record; new segments are added, and one that continues grows."""
        count = len(unit.seg_first)
        first = self._numbers.take("segment", count)
        numbers = np.arange(first, first + count)
        ticks = np.zeros(count, np.int64)
        if unit.kind is LogKind.AICORE:
            ticks = np.add.reduceat(unit.columns["ticks"], unit.seg_first)
        begins, ends = _times(unit, "segment_start_us"), _times(unit, "segment_end_us")
        ordinals, loads = unit.seg_ordinal.tolist(), unit.seg_load.tolist()
        nets = unit.columns["net"][unit.seg_first].tolist()
        sums = zip(ticks.tolist(), np.diff(np.append(unit.seg_first, len(unit))).tolist(), strict=True)
        for segment, (log, ordinal, sum_) in enumerate(zip(unit.seg_log.tolist(), ordinals, sums, strict=True)):
            row, number = logs[log], first + segment
            inference = self._inference(self._key(row), loads[segment], sessions[segment])
            if row.segment is not None and row.segment[0] == ordinal:
                numbers[segment] = row.segment[1]
                self._grown.append((*sum_, row.segment[1]))
                continue
            times = (begins[segment], ends[segment], *sum_)
            self._new_segments.append((number, row.number, inference, unit.kind.value, ordinal, nets[segment], *times))
            row.segment = (ordinal, number)
        return numbers[unit.segment]

    @staticmethod
    def _key(row: LogRow) -> FileKey:
        assert row.model is not None, "a data log's name has a model"
        assert row.name is not None, "a log with records has a name"
        return file_key(row.model, row.name)

    def _inference(self, key: FileKey, load: int, session: int) -> int:
        inference = self._inferences.get((key, load))
        if inference is None:
            inference = self._inferences[key, load] = self._numbers.take("inference")
            self._new_inferences[inference] = NewInference(session, key, load)
        self._touched.add(inference)
        return inference

    def _let_go(self, inferences: Collection[int], *, has_times: bool) -> None:
        """Remove the inferences that no log has segments of any more.

        Unless `has_times`, the columns that came from the log's `.done` are cleared in those that stay.
        """
        each = [(inference,) for inference in inferences]
        self._connection.executemany(
            "DELETE FROM inference WHERE inference = ?1 AND NOT EXISTS (SELECT 1 FROM segment WHERE inference = ?1)",
            each,
        )
        if not has_times:
            self._connection.executemany(_TIME, [(*_UNTIMED, *inference) for inference in each])
        left = fetched_of(
            self._connection, "SELECT inference FROM inference WHERE inference IN ({})", (), list(inferences)
        )
        gone = set(inferences) - {number for (number,) in left}
        self._inferences = {key: number for key, number in self._inferences.items() if number not in gone}

    def _wait(self, table: str, names: tuple[str, ...], columns: Sequence[NDArray[Any]]) -> None:
        if len(columns[0]) and self.keeps:
            self._records.setdefault((table, names), []).append(columns)


def insert_rows(connection: sqlite3.Connection, table: str, columns: Mapping[str, NDArray[Any]]) -> None:
    """Insert records, many with each statement: the start and end of a statement cost more than a row's values."""
    insert = f"INSERT INTO {table} ({','.join(columns)}) VALUES "  # noqa: S608 - names of counters
    row, count = f"({','.join('?' * len(columns))})", len(columns["record"])
    values = chain.from_iterable(zip(*(_values(*column) for column in columns.items()), strict=True))
    for together, statements in ((ROWS_TOGETHER, count // ROWS_TOGETHER), (1, count % ROWS_TOGETHER)):
        several = islice(zip(*[values] * (together * len(columns)), strict=False), statements)
        connection.executemany(insert + ",".join([row] * together), several)


def _done_times(done: Done) -> Row:
    online = ",".join(map(str, done.online_batch_num)) or None
    return (done.start_us or None, done.end_us or None, done.cache_hit, done.cache_miss, online, 1)


def _placed(rows: Sequence[Row], frequency_mhz: int) -> Iterator[Row]:
    if not rows:
        return
    numbers, kinds, nets, ordinals, ticks, ends, launches, inferences, are_whole = zip(*rows, strict=True)
    duration_us = ticks_to_us(np.array(ticks, np.int64), frequency_mhz)
    segments = SegmentColumns(
        inference=np.array(inferences),
        is_aicore=np.array(kinds) == LogKind.AICORE.value,
        net=np.array(nets),
        ordinal=np.array(ordinals),
        duration_us=duration_us,
        end_us=np.array(ends, np.float64),
        launch_us=np.array(launches, np.float64),
        is_whole=np.array(are_whole, np.bool_),
    )
    for start, duration, number, kind in zip(place(segments), duration_us.tolist(), numbers, kinds, strict=True):
        if kind == LogKind.AICORE:
            yield start, None if start is None else start + duration, number


def _base(part: Part) -> int:
    """Return the difference between a record's key and its number in the log, for a part."""
    return part.number * RECORDS_PER_PART - part.first_record


def _in_parts(parts: Sequence[Part], numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    index = np.array([part.first_record for part in parts]).searchsorted(numbers, side="right") - 1
    assert not len(index) or index[0] >= 0, "a log's first part begins with its first record"
    return numbers + np.array([_base(part) for part in parts])[index], index


def _times(unit: Unit, column: str) -> list[int | float | None]:
    """Return the segments' times, which only aicpu has; those beyond SQLite's 64 signed bits are floats."""
    if column not in unit.columns:
        return [None] * len(unit.seg_first)
    times = unit.columns[column][unit.seg_first].tolist()
    return [time if time <= LARGEST_INTEGER else float(time) for time in times]


def _worst(columns: Mapping[str, NDArray[Any]]) -> tuple[float, float]:
    """Return by how much a counter exceeds its limit, and the most bytes that a record moved in a tick.

    Both are at least 0. With them stored, a JOB whose counters are all plausible needs no walk over its records.
    """
    # Infinity minus infinity is NaN, which `fmax` ignores: another check reports each of the two.
    with np.errstate(invalid="ignore"):
        excesses = [
            columns[counter] - (LARGEST_RATIO if whole is None else columns[whole] + PART_SLACK)
            for counter, whole in SHARES.values()
            if counter in columns and (whole is None or whole in columns)
        ]
    ticks = np.where(columns["ticks"] > 0, columns["ticks"], np.nan)
    return _most(excesses), _most(columns[counter] / ticks for counter in RATES.values() if counter in columns)


def _most(values: Iterable[NDArray[Any]]) -> float:
    return max((float(np.fmax.reduce(each, initial=0.0)) for each in values), default=0.0)


def _values(name: str, column: NDArray[Any]) -> Sequence[Any]:
    """Return a column's values as SQLite takes them: None for no layer, a float beyond 64 signed bits.

    A counter that is not known is NaN, which SQLite stores as NULL.
    """
    if name == "layer_index" and column.min() < 0:
        return [None if index < 0 else index for index in column.tolist()]
    if column.dtype == np.uint64 and column.max() > LARGEST_INTEGER:
        return [value if value <= LARGEST_INTEGER else float(value) for value in column.tolist()]
    # An array makes each object when its row is bound; a list of all of them takes longer.
    return array(column.dtype.char, column.tobytes())

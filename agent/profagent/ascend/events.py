"""What timelines of other tools had beside kernels: host calls, communication, overlap, counters, instants.

Where there is no timeline, tables of a database tell the slices. Events are kept as text, in the order of the file: a
temporary table puts them in the order of time, on the disk. Memory holds the names of processes, threads and layers,
and a page of events.
"""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from profagent.ascend.event_tables import slices_of_tables
from profagent.ascend.kernels import NS_PER_US, WITH_TASKS
from profagent.ascend.texts import decoded_events, event_times_ns
from profagent.store.database import run_script

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from typing import Final

    from numpy.typing import NDArray

    from profagent.ascend.event_tables import TableSlice
    from profagent.store.database import Row

Key = TypeVar("Key")
_SLICE, _INSTANT, _COUNTER, _METADATA = "X", "i", "C", "M"
_PHASES = {"X": _SLICE, "i": _INSTANT, "I": _INSTANT, "C": _COUNTER, "M": _METADATA}
_NAMES = frozenset({"process_name", "process_labels", "thread_name"})
# What an event is called whose file gives it no category.
_CATEGORY = "timeline"
_NO_ARGS = "{}"
# The timelines beside them have nothing that these do not have.
_WHOLE = frozenset({"msprof", "trace_view"})
_TABLES = """
DROP VIEW IF EXISTS temp.ascend_events;
DROP VIEW IF EXISTS temp.ascend_counters;
DROP TABLE IF EXISTS temp.ascend_event;
DROP TABLE IF EXISTS temp.ascend_track;
CREATE TEMP TABLE ascend_event (track INTEGER, start_ns INTEGER, end_ns INTEGER, name TEXT, category TEXT, args TEXT);
CREATE TEMP TABLE ascend_track (track INTEGER PRIMARY KEY, phase TEXT, process TEXT, thread TEXT);
"""
_VIEWS = """
CREATE TEMP VIEW ascend_events AS
SELECT {session} AS session, track, process, thread, phase = 'i' AS is_instant, start_ns, end_ns, name, category, args
FROM ascend_event JOIN ascend_track USING (track) WHERE phase <> 'C';
CREATE TEMP VIEW ascend_counters AS
SELECT {session} AS session, track, process, start_ns, name, args
FROM ascend_event JOIN ascend_track USING (track) WHERE phase = 'C';
"""
_ADD = "INSERT INTO temp.ascend_event VALUES (?, ?, ?, ?, ?, ?)"
_ADD_TRACK = "INSERT INTO temp.ascend_track VALUES (?, ?, ?, ?)"
# Files of timelines of a session, a block after the other: family, path and JSON array of events.
_TIMELINES = """
SELECT f.family, l.shown_path, t.cells
FROM ascend_file f JOIN log l USING (log) JOIN ascend_block t ON t.log = f.log
WHERE f.session = ? AND f.kind = 'timeline' ORDER BY f.log, t.number
"""
_LAYERS = """
SELECT DISTINCT y.name FROM session_job s JOIN model m USING (job) JOIN layer y USING (model) WHERE s.session = ?
"""


class _Event(msgspec.Struct):
    """An event, with its arguments as they are written."""

    name: str = ""
    ph: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: Any = None
    dur: Any = 0
    cat: str = ""
    args: msgspec.Raw = msgspec.Raw(_NO_ARGS.encode())


_EVENTS: Final = msgspec.json.Decoder(list[_Event])
_ODD: Final = _Event()


class _Process(NamedTuple):
    """A process of a timeline: `place` is its file, or the folder of files that go on with each other."""

    place: str
    pid: str
    is_whole: bool


class _Track(NamedTuple):
    """What is drawn as one: the slices or instants of a thread, or a counter; `of` is a thread, or its name."""

    phase: str
    process: _Process
    of: str


def gather(connection: sqlite3.Connection, session: int) -> int:
    """Put the events of a session's timelines that are none of its layers into temporary tables, and views of these.

    Returns how many events have no time.
    """
    run_script(connection, _TABLES)
    events = _Events(connection, session)
    events.gather()
    run_script(connection, _VIEWS.format(session=session))
    return events.unplaced


class _Events:
    """The events of a session's timelines that are none of its layers. `unplaced` counts those that have no time."""

    def __init__(self, connection: sqlite3.Connection, session: int) -> None:
        self.unplaced = 0
        self._connection, self._session = connection, session
        self._tracks: dict[_Track, int] = {}
        # What metadata events say of processes, and of threads.
        self._said: dict[tuple[str, _Process, str], str] = {}
        self._layers = {name for (name,) in connection.execute(_LAYERS, (session,))}

    def gather(self) -> None:
        self._gather_timelines()
        if not any(track.process.is_whole for track in self._tracks):
            self._gather_tables()
        self._drop_what_is_there_twice()
        processes, threads = self._titles()
        rows = [
            (number, track.phase, processes[track.process], threads.get((track.process, track.of), ""))
            for track, number in self._tracks.items()
        ]
        self._connection.executemany(_ADD_TRACK, rows)

    def _gather_timelines(self) -> None:
        for family, path, cells in self._connection.execute(_TIMELINES, (self._session,)):
            is_whole = family in _WHOLE
            place = str(PurePosixPath(path).parent) if is_whole else path
            events = decoded_events(cells, _EVENTS, _ODD)
            self.unplaced += sum(event is _ODD for event in events)
            pids = {event.pid for event in events}
            found = self._rows(events, {pid: _Process(place, str(pid), is_whole) for pid in pids})
            self._connection.executemany(_ADD, found)

    def _gather_tables(self) -> None:
        for slices in slices_of_tables(self._connection, self._session):
            found = [self._row(each) for each in slices if each.start_ns >= 0]
            self.unplaced += len(slices) - len(found)
            self._connection.executemany(_ADD, found)

    def _rows(self, events: Sequence[_Event], processes: Mapping[Any, _Process]) -> list[Row]:
        tracks: list[int] = []
        shown: list[_Event] = []
        known: dict[tuple[Any, ...], int] = {}
        for event in events:
            phase = _PHASES.get(event.ph)
            if phase == _METADATA:
                self._take_name(processes[event.pid], event)
            elif phase is not None and not self._is_layer(processes[event.pid], event):
                of = event.name if phase == _COUNTER else event.tid
                key = phase, event.pid, of
                if key not in known:
                    track = _Track(phase, processes[event.pid], str(of))
                    known[key] = self._tracks.setdefault(track, len(self._tracks))
                tracks.append(known[key])
                shown.append(event)
        starts = event_times_ns([event.ts for event in shown])
        ends = starts + _durations_ns([event.dur for event in shown])
        rows = [
            (track, start, end, event.name, event.cat or _CATEGORY, _args(event))
            for track, start, end, event in zip(tracks, starts.tolist(), ends.tolist(), shown, strict=True)
            if start >= 0
        ]
        self.unplaced += len(shown) - len(rows)
        return rows

    def _row(self, each: TableSlice) -> Row:
        process = _Process(each.database, f"{each.process} {each.device}", is_whole=False)
        self._said["process_name", process, ""] = each.process
        self._said["thread_name", process, each.thread] = each.thread
        if each.device:
            self._said["process_labels", process, ""] = f"NPU {each.device}"
        track = self._tracks.setdefault(_Track(_SLICE, process, each.thread), len(self._tracks))
        return track, each.start_ns, each.end_ns, each.name, _CATEGORY, each.args

    def _take_name(self, process: _Process, event: _Event) -> None:
        if event.name in _NAMES and isinstance(said := msgspec.json.decode(event.args), dict):
            of = str(event.tid) if event.name == "thread_name" else ""
            if text := said.get("name", said.get("labels")):
                self._said.setdefault((event.name, process, of), str(text))

    def _is_layer(self, process: _Process, event: _Event) -> bool:
        """Whether it is a task of the device that the session has as a layer of an inference."""
        return event.name in self._layers and b'"Task Type"' in bytes(event.args) and self._name(process) in WITH_TASKS

    def _name(self, process: _Process) -> str | None:
        return self._said.get(("process_name", process, ""))

    def _drop_what_is_there_twice(self) -> None:
        """Of several timelines that have a process, one is shown."""
        whole = {self._name(track.process) for track in self._tracks if track.process.is_whole} - {None}
        twice = [track for track in self._tracks if not track.process.is_whole and self._name(track.process) in whole]
        numbers = [(self._tracks.pop(track),) for track in twice]
        self._connection.executemany("DELETE FROM temp.ascend_event WHERE track = ?", numbers)

    def _titles(self) -> tuple[dict[_Process, str], dict[tuple[_Process, str], str]]:
        """What processes and threads are called: each another name."""
        forms: dict[_Process, tuple[str, ...]] = {}
        of_threads: dict[_Process, dict[tuple[_Process, str], tuple[str, ...]]] = {}
        for phase, process, thread in self._tracks:
            name = self._name(process) or f"process {process.pid}"
            label = self._said.get(("process_labels", process, ""), process.pid)
            forms[process] = name, f"{name} ({label})", f"{name} ({process.place}, {process.pid})"
            if phase != _COUNTER:
                name = self._said.get(("thread_name", process, thread), f"thread {thread}")
                of_threads.setdefault(process, {})[process, thread] = name, f"{name} ({thread})"
        threads = {key: title for each in of_threads.values() for key, title in _told_apart(each).items()}
        return _told_apart(forms), threads


def _told_apart(forms: Mapping[Key, tuple[str, ...]]) -> dict[Key, str]:
    """Of each the first form that no other has."""
    known = Counter(form for each in forms.values() for form in set(each))
    return {key: next((form for form in each if known[form] == 1), each[-1]) for key, each in forms.items()}


def _durations_ns(values: Sequence[Any]) -> NDArray[np.int64]:
    """Whole nanoseconds of durations in µs, which a float holds; 0 where one is not known."""
    try:
        found = np.nan_to_num(np.array(values, np.float64))
    except (TypeError, ValueError):
        found = event_times_ns(values) / NS_PER_US
    whole: NDArray[np.int64] = np.rint(np.maximum(found, 0.0) * NS_PER_US).astype(np.int64)
    return whole


def _args(event: _Event) -> str:
    text = bytes(event.args)
    return text.decode() if text[:1] == b"{" else _NO_ARGS

"""Events of other tools' timelines besides kernels: host calls, communication, overlap, counters, instants.

Without a timeline, the tables of a database provide slices. Events are stored as text, in the order of the file; a
temporary table on the disk puts them in the order of time. Memory holds the names of processes, threads and layers, and
one page of events.
"""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from profagent.ascend.event_tables import slices_of_tables
from profagent.ascend.kernels import WITH_TASKS
from profagent.ascend.texts import decoded_events, event_times_ns
from profagent.store.database import run_script
from profagent.units import NS_PER_US

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
# Category of events that have none in their file.
_CATEGORY = "timeline"
_NO_ARGS = "{}"
# Timelines with all events of the other timelines beside them.
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
# Timelines of a session, block by block: family, path and JSON array of events.
_TIMELINES = """
SELECT f.family, l.shown_path, t.cells
FROM ascend_file f JOIN log l USING (log) JOIN ascend_block t ON t.log = f.log
WHERE f.session = ? AND f.kind = 'timeline' ORDER BY f.log, t.number
"""
_LAYERS = """
SELECT DISTINCT y.name FROM session_job s JOIN model m USING (job) JOIN layer y USING (model) WHERE s.session = ?
"""


class _StoredEvent(msgspec.Struct):
    """Event whose arguments remain text."""

    name: str = ""
    ph: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: Any = None
    dur: Any = 0
    cat: str = ""
    args: msgspec.Raw = msgspec.Raw(_NO_ARGS.encode())


_EVENTS: Final = msgspec.json.Decoder(list[_StoredEvent])
_ODD: Final = _StoredEvent()


class _TimelineProcess(NamedTuple):
    """Process of a timeline. `place` is the timeline's file, or the folder of files that continue each other."""

    place: str
    pid: str
    is_whole: bool


class _TimelineTrack(NamedTuple):
    """Slices or instants of a thread, or a counter; `of` is the thread, or the name of the counter."""

    phase: str
    process: _TimelineProcess
    of: str


def gather(connection: sqlite3.Connection, session: int) -> int:
    """Fill temporary tables with the events of a session that are none of its layers, and make views of them.

    Returns the number of events without a time.
    """
    run_script(connection, _TABLES)
    events = _SessionEvents(connection, session)
    events.gather()
    run_script(connection, _VIEWS.format(session=session))
    return events.unplaced


class _SessionEvents:
    """Events of a session's timelines that are none of its layers; `unplaced` counts events without a time."""

    def __init__(self, connection: sqlite3.Connection, session: int) -> None:
        self.unplaced = 0
        self._connection, self._session = connection, session
        # Number of each track, in the order of their first events.
        self._tracks: dict[_TimelineTrack, int] = {}
        # Names and labels from metadata events, by kind, process and thread.
        self._titles_by_key: dict[tuple[str, _TimelineProcess, str], str] = {}
        # Names of the session's layers, which the trace draws from records.
        self._layers = {name for (name,) in connection.execute(_LAYERS, (session,))}

    def gather(self) -> None:
        self._gather_timelines()
        if not any(track.process.is_whole for track in self._tracks):
            self._gather_tables()
        # Names of processes may follow their events, so duplicates are known only at the end.
        self._drop_duplicates()
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
            found = self._rows(events, {pid: _TimelineProcess(place, str(pid), is_whole) for pid in pids})
            self._connection.executemany(_ADD, found)

    def _gather_tables(self) -> None:
        for slices in slices_of_tables(self._connection, self._session):
            found = [self._row(each) for each in slices if each.start_ns >= 0]
            self.unplaced += len(slices) - len(found)
            self._connection.executemany(_ADD, found)

    def _rows(self, events: Sequence[_StoredEvent], processes: Mapping[Any, _TimelineProcess]) -> list[Row]:
        tracks: list[int] = []
        shown: list[_StoredEvent] = []
        known: dict[tuple[Any, ...], int] = {}
        for event in events:
            phase = _PHASES.get(event.ph)
            if phase == _METADATA:
                self._take_name(processes[event.pid], event)
            elif phase is not None and not self._is_layer(processes[event.pid], event):
                of = event.name if phase == _COUNTER else event.tid
                key = phase, event.pid, of
                if key not in known:
                    track = _TimelineTrack(phase, processes[event.pid], str(of))
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
        process = _TimelineProcess(each.database, f"{each.process} {each.device}", is_whole=False)
        self._titles_by_key["process_name", process, ""] = each.process
        self._titles_by_key["thread_name", process, each.thread] = each.thread
        if each.device:
            self._titles_by_key["process_labels", process, ""] = f"NPU {each.device}"
        track = self._tracks.setdefault(_TimelineTrack(_SLICE, process, each.thread), len(self._tracks))
        return track, each.start_ns, each.end_ns, each.name, _CATEGORY, each.args

    def _take_name(self, process: _TimelineProcess, event: _StoredEvent) -> None:
        if event.name in _NAMES and isinstance(names := msgspec.json.decode(event.args), dict):
            of = str(event.tid) if event.name == "thread_name" else ""
            if text := names.get("name", names.get("labels")):
                self._titles_by_key.setdefault((event.name, process, of), str(text))

    def _is_layer(self, process: _TimelineProcess, event: _StoredEvent) -> bool:
        return event.name in self._layers and b'"Task Type"' in bytes(event.args) and self._name(process) in WITH_TASKS

    def _name(self, process: _TimelineProcess) -> str | None:
        return self._titles_by_key.get(("process_name", process, ""))

    def _drop_duplicates(self) -> None:
        """Drop the tracks of processes that a whole timeline has, too."""
        whole = {self._name(track.process) for track in self._tracks if track.process.is_whole} - {None}
        twice = [track for track in self._tracks if not track.process.is_whole and self._name(track.process) in whole]
        numbers = [(self._tracks.pop(track),) for track in twice]
        self._connection.executemany("DELETE FROM temp.ascend_event WHERE track = ?", numbers)

    def _titles(self) -> tuple[dict[_TimelineProcess, str], dict[tuple[_TimelineProcess, str], str]]:
        forms: dict[_TimelineProcess, tuple[str, ...]] = {}
        of_threads: dict[_TimelineProcess, dict[tuple[_TimelineProcess, str], tuple[str, ...]]] = {}
        for phase, process, thread in self._tracks:
            name = self._name(process) or f"process {process.pid}"
            label = self._titles_by_key.get(("process_labels", process, ""), process.pid)
            forms[process] = name, f"{name} ({label})", f"{name} ({process.place}, {process.pid})"
            if phase != _COUNTER:
                name = self._titles_by_key.get(("thread_name", process, thread), f"thread {thread}")
                of_threads.setdefault(process, {})[process, thread] = name, f"{name} ({thread})"
        threads = {key: title for each in of_threads.values() for key, title in _distinct_titles(each).items()}
        return _distinct_titles(forms), threads


def _distinct_titles(forms: Mapping[Key, tuple[str, ...]]) -> dict[Key, str]:
    """Return for each key the first of its forms that no other key has."""
    known = Counter(form for each in forms.values() for form in set(each))
    return {key: next((form for form in each if known[form] == 1), each[-1]) for key, each in forms.items()}


def _durations_ns(values: Sequence[Any]) -> NDArray[np.int64]:
    try:
        found = np.nan_to_num(np.array(values, np.float64))
    except (TypeError, ValueError):
        found = event_times_ns(values) / NS_PER_US
    whole: NDArray[np.int64] = np.rint(np.maximum(found, 0.0) * NS_PER_US).astype(np.int64)
    return whole


def _args(event: _StoredEvent) -> str:
    text = bytes(event.args)
    return text.decode() if text[:1] == b"{" else _NO_ARGS

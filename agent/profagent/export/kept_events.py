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

from profagent.ascend.kernels import WITH_TASKS
from profagent.ascend.texts import decoded_events, event_times_ns
from profagent.export.blocks import NO_ARGS, NS_PER_US, Counters, Instants, Label, Labels, Series, Slices, integers
from profagent.export.kept_tables import slices_of_tables
from profagent.ingest.ascend import TIMELINES
from profagent.store.database import fetched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from typing import Final

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.export.blocks import Block, Clock
    from profagent.export.kept_tables import TableSlice
    from profagent.export.tracks import Tracks
    from profagent.store.database import Row

Key = TypeVar("Key")
SLICE, INSTANT, COUNTER, METADATA = "X", "i", "C", "M"
_PHASES = {"X": SLICE, "i": INSTANT, "I": INSTANT, "C": COUNTER, "M": METADATA}
_NAMES = frozenset({"process_name", "process_labels", "thread_name"})
# What an event is called whose file gives it no category.
CATEGORY = "timeline"
# The timelines beside them have nothing that these do not have.
_WHOLE = frozenset({"msprof", "trace_view"})
_TABLE = """
CREATE TEMP TABLE kept_event (track INTEGER, start_ns INTEGER, end_ns INTEGER, name TEXT, category TEXT, args TEXT)
"""
_ADD = "INSERT INTO temp.kept_event VALUES (?, ?, ?, ?, ?, ?)"
_LAYERS = """
SELECT DISTINCT y.name FROM session_job s JOIN model m USING (job) JOIN layer y USING (model) WHERE s.session = ?
"""
_IN_TIME = "FROM temp.kept_event WHERE end_ns / 1000 >= :from_us AND start_ns / 1000 <= :to_us"
# All of them, as other sources tell theirs: when each began, in µs.
KEPT = f"SELECT start_ns / 1000 AS start_us {_IN_TIME}"
_SHOWN = f"SELECT * {_IN_TIME} ORDER BY track, start_ns, end_ns DESC, rowid"


class _Event(msgspec.Struct):
    """An event, with its arguments as they are written."""

    name: str = ""
    ph: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: Any = None
    dur: Any = 0
    cat: str = ""
    args: msgspec.Raw = msgspec.Raw(NO_ARGS.encode())


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


class KeptEvents:
    """The events of a session's timelines that are none of its layers. `gather` comes first."""

    def __init__(self, connection: aiosqlite.Connection, session: int) -> None:
        self.unplaced = 0
        """How many have no time, once they are gathered."""
        self._connection, self._session = connection, session
        self._tracks: dict[_Track, int] = {}
        # What metadata events say of processes, and of threads.
        self._said: dict[tuple[str, _Process, str], str] = {}
        self._layers: set[str] = set()

    async def gather(self) -> None:
        """Find the events and put them in order."""
        await self._connection.execute("DROP TABLE IF EXISTS temp.kept_event")
        await self._connection.execute(_TABLE)
        self._layers = {name for (name,) in await fetched(self._connection, _LAYERS, (self._session,))}
        await self._gather_timelines()
        if not any(track.process.is_whole for track in self._tracks):
            await self._gather_tables()
        await self._drop_what_is_there_twice()

    async def _gather_timelines(self) -> None:
        cursor = await self._connection.execute(TIMELINES, (self._session,))
        while block := await cursor.fetchone():
            family, path, cells = block
            is_whole = family in _WHOLE
            place = str(PurePosixPath(path).parent) if is_whole else path
            events = decoded_events(cells, _EVENTS, _ODD)
            self.unplaced += sum(event is _ODD for event in events)
            pids = {event.pid for event in events}
            found = self._rows(events, {pid: _Process(place, str(pid), is_whole) for pid in pids})
            await self._connection.executemany(_ADD, found)

    async def _gather_tables(self) -> None:
        async for slices in slices_of_tables(self._connection, self._session):
            found = [self._row(each) for each in slices if each.start_ns >= 0]
            self.unplaced += len(slices) - len(found)
            await self._connection.executemany(_ADD, found)

    def _rows(self, events: Sequence[_Event], processes: Mapping[Any, _Process]) -> list[Row]:
        tracks: list[int] = []
        shown: list[_Event] = []
        known: dict[tuple[Any, ...], int] = {}
        for event in events:
            phase = _PHASES.get(event.ph)
            if phase == METADATA:
                self._take_name(processes[event.pid], event)
            elif phase is not None and not self._is_layer(processes[event.pid], event):
                of = event.name if phase == COUNTER else event.tid
                key = phase, event.pid, of
                if key not in known:
                    track = _Track(phase, processes[event.pid], str(of))
                    known[key] = self._tracks.setdefault(track, len(self._tracks))
                tracks.append(known[key])
                shown.append(event)
        starts = event_times_ns([event.ts for event in shown])
        ends = starts + _durations_ns([event.dur for event in shown])
        rows = [
            (track, start, end, event.name, event.cat or CATEGORY, _args(event))
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
        track = self._tracks.setdefault(_Track(SLICE, process, each.thread), len(self._tracks))
        return track, each.start_ns, each.end_ns, each.name, CATEGORY, each.args

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

    async def _drop_what_is_there_twice(self) -> None:
        """Of several timelines that have a process, one is shown."""
        whole = {self._name(track.process) for track in self._tracks if track.process.is_whole} - {None}
        twice = [track for track in self._tracks if not track.process.is_whole and self._name(track.process) in whole]
        numbers = [(self._tracks.pop(track),) for track in twice]
        await self._connection.executemany("DELETE FROM temp.kept_event WHERE track = ?", numbers)

    async def blocks(
        self,
        read: Callable[[str, Callable[[Row], int]], AsyncIterator[tuple[int, list[Row]]]],
        clock: Clock,
        tracks: Tracks,
        title: Callable[[str], str],
    ) -> AsyncIterator[Block]:
        """All of them, a track after the other; `read` gives the rows of a query by a key, a page at most."""
        processes, threads = self._titles()
        by_number = {number: track for track, number in self._tracks.items()}
        async for number, rows in read(_SHOWN, lambda row: row[0]):
            phase, process, thread = by_number[number]
            starts, ends = (_after_origin(clock, [row[column] for row in rows]) for column in (1, 2))
            if phase == COUNTER:
                for block in _counters(tracks.process(title(processes[process])), rows, starts):
                    yield block
                continue
            place = title(processes[process]), threads[process, thread]
            labels = Labels()
            label = integers([labels.of(Label(*row[3:])) for row in rows])
            if phase == SLICE:
                yield Slices(labels.all, label, tracks.take_all(*place, starts, ends), starts, ends)
            else:
                yield Instants(labels.all, label, np.full(len(rows), tracks.first(*place)), starts, "t")

    def _titles(self) -> tuple[dict[_Process, str], dict[tuple[_Process, str], str]]:
        """What processes and threads are called: each another name."""
        forms: dict[_Process, tuple[str, ...]] = {}
        of_threads: dict[_Process, dict[tuple[_Process, str], tuple[str, ...]]] = {}
        for phase, process, thread in self._tracks:
            name = self._name(process) or f"process {process.pid}"
            label = self._said.get(("process_labels", process, ""), process.pid)
            forms[process] = name, f"{name} ({label})", f"{name} ({process.place}, {process.pid})"
            if phase != COUNTER:
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
    return text.decode() if text[:1] == b"{" else NO_ARGS


def _after_origin(clock: Clock, times_ns: Sequence[int]) -> NDArray[np.int64]:
    """Times in the trace; a float has no room for the nanoseconds of a time since 1970."""
    whole_us, rest_ns = np.divmod(integers(times_ns), NS_PER_US)
    return clock.column_ns(whole_us.astype(np.float64)) + rest_ns


def _counters(pid: int, rows: Sequence[Row], starts: NDArray[np.int64]) -> Iterator[Counters]:
    """Changes of a counter, a block for those with the same values."""
    found: dict[tuple[str, ...], list[tuple[int, list[float]]]] = {}
    for row, at_ns in zip(rows, starts.tolist(), strict=True):
        values = {key: float(value) for key, value in msgspec.json.decode(row[5]).items() if _is_number(value)}
        if values:
            found.setdefault(tuple(values), []).append((at_ns, [*values.values()]))
    for names, changes in found.items():
        series = tuple(Series(pid, rows[0][3], each) for each in names)
        times, values_of = zip(*changes, strict=True)
        yield Counters([series], np.zeros(len(times), np.int64), integers(times), np.array(values_of, np.float64))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

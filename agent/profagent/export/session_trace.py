"""Events of one session for the merged trace: everything that its views have, track by track."""

from __future__ import annotations

import functools
import json
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from profagent.export.blocks import (
    NO_ARGS,
    Counters,
    Flow,
    Instants,
    Label,
    Labels,
    Series,
    Slices,
    args_text,
    integers,
)
from profagent.export.frame_blocks import frame_slices
from profagent.export.inference_blocks import COLUMNS, WITH_RATIOS, InferenceBlocks
from profagent.formats.names import model_text
from profagent.ingest.source import drawn_views
from profagent.store.database import fetched, fetched_one, pages
from profagent.store.frames import frames_of, has_numbered_frames
from profagent.store.queries import Scope, jobs_of, layers_of
from profagent.store.selection import Choice, Selection
from profagent.tables.table import UNKNOWN
from profagent.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Sequence

    from numpy.typing import NDArray

    from profagent.export.blocks import Block, TraceClock
    from profagent.export.tracks import Tracks
    from profagent.ingest.source import View
    from profagent.store.database import Row
    from profagent.store.inference_pages import InferenceSpan, PageReader
    from profagent.store.queries import LayerRow, SessionRow

Key = TypeVar("Key")
EVER = (-1, 2**62)
# Slices that execute an inference, with the model that they execute.
_EXECUTED_TABLE = """
CREATE TEMP TABLE executed (
    executes TEXT, start_us NUMERIC, end_us NUMERIC, is_async INTEGER, of_process TEXT, of_track TEXT)
"""
_INSERT_EXECUTED = """
INSERT INTO temp.executed SELECT executes, start_us, end_us, is_async, of_process, of_track FROM ({})
WHERE executes IS NOT NULL
"""
# For each inference, the slice that executed it.
_FLOW_TABLE = """
CREATE TEMP TABLE flow (
    inference INTEGER PRIMARY KEY, executed_us NUMERIC, executed_process TEXT, executed_track TEXT)
"""
# The latest slice that began before the inference executed it. An asynchronous slice may end before its inference
# begins.
_INSERT_FLOWS = """
INSERT INTO temp.flow SELECT c.inference, e.start_us, e.of_process, e.of_track
FROM temp.chosen c JOIN inference i USING (inference) JOIN temp.executed e ON e.rowid = (
    SELECT x.rowid FROM temp.executed x
    WHERE x.executes = json_array(:job, :model, :model_id) AND x.start_us <= i.start_us
    ORDER BY x.start_us DESC LIMIT 1)
WHERE c.position BETWEEN :first AND :last AND (e.is_async OR e.end_us >= i.start_us)
AND EXISTS (SELECT 1 FROM segment g WHERE g.inference = c.inference)
"""
_FLOWS = """
SELECT f.inference FROM temp.flow f JOIN temp.chosen c USING (inference) WHERE c.position BETWEEN :first AND :last
"""
_LOSSES = """
SELECT coalesce(j.name, k.job_name), l.shown_path, e.reason, e.detail, e.count,
       coalesce(k.from_us, k.to_us, (SELECT min(start_us) FROM segment g WHERE g.log = e.log))
FROM ledger_entry e LEFT JOIN kept_loss k USING (entry) LEFT JOIN job j ON j.job = e.job LEFT JOIN log l USING (log)
WHERE e.session = ? AND e.grade = 'loss' ORDER BY e.entry
"""


class TraceSelection(NamedTuple):
    """Part of a session: each model's last inferences and what ran meanwhile, or what ran in a time.

    None leaves a bound open.
    """

    last: int | None = None
    from_us: int | None = None
    to_us: int | None = None


class SessionTrace:
    """Events of a session. Call `plan` before `blocks`; `unplaced` counts records without a known place in time."""

    def __init__(self, reader: PageReader, session: SessionRow, title: str, wanted: TraceSelection) -> None:
        self.session = session
        self.unplaced = 0
        self.rows = self.rows_done = 0
        """Number of inferences, calls and other rows, known after `plan`, and how many of them were read."""
        self._reader, self._connection = reader, reader.connection
        # Title of the session, which all its processes carry in their names.
        self._title = title
        self._choice = Choice(last=wanted.last, from_us=wanted.from_us, to_us=wanted.to_us)
        self._from_us = EVER[0] if wanted.from_us is None else wanted.from_us
        self._to_us = EVER[1] if wanted.to_us is None else wanted.to_us
        # JOBs of the session, in the order of their tracks.
        self._scopes: list[Scope] = []
        # Latest selection; the database holds the rows of one selection at a time, in temp.chosen.
        self._chosen: tuple[Scope, Selection] | None = None
        # Views that draw events, and views that draw counters; both are found by `plan`.
        self._events_views: list[View] = []
        self._counters_views: list[View] = []

    async def plan(self) -> float | None:
        """Find what the session has, and return its earliest time by the board's clock, or None if it is empty."""
        number = self.session.session
        self._scopes = [Scope(self.session, job) for job in await jobs_of(self._connection, number)]
        earliest: list[float | None] = []
        ends: list[int] = []
        for scope in self._scopes:
            selection = await self._choose(scope)
            await self._reader.start_processes()
            earliest.append(await selection.earliest_us())
            self.rows += await selection.count()
            (end,) = await fetched_one(
                self._connection, "SELECT max(end_us) FROM temp.chosen JOIN inference USING (inference)"
            )
            ends += [end] if end is not None else []
        # What ran beside the last inferences is drawn too: the time of these bounds all other events.
        if self._choice.last is not None and ends:
            self._from_us = int(min(time for time in earliest if time is not None))
            self._to_us = max(ends)
        views, unplaced = await self._connection.run(functools.partial(drawn_views, number))
        self.unplaced += unplaced
        self._events_views = [view for view in views if view.events is not None]
        self._counters_views = [view for view in views if view.counters is not None]
        # A connection that had planned another trace still has its temporary tables.
        for table in ("executed", "flow"):
            await self._connection.execute(f"DROP TABLE IF EXISTS temp.{table}")
        await self._connection.execute(_EXECUTED_TABLE)
        await self._connection.execute(_FLOW_TABLE)
        for view in self._events_views:
            await self._connection.execute(_INSERT_EXECUTED.format(_events_query(view)), self._parameters)
        await self._connection.execute("CREATE INDEX temp.executed_by ON executed (executes, start_us)")
        queries = (*map(_events_query, self._events_views), *map(_counters_query, self._counters_views))
        begins = [await fetched_one(self._connection, _earliest(query), self._parameters) for query in queries]
        earliest += [begin for begin, _ in begins]
        self.rows += sum(count for _, count in begins)
        earliest += [row[-1] for row in await self._selected_losses()]
        return min((time for time in earliest if time is not None), default=None)

    async def blocks(self, clock: TraceClock, tracks: Tracks) -> AsyncIterator[Block]:
        """Yield all events as blocks, track by track."""
        for scope in self._scopes:
            async for block in self._inferences(scope, clock, tracks):
                yield block
        # All inferences are read: the views below are read on the connection of this process.
        self._reader.end_processes()
        # The rows of temp.flow came with the inferences, so arrows are complete only from here on.
        await self._connection.execute("CREATE INDEX IF NOT EXISTS temp.flow_by ON flow (executed_us)")
        for view in self._events_views:
            async for block in self._events(view, clock, tracks):
                yield block
        async for block in self._frames(clock, tracks):
            yield block
        for view in self._counters_views:
            async for block in self._counters(view, clock, tracks):
                yield block
        async for block in self._losses(clock, tracks):
            yield block

    @property
    def _parameters(self) -> dict[str, int]:
        return {"session": self.session.session, "from_us": self._from_us, "to_us": self._to_us}

    def _process(self, what: str) -> str:
        # Viewers cut long names, so the part that differs between processes comes first.
        return f"{what} ({self._title})"

    async def _row_groups(self, sql: str, key: Callable[[Row], Key]) -> AsyncIterator[tuple[Key, list[Row]]]:
        async for page in pages(self._connection, sql, self._parameters):
            self.rows_done += len(page)
            # A group that crosses the end of a page is yielded in two parts, so that memory stays bounded.
            for found, rows in groupby(page, key):
                yield found, [*rows]

    async def _inferences(self, scope: Scope, clock: TraceClock, tracks: Tracks) -> AsyncIterator[Block]:
        await self._choose(scope)
        await self._reader.start_processes()
        layers: dict[int, dict[int, LayerRow]] = {}
        names = COLUMNS if self.session.counter_map is None else WITH_RATIOS
        make = functools.partial(InferenceBlocks, clock=clock, frequency_mhz=scope.job.frequency_mhz)
        async for page in self._reader.pages(make, names):
            self.rows_done += len(page.spans)
            first, last = page.spans[0], page.spans[-1]
            if first.model not in layers:
                layers = {first.model: await layers_of(self._connection, first.model)}
            self.unplaced += page.unplaced
            process = self._process(f"NPU {first.device_id}, {model_text(first.model_name, first.model_id)}")
            executed = await self._executed(scope, first, last)
            for block in page.blocks(tracks, process, layers[first.model], executed):
                yield block

    async def _choose(self, scope: Scope) -> Selection:
        # A session with one JOB is selected once, for `plan` and `blocks`.
        if self._chosen is None or self._chosen[0] != scope:
            self._chosen = scope, await Selection.of(self._connection, scope, self._choice)
        return self._chosen[1]

    async def _executed(self, scope: Scope, first: InferenceSpan, last: InferenceSpan) -> Collection[int]:
        """Return the inferences of a page that a slice executed, and insert these slices into temp.flow."""
        keys = {"first": first.position, "last": last.position}
        model = {"job": scope.job.name, "model": first.model_name, "model_id": first.model_id}
        await self._connection.execute(_INSERT_FLOWS, keys | model)
        return {number for (number,) in await fetched(self._connection, _FLOWS, keys)}

    async def _events(self, view: View, clock: TraceClock, tracks: Tracks) -> AsyncIterator[Block]:
        drawn = view.events
        assert drawn is not None
        query = f"{_events_query(view)} ORDER BY {drawn.order}, of_track, is_instant"
        query += ", start_us, start_rest_ns, end_us DESC, end_rest_ns DESC"
        async for (process, track, is_instant), rows in self._row_groups(query, itemgetter(0, 1, 2)):
            place = self._process(process), track
            labels = _labels([row[11:] for row in rows], functools.partial(_event_label, [*drawn.arguments]))
            if is_instant:
                track_of = np.full(len(rows), tracks.first(*place))
                yield Instants(*labels, track_of, _times_ns(clock, [row[3:5] for row in rows]), "t")
            else:
                starts, ends = (_times_ns(clock, [row[at : at + 2] for row in rows]) for at in (3, 5))
                lanes = None if rows[0][7] is None else [row[7] for row in rows]
                # A slice whose end lies before its start is drawn with no length.
                ends = np.maximum(starts, ends)
                slices = Slices(*labels, tracks.take_all(*place, starts, ends, lanes), starts, ends)
                arrows = ((at, row[10].split(",")) for at, row in enumerate(rows) if row[10])
                yield slices._replace(flows=tuple(Flow(at, "s", int(each)) for at, found in arrows for each in found))

    async def _frames(self, clock: TraceClock, tracks: Tracks) -> AsyncIterator[Block]:
        """Yield a slice for each frame that has a number, and one within it for each of its parts."""
        if not await has_numbered_frames(self._connection, self.session.session):
            return
        first_ns, last_ns = self._from_us * NS_PER_US, self._to_us * NS_PER_US
        frames = await frames_of(self._connection, self.session.session)
        async for page in frames.pages():
            drawn = [each for each in page if each.end_ns >= first_ns and each.begin_ns <= last_ns]
            if drawn:
                drawn.sort(key=lambda each: each.begin_ns)
                yield frame_slices(drawn, (first_ns, last_ns), self._process, clock, tracks)

    async def _counters(self, view: View, clock: TraceClock, tracks: Tracks) -> AsyncIterator[Block]:
        assert view.counters is not None
        values_of = _numbers_of if view.counters.is_object else _value_of
        async for page in pages(self._connection, _counters_query(view), self._parameters):
            self.rows_done += len(page)
            for names, (rows, values) in values_of(page).items():
                kinds: dict[tuple[str, str, str], int] = {}
                kind = integers([kinds.setdefault(row[:3], len(kinds)) for row in rows])
                series = [
                    tuple(Series(tracks.process(self._process(process)), name, each, unit) for each in names)
                    for process, name, unit in kinds
                ]
                yield Counters(series, kind, _times_ns(clock, [row[3:5] for row in rows]), values)

    async def _losses(self, clock: TraceClock, tracks: Tracks) -> AsyncIterator[Block]:
        labels, times_ns = [], []
        for job, log, reason, detail, count, time_us in await self._selected_losses():
            args = {"job": job, "log": log, "detail": detail, "count": count}
            # A loss without a known time is drawn at the origin, and its arguments say so.
            if time_us is None:
                args["time"] = UNKNOWN
            labels.append(Label(reason, "loss", args_text(args)))
            times_ns.append(0 if time_us is None else clock.ns(time_us))
        if labels:
            track = tracks.first(self._process("ledger"), "losses")
            columns = np.arange(len(labels)), np.full(len(labels), track), integers(times_ns)
            yield Instants(labels, *columns, "g")

    async def _selected_losses(self) -> list[Row]:
        rows = await fetched(self._connection, _LOSSES, (self.session.session,))
        # A loss without a known time may belong to any time, so every selection has it.
        return [row for row in rows if row[-1] is None or self._from_us <= row[-1] <= self._to_us]


def _earliest(query: str) -> str:
    return f"SELECT min(start_us), count(*) FROM ({query})"  # noqa: S608 - a constant


def _events_query(view: View) -> str:
    """Return SQL for the process, track, kind, times and lane of a view's events, what they execute, and their label.

    The label is a name, a category and arguments. `flows` are the inferences that the slice executed.
    """
    drawn = view.events
    assert drawn is not None
    arguments = "".join(f", {sql} AS argument_{place}" for place, sql in enumerate(drawn.arguments.values()))
    flows = (
        f"CASE WHEN {drawn.executes} IS NOT NULL THEN (SELECT group_concat(inference) FROM temp.flow"  # noqa: S608 - ours
        f" WHERE executed_us = {drawn.start_us} AND executed_process = {drawn.process}"
        f" AND executed_track = {drawn.track}) END"
    )
    return (
        f"SELECT {drawn.process} AS of_process, {drawn.track} AS of_track, {drawn.is_instant} AS is_instant,"  # noqa: S608 - ours
        f" {drawn.start_us} AS start_us, {drawn.start_rest_ns} AS start_rest_ns, {drawn.end_us} AS end_us,"
        f" {drawn.end_rest_ns} AS end_rest_ns, {drawn.apart} AS lane_apart, {drawn.executes} AS executes,"
        f" {drawn.is_async} AS is_async, {flows} AS flows, {drawn.name} AS label, {drawn.category} AS category,"
        f" {drawn.attributes} AS of_label{arguments} FROM {view.name}"
        f" WHERE session = :session AND {drawn.end_us} >= :from_us AND {drawn.start_us} <= :to_us"
    )


def _counters_query(view: View) -> str:
    drawn = view.counters
    assert drawn is not None
    return (
        f"SELECT {drawn.process} AS of_process, {drawn.name} AS name, {drawn.unit} AS unit,"  # noqa: S608 - ours
        f" {drawn.time_us} AS start_us, {drawn.rest_ns} AS rest_ns, {drawn.value} AS value FROM {view.name}"
        f" WHERE session = :session AND {drawn.time_us} >= :from_us AND {drawn.time_us} <= :to_us"
        f" ORDER BY {drawn.order}"
    )


# Rows and values of counters that are drawn as one chart, by the names of the counters.
_Values = dict[tuple[str, ...], tuple[list["Row"], "NDArray[np.float64]"]]


def _value_of(page: list[Row]) -> _Values:
    return {("value",): (page, np.array([row[5:] for row in page], np.float64))}


def _numbers_of(page: list[Row]) -> _Values:
    found: dict[tuple[str, ...], tuple[list[Row], list[list[float]]]] = {}
    for row in page:
        # `bool` is a subclass of int, and no number.
        numbers = {key: float(value) for key, value in json.loads(row[5]).items() if type(value) in (int, float)}
        if numbers:
            rows, values = found.setdefault(tuple(numbers), ([], []))
            rows.append(row)
            values.append([*numbers.values()])
    return {names: (rows, np.array(values, np.float64)) for names, (rows, values) in found.items()}


def _event_label(names: Sequence[str], row: Row) -> Label:
    label, category, attributes, *values = row
    if not names:
        return Label(label, category, attributes)
    arguments = {} if attributes == NO_ARGS else json.loads(attributes)
    arguments |= {name: value for name, value in zip(names, values, strict=True) if value is not None}
    return Label(label, category, args_text(arguments))


def _labels(rows: Sequence[Row], make: Callable[[Row], Label]) -> tuple[Sequence[Label], NDArray[np.int64]]:
    numbers: dict[Row, int] = {}
    number = integers([numbers.setdefault(row, len(numbers)) for row in rows])
    found = Labels()
    label = integers([found.of(make(row)) for row in numbers])
    return found.all, label[number]


def _times_ns(clock: TraceClock, times: Sequence[Row]) -> NDArray[np.int64]:
    # The two parts come apart because a float cannot hold ns since 1970.
    time_us, rest_ns = zip(*times, strict=True)
    return clock.column_ns(time_us) + integers(rest_ns)

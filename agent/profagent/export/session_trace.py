"""The events of one session for the merged trace: all that its views have, a track after the other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.cli.table import UNKNOWN
from profagent.export.slices import NS_PER_US, Event
from profagent.formats.countermap import RATIOS
from profagent.store.database import fetched, fetched_one, pages
from profagent.store.queries import Scope, jobs_of, layers_of
from profagent.store.selection import Choice, Selection
from profagent.store.sources import views_there

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    import aiosqlite

    from profagent.export.slices import Clock, Tracks
    from profagent.store.queries import LayerRow, SessionRow
    from profagent.store.selection import PlacedRow, SpanRow

# A `.done` has whole µs: neighbours may seem to overlap by less than one.
SLACK_NS = 1000
EVER = (-1, 2**62)
_CALLS = """
SELECT m.model, ifnull(n.name, 'unknown(' || r.api || ')') AS name, ifnull(n.type, 'N/A') AS type, r.pid, r.tid,
       r.begin_us AS start_us, r.end_us
FROM part p JOIN log l USING (log) JOIN model m USING (model)
JOIN api r ON r.record BETWEEN p.part << 24 AND (p.part << 24) + 0xFFFFFF LEFT JOIN api_name n USING (api)
WHERE p.session = :session AND l.kind = 'acl_api' AND r.begin_us > 0 AND r.end_us >= :from_us
AND r.begin_us <= min(:to_us, r.end_us)
"""
_EXECUTED = f"""
CREATE TEMP TABLE executed AS SELECT model, start_us, end_us, pid, tid, name LIKE '%async' AS is_async
FROM ({_CALLS}) WHERE name LIKE 'svp_acl_mdl_execute%'
"""  # noqa: S608 - a constant
_EXECUTING = """
SELECT start_us, end_us, pid, tid, is_async FROM temp.executed WHERE model = ? AND start_us <= ?
ORDER BY start_us DESC LIMIT 1
"""
_IN_TIME = " FROM {} WHERE session = :session AND {} >= :from_us AND {} <= :to_us "
_RANGES = (
    "SELECT process, thread, CASE WHEN kind = 'step' THEN 'steps' WHEN lane = 0 THEN 'spans' WHEN kind = 'range'"
    " THEN 'ranges' ELSE 'tasks' END AS track, kind, name, attributes, start_us, end_us, lane"
    + _IN_TIME.format("ranges", "end_us", "start_us")
)
_OPS = "SELECT source, model_id, op_type, op_name, start_us, end_us, duration_us, sequence" + _IN_TIME.format(
    "op_events", "end_us", "start_us"
)
_METRICS = "SELECT name, unit, time_us AS start_us, value" + _IN_TIME.format("metrics", "time_us", "time_us")
_OF_VIEWS = {"ranges": _RANGES, "op_events": _OPS, "metrics": _METRICS}
_LOSSES = """
SELECT coalesce(j.name, k.job_name), l.shown_path, e.reason, e.detail, e.count,
       coalesce(k.from_us, k.to_us, (SELECT min(start_us) FROM segment g WHERE g.log = e.log))
FROM ledger_entry e LEFT JOIN kept_loss k USING (entry) LEFT JOIN job j ON j.job = e.job LEFT JOIN log l USING (log)
WHERE e.session = ? AND e.grade = 'loss' ORDER BY e.entry
"""


class Wanted(NamedTuple):
    """What of a session: each model's last inferences and what ran meanwhile, or what ran in a time; None is all."""

    last: int | None = None
    from_us: int | None = None
    to_us: int | None = None


class SessionTrace:
    """A session's events. `plan` comes first; `unplaced` counts what has no known place in time."""

    def __init__(self, connection: aiosqlite.Connection, session: SessionRow, title: str, wanted: Wanted) -> None:
        self.session = session
        self.unplaced = 0
        self.rows = self.rows_done = 0
        """How many inferences, calls and other rows there are, once it is planned, and how many were read."""
        self._connection = connection
        self._title = title + (" [simulated]" if session.simulated else "")
        self._choice = Choice(last=wanted.last, from_us=wanted.from_us, to_us=wanted.to_us)
        self._from_us = EVER[0] if wanted.from_us is None else wanted.from_us
        self._to_us = EVER[1] if wanted.to_us is None else wanted.to_us
        self._scopes: list[Scope] = []

    async def plan(self) -> float | None:
        """Find what there is; the earliest moment of it by the board's clock, None where there is nothing."""
        number = self.session.session
        self._scopes = [Scope(self.session, job) for job in await jobs_of(self._connection, number)]
        earliest: list[float | None] = []
        ends: list[int] = []
        for scope in self._scopes:
            selection = await Selection.of(self._connection, scope, self._choice)
            earliest.append(await selection.earliest_us())
            self.rows += await selection.count()
            (end,) = await fetched_one(
                self._connection, "SELECT max(end_us) FROM temp.chosen JOIN inference USING (inference)"
            )
            ends += [end] if end is not None else []
        if self._choice.last is not None and ends:
            self._from_us = int(min(time for time in earliest if time is not None))
            self._to_us = max(ends)
        await self._connection.execute("DROP TABLE IF EXISTS temp.executed")
        await self._connection.execute(_EXECUTED, self._parameters)
        await self._connection.execute("CREATE INDEX temp.executed_by ON executed (model, start_us)")
        queries = [_CALLS, *[_OF_VIEWS[view] for view in await self._views()]]
        begins = [await fetched_one(self._connection, _earliest(query), self._parameters) for query in queries]
        earliest += [begin for begin, _ in begins]
        self.rows += sum(count for _, count in begins)
        return min((time for time in earliest if time is not None), default=None)

    async def events(self, clock: Clock, tracks: Tracks) -> AsyncIterator[Event]:
        """All events, a track after the other."""
        for scope in self._scopes:
            async for event in self._inferences(scope, clock, tracks):
                yield event
        async for event in self._calls(clock, tracks):
            yield event
        views = await self._views()
        of_views = {"ranges": self._ranges, "op_events": self._ops, "metrics": self._metrics}
        for view in views:
            async for event in of_views[view](clock, tracks):
                yield event
        for event in await self._losses(clock, tracks):
            yield event

    @property
    def _parameters(self) -> dict[str, int]:
        return {"session": self.session.session, "from_us": self._from_us, "to_us": self._to_us}

    async def _views(self) -> list[str]:
        there = (await views_there(self._connection)).values()
        return [view for view in _OF_VIEWS if view in there]

    def _process(self, what: str) -> str:
        return f"{self._title}: {what}"

    async def _rows(self, sql: str) -> AsyncIterator[tuple[Any, ...]]:
        async for page in pages(self._connection, sql, self._parameters):
            for row in page:
                self.rows_done += 1
                yield row

    async def _inferences(self, scope: Scope, clock: Clock, tracks: Tracks) -> AsyncIterator[Event]:
        selection = await Selection.of(self._connection, scope, self._choice)
        placed = selection.placed()
        layers: dict[int, dict[int, LayerRow]] = {}
        async for page in selection.spans():
            for span in page:
                if span.model not in layers:
                    layers[span.model] = await layers_of(self._connection, span.model)
                self.rows_done += 1
                inference = _Inference(span, await placed.at(span.position), layers[span.model], clock)
                self.unplaced += inference.unplaced
                process = self._process(f"NPU {span.device_id}, {span.model_name}.{span.model_id}")
                stream = "" if span.stream_id is None else f"stream {span.stream_id} "
                for event in inference.events(tracks, process, f"{stream}inferences"):
                    yield event
                for event in await self._flow(inference, clock, tracks):
                    yield event

    async def _flow(self, inference: _Inference, clock: Clock, tracks: Tracks) -> list[Event]:
        """An arrow from the call that executed an inference to each of its segments."""
        span, places = inference.span, inference.segment_places
        if span.start_us is None or not places:
            return []
        found = await fetched(self._connection, _EXECUTING, (span.model, span.start_us))
        # A call that does not wait for the NPU may end before it begins.
        if not found or not (found[0][4] or found[0][1] >= span.start_us):
            return []
        start_us, _, pid, tid, _ = found[0]
        caller = tracks.first(self._process(f"process {pid}"), f"thread {tid} calls")
        points = [(*caller, clock.ns(start_us)), *places]
        kinds = ["s", *["t"] * (len(places) - 1), "f"]
        return [
            Event(kind, "execute", pid, tid, ns / NS_PER_US, cat="execute", id=span.inference, bp="e")  # type: ignore[arg-type]
            for kind, (pid, tid, ns) in zip(kinds, points, strict=True)
        ]

    async def _calls(self, clock: Clock, tracks: Tracks) -> AsyncIterator[Event]:
        async for _, name, kind, pid, tid, start_us, end_us in self._rows(
            f"{_CALLS} ORDER BY r.pid, r.tid, r.begin_us, r.end_us DESC"
        ):
            place = (self._process(f"process {pid}"), f"thread {tid} calls")
            yield _slice(name, tracks, place, (clock.ns(start_us), clock.ns(end_us)), "call", {"type": kind})

    async def _ranges(self, clock: Clock, tracks: Tracks) -> AsyncIterator[Event]:
        query = f"{_RANGES} ORDER BY process, thread, track, start_us, end_us DESC"
        async for pid, tid, track, kind, name, attributes, start_us, end_us, lane in self._rows(query):
            place = (self._process(f"process {pid}"), f"thread {tid} {track}")
            args = {**json.loads(attributes), **({"lane": lane} if lane else {})}
            if kind == "mark":
                at = tracks.first(*place)
                yield Event("i", name, *at, clock.ns(start_us) / NS_PER_US, cat=kind, s="t", args=args)
            else:
                yield _slice(name, tracks, place, (clock.ns(start_us), clock.ns(end_us)), kind, args)

    async def _ops(self, clock: Clock, tracks: Tracks) -> AsyncIterator[Event]:
        query = f"{_OPS} ORDER BY source, model_id, start_us, end_us DESC"
        async for source, model_id, kind, name, start_us, end_us, _, sequence in self._rows(query):
            place = (self._process(f"subscription {source}"), f"model {model_id}")
            args = {"type": kind, "sequence": sequence}
            yield _slice(name, tracks, place, (clock.ns(start_us), clock.ns(end_us)), "op", args)

    async def _metrics(self, clock: Clock, tracks: Tracks) -> AsyncIterator[Event]:
        pid = tracks.process(self._process("metrics"))
        async for name, unit, time_us, value in self._rows(_METRICS):
            shown = f"{name} ({unit})" if unit else name
            yield Event("C", shown, pid, 0, clock.ns(time_us) / NS_PER_US, args={"value": value})

    async def _losses(self, clock: Clock, tracks: Tracks) -> Sequence[Event]:
        """Losses; one whose time is not known stands at the origin, and says so."""
        events = []
        for job, log, reason, detail, count, time_us in await fetched(
            self._connection, _LOSSES, (self.session.session,)
        ):
            args = {"job": job, "log": log, "detail": detail, "count": count}
            if time_us is None:
                args["time"] = UNKNOWN
            elif not self._from_us <= time_us <= self._to_us:
                continue
            at_us = 0.0 if time_us is None else clock.ns(time_us) / NS_PER_US
            at = tracks.first(self._process("ledger"), "losses")
            events.append(Event("i", reason, *at, at_us, cat="loss", s="g", args=args))
        return events


def _earliest(query: str) -> str:
    return f"SELECT min(start_us), count(*) FROM ({query})"  # noqa: S608 - a constant


def _slice(
    name: str,
    tracks: Tracks,
    place: tuple[str, str],
    span_ns: tuple[int, int],
    category: str,
    args: Mapping[str, Any],
) -> Event:
    start_ns, end_ns = span_ns[0], max(span_ns)
    at = tracks.take(*place, start_ns, end_ns)
    duration_us = (end_ns - start_ns) / NS_PER_US
    return Event("X", name, *at, start_ns / NS_PER_US, duration_us, cat=category, args=dict(args))


class _Segment:
    """A segment that holds its layers."""

    def __init__(self, first: PlacedRow) -> None:
        self.net, self.is_aicpu = first.net, first.is_aicpu
        self.times = (first.segment_start_us, first.segment_end_us)
        self.layers: list[tuple[int, int, PlacedRow]] = []
        self.start_ns = self.end_ns = 0


class _Inference:
    """An inference that holds its segments. Each holds what is in it, also where `.done` files are too coarse."""

    def __init__(self, span: SpanRow, rows: Sequence[PlacedRow], layers: Mapping[int, LayerRow], clock: Clock) -> None:
        self.span = span
        self.unplaced = 0
        self.segment_places: list[tuple[int, int, int]] = []
        """Process, track and start of each segment, once the events were made."""
        self._layers = layers
        self._segments: dict[int, _Segment] = {}
        for row in rows:
            if row.start_us is None or row.end_us is None or row.end_us < row.start_us:
                self.unplaced += 1
                continue
            segment = self._segments.setdefault(row.segment, _Segment(row))
            segment.layers.append((clock.ns(row.start_us), clock.ns(row.end_us), row))
        self._times = [clock.ns(time) for time in (span.start_us, span.end_us) if time is not None]
        for segment in self._segments.values():
            known = [clock.ns(time) for time in segment.times if time is not None]
            segment.start_ns = min([*known, *(start for start, _, _ in segment.layers)])
            segment.end_ns = max([*known, *(end for _, end, _ in segment.layers)])

    def events(self, tracks: Tracks, process: str, track: str) -> Iterator[Event]:
        """The inference, its segments in the order in which they ran, and the layers of each."""
        segments = sorted(self._segments.values(), key=lambda segment: (segment.start_ns, -segment.end_ns))
        times = [*self._times, *(each.start_ns for each in segments), *(each.end_ns for each in segments)]
        if not times:
            return
        args = {"current_pic_count": self.span.current_pic_count}
        yield _slice(
            f"inference {self.span.current_pic_count}",
            tracks, (process, track), (min(times), max(times)), "inference", args,
        )  # fmt: skip
        before_ns = min(times)
        for segment in segments:
            if segment.start_ns < before_ns <= segment.start_ns + SLACK_NS:
                segment.start_ns = min(before_ns, segment.end_ns)
            before_ns = segment.end_ns
            yield from self._segment(segment, tracks, process, track)
        if any(ratio is not None for segment in segments for _, _, row in segment.layers for ratio in row.ratios):
            pid = tracks.process(process)
            yield Event("C", "PMU", pid, 0, max(times) / NS_PER_US, args=dict.fromkeys(RATIOS, 0.0))

    def _segment(self, segment: _Segment, tracks: Tracks, process: str, track: str) -> Iterator[Event]:
        unit = "CPU" if segment.is_aicpu else "NPU"
        name, category = f"{unit} segment {segment.net}", "cpu-segment" if segment.is_aicpu else "segment"
        event = _slice(name, tracks, (process, track), (segment.start_ns, segment.end_ns), category, {})
        self.segment_places.append((event.pid, event.tid, segment.start_ns))
        yield event
        category = "cpu-layer" if segment.is_aicpu else "layer"
        for start_ns, end_ns, row in segment.layers:
            layer = None if row.layer_index is None else self._layers.get(row.layer_index)
            args = {} if layer is None else {"type": layer.type}
            name = UNKNOWN if layer is None else layer.name
            begin_ns = max(start_ns, segment.start_ns)
            yield _slice(name, tracks, (process, track), (begin_ns, end_ns), category, args)
            ratios = {name: ratio for name, ratio in zip(RATIOS, row.ratios, strict=True) if ratio is not None}
            if ratios:
                yield Event("C", "PMU", event.pid, 0, begin_ns / NS_PER_US, args=ratios)

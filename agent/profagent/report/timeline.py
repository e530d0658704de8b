"""The timeline of a report: which span ran when, thinned to the size of a page by rules that the page states."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from profagent.formats.inference_times import Spans
from profagent.formats.names import LogKind
from profagent.formats.records import ticks_to_us
from profagent.ingest.source import drawn_views
from profagent.limits import MOST_DRAWN_EVENTS, MOST_DRAWN_INFERENCES, MOST_DRAWN_LAYERS, POINTS_OF_METRIC
from profagent.stats.figures import UNITS, UNKNOWN
from profagent.store.columns import Segments, pages
from profagent.store.database import fetched, fetched_one

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.ingest.source import DrawnCounters, DrawnEvents
    from profagent.stats.figures import InferenceOf, JobRecords
    from profagent.store.columns import Page
    from profagent.store.database import Running
    from profagent.store.queries import Scope

US_PER_DAY = 86_400_000_000
FAR_US = 30 * US_PER_DAY
_COLUMNS = {
    LogKind.AICORE: ("layer_index", "ticks", "ticks_before"),
    LogKind.AICPU: ("layer_index", "begin_us", "end_us"),
}
_TIMES = "SELECT start_us, end_us FROM json_each(?) q CROSS JOIN inference i ON i.inference = q.value ORDER BY q.key"
UNIT_NAMES = dict(zip(UNITS, ("NPU", "CPU"), strict=True))


class Timeline:
    """Spans by lane; a span in the document is its lane, start and duration in µs since the origin, and name number."""

    def __init__(self) -> None:
        # What the page says about spans that were left out.
        self.rules: list[str] = []
        # Lane, start in µs, duration in µs, name.
        self._spans: list[tuple[str, float, float, str]] = []
        # Start and end, in µs, of the inferences whose layers are drawn.
        self._detailed: list[tuple[float, float]] = []
        # Name, unit, and points as rows of time in µs and value.
        self._metrics: list[tuple[str, str, NDArray[np.float64]]] = []
        # Models with drawn layers: the lane of a single one needs no model's name.
        self._models: set[str] = set()

    async def read(self, connection: Running, session: int) -> None:
        """Add the events and metrics of a session that do not belong to its inferences."""
        views, _ = await connection.run(partial(drawn_views, session))
        for view in views:
            if view.events is not None:
                await self._events(connection, session, view.name, view.events)
        for view in views:
            if view.counters is not None and not view.counters.is_object:
                await self._read_counters(connection, session, view.name, view.counters)

    def document(self) -> dict[str, Any]:
        """Return the object that the page draws."""
        near = self._near()
        times = [start for _, start, *_ in near] + [float(points[0, 0]) for *_, points in self._metrics]
        origin = min(times, default=0.0)
        lanes = sorted({lane for lane, *_ in near}, key=_lane_order)
        names: dict[str, int] = {}
        for *_, name in near:
            names.setdefault(name, len(names))
        numbers = {lane: number for number, lane in enumerate(lanes)}
        return {
            "origin_us": int(origin),
            "lanes": [self._shown(lane) for lane in lanes],
            "names": list(names),
            "spans": [
                [numbers[lane], round(start - origin, 2), round(duration, 2), names[name]]
                for lane, start, duration, name in sorted(near)
            ],
            "detailed": [
                [round(start - origin, 2), round(end - start, 2)]
                for start, end in sorted(self._detailed, key=lambda each: each[1] - each[0])
                if end - start < FAR_US
            ],
            "metrics": [
                {"name": name, "unit": unit, "points": _rounded(points, origin)} for name, unit, points in self._metrics
            ],
            "rules": self.rules,
        }

    def _near(self) -> list[tuple[str, float, float, str]]:
        """Return the spans near the median start: a clock that was set can put others days away."""
        if not self._spans:
            return []
        middle = float(np.median([start for _, start, *_ in self._spans]))
        near = [span for span in self._spans if abs(span[1] - middle) < FAR_US and span[2] < FAR_US]
        if far := len(self._spans) - len(near):
            self.rules.append(
                f"all but {far:,} events that last, or are from the others, more than {FAR_US // US_PER_DAY} days"
            )
        return near

    def _shown(self, lane: str) -> str:
        return lane.removesuffix(f" {next(iter(self._models))}") if len(self._models) == 1 else lane

    async def add(self, connection: Running, scope: Scope, job: JobRecords, *, is_named: bool) -> None:
        """Add evenly chosen inferences of a JOB; `is_named`: rules about it begin with the JOB's name."""
        models = _by_model(job)
        if not models:
            return
        about = f"{scope.job.name}: " if is_named else ""
        drawn = [place for places in models for place in _evenly_spread(places, MOST_DRAWN_INFERENCES)]
        numbers = [job.numbers[place] for place in drawn]
        spans = await connection.run(partial(_spans_of, numbers))
        for place, span in zip(drawn, zip(*(each.tolist() for each in spans), strict=True), strict=True):
            self._inference(job.inferences[place], *span)
        most = max((len(job.layers[job.inferences[places[0]].model]) for places in models), default=0)
        each = max(1, MOST_DRAWN_LAYERS // max(most, 1) // len({job.inferences[places[0]].model for places in models}))
        detailed = [place for places in models for place in _evenly_spread(places, each)]
        for page in await connection.run(partial(_pages_of, job, detailed)):
            self._layers(page, job, detailed, scope.job.frequency_mhz)
        total = len(job.inferences)
        if len(detailed) < total:
            self.rules.append(
                f"{about}segments and layers of {len(detailed):,} of {total:,} inferences, evenly taken from each model"
            )
        if len(drawn) < total:
            self.rules.append(
                f"{about}{MOST_DRAWN_INFERENCES:,} inferences of each model, evenly taken, of {total:,} in all"
            )

    def _inference(self, of: InferenceOf, start_us: float, end_us: float) -> None:
        if not np.isnan(start_us + end_us):
            lane, name = f"inferences {of.model_name}", f"inference {of.current_pic_count}"
            self._spans.append((lane, start_us, max(0, end_us - start_us), name))

    def _layers(self, page: Page, job: JobRecords, places: Sequence[int], frequency_mhz: int | None) -> None:
        of = job.inferences[places[page.first]]
        model, layers, segments = of.model_name, job.layers[of.model], page.segments
        self._models.add(model)
        within: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
        wholes: dict[int, list[float]] = defaultdict(list)
        for unit, segment, index, start, end in _placed(page, frequency_mhz):
            name = layers[index].name if index in layers else UNKNOWN
            self._spans.append((f"{unit} layers {model}", start, end - start, name))
            within[unit, segment].append((start, end))
        for (unit, number), found in within.items():
            start, end = min(start for start, _ in found), max(end for _, end in found)
            place = int(np.searchsorted(segments.number, number))
            self._spans.append((f"{unit} segments {model}", start, end - start, f"segment {segments.net[place]}"))
            wholes[int(segments.inference[place])] += [start, end]
        self._detailed += [(min(times), max(times)) for times in wholes.values()]

    async def _events(self, connection: aiosqlite.Connection, session: int, view: str, drawn: DrawnEvents) -> None:
        rows = await fetched(connection, _slices_query(view, drawn), (session, MOST_DRAWN_EVENTS))
        self._spans += [(lane, start, duration, name) for lane, name, start, duration in rows]
        if len(rows) == MOST_DRAWN_EVENTS:
            (total,) = await fetched_one(connection, f"SELECT count(*) FROM {view} WHERE session = ?", (session,))  # noqa: S608 - a view of ours
            if total > MOST_DRAWN_EVENTS:
                self.rules.append(f"the {MOST_DRAWN_EVENTS:,} longest of {total:,} {drawn.noun}")

    async def _read_counters(
        self, connection: aiosqlite.Connection, session: int, view: str, drawn: DrawnCounters
    ) -> None:
        names = f"SELECT DISTINCT {drawn.name} AS name, {drawn.unit} FROM {view} WHERE session = ? ORDER BY name"  # noqa: S608 - ours
        points_of = (
            f"SELECT {drawn.time_us} AS time_us, {drawn.value} FROM {view}"  # noqa: S608 - ours
            f" WHERE session = ? AND {drawn.name} = ? AND {drawn.unit} = ? ORDER BY time_us"
        )
        most = 0
        for name, unit in await fetched(connection, names, (session,)):
            points = np.array(await fetched(connection, points_of, (session, name, unit)), np.float64)
            most = max(most, len(points))
            self._metrics.append((name, unit, thinned(points, POINTS_OF_METRIC)))
        if most > POINTS_OF_METRIC:
            self.rules.append(f"of each metric the lowest and the highest in {POINTS_OF_METRIC // 2} spans of time")


def _slices_query(view: str, drawn: DrawnEvents) -> str:
    return (
        f"SELECT {drawn.lane}, {drawn.name}, {drawn.start_us}, {drawn.duration_us} AS lasted FROM {view}"  # noqa: S608 - ours
        f" WHERE session = ? AND NOT ({drawn.is_instant}) AND lasted >= 0 ORDER BY lasted DESC LIMIT ?"
    )


def _placed(page: Page, frequency_mhz: int | None) -> Iterator[tuple[str, int, int, float, float]]:
    us = np.nan if frequency_mhz is None else ticks_to_us(1, frequency_mhz)
    for unit, table in zip(UNIT_NAMES.values(), (page.aicore, page.aicpu), strict=True):
        if table.kind is LogKind.AICORE:
            before, ticks = table.columns["ticks_before"], table.duration
            base = table.segments.start_us[table.segment]
            start, end = base + before * us, base + (before + ticks) * us
        else:
            start, end = table.columns["begin_us"], table.columns["end_us"]
        columns = (table.segments.number[table.segment], table.layer, start, end)
        known = end >= start
        for row in zip(*(column[known].tolist() for column in columns), strict=True):
            yield unit, *row


def _by_model(job: JobRecords) -> list[list[int]]:
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, each in enumerate(job.inferences):
        found[each.device_id, each.model].append(place)
    return [*found.values()]


def _evenly_spread(places: Sequence[int], most: int) -> list[int]:
    behind = np.arange(len(places), 0, -1)
    is_taken = behind * most // len(places) > (behind - 1) * most // len(places)
    return [place for place, taken in zip(places, is_taken.tolist(), strict=True) if taken or most >= len(places)]


def _spans_of(numbers: list[int], connection: sqlite3.Connection) -> Spans:
    rows = connection.execute(_TIMES, (json.dumps(numbers),)).fetchall()
    begin, end = np.array(rows, np.float64).reshape(-1, 2).T.copy()
    segments = Segments.of(connection, numbers).of_unit(LogKind.AICPU)
    used = segments.at(segments.start_us > 0)
    np.fmin.at(begin, used.inference, used.start_us)
    np.fmax.at(end, used.inference, used.end_us)
    return Spans(begin, end)


def _pages_of(job: JobRecords, places: Sequence[int], connection: sqlite3.Connection) -> list[Page]:
    segments = Segments.of(connection, [job.numbers[place] for place in places])
    groups = [(each.device_id, each.model) for each in map(job.inferences.__getitem__, places)]
    return [query.read(connection) for query in pages(connection, segments, _COLUMNS, groups)]


def thinned(points: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Return at most `most` rows of (x, y) sorted by x: the lowest and the highest of each part."""
    if len(points) <= most:
        return points
    places: list[int] = []
    for part in np.array_split(np.arange(len(points)), most // 2):
        values = points[part, 1]
        places += sorted({int(part[values.argmin()]), int(part[values.argmax()])})
    return points[places]


def _rounded(points: NDArray[np.float64], origin: float) -> Iterable[list[float]]:
    return [[round(time - origin), float(f"{value:.6g}")] for time, value in points.tolist()]


def _lane_order(lane: str) -> tuple[int, str]:
    orders = ("inferences", "NPU segments", "NPU layers", "CPU segments", "CPU layers", "calls")
    return next((place for place, order in enumerate(orders) if lane.startswith(order)), len(orders)), lane


def series_of(times: NDArray[np.float64], most: int) -> Iterator[list[float]]:
    """Yield the times as points (index, time), thinned to `most`."""
    points = np.column_stack([np.arange(len(times), dtype=np.float64), times])
    for place, value in thinned(points, most).tolist():
        yield [int(place), round(value, 3)]

"""The timeline of a report: what ran when, thinned to what a page can hold, and by which rule."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from profagent.formats.records import ticks_to_us
from profagent.limits import MOST_DRAWN_EVENTS, MOST_DRAWN_INFERENCES, MOST_DRAWN_LAYERS, POINTS_OF_METRIC
from profagent.stats.figures import UNITS, UNKNOWN
from profagent.store.database import fetched, fetched_one
from profagent.store.placed import chosen_spans, placed_pages
from profagent.store.queries import layers_of
from profagent.store.selection import Choice, Selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.store.placed import Page, SpanRow
    from profagent.store.queries import LayerRow, Scope

US_PER_DAY = 86_400_000_000
FAR_US = 30 * US_PER_DAY
UNIT_NAMES = dict(zip(UNITS, ("NPU", "CPU"), strict=True))
_CALLS = (
    "SELECT 'calls ' || pid || '/' || tid, name, begin_us, duration_us FROM api_records"
    " WHERE session = ? AND duration_us >= 0"
    " ORDER BY duration_us DESC LIMIT ?"
)
_RANGES = (
    "SELECT 'ranges ' || process || '/' || thread || CASE kind WHEN 'step' THEN ' steps' ELSE '' END, name, start_us,"
    " duration_us FROM ranges WHERE session = ? AND kind <> 'mark' AND duration_us >= 0"
    " ORDER BY duration_us DESC LIMIT ?"
)
_OPS = (
    "SELECT 'operators ' || source, op_name, start_us, end_us - start_us FROM op_events"
    " WHERE session = ? ORDER BY end_us - start_us DESC LIMIT ?"
)
# By view, what its events are called and how they are asked for.
_EVENTS = {
    "api_records": ("API calls", _CALLS),
    "ranges": ("ranges", _RANGES),
    "op_events": ("subscribed operators", _OPS),
}
_METRIC_NAMES = "SELECT DISTINCT name, unit FROM metrics WHERE session = ? ORDER BY name"
_METRIC = "SELECT time_us, value FROM metrics WHERE session = ? AND name = ? AND unit = ? ORDER BY time_us"


class Timeline:
    """Spans by lane. A span is its lane, start and duration in µs since the origin, and the number of its name."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        self._spans: list[tuple[str, float, float, str]] = []
        self._detailed: list[tuple[float, float]] = []
        self._metrics: list[tuple[str, str, NDArray[np.float64]]] = []
        self._models: set[str] = set()

    async def read(self, connection: aiosqlite.Connection, session: int, scopes: Sequence[Scope]) -> None:
        """Take in what a session has; the scopes are its JOBs."""
        for scope in scopes:
            await self._inferences(connection, scope, is_many=len(scopes) > 1)
        for view, (what, query) in _EVENTS.items():
            await self._events(connection, session, view, what, query)
        await self._read_metrics(connection, session)

    def document(self) -> dict[str, Any]:
        """What the page draws."""
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
        """The spans, without those that a clock which was set has put far from all others."""
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
        """A lane's name, without the model's where there is only one."""
        return lane.removesuffix(f" {next(iter(self._models))}") if len(self._models) == 1 else lane

    async def _inferences(self, connection: aiosqlite.Connection, scope: Scope, *, is_many: bool) -> None:
        await Selection.of(connection, scope, Choice())
        ((total,),) = await fetched(connection, "SELECT count(*) FROM temp.chosen")
        if not total:
            return
        records = await _records_of_one(connection)
        about = f"{scope.job.name}: " if is_many else ""
        await Selection.of(connection, scope, Choice(spread=MOST_DRAWN_INFERENCES))
        spans = await chosen_spans(connection)
        models = len({span.model for span in spans})
        for span in spans:
            self._inference(span)
        detailed = max(1, MOST_DRAWN_LAYERS // max(records, 1) // models)
        await Selection.of(connection, scope, Choice(spread=detailed))
        layers = dict[int, "Mapping[int, LayerRow]"]()
        shown = 0
        async for page in placed_pages(connection):
            model = page.spans[0].model
            if model not in layers:
                layers[model] = await layers_of(connection, model)
            shown += len(page.spans)
            self._layers(page, layers[model], scope.job.frequency_mhz)
        if shown < total:
            self.rules.append(
                f"{about}segments and layers of {shown:,} of {total:,} inferences, evenly taken from each model"
            )
        if total > MOST_DRAWN_INFERENCES * models:
            self.rules.append(
                f"{about}{MOST_DRAWN_INFERENCES:,} inferences of each model, evenly taken, of {total:,} in all"
            )

    def _inference(self, span: SpanRow) -> None:
        if span.start_us is not None and span.end_us is not None:
            lane = f"inferences {span.model_name}"
            name = f"inference {span.current_pic_count}"
            self._spans.append((lane, span.start_us, max(0, span.end_us - span.start_us), name))

    def _layers(self, page: Page, layers: Mapping[int, LayerRow], frequency_mhz: int | None) -> None:
        """The layers of inferences of one model, and around them their segments."""
        model = page.spans[0].model_name
        self._models.add(model)
        segments = {segment.segment: segment for segment in page.segments}
        within: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
        wholes: dict[int, list[float]] = defaultdict(list)
        for unit, segment, index, start, end in _placed(page, frequency_mhz):
            name = layers[index].name if index in layers else UNKNOWN
            self._spans.append((f"{unit} layers {model}", start, end - start, name))
            within[unit, segment].append((start, end))
        for (unit, segment), found in within.items():
            start, end = min(start for start, _ in found), max(end for _, end in found)
            self._spans.append((f"{unit} segments {model}", start, end - start, f"segment {segments[segment].net}"))
            wholes[segments[segment].position] += [start, end]
        self._detailed += [(min(times), max(times)) for times in wholes.values()]

    async def _events(self, connection: aiosqlite.Connection, session: int, view: str, what: str, query: str) -> None:
        rows = await fetched(connection, query, (session, MOST_DRAWN_EVENTS))
        self._spans += [(lane, start, duration, name) for lane, name, start, duration in rows]
        if len(rows) == MOST_DRAWN_EVENTS:
            (total,) = await fetched_one(connection, f"SELECT count(*) FROM {view} WHERE session = ?", (session,))  # noqa: S608 - a view of ours
            if total > MOST_DRAWN_EVENTS:
                self.rules.append(f"the {MOST_DRAWN_EVENTS:,} longest of {total:,} {what}")

    async def _read_metrics(self, connection: aiosqlite.Connection, session: int) -> None:
        most = 0
        for name, unit in await fetched(connection, _METRIC_NAMES, (session,)):
            points = np.array(await fetched(connection, _METRIC, (session, name, unit)), np.float64)
            most = max(most, len(points))
            self._metrics.append((name, unit, thinned(points, POINTS_OF_METRIC)))
        if most > POINTS_OF_METRIC:
            self.rules.append(f"of each metric the lowest and the highest in {POINTS_OF_METRIC // 2} spans of time")


def _placed(page: Page, frequency_mhz: int | None) -> Iterator[tuple[str, int, int, float, float]]:
    """Unit, segment, layer's index, start and end in µs of each record whose place in time is known."""
    starts = {segment.segment: segment.start_us for segment in page.segments}
    for is_aicpu, records in enumerate((page.aicore, page.aicpu)):
        unit = UNIT_NAMES[UNITS[is_aicpu]]
        columns = (records.segment, records.layer, records.begin, records.end)
        for segment, index, begin, end in zip(*(column.tolist() for column in columns), strict=True):
            base = 0.0 if is_aicpu else starts[segment]
            if base is None or (frequency_mhz is None and not is_aicpu) or end < begin:
                continue
            us = 1.0 if frequency_mhz is None or is_aicpu else ticks_to_us(1, frequency_mhz)
            yield unit, segment, index, base + begin * us, base + end * us


def thinned(points: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """At most so many points of (x, y) rows in the order of x: of each part the lowest and the highest."""
    if len(points) <= most:
        return points
    kept: list[int] = []
    for part in np.array_split(np.arange(len(points)), most // 2):
        values = points[part, 1]
        kept += sorted({int(part[values.argmin()]), int(part[values.argmax()])})
    return points[kept]


async def _records_of_one(connection: aiosqlite.Connection) -> int:
    """How many records an inference of the choice has, as far as its model's layers tell."""
    query = "SELECT count(*) FROM layer WHERE model IN (SELECT model FROM temp.chosen) GROUP BY model"
    return max((count for (count,) in await fetched(connection, query)), default=0)


def _rounded(points: NDArray[np.float64], origin: float) -> Iterable[list[float]]:
    return [[round(time - origin), float(f"{value:.6g}")] for time, value in points.tolist()]


def _lane_order(lane: str) -> tuple[int, str]:
    orders = ("inferences", "NPU segments", "NPU layers", "CPU segments", "CPU layers", "calls", "operators", "ranges")
    return next(place for place, order in enumerate(orders) if lane.startswith(order)), lane


def series_of(times: NDArray[np.float64], most: int) -> Iterator[list[float]]:
    """Times in their order as points (place, time), thinned."""
    points = np.column_stack([np.arange(len(times), dtype=np.float64), times])
    for place, value in thinned(points, most).tolist():
        yield [int(place), round(value, 3)]

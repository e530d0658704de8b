"""The vendor's tables: op_summary and op_statistic of each inference or of the mean of many, and acl_statistic."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.export.sheets import Coded, Sheets
from profagent.formats.countermap import MAPPED_NAMES, MAPPED_RATIOS
from profagent.formats.names import LogKind
from profagent.formats.records import CYCLES_PER_TICK, is_on_ai_cpu, ticks_to_us
from profagent.store.columns import UNITS, Segments, pages
from profagent.store.queries import layers_of
from profagent.tables.table import DASH, OP_STATISTIC, OP_SUMMARY, UNKNOWN, Cell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.store.columns import Page, RecordTable
    from profagent.store.database import Running
    from profagent.store.queries import CallRow, LayerRow, Scope
    from profagent.store.selection import InferenceRow, Selection

    Layers = Mapping[int, LayerRow]
    Cells = tuple[Cell, ...]
    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

# In place of N/A in names of files, which cannot have a slash.
UNKNOWN_FIELD = "NA"
TASK_TYPES = {LogKind.AICORE: "AA_CORE", LogKind.AICPU: "AA_CPU"}
_NAMES = {
    LogKind.AICORE: ("sequence", "layer_index", "ticks", *MAPPED_NAMES),
    LogKind.AICPU: ("sequence", "layer_index", "begin_us", "end_us"),
}


class LayerTables(NamedTuple):
    """Tables of several inferences.

    The op_statistic of an inference is empty unless all its records of the CPU are known.
    """

    inferences: Sequence[InferenceRow]
    op_summary: Sheets
    op_statistic: Sheets


async def inference_tables(connection: Running, scope: Scope, selection: Selection) -> AsyncIterator[LayerTables]:
    """Yield the tables of all chosen inferences, those of one page at a time."""
    mhz = scope.job.frequency_mhz
    inferences = [row async for row in selection.inferences()]
    models: dict[int, _LayerCodes] = {}
    async for page in _record_pages(connection, inferences):
        rows = inferences[page.first : page.end]
        if rows[0].model not in models:
            models[rows[0].model] = _LayerCodes(await layers_of(connection, rows[0].model))
        model, is_known = models[rows[0].model], np.array([row.is_known for row in rows], np.bool_)
        records = LayerRecords.of(page)
        durations = LineDurations.joined(
            [_line_durations(model, table, is_known[table.inference - page.first]) for table in page.units]
        )
        yield LayerTables(
            rows,
            op_summary(records, np.array([row.ticks for row in rows], np.float64), mhz, model),
            op_statistic(
                durations._replace(place=durations.place - page.first), [row.stream_id for row in rows], mhz, model
            ),
        )


async def mean_tables(connection: Running, scope: Scope, selection: Selection) -> AsyncIterator[LayerTables]:
    """Yield the tables of the mean inference of each device, model, model id and batch, over the chosen inferences."""
    mhz = scope.job.frequency_mhz
    inferences = [row async for row in selection.inferences()]
    groups = await selection.groups()
    record_pages = _record_pages(connection, inferences)
    page = await anext(record_pages, None)
    for group in groups:
        model = _LayerCodes(await layers_of(connection, group.model))
        mean = _MeanInference(model)
        # Pages come in the order of the groups, so the first page of another group ends this one.
        while page is not None and inferences[page.first].group == group.group:
            mean.add(page, np.array([row.is_known for row in inferences[page.first : page.end]], np.bool_))
            page = await anext(record_pages, None)
        records, durations = mean.records(), mean.durations()
        total_ticks = np.array([sum(records.ticks.tolist())])
        summary = op_summary(records, total_ticks, mhz, model)
        yield LayerTables([group], summary, op_statistic(durations, [group.stream_id], mhz, model))


async def _record_pages(connection: Running, inferences: Sequence[InferenceRow]) -> AsyncIterator[Page]:
    segments = await connection.run(Segments.chosen)
    groups = [row.group for row in inferences]
    # A page has records of one group only, so the caller can finish a group before it reads the next page.
    queries = await connection.run(lambda found: [*pages(found, segments, _NAMES, groups)])
    for query in queries:
        yield await connection.run(query.read)


class _LayerCodes:
    """Layers of a model, each with a code: 0 for records without a layer, and from 1 on in the order of the index.

    `keys` are the lines that op_statistic may have; layers with the same name and task type share one.
    """

    def __init__(self, layers: Layers) -> None:
        self.layers = [layers[index] for index in sorted(layers)]
        self.keys: list[tuple[LogKind, str, str]] = []
        # Index of each layer, rising; its place plus 1 is the code.
        self._indexes = np.array(sorted(layers), np.int64)
        places: dict[tuple[LogKind, str, str], int] = {}
        # For each unit, the place in `keys` of each code.
        self._key_of = {
            unit: np.array(
                [
                    places.setdefault((unit, TASK_TYPES[unit], UNKNOWN), len(places)),
                    *(
                        places.setdefault((unit, _task_type(unit, layer), layer.name), len(places))
                        for layer in self.layers
                    ),
                ],
                np.int64,
            )
            for unit in UNITS
        }
        self.keys = list(places)

    def codes(self, layer_index: NDArray[np.integer]) -> Ints:
        """Return the code of each layer index."""
        if not len(self._indexes):
            return np.zeros(len(layer_index), np.int64)
        places = self._indexes.searchsorted(layer_index).clip(max=len(self._indexes) - 1)
        return np.where(self._indexes[places] == layer_index, places + 1, 0)

    def key_of(self, unit: LogKind, layer_index: NDArray[np.integer]) -> Ints:
        """Return the place in `keys` of each layer index, for records of this unit."""
        found: Ints = self._key_of[unit][self.codes(layer_index)]
        return found


def _task_type(unit: LogKind, layer: LayerRow) -> str:
    return TASK_TYPES[LogKind.AICPU if is_on_ai_cpu(layer.type) else unit]


class LayerRecords(NamedTuple):
    """Figures of the NPU's records in tables, or of means of several: each with the place of its table, rising.

    `counters` are first the fractions of the layer's time, then bytes; NaN where unknown.
    """

    place: NDArray[np.integer]
    layer_index: NDArray[np.integer]
    ticks: Floats
    counters: Sequence[Floats]

    @classmethod
    def of(cls, page: Page) -> LayerRecords:
        """Return the records of a page, with a table for each inference."""
        columns = page.aicore.columns
        counters = [columns[name] for name in MAPPED_NAMES]
        ticks = columns["ticks"].astype(np.float64)
        return cls(page.aicore.inference - page.first, columns["layer_index"], ticks, counters)


def op_summary(records: LayerRecords, total_ticks: Floats, frequency_mhz: int | None, model: _LayerCodes) -> Sheets:
    """Return tables of OP_SUMMARY, each with its total row last; `total_ticks` is the sum over all records of each.

    The total's ratios are weighted by time, and its bytes are sums; a total is unknown if one record's figure is
    unknown.
    """
    us_per_tick = np.nan if frequency_mhz is None else CYCLES_PER_TICK / frequency_mhz
    place, tables = records.place, len(total_ticks)
    counts = np.bincount(place, minlength=tables)
    (filled,) = counts.nonzero()
    # A layer that ran longer has a larger part in the total's ratio.
    weight = _sum(place, records.ticks, tables)
    sums = [
        _sum(place, column * records.ticks, tables) / _nonzero(weight) if is_ratio else _sum(place, column, tables)
        for column, is_ratio in zip(records.counters, _is_ratio(), strict=True)
    ]
    of_records = _figures(records.ticks, total_ticks[place], us_per_tick, records.counters)
    of_totals = _figures(weight, total_ticks, us_per_tick, sums)
    ends = counts.cumsum()
    # A table without records has no total row.
    values = [np.insert(each, ends[filled], total[filled]) for each, total in zip(of_records, of_totals, strict=True)]
    code = np.insert(model.codes(records.layer_index), ends[filled], len(model.layers) + 1)
    layers = (
        [None, *(layer.layer_id for layer in model.layers), DASH],
        [*(None for _ in range(len(model.layers) + 1)), DASH],
        [None, *(layer.name for layer in model.layers), "total"],
        [None, *(layer.type for layer in model.layers), DASH],
    )
    return Sheets(OP_SUMMARY, [*(Coded(code, cells) for cells in layers), *values], (counts + (counts > 0)).cumsum())


def _sum(place: NDArray[np.integer], values: Floats, places: int) -> Floats:
    return np.bincount(place, values, places).astype(np.float64, copy=False)


def _is_ratio() -> list[bool]:
    return [place < len(MAPPED_RATIOS) for place in range(len(MAPPED_NAMES))]


def _nonzero(values: Floats) -> Floats:
    return np.where(values == 0, np.nan, values)


def _figures(ticks: Floats, total_ticks: Floats, us_per_tick: float, counters: Sequence[Floats]) -> list[Floats]:
    *ratios, read, written = counters
    return [
        ticks * us_per_tick,
        ticks / _nonzero(total_ticks) * 100,
        *(ratio * 100 for ratio in ratios),
        memory_bound(ratios),
        read,
        written,
        read + written,
    ]


def memory_bound(ratios: Sequence[Floats]) -> Floats:
    """Return max(Dstr, DLD, WLD) / max(Mac Busy, Vec Ppen) as in the manual; NaN if one is unknown or the divisor is 0.

    `ratios` are mac_busy, mac_ppen, vec_busy, vec_ppen, dstr, dtrans, dld and wld.
    """
    mac_busy, _, _, vec_ppen, dstr, _, dld, wld = ratios
    return np.maximum(np.maximum(dstr, dld), wld) / _nonzero(np.maximum(mac_busy, vec_ppen))


class LineDurations(NamedTuple):
    """Durations in tables, of single records or of several: each with the place of its table, rising, and its line.

    `key` is the place of the line in the model's `keys`. Lines stand in the order of their first record.
    """

    place: NDArray[np.integer]
    key: Ints
    records: NDArray[np.number]
    total: Floats
    longest: Floats
    shortest: Floats

    @classmethod
    def joined(cls, units: Sequence[LineDurations]) -> LineDurations:
        """Return the durations of both units by table, in each table those on the NPU first."""
        place, *others = map(np.concatenate, zip(*units, strict=True))
        order = np.argsort(place, kind="stable")
        key, *figures = (column[order] for column in others)
        return cls(place[order], key, *figures)


def _line_durations(model: _LayerCodes, table: RecordTable, is_chosen: NDArray[np.bool_]) -> LineDurations:
    columns = {name: column[is_chosen] for name, column in table.columns.items()}
    key = model.key_of(table.kind, columns["layer_index"])
    duration = _duration(table.kind, columns)
    return LineDurations(table.inference[is_chosen], key, np.ones(len(key), np.int64), duration, duration, duration)


def _duration(kind: LogKind, columns: Mapping[str, NDArray[Any]]) -> Floats:
    if kind is LogKind.AICORE:
        return columns["ticks"].astype(np.float64)
    duration: Floats = columns["end_us"] - columns["begin_us"]
    return duration


def op_statistic(
    durations: LineDurations, streams: Sequence[int | None], frequency_mhz: int | None, model: _LayerCodes
) -> Sheets:
    """Return tables of OP_STATISTIC, one for each of `streams`; Task ID counts the rows of each table from 0."""
    us_of = {
        LogKind.AICORE: np.nan if frequency_mhz is None else ticks_to_us(1, frequency_mhz),
        LogKind.AICPU: 1.0,
    }
    line, first, of_line = np.unique(
        durations.place * len(model.keys) + durations.key, return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    place, key = np.divmod(line[order], len(model.keys))
    longest, shortest = np.full(len(line), -np.inf), np.full(len(line), np.inf)
    np.maximum.at(longest, of_line, durations.longest)
    np.minimum.at(shortest, of_line, durations.shortest)
    records = np.bincount(of_line, durations.records, len(line))[order]
    us = np.array([us_of[unit] for unit, _, _ in model.keys])[key]
    total_us = np.bincount(of_line, durations.total, len(line))[order] * us
    of_table = _sum(place, total_us, len(streams))
    ends = np.bincount(place, minlength=len(streams)).cumsum()
    begins = np.append(0, ends[:-1])
    values = [
        np.arange(len(place)) - begins[place],
        Coded(place, streams),
        Coded(key, [name for _, _, name in model.keys]),
        Coded(key, [task_type for _, task_type, _ in model.keys]),
        total_us / _nonzero(of_table)[place] * 100,
        total_us,
        records.astype(np.int64),
        total_us / records,
        longest[order] * us,
        shortest[order] * us,
    ]
    return Sheets(OP_STATISTIC, values, ends)


class _MeanInference:
    """Mean of many inferences: sums over the records at each place, and over the records of each layer.

    A place is a segment, a sequence number and a layer. Layers stand in the order of their first places.
    """

    def __init__(self, model: _LayerCodes) -> None:
        self._model = model
        # Sums at each place: the number of records, ticks, and counters, where ratios are weighted by ticks.
        self._places: dict[tuple[int, int, int], NDArray[np.longdouble]] = {}
        # Durations of each layer index, by unit.
        self._layers: dict[LogKind, dict[int, _LayerSum]] = {unit: {} for unit in UNITS}

    def add(self, page: Page, is_known: NDArray[np.bool_]) -> None:
        """Add a page of inferences. Durations by layer are taken from inferences with known figures only."""
        self._add_places(page.aicore)
        for table in page.units:
            self._add_layers(table, is_known[table.inference - page.first])

    def _add_places(self, table: RecordTable) -> None:
        columns = table.columns
        ticks = columns["ticks"].astype(np.float64)
        weights = [ticks if is_ratio else 1.0 for is_ratio in _is_ratio()]
        counters = [columns[name] * weight for name, weight in zip(MAPPED_NAMES, weights, strict=True)]
        places, order, begins = _distinct(table.net, columns["sequence"], columns["layer_index"])
        # A sum of doubles depends on the order of the records, and a mean halfway between two texts would be rounded by
        # chance; long doubles make the sums exact.
        figures = np.stack([np.ones(len(ticks)), ticks, *counters], axis=1).astype(np.longdouble)[order]
        for place, of_one in zip(places, np.add.reduceat(figures, begins) if places else (), strict=True):
            self._places[place] = self._places.get(place, 0) + of_one

    def _add_layers(self, table: RecordTable, is_chosen: NDArray[np.bool_]) -> None:
        columns = {name: column[is_chosen] for name, column in table.columns.items()}
        duration = _duration(table.kind, columns)
        first = np.lexsort((columns["sequence"], table.net[is_chosen]))
        layers, of_first, of_layer = np.unique(columns["layer_index"][first], return_index=True, return_inverse=True)
        net, sequence, duration = table.net[is_chosen][first], columns["sequence"][first], duration[first]
        count, total = np.bincount(of_layer), np.bincount(of_layer, duration)
        longest, shortest = np.full(len(layers), -np.inf), np.full(len(layers), np.inf)
        np.maximum.at(longest, of_layer, duration)
        np.minimum.at(shortest, of_layer, duration)
        found = self._layers[table.kind]
        begins = zip(net[of_first].tolist(), sequence[of_first].tolist(), strict=True)
        figures = zip(*(column.tolist() for column in (count, total, longest, shortest)), strict=True)
        for layer, begin, of_one in zip(layers.tolist(), begins, figures, strict=True):
            of_page = _LayerSum(begin, *of_one)
            found[layer] = found[layer].plus(of_page) if layer in found else of_page

    def records(self) -> LayerRecords:
        """Return the mean record at each place, as one table."""
        places = sorted(self._places)
        sums = np.array([self._places[place] for place in places], np.float64).reshape(-1, 2 + len(MAPPED_NAMES)).T
        count, ticks, *counters = sums
        divisors = [_nonzero(ticks) if is_ratio else count for is_ratio in _is_ratio()]
        means = [column / divisor for column, divisor in zip(counters, divisors, strict=True)]
        layer_index = np.array([layer for _, _, layer in places], np.int64)
        return LayerRecords(np.zeros(len(places), np.int64), layer_index, ticks / count, means)

    def durations(self) -> LineDurations:
        """Return the durations by layer, as one table."""
        units = []
        for unit, found in self._layers.items():
            layers = sorted(found, key=lambda layer, found=found: found[layer].begin)  # type: ignore[misc]
            columns = np.array([found[layer][1:] for layer in layers], np.float64).reshape(-1, 4).T
            key = self._model.key_of(unit, np.array(layers, np.int64))
            units.append(LineDurations(np.zeros(len(layers), np.int64), key, *columns))
        return LineDurations.joined(units)


class _LayerSum(NamedTuple):
    """Durations of a layer; `begin` is the first place of its records: segment and sequence number."""

    begin: tuple[int, int]
    records: int
    total: float
    longest: float
    shortest: float

    def plus(self, other: _LayerSum) -> _LayerSum:
        return _LayerSum(
            min(self.begin, other.begin),
            self.records + other.records,
            self.total + other.total,
            max(self.longest, other.longest),
            min(self.shortest, other.shortest),
        )


def _distinct(*columns: NDArray[np.integer]) -> tuple[list[Any], NDArray[np.intp], NDArray[np.intp]]:
    """Return the distinct rows of columns, an order that puts equal rows together, and the start of each row in it."""
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    is_new = np.append(True, np.any([column[1:] != column[:-1] for column in ordered], axis=0))[: len(order)]
    rows = list(zip(*(column[is_new].tolist() for column in ordered), strict=True))
    return rows, order, is_new.nonzero()[0]


@dataclass(slots=True)
class Durations:
    """Durations of calls in µs; unknown ones add to `count` alone."""

    count: int = 0
    known: int = 0
    total: float = 0.0
    longest: float = float("-inf")
    shortest: float = float("inf")

    def add(self, duration: float | None) -> None:
        """Add the duration of one call."""
        self.count += 1
        if duration is not None:
            self.known += 1
            self.total += duration
            self.longest = max(self.longest, float(duration))
            self.shortest = min(self.shortest, float(duration))

    def cells(self, total_of_all: float | None) -> Cells:
        """Return the last six columns of ACL_STATISTIC."""
        if not self.known:
            return (None, None, self.count, None, None, None)
        ratio = self.total / total_of_all * 100 if total_of_all else None
        return (ratio, self.total, self.count, self.total / self.known, self.longest, self.shortest)


async def acl_statistic_rows(calls: AsyncIterator[list[CallRow]]) -> list[Cells]:
    """Return the rows of ACL_STATISTIC by process, thread and name, in the order of their first calls.

    A call with an unknown begin adds to Count, and to no time.
    """
    found: dict[tuple[int, int, str, str], Durations] = defaultdict(Durations)
    async for page in calls:
        for call in page:
            found[call.pid, call.tid, call.type, call.name].add(
                None if call.begin_us is None else call.end_us - call.begin_us
            )
    # A row without a known time has no share, and the shares of the others stay known.
    total = sum(each.total for each in found.values() if each.known)
    return [(*key, *durations.cells(total)) for key, durations in found.items()]


def icache_miss_rate(row: InferenceRow) -> str:
    """Return cache_miss / (cache_hit + cache_miss), 0.0000 to 1.0000; NA where one is not known or both are 0."""
    hit, miss = row.cache_hit, row.cache_miss
    return UNKNOWN_FIELD if hit is None or miss is None or not hit + miss else f"{miss / (hit + miss):.4f}"

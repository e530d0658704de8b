"""The vendor's tables: op_summary and op_statistic of each inference or of the mean of many, and acl_statistic."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from profagent.formats.countermap import MAPPED_RATIOS
from profagent.formats.records import CYCLES_PER_TICK, is_on_ai_cpu, ticks_to_us
from profagent.store.queries import layers_of
from profagent.tables.table import DASH, UNKNOWN, Cell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    import aiosqlite

    from profagent.store.queries import CallRow, LayerRow, Scope
    from profagent.store.selection import InferenceRow, RecordRow, Selection

    Layers = Mapping[int, LayerRow]
    Cells = tuple[Cell, ...]

# In names of files, which take no slash.
UNKNOWN_FIELD = "NA"
UNITS = {"aicore": "AA_CORE", "aicpu": "AA_CPU"}


class LayerTables(NamedTuple):
    """Rows of OP_SUMMARY and OP_STATISTIC of an inference; of the second none where the CPU's records are missing."""

    inference: InferenceRow
    op_summary: list[Cells]
    op_statistic: list[Cells]


async def inference_tables(
    connection: aiosqlite.Connection, scope: Scope, selection: Selection
) -> AsyncIterator[LayerTables]:
    """The tables of each chosen inference."""
    mhz = scope.job.frequency_mhz
    layers_by_model: dict[int, Layers] = {}
    readers = {unit: selection.records(unit) for unit in UNITS}
    async for inference in selection.inferences():
        if inference.model not in layers_by_model:
            layers_by_model[inference.model] = await layers_of(connection, inference.model)
        layers = layers_by_model[inference.model]
        records = {unit: await reader.at(inference.position) for unit, reader in readers.items()}
        gathered = _Gathered(layers)
        for unit, found in records.items():
            for each in found:
                gathered.of(unit, each.layer_index).add(each.duration)
        summary = op_summary_rows(records["aicore"], inference.ticks, mhz, layers)
        statistic = gathered.rows(inference.stream_id, mhz) if inference.is_known else []
        yield LayerTables(inference, summary, statistic)


async def mean_tables(
    connection: aiosqlite.Connection, scope: Scope, selection: Selection
) -> AsyncIterator[LayerTables]:
    """The tables of the mean inference of each device, model, model id and batch, over the chosen ones."""
    mhz = scope.job.frequency_mhz
    places = selection.places()
    readers = {unit: selection.layers(unit) for unit in UNITS}
    for group in await selection.groups():
        layers = await layers_of(connection, group.model)
        means = await places.at(group.position)
        gathered = _Gathered(layers)
        for unit, reader in readers.items():
            for _, layer_index, *durations in await reader.at(group.position):
                gathered.of(unit, layer_index).add_many(*durations)
        summary = op_summary_rows(means, sum(mean.duration for mean in means), mhz, layers)
        yield LayerTables(group, summary, gathered.rows(group.stream_id, mhz))


def op_summary_rows(
    records: Sequence[RecordRow], total_ticks: float, frequency_mhz: int | None, layers: Layers
) -> list[Cells]:
    """Rows of OP_SUMMARY, the total row last; `total_ticks` is the sum over all records.

    The total's ratios are weighted by time and its bytes are sums; they are not known where one record's is not.
    """
    us_per_tick = None if frequency_mhz is None else CYCLES_PER_TICK / frequency_mhz
    rows = []
    for record in records:
        layer = None if record.layer_index is None else layers.get(record.layer_index)
        names: Cells = (None,) * 4 if layer is None else (layer.layer_id, None, layer.name, layer.type)
        rows.append((*names, *_figures(record.duration, total_ticks, us_per_tick, record.counters)))
    if records:
        weights = [record.duration for record in records]
        columns = zip(*(record.counters for record in records), strict=True)
        totals = [
            _total_of(column, weights if place < len(MAPPED_RATIOS) else None) for place, column in enumerate(columns)
        ]
        rows.append((DASH, DASH, "total", DASH, *_figures(sum(weights, start=0.0), total_ticks, us_per_tick, totals)))
    return rows


def _total_of(values: Sequence[float | None], weights: Sequence[float] | None) -> float | None:
    """The sum, or the mean by weights; None where a value is not known."""
    total = 0.0
    for place, value in enumerate(values):
        if value is None:
            return None
        total += value if weights is None else value * weights[place]
    if weights is None:
        return total
    weight = sum(weights, start=0.0)
    return total / weight if weight else None


def _figures(ticks: float, total_ticks: float, us_per_tick: float | None, counters: Sequence[float | None]) -> Cells:
    ratios = counters[: len(MAPPED_RATIOS)]
    read, written = counters[len(MAPPED_RATIOS) :]
    return (
        None if us_per_tick is None else ticks * us_per_tick,
        ticks / total_ticks * 100 if total_ticks else None,
        *(None if ratio is None else ratio * 100 for ratio in ratios),
        memory_bound(ratios),
        read,
        written,
        None if read is None or written is None else read + written,
    )


def memory_bound(ratios: Sequence[float | None]) -> float | None:
    """Manual: max(Dstr, DLD, WLD) / max(Mac Busy, Vec Ppen); None where one is not known or the denominator is 0.

    `ratios` are mac_busy, mac_ppen, vec_busy, vec_ppen, dstr, dtrans, dld and wld.
    """
    mac_busy, _, _, vec_ppen, dstr, _, dld, wld = ratios
    if mac_busy is None or vec_ppen is None or dstr is None or dld is None or wld is None:
        return None
    denominator = max(mac_busy, vec_ppen)
    return max(dstr, dld, wld) / denominator if denominator else None


@dataclass(slots=True)
class Durations:
    """Durations in one unit; those that are not known are counted and in no other figure."""

    count: int = 0
    known: int = 0
    total: float = 0.0
    longest: float = float("-inf")
    shortest: float = float("inf")

    def add(self, duration: float | None) -> None:
        """Take one duration in."""
        if duration is None:
            self.count += 1
        else:
            self.add_many(1, duration, duration, duration)

    def add_many(self, count: int, total: float, longest: float, shortest: float) -> None:
        """Take durations in that were gathered elsewhere."""
        self.count += count
        self.known += count
        self.total += total
        self.longest = max(self.longest, longest)
        self.shortest = min(self.shortest, shortest)

    def total_us(self, us: float | None) -> float | None:
        """The sum in µs, where the unit is `us` µs long; None where it is not known."""
        return None if us is None or not self.known else self.total * us

    def cells(self, us: float | None, total_of_all: float | None) -> Cells:
        """The last six columns of both statistics."""
        total = self.total_us(us)
        if us is None or total is None:
            return (None, None, self.count, None, None, None)
        ratio = total / total_of_all * 100 if total_of_all else None
        return (ratio, total, self.count, total / self.known, self.longest * us, self.shortest * us)


class _Gathered:
    """Durations of one inference, or of many, by unit and layer name, in the order in which the layers came."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._found: dict[tuple[str, str, str], Durations] = defaultdict(Durations)

    def of(self, unit: str, layer_index: int | None) -> Durations:
        layer = None if layer_index is None else self._layers.get(layer_index)
        if layer is None:
            return self._found[unit, UNITS[unit], UNKNOWN]
        return self._found[unit, UNITS["aicpu" if is_on_ai_cpu(layer.type) else unit], layer.name]

    def rows(self, stream_id: int | None, frequency_mhz: int | None) -> list[Cells]:
        """Rows of OP_STATISTIC; Task ID counts them from 0."""
        us = {"aicore": None if frequency_mhz is None else ticks_to_us(1, frequency_mhz), "aicpu": 1.0}
        total = _sum_or_none(durations.total_us(us[unit]) for (unit, _, _), durations in self._found.items())
        return [
            (task, stream_id, name, task_type, *durations.cells(us[unit], total))
            for task, ((unit, task_type, name), durations) in enumerate(self._found.items())
        ]


async def acl_statistic_rows(calls: AsyncIterator[list[CallRow]]) -> list[Cells]:
    """Rows of ACL_STATISTIC by process, thread and name, in the order in which they first came.

    A call with an unknown begin is in Count, and in no time.
    """
    found: dict[tuple[int, int, str, str], Durations] = defaultdict(Durations)
    async for page in calls:
        for call in page:
            found[call.pid, call.tid, call.type, call.name].add(
                None if call.begin_us is None else call.end_us - call.begin_us
            )
    # A row without any known time takes no share, and does not make the others' unknown.
    total = _sum_or_none(each.total_us(1.0) for each in found.values() if each.known)
    return [(*key, *durations.cells(1.0, total)) for key, durations in found.items()]


def icache_miss_rate(row: InferenceRow) -> str:
    """Return cache_miss / (cache_hit + cache_miss), 0.0000 to 1.0000; NA where one is not known or both are 0."""
    hit, miss = row.cache_hit, row.cache_miss
    return UNKNOWN_FIELD if hit is None or miss is None or not hit + miss else f"{miss / (hit + miss):.4f}"


def _sum_or_none(values: Iterable[float | None]) -> float | None:
    """The sum; None when one is not known."""
    return _total_of(tuple(values), None)

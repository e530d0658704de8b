"""The two tables of layers, op_summary and op_statistic: of each inference, or of the mean of many."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import starmap
from typing import TYPE_CHECKING

from profagent.cli.table import DASH, Cell
from profagent.export.positions import ByPosition
from profagent.export.statistic import AA_CORE, AA_CPU, OpStatistic
from profagent.formats.records import CYCLES_PER_TICK
from profagent.store.queries import layers_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from profagent.cli.table import Cell
    from profagent.store.queries import LayerRow, Scope
    from profagent.store.selection import AicoreRow, AicpuRow, InferenceRow, Selection


# Where the counters begin in an AicoreRow, and how many of them are ratios.
FIRST_COUNTER = 3
RATIOS = 8
COUNTERS = 10


def memory_bound(ratios: Sequence[float | None]) -> float | None:
    """Manual: max(Dstr, DLD, WLD) / max(Mac Busy, Vec Ppen); None where one is not known or the denominator is 0.

    `ratios` are mac_busy, mac_ppen, vec_busy, vec_ppen, dstr, dtrans, dld and wld.
    """
    mac_busy, _, _, vec_ppen, dstr, _, dld, wld = ratios
    if mac_busy is None or vec_ppen is None or dstr is None or dld is None or wld is None:
        return None
    denominator = max(mac_busy, vec_ppen)
    return max(dstr, dld, wld) / denominator if denominator else None


def op_summary_rows(
    records: Iterable[AicoreRow], total_ticks: float, frequency_mhz: int | None, layers: Mapping[int, LayerRow]
) -> Iterator[tuple[Cell, ...]]:
    """Rows of OP_SUMMARY, the total row last; `total_ticks` is the sum over all records.

    The total's ratios are weighted by time and its bytes are sums; they are not known where one record's is not.
    """
    us_per_tick = None if frequency_mhz is None else CYCLES_PER_TICK / frequency_mhz
    total = _Total()
    for record in records:
        total.add(record)
        layer = None if record.layer_index is None else layers.get(record.layer_index)
        names: tuple[Cell, ...] = (None,) * 4 if layer is None else (layer.layer_id, None, layer.name, layer.type)
        yield (*names, *_figures(record.ticks, total_ticks, us_per_tick, record[FIRST_COUNTER:]))
    if total.has_records:
        yield (DASH, DASH, "total", DASH, *_figures(total.ticks, total_ticks, us_per_tick, total.counters()))


def _figures(
    ticks: float, total_ticks: float, us_per_tick: float | None, counters: Sequence[float | None]
) -> tuple[Cell, ...]:
    ratios = counters[:RATIOS]
    read, written = counters[RATIOS:]
    return (
        None if us_per_tick is None else ticks * us_per_tick,
        ticks / total_ticks * 100 if total_ticks else None,
        *(None if ratio is None else ratio * 100 for ratio in ratios),
        memory_bound(ratios),
        read,
        written,
        None if read is None or written is None else read + written,
    )


class _Total:
    """Sums over records; a counter's sum is None from the first record on that does not know it."""

    def __init__(self) -> None:
        self.has_records = False
        self.ticks = 0.0
        self._sums: list[float | None] = [0.0] * COUNTERS

    def add(self, record: AicoreRow) -> None:
        self.has_records = True
        self.ticks += record.ticks
        if self._sums.count(None) == COUNTERS:
            return
        weighted = (
            value if value is None or place >= RATIOS else value * record.ticks
            for place, value in enumerate(record[FIRST_COUNTER:])
        )
        self._sums = list(starmap(_sum_or_none, zip(self._sums, weighted, strict=True)))

    def counters(self) -> list[float | None]:
        return [
            value if value is None or place >= RATIOS else value / self.ticks if self.ticks else None
            for place, value in enumerate(self._sums)
        ]


def _sum_or_none(sum_so_far: float | None, value: float | None) -> float | None:
    return None if sum_so_far is None or value is None else sum_so_far + value


# Models come one after the other; two devices may take turns with the same one.
REMEMBERED_MODELS = 4


@dataclass(frozen=True, slots=True)
class LayerTables:
    """Tables of one inference; `op_summary` is a stream, to be read to its end before `op_statistic` is asked for."""

    inference: InferenceRow
    has_aicore: bool
    op_summary: Iterator[tuple[Cell, ...]]
    op_statistic: Callable[[], list[tuple[Cell, ...]]]


def inference_tables(connection: sqlite3.Connection, scope: Scope, selection: Selection) -> Iterator[LayerTables]:
    """The tables of each chosen inference."""
    frequency_mhz = scope.job.frequency_mhz
    layers_by_model = lru_cache(REMEMBERED_MODELS)(partial(layers_of, connection))
    aicore, aicpu = ByPosition(selection.aicore()), ByPosition(selection.aicpu())
    for inference in selection.inferences():
        layers = layers_by_model(inference.model)
        statistic = OpStatistic(inference.stream_id, frequency_mhz, layers)
        has_aicore = aicore.has(inference.position)
        records = statistic.passing(aicore.at(inference.position))
        rows = op_summary_rows(records, inference.ticks, frequency_mhz, layers)
        yield LayerTables(inference, has_aicore, rows, partial(_with_aicpu, statistic, aicpu, inference.position))


def mean_tables(connection: sqlite3.Connection, scope: Scope, selection: Selection) -> Iterator[LayerTables]:
    """The tables of the mean inference of each device, model, model id and batch, over the chosen ones."""
    frequency_mhz = scope.job.frequency_mhz
    places = ByPosition(selection.places())
    aicore, aicpu = ByPosition(selection.aicore_layers()), ByPosition(selection.aicpu_layers())
    for group in selection.groups():
        layers = layers_of(connection, group.model)
        means = list(places.at(group.position))
        statistic = OpStatistic(group.stream_id, frequency_mhz, layers)
        statistic.add_layers(AA_CORE, aicore.at(group.position))
        statistic.add_layers(AA_CPU, aicpu.at(group.position))
        rows = op_summary_rows(means, sum(mean.ticks for mean in means), frequency_mhz, layers)
        yield LayerTables(group, bool(means), rows, statistic.rows)


def _with_aicpu(statistic: OpStatistic, aicpu: ByPosition[AicpuRow], position: int) -> list[tuple[Cell, ...]]:
    statistic.add_aicpu(aicpu.at(position))
    return statistic.rows()

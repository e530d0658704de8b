"""The two tables of layers, op_summary and op_statistic: of each inference, or of the mean of many."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from profagent.export.op_summary import op_summary_rows
from profagent.export.positions import ByPosition
from profagent.export.statistic import AA_CORE, AA_CPU, OpStatistic
from profagent.store.queries import layers_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    from profagent.cli.table import Cell
    from profagent.store.queries import Scope
    from profagent.store.selection import AicpuRow, InferenceRow, Selection

__all__ = ["LayerTables", "inference_tables", "mean_tables"]

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

"""Series by hand: a JOB of one model, or of several, whose records a test names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from profagent.formats.countermap import COUNTER_NAMES, bound_by
from profagent.formats.inference_times import Spans
from profagent.stats.figures import JobRecords
from profagent.store.queries import LayerRow
from profagent.store.series import CounterSeries, InferenceOf, JobSeries, RecordSeries

# Of a record: inference, layer's index, segment's number, duration.
Rows = Sequence[tuple[int, int, int, float]]
Times = Sequence[tuple[float, float]]
LAYERS = {0: LayerRow(10, "conv0", "Convolution"), 1: LayerRow(11, "conv1", "Convolution"), 2: LayerRow(12, "nms", "N")}


def inferences(*loads: int, model: int = 1, name: str = "m") -> list[InferenceOf]:
    """So many inferences in each load."""
    return [InferenceOf(model, name, 0, 1, 1, load, pic) for load, count in enumerate(loads) for pic in range(count)]


def records(rows: Rows) -> RecordSeries:
    columns = list(zip(*rows, strict=True)) or [()] * 4
    inference, layer, net = (np.array(column, np.int64) for column in columns[:3])
    return RecordSeries(inference, layer, net, np.array(columns[3], np.float64))


def _spans(times: Times, count: int) -> Spans:
    return Spans(*np.array(times or [(np.nan, np.nan)] * count, np.float64).T)


def job(
    of: Sequence[InferenceOf],
    aicore: Rows,
    aicpu: Rows = (),
    *,
    us_per_tick: float | None = 1.0,
    layers: Mapping[int, Mapping[int, LayerRow]] | None = None,
    ratios: float | None = None,
    whole: Times = (),
    calls: Times = (),
) -> JobRecords:
    """A JOB; with `ratios` each aicore record has this value for each of them.

    `whole` and `calls` are begins and ends of the inferences' records and calls, not known unless they are given.
    """
    cores = records(aicore)
    counters = None if ratios is None else CounterSeries(cores, np.full((len(cores.layer), len(COUNTER_NAMES)), ratios))
    models = {row.model for row in of}
    series = JobSeries(list(of), cores, records(aicpu), counters, _spans(whole, len(of)), _spans(calls, len(of)))
    return JobRecords(series, {model: (layers or {}).get(model, LAYERS) for model in models}, us_per_tick, bound_by)

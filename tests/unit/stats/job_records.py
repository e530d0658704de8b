"""Records of a JOB by hand: of one model, or of several, whose records a test names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from profagent.formats.countermap import COUNTER_NAMES, bound_by
from profagent.formats.inference_times import Spans
from profagent.formats.names import LogKind
from profagent.stats.figures import CounterSample, InferenceOf, JobRecords
from profagent.store.columns import RecordTable, Segments
from profagent.store.queries import LayerRow

# Of a record: inference, layer's index, segment's number, duration.
Rows = Sequence[tuple[int, int, int, float]]
Times = Sequence[tuple[float, float]]
LAYERS = {0: LayerRow(10, "conv0", "Convolution"), 1: LayerRow(11, "conv1", "Convolution"), 2: LayerRow(12, "nms", "N")}


def inferences(*loads: int, model: int = 1, name: str = "m") -> list[InferenceOf]:
    """So many inferences in each load."""
    return [InferenceOf(model, name, 0, 1, 1, load, pic) for load, count in enumerate(loads) for pic in range(count)]


def records(kind: LogKind, rows: Rows) -> RecordTable:
    """A segment for each record."""
    columns = list(zip(*rows, strict=True)) or [()] * 4
    inference, layer, net = (np.array(column, np.int64) for column in columns[:3])
    place, duration = np.arange(len(rows)), np.array(columns[3], np.float64)
    unknown = np.full(len(rows), np.nan)
    segments = Segments(
        place, inference, place, np.full(len(rows), kind is LogKind.AICPU), net, unknown, unknown, place, place
    )
    times = {"ticks": duration} if kind is LogKind.AICORE else {"begin_us": duration * 0, "end_us": duration}
    return RecordTable(kind, segments, place, {"layer_index": layer, **times})


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
    cores = records(LogKind.AICORE, aicore)
    counters = None if ratios is None else CounterSample(cores, np.full((len(cores), len(COUNTER_NAMES)), ratios))
    return JobRecords(
        list(of),
        [*range(1, len(of) + 1)],
        cores,
        records(LogKind.AICPU, aicpu),
        counters,
        _spans(whole, len(of)),
        _spans(calls, len(of)),
        {each.model: (layers or {}).get(each.model, LAYERS) for each in of},
        us_per_tick,
        bound_by,
    )

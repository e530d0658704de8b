"""Figures that represent a session's records: figures of each layer and of each model's latency, and histograms.

Histograms of several sessions add up: a bucket is 0.2 % wide, so that a quantile over all is known to 0.1 %, and to
0.4 % where a flight recorder has thinned inferences. Figures that histograms cannot give, as the deviation from the
median, exist for each session only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.inference_times import share_within
from profagent.limits import READERS
from profagent.stats.figures import figures_of
from profagent.stats.session_figures import joined_us
from profagent.stats.stats import gathered
from profagent.stats.thinned import is_thinned
from profagent.store.database import readings
from profagent.store.frame_times import FrameTimes
from profagent.store.frames import frames_of
from profagent.store.queries import Scope, find_session, jobs_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from profagent.formats.durations import Distribution
    from profagent.store.database import Running

# Ratio of a bucket's upper to its lower bound.
GAMMA = 1.001 / 0.999
# A bin of thinned times is twice as wide as a bucket: its times are spread over so many parts.
_PARTS = 4
LAYER, LATENCY = "layer", "latency"
# The model under which a lake has the frames of programs that number them: their latency, and their stages and waits
# as its layers.
FRAMES = "(frames)"


class LayerFigures(NamedTuple):
    """Row of `layers`: a layer of a model, or its inferences (`kind` latency). Times are in `measure`, us or ticks."""

    kind: str
    model: str
    layer: str | None
    type: str | None
    unit: str | None
    measure: str
    number: int
    total: float | None
    mean: float | None
    median: float | None
    mad: float | None
    p95: float | None
    p99: float | None
    max: float | None
    min: float | None
    share: float | None
    in_inference: float | None
    bound: str | None


class Bucket(NamedTuple):
    """Row of `histograms`: `number` times from GAMMA to the power of `bucket` up to the next; NULL has times of 0."""

    kind: str
    model: str
    layer: str | None
    type: str | None
    unit: str | None
    measure: str
    bucket: int | None
    number: int


async def aggregates(database: Path, session: int) -> tuple[list[LayerFigures], list[Bucket]]:
    """Return the figures and the histograms of a session, of the inferences that `stats` counts. Raises StoreError."""
    async with readings(database, READERS) as readers:
        found = await find_session(readers[0], session)
        scopes = [Scope(found, row) for row in await jobs_of(readers[0], session)]
        figures = await gathered(readers, scopes, ("layer", "model"))
        frames = await _frames(readers[0], session)
    layers: list[LayerFigures] = []
    buckets: list[Bucket] = []
    measure = figures.unit("layer")
    durations, thinned = figures.durations("layer"), figures.thinned("layer")
    for row in figures.rows("layer"):
        times = joined_us(durations.get(row.key, ()))
        model, layer, kind, unit = row.key
        name, of_inference = (LAYER, model, layer, kind, unit, measure), (row.share, row.in_inference, row.bound)
        of_thinned = thinned.get(row.key)
        layers.append(LayerFigures._make((*name, *row.figures, _least(times, of_thinned), *of_inference)))
        buckets += [Bucket(*name, *each) for each in histogram(times, of_thinned)]
    latencies = {each.model: each for each in figures.inference_times()}
    for each in figures.models():
        times, of_thinned = latencies[each.model].times[:, 0], latencies[each.model].latency
        latency = (LATENCY, each.model, None, None, None, "us")
        layers.append(LayerFigures._make((*latency, *each.latency, _least(times, of_thinned), None, None, None)))
        buckets += [Bucket(*latency, *found) for found in histogram(times, of_thinned)]
    for of_part, histogram_of_part in frames:
        layers.append(of_part)
        buckets += histogram_of_part
    return layers, buckets


async def _frames(connection: Running, session: int) -> list[tuple[LayerFigures, list[Bucket]]]:
    joined = await frames_of(connection, session)
    # Frames that are joined by order would repeat the latencies of models.
    if joined.joined_by != "number":
        return []
    frames = FrameTimes()
    async for page in joined.pages():
        frames.add(page)
    us = frames.us[~np.isnan(frames.us)]
    whole = float(us.sum())
    # After a flight recorder most calls have no records, and their parts would be those of the kept inferences alone.
    unknown = joined.work.part_names() if await is_thinned(connection, session) else ()
    found = [_of_frames((LATENCY, FRAMES, None, None, None, "us"), us, None, len(us))]
    for part in frames.part_names():
        if part.name in unknown:
            continue
        key = (LAYER, FRAMES, part.name, "wait" if part.is_wait else "stage", None, "us")
        found.append(_of_frames(key, frames.part_us(part), whole, len(us)))
    return found


def _of_frames(
    key: tuple[str | None, ...], us: NDArray[np.float64], whole: float | None, frames: int
) -> tuple[LayerFigures, list[Bucket]]:
    total = float(us.sum())
    of_frame = (None, None) if whole is None else (share_within(total, whole), total / frames)
    row = LayerFigures._make((*key, *figures_of(us), _least(us), *of_frame, None))
    return row, [Bucket._make((*key, *each)) for each in histogram(us)]


def _least(times: NDArray[np.float64], thinned: Distribution | None = None) -> float | None:
    known = [*times[~np.isnan(times)].tolist(), *([] if thinned is None else [thinned.least])]
    return min(known, default=None)


def histogram(times: NDArray[np.float64], thinned: Distribution | None = None) -> Iterator[tuple[int | None, int]]:
    """Yield the buckets that contain times, each with its count; NaN is in none, and None is the bucket of 0.

    Thinned times are in wider bins, whose counts are spread over the buckets.
    """
    counts = np.ones(len(times), np.int64)
    if thinned is not None:
        values, of_values = thinned.spread(_PARTS)
        times, counts = np.concatenate([times, values]), np.concatenate([counts, of_values])
    buckets = np.floor(np.log(times[times > 0]) / np.log(GAMMA)).astype(np.int64)
    numbers, places = np.unique(buckets, return_inverse=True)
    sums = np.zeros(len(numbers), np.int64)
    np.add.at(sums, places, counts[times > 0])
    yield from zip(numbers.tolist(), sums.tolist(), strict=True)
    if zeros := int(counts[times == 0].sum()):
        yield None, zeros

"""Inferences of a page as slices: an inference encloses its segments, and each segment its layers."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from profagent.export.blocks import (
    Counters,
    Flow,
    Label,
    Labels,
    Series,
    Slices,
    Values,
    args_text,
    integers,
)
from profagent.formats.countermap import MAPPED_RATIOS
from profagent.formats.names import LogKind
from profagent.formats.records import CYCLES_PER_TICK
from profagent.limits import LATEST_US
from profagent.tables.table import UNKNOWN
from profagent.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.export.blocks import TraceClock
    from profagent.export.tracks import Tracks
    from profagent.store.columns import RecordTable, Segments
    from profagent.store.inference_pages import InferencePage
    from profagent.store.queries import LayerRow

# Times in a `.done` file are whole µs, so neighbours may seem to overlap by less than one.
SLACK_NS = 1000
PMU = "PMU"
COLUMNS = {
    LogKind.AICORE: ("layer_index", "ticks", "ticks_before"),
    LogKind.AICPU: ("layer_index", "begin_us", "end_us"),
}
WITH_RATIOS = {**COLUMNS, LogKind.AICORE: (*COLUMNS[LogKind.AICORE], *MAPPED_RATIOS)}


class _SegmentSlice:
    """Slice of a segment, which encloses all its layers; `begin` and `end` are the range of its layers in the columns.

    `is_row` is True if each layer ends before the next begins, `has_ratios` if a layer has PMU ratios.
    """

    __slots__ = ("begin", "end", "end_ns", "has_ratios", "is_row", "label", "start_ns")

    def __init__(self, label: Label, begin: int, end: int, times: Sequence[int]) -> None:
        self.label, self.begin, self.end = label, begin, end
        self.start_ns, self.end_ns = min(times), max(times)
        self.is_row = self.has_ratios = False


class InferenceBlocks:
    """Blocks of a page of inferences. Each slice encloses its parts, even where times in `.done` files are too coarse.

    The constructor does the expensive part of the work, so that it can run in another process.
    """

    def __init__(self, page: InferencePage, clock: TraceClock, frequency_mhz: int | None) -> None:
        # Spans of the page's inferences, in the order of their positions.
        self.spans = page.spans
        # This object is sent between processes, so it holds columns and the clock only, no database.
        self._clock = clock
        self._place_layers(page, frequency_mhz)
        self._segments = self._segments_by_position(page.segments)

    def _place_layers(self, page: InferencePage, frequency_mhz: int | None) -> None:
        """Make the columns of all layers with a known place in time, ordered by segment and start.

        Sets `unplaced` to the number of the other records.
        """
        aicore, aicpu = page.aicore, page.aicpu
        ns_per_tick = np.nan if frequency_mhz is None else CYCLES_PER_TICK * NS_PER_US / frequency_mhz
        starts_us = aicore.segments.start_us.tolist()
        starts_ns = np.array([np.nan if np.isnan(start) else self._clock.ns(start) for start in starts_us], np.float64)
        # An end is computed in the same way as the start of the next layer, so that neighbours meet exactly.
        base = starts_ns[aicore.segment]
        known = ~np.isnan(base) & ~np.isnan(ns_per_tick)
        base_ns = np.where(known, base, 0.0).astype(np.int64)
        before = aicore.columns["ticks_before"]
        ticks = [np.rint(np.where(known, each * ns_per_tick, 0.0)) for each in (before, before + aicore.duration)]
        starts, ends = (base_ns + each.astype(np.int64) for each in ticks)
        begin_us, end_us = aicpu.columns["begin_us"], aicpu.columns["end_us"]
        cpu_known = (end_us >= begin_us) & (end_us < LATEST_US)
        cpu_starts, cpu_ends = (self._clock.column_ns(each[cpu_known]) for each in (begin_us, end_us))
        self.unplaced = int((~known).sum() + (~cpu_known).sum())
        is_cpu = np.repeat([0, 1], [known.sum(), cpu_known.sum()])
        segment = np.concatenate([_segment_numbers(aicore)[known], _segment_numbers(aicpu)[cpu_known]])
        start = np.concatenate([starts[known], cpu_starts])
        order = np.lexsort((start, segment))
        # Columns of the placed layers: number of their segment, start and end in ns, kind (twice the layer's index,
        # plus 1 on the CPU), and ratios (a column for each of MAPPED_RATIOS that the records have).
        self._segment, self._start = segment[order], start[order]
        self._end = np.concatenate([ends[known], cpu_ends])[order]
        layer = np.concatenate([aicore.layer[known], aicpu.layer[cpu_known]])
        self._kind = (layer * 2 + is_cpu)[order]
        names = [name for name in MAPPED_RATIOS if name in aicore.columns]
        ratios = np.full((len(order), len(names)), np.nan)
        for place, name in enumerate(names):
            ratios[: int(known.sum()), place] = aicore.columns[name][known]
        self._ratios = ratios[order]

    def _segments_by_position(self, segments: Segments) -> dict[int, list[_SegmentSlice]]:
        if not len(self._segment):
            return {}
        begins = np.append(0, (self._segment[1:] != self._segment[:-1]).nonzero()[0] + 1)
        ours = segments.at(np.searchsorted(segments.number, self._segment[begins]))
        found = self._segments_at(begins, ours)
        by_position: dict[int, list[_SegmentSlice]] = {}
        for position, segment in zip(ours.inference.tolist(), found, strict=True):
            by_position.setdefault(position, []).append(segment)
        for of_inference in by_position.values():
            of_inference.sort(key=lambda segment: (segment.start_ns, -segment.end_ns))
            _absorb_slack(of_inference)
        # Slack moved the starts of segments: layers are cut to lie within them.
        starts = np.repeat([segment.start_ns for segment in found], np.diff(np.append(begins, len(self._segment))))
        self._start = np.maximum(self._start, starts)
        self._end = np.maximum(self._end, self._start)
        follows = np.append(True, self._start[1:] >= self._end[:-1])
        follows[begins] = True
        are_rows = np.logical_and.reduceat(follows, begins).tolist()
        ratios = np.logical_or.reduceat(~np.isnan(self._ratios).all(axis=1), begins).tolist()
        for segment, is_row, has_ratios in zip(found, are_rows, ratios, strict=True):
            segment.is_row, segment.has_ratios = is_row, has_ratios
        return by_position

    def _segments_at(self, begins: NDArray[np.int64], segments: Segments) -> list[_SegmentSlice]:
        ends = np.append(begins[1:], len(self._segment))
        last = np.maximum.reduceat(self._end, begins)
        columns = self._start[begins], last, begins, ends, segments.is_aicpu, segments.net
        known = zip(segments.start_us.tolist(), segments.end_us.tolist(), strict=True)
        found: list[_SegmentSlice] = []
        for times_us, (first_ns, last_ns, begin, end, is_aicpu, net) in zip(
            known, zip(*(column.tolist() for column in columns), strict=True), strict=True
        ):
            times = [first_ns, last_ns, *(self._clock.ns(time) for time in times_us if not math.isnan(time))]
            found.append(_SegmentSlice(_segment_label(is_aicpu, net), begin, end, times))
        return found

    def blocks(
        self, tracks: Tracks, process: str, layers: Mapping[int, LayerRow], executed: Collection[int]
    ) -> Iterator[Counters | Slices]:
        """Yield a block of PMU counters, which fall to 0 at the end of each inference, and a block of all slices.

        `executed` are the inferences that an arrow from a call leads to.
        """
        labels, flows = Labels(), []
        outer: list[tuple[int, int, int, int]] = []
        ends: list[int] = []
        layer_track = np.zeros(len(self._segment), np.int64)
        for span in self.spans:
            segments = self._segments.get(span.position, [])
            times = [self._clock.ns(time) for time in (span.start_us, span.end_us) if time is not None]
            times += [time for each in segments for time in (each.start_ns, each.end_ns)]
            if not times:
                continue
            start_ns, end_ns = min(times), max(times)
            place = process, f"{'' if span.stream_id is None else f'stream {span.stream_id} '}inferences"
            args = args_text({"current_pic_count": span.current_pic_count})
            label = labels.of(Label(f"inference {span.current_pic_count}", "inference", args))
            outer.append((label, tracks.take(*place, start_ns, end_ns), start_ns, end_ns))
            for segment, own in zip(segments, _segment_tracks(segments, place), strict=True):
                track = tracks.take(*own, segment.start_ns, segment.end_ns)
                outer.append((labels.of(segment.label), track, segment.start_ns, segment.end_ns))
                layer_track[segment.begin : segment.end] = self._layer_tracks(segment, track, tracks, own)
            if span.inference in executed and segments:
                # The arrow passes through all segments of the inference, and ends at the last one.
                first = len(outer) - len(segments)
                flows += [(first + at, "t", span.inference) for at in range(len(segments))]
                flows[-1] = (len(outer) - 1, "f", span.inference)
            if any(segment.has_ratios for segment in segments):
                ends.append(end_ns)
        pid = tracks.process(process)
        if ends:
            zeros = tuple(Series(pid, PMU, name) for name in MAPPED_RATIOS)
            columns = np.zeros(len(ends), np.int64), integers(ends), np.zeros((len(ends), len(MAPPED_RATIOS)))
            yield Counters([zeros], *columns)
        if outer:
            kinds, kind = np.unique(self._kind, return_inverse=True)
            numbers = integers([labels.of(_layer_label(each, layers)) for each in kinds.tolist()])
            of_layers = numbers[kind] if len(kinds) else kind, layer_track
            yield self._slices(labels, outer, of_layers, pid, flows)

    def _layer_tracks(
        self, segment: _SegmentSlice, track: int, tracks: Tracks, place: tuple[str, str]
    ) -> int | list[int]:
        # Layers that do not overlap share the track of their segment; others need a lane each.
        if segment.is_row:
            return track
        own = slice(segment.begin, segment.end)
        pairs = zip(self._start[own].tolist(), self._end[own].tolist(), strict=True)
        return [tracks.take(*place, *pair) for pair in pairs]

    def _slices(
        self,
        labels: Labels,
        outer: Sequence[tuple[int, int, int, int]],
        of_layers: tuple[NDArray[np.int64], NDArray[np.int64]],
        pid: int,
        flows: Sequence[tuple[int, str, int]],
    ) -> Slices:
        columns = np.array(outer, np.int64).T
        found = (*of_layers, self._start, self._end)
        label, track, start, end = (np.concatenate(pair) for pair in zip(columns, found, strict=True))
        # The stable order leaves inferences and segments, which come first, before layers that start with them.
        order = np.argsort(start, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        values = None
        # Without a counter map no layer has ratios, and the block needs no columns for them.
        if not np.isnan(self._ratios).all():
            above = np.full((len(outer), len(MAPPED_RATIOS)), np.nan)
            values = Values(pid, PMU, MAPPED_RATIOS, np.concatenate([above, self._ratios])[order])
        arrows = tuple(Flow(int(place[at]), what, number) for at, what, number in flows)
        return Slices(labels.all, label[order], track[order], start[order], end[order], values, arrows)


def _segment_numbers(table: RecordTable) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = table.segments.number[table.segment]
    return numbers


def _layer_label(kind: int, layers: Mapping[int, LayerRow]) -> Label:
    index, is_cpu = divmod(kind, 2)
    category = "cpu-layer" if is_cpu else "layer"
    layer = layers.get(index)
    if layer is None:
        return Label(UNKNOWN, category)
    return Label(layer.name, category, args_text({"type": layer.type}))


@lru_cache
def _segment_label(is_aicpu: bool, net: int) -> Label:
    unit, category = ("CPU", "cpu-segment") if is_aicpu else ("NPU", "segment")
    return Label(f"{unit} segment {net}", category)


def _segment_tracks(segments: Sequence[_SegmentSlice], place: tuple[str, str]) -> list[tuple[str, str]]:
    # Segments of streams that run at the same time get a track each: on one track, the layers of one segment would be
    # drawn among those of another.
    is_parallel = any(after.start_ns < before.end_ns for before, after in pairwise(segments))
    return [(place[0], segment.label.name) if is_parallel else place for segment in segments]


def _absorb_slack(segments: Sequence[_SegmentSlice]) -> None:
    """Move the start of each segment that overlaps its forerunner by less than a µs to the forerunner's end."""
    for before, segment in pairwise(segments):
        if segment.start_ns < before.end_ns <= segment.start_ns + SLACK_NS:
            segment.start_ns = min(before.end_ns, segment.end_ns)

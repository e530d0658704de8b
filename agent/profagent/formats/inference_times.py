"""The two times of an inference, latency and layers, and a layer's share of them. Pure.

    latency  what the program waited: the call that ran the inference, where calls are recorded; else from the first
             begin to the last end on both processors
    layers   the sum of the layers that were recorded, on both processors

Times are columns of float64 with one value for each inference, NaN where a time is unknown. Live code passes columns of
length 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.limits import MOST_OVERLAPPING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

NOT_IN_ANY_LAYER = "not in any layer"
# Ids of the calls that run an inference or wait for one (the-format.md 3.3).
EXECUTE, EXECUTE_ASYNC, SYNCHRONIZE = 2, 3, 4
# Begin and end are rounded to microseconds, so layers may exceed the time that contains them by this much.
ROUNDING_US = 2.0


class LatencyFrom(StrEnum):
    """Origin of a latency: the inference's call, or the begins and ends of its records."""

    CALL = "call"
    RECORDS = "records"


# Share of the inferences above which their common number of records is the usual one.
MOST = 0.5
# Rounding in files may lift a part above the whole by this factor.
ROUNDING = 1.001


def share_within(total_us: float, whole_us: float) -> float | None:
    """Return the share of a whole in %; None for a time longer than the whole, which cannot lie inside of it."""
    return min(total_us / whole_us, 1.0) * 100 if whole_us > 0 and total_us <= whole_us * ROUNDING else None


class Spans(NamedTuple):
    """Begin and end of each inference, in µs."""

    begin_us: Floats
    end_us: Floats

    @property
    def us(self) -> Floats:
        """Duration of each inference in µs; NaN where an end is unknown, or lies before its begin."""
        us = self.end_us - self.begin_us
        return np.where(us >= 0, us, np.nan)

    def at(self, places: NDArray[np.integer] | NDArray[np.bool_]) -> Spans:
        """Return the spans of some of the inferences."""
        return Spans(self.begin_us[places], self.end_us[places])

    def where(self, is_known: NDArray[np.bool_]) -> Spans:
        """Return the spans, with NaN where `is_known` is False."""
        return Spans(*(np.where(is_known, each, np.nan) for each in self))


def joined_spans(parts: Sequence[Spans]) -> Spans:
    """Return the spans of several JOBs, one after the other."""
    return Spans(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


# Begin and end on a processor that an inference does not use: neutral for minimum and maximum.
UNUSED = (np.inf, -np.inf)


def whole_spans(units: Sequence[Spans]) -> Spans:
    """Return the first begin to the last end over the processors.

    NaN where the time on a processor is unknown, or none was used; UNUSED marks a processor without a part.
    """
    begin_us = np.minimum.reduce([each.begin_us for each in units])
    end_us = np.maximum.reduce([each.end_us for each in units])
    return Spans(*(np.where(begin_us == UNUSED[0], np.nan, each) for each in (begin_us, end_us)))


class Calls:
    """Calls of one model's acl_api log, in which inferences find their own.

    `begin_us` is 0 for a call that began before profiling was started: such a call belongs to no inference.
    """

    def __init__(self, api: NDArray[np.integer], begin_us: NDArray[np.number], end_us: NDArray[np.number]) -> None:
        begin, end = begin_us.astype(np.float64), end_us.astype(np.float64)
        is_execute, is_async = ((api == each) & (begin > 0) for each in (EXECUTE, EXECUTE_ASYNC))
        # In the order of their ends, so that a binary search finds the first call that ended with or after an
        # inference.
        order = np.argsort(end[is_execute], kind="stable")
        self._execute = Spans(begin[is_execute][order], end[is_execute][order])
        # Sorted times of asynchronous calls, and of the synchronizes that end them.
        self._async_begins = np.sort(begin[is_async])
        self._sync_ends = np.sort(end[api == SYNCHRONIZE])

    def spans(self, whole: Spans) -> Spans:
        """Return the call of each inference, which contains its span; NaN if none does, or several may be it.

        An asynchronous call lasts until the end of the first synchronize that ends at or after the inference.
        """
        found = self._synchronous(whole)
        missing = np.isnan(found.begin_us)
        if missing.any() and len(self._async_begins):
            other = self._asynchronous(whole)
            found = Spans(*(np.where(missing, new, old) for old, new in zip(found, other, strict=True)))
        return found

    def _synchronous(self, whole: Spans) -> Spans:
        """Return the call that ends first of those that contain an inference: it returned at the inference's end."""
        begin, end = np.full((2, len(whole.begin_us)), np.nan)
        first = np.searchsorted(self._execute.end_us, whole.end_us)
        for place in (first + step for step in range(min(MOST_OVERLAPPING, len(self._execute.end_us)))):
            call = place.clip(max=len(self._execute.end_us) - 1)
            fits = np.isnan(begin) & (place == call) & (self._execute.begin_us[call] <= whole.begin_us)
            begin[fits], end[fits] = self._execute.begin_us[call][fits], self._execute.end_us[call][fits]
        return Spans(begin, end)

    def _asynchronous(self, whole: Spans) -> Spans:
        """Return the only call that was waiting when the inference began."""
        begins, ends = self._async_begins, self._sync_ends
        # How many calls had begun and how many synchronizes had ended when the inference began.
        begun = np.searchsorted(begins, whole.begin_us, side="right")
        synchronized = np.searchsorted(ends, whole.begin_us, side="right")
        last_us = np.append(-np.inf, ends)[synchronized]
        # With several calls since the last synchronize it is unknown which of them ran the inference.
        is_only = begun - np.searchsorted(begins, last_us, side="right") == 1
        end = np.append(ends, np.nan)[np.searchsorted(ends, whole.end_us)]
        is_known = is_only & ~np.isnan(whole.begin_us) & ~np.isnan(end)
        return Spans(np.where(is_known, begins[begun - 1], np.nan), np.where(is_known, end, np.nan))


class Latency(NamedTuple):
    """Latency of inferences that are compared with each other; `origin` is None where none is known."""

    spans: Spans
    origin: LatencyFrom | None

    @property
    def us(self) -> Floats:
        """Latency of each inference in µs; NaN where unknown."""
        return self.spans.us


def latency_of(whole: Spans, calls: Spans) -> Latency:
    """Return the latency of inferences, all of one origin, because a call takes longer than what it runs.

    The origin is the calls where at least half of the inferences have theirs; the others' latency is unknown then.
    """
    by_call, by_records = (int((~np.isnan(each.us)).sum()) for each in (calls, whole))
    if by_call and 2 * by_call >= by_records:
        return Latency(calls, LatencyFrom.CALL)
    return Latency(whole, LatencyFrom.RECORDS if by_records else None)


class InferencePace(NamedTuple):
    """Inferences per second, and the median gap between an inference and the next in µs; None if unknown.

    A gap below 0 means that inferences overlap.
    """

    per_second: float | None
    gap_us: float | None


def pace_of(loads: Iterable[tuple[Spans, NDArray[np.number]]]) -> InferencePace:
    """Return the pace of a model: for each load the latencies' spans, and how many inferences ran before each.

    Inferences that were not sampled are counted: where n steps lie between two samples, the gap is the n-th part of the
    time between their begins, less the latency of the first.
    """
    times, numbers, gaps = 0.0, 0.0, [np.empty(0)]
    for spans, ran_before in loads:
        known = ~np.isnan(spans.us)
        step_us, step = np.diff(spans.begin_us[known]), np.diff(ran_before[known].astype(np.float64))
        # A clock that was set back, or inferences out of order, give no pace.
        is_forward = (step > 0) & (step_us > 0)
        times += float(step_us[is_forward].sum())
        numbers += float(step[is_forward].sum())
        gaps.append(step_us[is_forward] / step[is_forward] - spans.us[known][:-1][is_forward])
    if not times:
        return InferencePace(None, None)
    return InferencePace(numbers / times * 1e6, float(np.median(np.concatenate(gaps))))


def layer_times(
    inference: NDArray[np.integer], layer: NDArray[np.integer], duration: Floats, counts: NDArray[np.int64]
) -> Floats:
    """Return the time of each layer in each inference, shape (inferences, layers), NaN where it has no record.

    The first three arguments are columns of records: places of the inference and of the layer, and the duration.
    Records of one layer are added up; `counts` is that of `record_counts`.
    """
    sums: Floats = np.bincount(inference * counts.shape[1] + layer, duration, counts.size).astype(np.float64)
    return np.where(counts > 0, sums.reshape(counts.shape), np.nan)


def record_counts(
    inference: NDArray[np.integer], layer: NDArray[np.integer], shape: tuple[int, int]
) -> NDArray[np.int64]:
    """Return the number of records of each layer in each inference, shape (inferences, layers)."""
    return np.bincount(inference * shape[1] + layer, minlength=shape[0] * shape[1]).reshape(shape)


def lacks_records(counts: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return a mask of inferences with fewer records of a layer than most have, in the shape of `counts`."""
    lacks = np.zeros(counts.shape, np.bool_)
    if len(counts):
        (differing,) = (np.ptp(counts, axis=0) > 0).nonzero()
        for place in differing.tolist():
            found = counts[:, place]
            usual = np.median(found)
            if (found == usual).mean() > MOST:
                lacks[:, place] = found < usual
    return lacks


class Recorded(NamedTuple):
    """Sum of each layer's times over some inferences, and how many of the `inferences` have a record of the layer."""

    sums: Floats
    recorded: NDArray[np.integer]
    inferences: int


def completed(times: Floats, others: Recorded | None = None) -> Floats:
    """Return `layer_times` with missing times filled in, so that an inference that lacks a record is not faster.

    A layer that at least half of the inferences recorded is in all of them, and gets its mean where the runtime dropped
    the record. Inferences without a record of any other layer did not run that layer, which gets 0. The means are also
    over `others`.
    """
    recorded, sums, inferences = (~np.isnan(times)).sum(axis=0), np.nansum(times, axis=0), len(times)
    if others is not None:
        sums, recorded, inferences = sums + others.sums, recorded + others.recorded, inferences + others.inferences
    means = time_in_inference(sums, recorded, inferences)
    return np.where(np.isnan(times), np.where(2 * recorded >= inferences, means, 0.0), times)


def time_in_inference(sums: Floats, recorded: NDArray[np.integer], inferences: int) -> Floats:
    """Return the mean time of each layer in an inference, as after `completed`.

    `sums` are the times over all inferences, `recorded` is how many of the `inferences` have a record of the layer.
    """
    # The rule of `completed`: a missing record of a usual layer is no time of 0.
    divisors = np.where(2 * recorded >= inferences, recorded, inferences)
    return np.divide(sums, divisors, out=np.zeros(len(divisors)), where=divisors > 0)


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of a model's mean inference, in µs (or all in ticks).

    `layers_us` is the sum of its layers' times, each as in `time_in_inference`; `latency_us` the mean latency, None
    where unknown.
    """

    layers_us: float
    latency_us: float | None

    @property
    def whole_us(self) -> float:
        """Time to which shares refer: the latency, or else the layers."""
        return self.layers_us if self.latency_us is None else self.latency_us

    @property
    def rest_us(self) -> float | None:
        """Time that no layer explains; None if the latency is unknown, or the layers take more (`is_too_much`)."""
        if self.latency_us is None or self.is_too_much:
            return None
        return max(self.latency_us - self.layers_us, 0.0)

    @property
    def is_too_much(self) -> bool:
        """True if the layers take more than the latency, because they overlap."""
        return self.latency_us is not None and self.layers_us > self.latency_us + ROUNDING_US

    def share(self, us: float) -> float | None:
        """Return a time's share of the inference in %; None where nothing takes any time."""
        return us / self.whole_us * 100 if self.whole_us else None


def recorded_text(recorded: int | None, known: int | None) -> str:
    """Return a text as `83 of 88 layers recorded`; both are None where the model's table of layers is missing."""
    if recorded is None or known is None:
        return "how many of its layers were recorded is not known"
    return f"{recorded:,} of {known:,} layers recorded"

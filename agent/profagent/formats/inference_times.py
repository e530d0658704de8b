"""The two times of an inference, latency and layers, and the share that a layer has of it. Pure.

    latency  what the program waited: the call that ran the inference, where calls are recorded; else from the first
             begin to the last end on both processors
    layers   the sum of the layers that were recorded, on both processors

Times are columns of float64 with one value for each inference, NaN where a time is not known. Live code asks with
columns of length 1.
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
# The ids of the calls that run an inference or wait for one (format page 3.3).
EXECUTE, EXECUTE_ASYNC, SYNCHRONIZE = 2, 3, 4
# Begin and end are whole microseconds each, so that layers may take so much more than the time that holds them.
ROUNDING_US = 2.0


class LatencyFrom(StrEnum):
    """Where a latency comes from: the inference's call, or the begins and ends of what was recorded of it."""

    CALL = "call"
    RECORDS = "records"


# What more than this part of the inferences have is what most have.
MOST = 0.5
# What is rounded in a file may be a little more than the whole that it is a part of.
ROUNDING = 1.001


def share_within(total_us: float, whole_us: float) -> float | None:
    """The share of a whole in %; None of what takes longer than the whole, and so does not lie inside of it."""
    return min(total_us / whole_us, 1.0) * 100 if whole_us > 0 and total_us <= whole_us * ROUNDING else None


class Spans(NamedTuple):
    """Begin and end of each inference, in µs."""

    begin_us: Floats
    end_us: Floats

    @property
    def us(self) -> Floats:
        """The duration of each; NaN where an end is not known, or lies before its begin."""
        us = self.end_us - self.begin_us
        return np.where(us >= 0, us, np.nan)

    def at(self, places: NDArray[np.integer] | NDArray[np.bool_]) -> Spans:
        """Return the spans of some of the inferences."""
        return Spans(self.begin_us[places], self.end_us[places])

    def where(self, is_known: NDArray[np.bool_]) -> Spans:
        """Return the spans, NaN where they are not known."""
        return Spans(*(np.where(is_known, each, np.nan) for each in self))


def joined_spans(parts: Sequence[Spans]) -> Spans:
    """The spans of several JOBs, one after the other."""
    return Spans(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


# Begin and end on a processor that an inference does not use.
UNUSED = (np.inf, -np.inf)


def whole_spans(units: Sequence[Spans]) -> Spans:
    """Return the first begin to the last end over the processors.

    NaN where a processor's part is not known, or none was used; UNUSED says that an inference has no part there.
    """
    begin_us = np.minimum.reduce([each.begin_us for each in units])
    end_us = np.maximum.reduce([each.end_us for each in units])
    return Spans(*(np.where(begin_us == UNUSED[0], np.nan, each) for each in (begin_us, end_us)))


class Calls:
    """The calls of one model's acl_api log, by which inferences find their own.

    `begin_us` is 0 for a call that began before profiling was started: it is no inference's.
    """

    def __init__(self, api: NDArray[np.integer], begin_us: NDArray[np.number], end_us: NDArray[np.number]) -> None:
        begin, end = begin_us.astype(np.float64), end_us.astype(np.float64)
        is_execute, is_async = ((api == each) & (begin > 0) for each in (EXECUTE, EXECUTE_ASYNC))
        order = np.argsort(end[is_execute], kind="stable")
        self._execute = Spans(begin[is_execute][order], end[is_execute][order])
        self._async_begins = np.sort(begin[is_async])
        self._sync_ends = np.sort(end[api == SYNCHRONIZE])

    def spans(self, whole: Spans) -> Spans:
        """The call of each inference, which contains `whole`; NaN where none does, or several may be it.

        An asynchronous call lasts until the end of the first synchronize that ends at or after the inference.
        """
        found = self._synchronous(whole)
        missing = np.isnan(found.begin_us)
        if missing.any() and len(self._async_begins):
            other = self._asynchronous(whole)
            found = Spans(*(np.where(missing, new, old) for old, new in zip(found, other, strict=True)))
        return found

    def _synchronous(self, whole: Spans) -> Spans:
        """Take, of calls that contain an inference, that which ends first: it returned when the inference had ended."""
        begin, end = np.full((2, len(whole.begin_us)), np.nan)
        first = np.searchsorted(self._execute.end_us, whole.end_us)
        for place in (first + step for step in range(min(MOST_OVERLAPPING, len(self._execute.end_us)))):
            call = place.clip(max=len(self._execute.end_us) - 1)
            fits = np.isnan(begin) & (place == call) & (self._execute.begin_us[call] <= whole.begin_us)
            begin[fits], end[fits] = self._execute.begin_us[call][fits], self._execute.end_us[call][fits]
        return Spans(begin, end)

    def _asynchronous(self, whole: Spans) -> Spans:
        """The only call that was waiting when the inference began."""
        begins, ends = self._async_begins, self._sync_ends
        begun = np.searchsorted(begins, whole.begin_us, side="right")
        synchronized = np.searchsorted(ends, whole.begin_us, side="right")
        last_us = np.append(-np.inf, ends)[synchronized]
        is_only = begun - np.searchsorted(begins, last_us, side="right") == 1
        end = np.append(ends, np.nan)[np.searchsorted(ends, whole.end_us)]
        is_known = is_only & ~np.isnan(whole.begin_us) & ~np.isnan(end)
        return Spans(np.where(is_known, begins[begun - 1], np.nan), np.where(is_known, end, np.nan))


class Latency(NamedTuple):
    """The latency of inferences that are compared with each other; `origin` is None where none is known."""

    spans: Spans
    origin: LatencyFrom | None

    @property
    def us(self) -> Floats:
        """The latency of each; NaN where it is not known."""
        return self.spans.us


def latency_of(whole: Spans, calls: Spans) -> Latency:
    """The latency of inferences, all of one origin: a call takes longer than what it runs.

    It comes from the calls where at least half of the inferences have theirs; the others' is not known then.
    """
    by_call, by_records = (int((~np.isnan(each.us)).sum()) for each in (calls, whole))
    if by_call and 2 * by_call >= by_records:
        return Latency(calls, LatencyFrom.CALL)
    return Latency(whole, LatencyFrom.RECORDS if by_records else None)


class InferencePace(NamedTuple):
    """Inferences per second, and the median gap between an inference and the next, in µs; None where not known.

    A gap below 0 says that inferences overlap.
    """

    per_second: float | None
    gap_us: float | None


def pace_of(loads: Iterable[tuple[Spans, NDArray[np.number]]]) -> InferencePace:
    """The pace of a model's inferences, of each load their latencies' spans and how many the model ran before each.

    Of inferences that were not sampled the number is known: where n lie between two samples, the gap is the n-th part
    of the time between their begins, less the latency of the first.
    """
    times, numbers, gaps = 0.0, 0.0, [np.empty(0)]
    for spans, ran_before in loads:
        known = ~np.isnan(spans.us)
        step_us, step = np.diff(spans.begin_us[known]), np.diff(ran_before[known].astype(np.float64))
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
    """The time of each layer in each inference, shape (inferences, layers), NaN where it has no record.

    The first three are columns of records: places of the inference and the layer, and the duration. Records of one
    layer are added up; `counts` says how many there are, as of `record_counts`.
    """
    sums: Floats = np.bincount(inference * counts.shape[1] + layer, duration, counts.size).astype(np.float64)
    return np.where(counts > 0, sums.reshape(counts.shape), np.nan)


def record_counts(
    inference: NDArray[np.integer], layer: NDArray[np.integer], shape: tuple[int, int]
) -> NDArray[np.int64]:
    """How many records each inference has of each layer, shape (inferences, layers)."""
    return np.bincount(inference * shape[1] + layer, minlength=shape[0] * shape[1]).reshape(shape)


def lacks_records(counts: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Where an inference has fewer records of a layer than most have, of the shape of `record_counts`."""
    lacks = np.zeros(counts.shape, np.bool_)
    if len(counts):
        (differing,) = (np.ptp(counts, axis=0) > 0).nonzero()
        for place in differing.tolist():
            found = counts[:, place]
            usual = np.median(found)
            if (found == usual).mean() > MOST:
                lacks[:, place] = found < usual
    return lacks


def completed(times: Floats) -> Floats:
    """`layer_times` with what is missing filled in, so that an inference that lacks a record is not faster.

    A layer that at least half of the inferences recorded is in all of them, with its mean where the record is missing:
    the runtime dropped it. Inferences without a record of any other layer did not run that layer: it takes them 0.
    """
    recorded = (~np.isnan(times)).sum(axis=0)
    means = time_in_inference(np.nansum(times, axis=0), recorded, len(times))
    return np.where(np.isnan(times), np.where(2 * recorded >= len(times), means, 0.0), times)


def time_in_inference(sums: Floats, recorded: NDArray[np.integer], inferences: int) -> Floats:
    """The mean time that each layer takes in an inference, as after `completed`.

    `sums` are the times over all inferences, `recorded` is how many of the `inferences` have a record of the layer.
    """
    divisors = np.where(2 * recorded >= inferences, recorded, inferences)
    return np.divide(sums, divisors, out=np.zeros(len(divisors)), where=divisors > 0)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a model's mean inference, in µs (or all in ticks).

    `layers_us` is what its layers take together, each as in `time_in_inference`; `latency_us` the mean latency, None
    where it is not known.
    """

    layers_us: float
    latency_us: float | None

    @property
    def whole_us(self) -> float:
        """The whole that shares are of: the latency, or else the layers."""
        return self.layers_us if self.latency_us is None else self.latency_us

    @property
    def rest_us(self) -> float | None:
        """The time that no layer explains; None where latency is not known, or the layers take more (`is_too_much`)."""
        if self.latency_us is None or self.is_too_much:
            return None
        return max(self.latency_us - self.layers_us, 0.0)

    @property
    def is_too_much(self) -> bool:
        """The layers take more than the latency, because they overlap."""
        return self.latency_us is not None and self.layers_us > self.latency_us + ROUNDING_US

    def share(self, us: float) -> float | None:
        """A time's share of the inference in %; None where nothing takes any time."""
        return us / self.whole_us * 100 if self.whole_us else None


def recorded_text(recorded: int | None, known: int | None) -> str:
    """`83 of 88 layers recorded`; both are None where the model's table of layers is missing."""
    if recorded is None or known is None:
        return "how many of its layers were recorded is not known"
    return f"{recorded:,} of {known:,} layers recorded"

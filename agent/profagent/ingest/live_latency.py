"""Latency of inferences while they come: a call comes later than the inference that it ran. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.inference_times import (
    EXECUTE,
    EXECUTE_ASYNC,
    SYNCHRONIZE,
    Calls,
    LatencyFrom,
    Spans,
    latency_of,
    pace_of,
)
from profagent.formats.records import API_DTYPE
from profagent.limits import MOST_WAITING, REMEMBERED_CALLS_OF_MODEL, REMEMBERED_LATENCIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from profagent.formats.inference_times import InferencePace, Latency

_RUN_INFERENCES = (EXECUTE, EXECUTE_ASYNC, SYNCHRONIZE)
UNKNOWN_US = float("nan")


class InferenceTimes(NamedTuple):
    """Times of an inference by its records, from the first begin to the last end, and by its call; NaN is unknown.

    `number` identifies it, `ran_before` is the number of inferences that its model ran before. `is_awaited`: its call
    may still come.
    """

    number: int
    ran_before: float
    begin_us: float
    end_us: float
    call_begin_us: float = UNKNOWN_US
    call_end_us: float = UNKNOWN_US
    is_awaited: bool = False

    @property
    def latency(self) -> tuple[float | None, LatencyFrom | None]:
        """Latency in µs as far as known, and its origin; None and None where unknown."""
        if (us := self.call_end_us - self.call_begin_us) >= 0:
            return us, LatencyFrom.CALL
        return (us, LatencyFrom.RECORDS) if (us := self.end_us - self.begin_us) >= 0 else (None, None)


class ModelCalls:
    """Newest calls of a model, and the inferences that wait for theirs."""

    def __init__(self) -> None:
        # The newest calls that run inferences, at most REMEMBERED_CALLS_OF_MODEL.
        self._records: NDArray[np.void] = np.empty(0, API_DTYPE)
        # These records, sorted for the search once somebody needs it.
        self._calls: Calls | None = None
        # True if calls have come since the last `settle`.
        self._has_new = False
        # Latest begin among calls that return at the end of their inference, and latest end among all calls.
        self._latest_begin_us = self._latest_end_us = 0
        # Inferences without a call, oldest first.
        self._waiting: deque[InferenceTimes] = deque()

    def take(self, records: NDArray[np.void]) -> None:
        """Take records of calls that came."""
        records = records[np.isin(records["api"], _RUN_INFERENCES)]
        if len(records):
            self._records = np.concatenate([self._records, records])[-REMEMBERED_CALLS_OF_MODEL:]
            self._calls, self._has_new = None, True
            self._latest_end_us = max(self._latest_end_us, int(records["end_us"].max()))
            # A call that only begins an inference does not prove that an earlier one is missing.
            waits = records["api"] != EXECUTE_ASYNC
            self._latest_begin_us = max(self._latest_begin_us, int(records["begin_us"][waits].max(initial=0)))

    def find(self, inferences: Sequence[InferenceTimes]) -> Sequence[InferenceTimes]:
        """Return inferences with their calls, as far as these have come."""
        # Most calls come later than what they ran.
        has_later = any(each.end_us <= self._latest_end_us for each in inferences)
        return self._with_calls(inferences) if has_later else inferences

    def wait(self, inference: InferenceTimes) -> None:
        """Let an inference wait for its call."""
        self._waiting.append(inference)

    def settle(self, *, is_over: bool) -> Iterator[InferenceTimes]:
        """Yield inferences that no longer wait: their calls have come, or will never come.

        A call is missing once a call has come that began after the inference: the runtime writes calls as they end.
        """
        surplus = len(self._waiting) - MOST_WAITING
        if not self._waiting or not (self._has_new or is_over or surplus > 0):
            return
        self._has_new = False
        waiting, self._waiting = self._with_calls(self._waiting), deque()
        for place, each in enumerate(waiting):
            is_gone = is_over or place < surplus or each.end_us < self._latest_begin_us
            if is_gone or each.call_end_us >= each.call_begin_us:
                yield each._replace(is_awaited=False)
            else:
                self._waiting.append(each)

    def _with_calls(self, inferences: Sequence[InferenceTimes]) -> list[InferenceTimes]:
        if self._calls is None:
            self._calls = Calls(*(self._records[name] for name in ("api", "begin_us", "end_us")))
        found = self._calls.spans(_records_of(inferences))
        return [
            each._replace(call_begin_us=begin, call_end_us=end)
            for each, begin, end in zip(inferences, *(column.tolist() for column in found), strict=True)
        ]


class LatencyWindow:
    """Latencies of a model's last inferences."""

    def __init__(self, latest: int = REMEMBERED_LATENCIES) -> None:
        # Number of all inferences, and the newest of them, as many as the window holds.
        self.total = 0
        self._latest: deque[InferenceTimes] = deque(maxlen=latest)
        # The latency of the window, None after a change.
        self._found: Latency | None = None

    def take(self, inference: InferenceTimes) -> None:
        """Add an inference to the window."""
        self._latest.append(inference)
        self.total += 1
        self._found = None

    def renew(self, inference: InferenceTimes) -> None:
        """Replace an inference by its newest times, if it is in the window."""
        for place, each in enumerate(self._latest):
            if each.number == inference.number:
                self._latest[place] = inference
                self._found = None

    @property
    def latency(self) -> Latency:
        """Latency of each inference in the window, oldest first: of one origin, NaN where unknown."""
        if self._found is None:
            latest = self._latest
            calls = np.array([(each.call_begin_us, each.call_end_us) for each in latest], np.float64).reshape(-1, 2)
            self._found = latency_of(_records_of(latest), Spans(calls[:, 0], calls[:, 1]))
        return self._found

    @property
    def pace(self) -> InferencePace:
        """Inferences per second, and the gap between them."""
        return pace_of([(self.latency.spans, np.array([each.ran_before for each in self._latest], np.float64))])


def _records_of(inferences: Sequence[InferenceTimes]) -> Spans:
    times = np.array([(each.begin_us, each.end_us) for each in inferences], np.float64).reshape(-1, 2)
    return Spans(times[:, 0], times[:, 1])

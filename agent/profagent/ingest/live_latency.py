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
    Latency,
    Spans,
    latency_of,
    pace_of,
)
from profagent.formats.records import API_DTYPE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from profagent.formats.inference_times import LatencyFrom, Pace

# Calls of a model that run inferences, those that came last; inferences that wait for theirs.
KEPT_CALLS = MOST_WAITING = 4_096
# Inferences of a model whose latency is in its figures.
KEPT_INFERENCES = 240
_RUN_INFERENCES = (EXECUTE, EXECUTE_ASYNC, SYNCHRONIZE)
NO_SPAN = Spans(np.full(1, np.nan), np.full(1, np.nan))


class InferenceTimes(NamedTuple):
    """When an inference ran by its records and by its call, columns of length 1.

    `number` tells it from all others, `ran_before` is how many the model ran before it. `is_awaited`: its call may
    still come.
    """

    number: int
    ran_before: float
    records: Spans
    call: Spans
    is_awaited: bool

    @property
    def latency(self) -> Latency:
        """Its latency as it is known now."""
        return latency_of(self.records, self.call)


class ModelCalls:
    """The newest calls of a model, and the inferences that wait for theirs."""

    def __init__(self) -> None:
        self._records: NDArray[np.void] = np.empty(0, API_DTYPE)
        self._calls: Calls | None = None  # made when it is asked for
        self._latest_begin_us = 0
        self._waiting: deque[InferenceTimes] = deque()

    def take(self, records: NDArray[np.void]) -> None:
        """Take calls that came."""
        records = records[np.isin(records["api"], _RUN_INFERENCES)]
        if len(records):
            self._records = np.concatenate([self._records, records])[-KEPT_CALLS:]
            self._calls = None
            waits = records["api"] != EXECUTE_ASYNC  # a call that only begins an inference proves nothing
            self._latest_begin_us = max(self._latest_begin_us, int(records["begin_us"][waits].max(initial=0)))

    def span(self, inference: Spans) -> Spans:
        """The call of each inference; NaN where it has not come."""
        if self._calls is None:
            self._calls = Calls(*(self._records[name] for name in ("api", "begin_us", "end_us")))
        return self._calls.spans(inference)

    def wait(self, inference: InferenceTimes) -> None:
        """Let an inference wait for its call."""
        self._waiting.append(inference)

    def settle(self, *, is_over: bool) -> Iterator[InferenceTimes]:
        """Inferences that wait no longer: their calls have come, or do not come any more.

        A call has gone when one is here that began after the inference: the runtime writes calls as they end.
        """
        if not self._waiting:
            return
        call = self.span(_joined([each.records for each in self._waiting]))
        surplus = len(self._waiting) - MOST_WAITING
        waiting, self._waiting = self._waiting, deque()
        for place, each in enumerate(waiting):
            own = Spans(call.begin_us[place : place + 1], call.end_us[place : place + 1])
            is_gone = is_over or place < surplus or each.records.end_us[0] < self._latest_begin_us
            if is_gone or not np.isnan(own.us[0]):
                yield each._replace(call=own, is_awaited=False)
            else:
                self._waiting.append(each)


class LatencyWindow:
    """The latencies of a model's last inferences."""

    def __init__(self, kept: int = KEPT_INFERENCES) -> None:
        self.total = 0
        self._kept: deque[InferenceTimes] = deque(maxlen=kept)
        self._found: Latency | None = None

    def take(self, inference: InferenceTimes) -> None:
        """Take an inference."""
        self._kept.append(inference)
        self.total += 1
        self._found = None

    def renew(self, inference: InferenceTimes) -> None:
        """Take what is known now of an inference, if it is kept."""
        for place, each in enumerate(self._kept):
            if each.number == inference.number:
                self._kept[place] = inference
                self._found = None

    @property
    def latency(self) -> Latency:
        """The latency of each kept inference, oldest first: of one origin, NaN where it is not known."""
        if self._found is None:
            kept = self._kept
            self._found = latency_of(_joined([each.records for each in kept]), _joined([each.call for each in kept]))
        return self._found

    @property
    def pace(self) -> Pace:
        """How many inferences come in a second, and the gap between them."""
        return pace_of([(self.latency.spans, np.array([each.ran_before for each in self._kept], np.float64))])


def known_latency(latency: Latency) -> tuple[float | None, LatencyFrom | None]:
    """The latency in µs of one inference and where it is from; None where it is not known."""
    us = float(latency.us[0])
    return (None, None) if us != us else (us, latency.origin)  # noqa: PLR0124 - NaN


def _joined(spans: Sequence[Spans]) -> Spans:
    none = np.empty(0)
    return Spans(
        np.concatenate([none, *(each.begin_us for each in spans)]),
        np.concatenate([none, *(each.end_us for each in spans)]),
    )

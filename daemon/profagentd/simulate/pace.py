"""The absolute schedule of a steady rate. Pure: times are seconds of a monotonic clock, passed in."""

from __future__ import annotations

from dataclasses import dataclass

MAX_LAG_S = 0.1
"""How far the pretend NPU may be ahead of the clock that reads its results; a slow host holds it back."""

_US_PER_S = 1_000_000


@dataclass
class Pace:
    """Inference k is due at `first + k / rate`, so nothing drifts; it begins when it is due and the NPU is free.

    `late` counts the inferences that were over more than one period after their time.
    """

    first: float
    rate: float
    free_at: float
    taken: int = 0
    late: int = 0
    max_late_us: int = 0

    @property
    def next_begin(self) -> float:
        """When the next inference begins."""
        return max(self._due(self.taken), self.free_at)

    def take(self, duration_s: float) -> float:
        """Count the next inference; when it ends."""
        self.free_at = self.next_begin + duration_s
        self.taken += 1
        return self.free_at

    def seen(self, now: float, duration_s: float) -> None:
        """The inference that was taken last has been over since its end, and is seen only now."""
        late_s = now - duration_s - self._due(self.taken - 1)
        if late_s > 1 / self.rate:
            self.late += 1
            self.max_late_us = max(self.max_late_us, round(late_s * _US_PER_S))
        self.free_at = max(self.free_at, now - MAX_LAG_S)

    def _due(self, number: int) -> float:
        return self.first + number / self.rate

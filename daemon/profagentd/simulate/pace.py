"""The absolute schedule of a steady rate. Pure: times are seconds of a monotonic clock, passed in."""

from __future__ import annotations

from dataclasses import dataclass

_US_PER_S = 1_000_000


@dataclass
class Pace:
    """Inference k is due at `first + k / rate`, so nothing drifts; it begins when it is due and the NPU is free.

    `late` counts the inferences that began more than one period after they were due.
    """

    first: float
    rate: float
    free_at: float = 0.0
    taken: int = 0
    late: int = 0
    max_late_us: int = 0

    @property
    def next_due_s(self) -> float:
        """When the next inference is due, in seconds after the first."""
        return self.taken / self.rate

    def take(self, duration_us: int) -> float:
        """Count the next inference; the time at which it ends."""
        due = self.first + self.next_due_s
        begin = max(due, self.free_at)
        if begin - due > 1 / self.rate:
            self.late += 1
            self.max_late_us = max(self.max_late_us, round((begin - due) * _US_PER_S))
        self.taken += 1
        return begin + duration_us / _US_PER_S

"""Proof of life on one stream, both ways: when to give it, and when the board has given none for too long."""

from __future__ import annotations

# What both ends do until the board says otherwise.
HEARTBEAT_S = 4.0
SILENT_HEARTBEATS = 3
SHORTEST_S = 1.0
# With three of them a half-open link is still found within its 15 s.
LONGEST_S = 5.0
US_PER_S = 1_000_000


class Pulse:
    """When each side was last heard. Times are seconds of a clock that never goes back."""

    def __init__(self, now: float) -> None:
        self.heartbeat_s = HEARTBEAT_S
        self._heard = self._spoke = now

    def welcomed(self, heartbeat_us: int) -> None:
        """The board says how often each side speaks; 0 where it does not."""
        if heartbeat_us:
            self.heartbeat_s = min(max(heartbeat_us / US_PER_S, SHORTEST_S), LONGEST_S)

    def heard(self, now: float) -> None:
        """The board spoke, or its silence until now was our own: nobody listened."""
        self._heard = now

    def spoke(self, now: float) -> None:
        """A message was sent."""
        self._spoke = now

    @property
    def speak_at(self) -> float:
        """When the next proof of life is due."""
        return self._spoke + self.heartbeat_s

    @property
    def silent_at(self) -> float:
        """When the board is taken as gone, if it does not speak before."""
        return self._heard + SILENT_HEARTBEATS * self.heartbeat_s

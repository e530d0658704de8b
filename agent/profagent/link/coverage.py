"""Coverage: the intervals of a capture in which its board was followed. Pure: the caller supplies the time."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from profagent.limits import MOST_ENDED_INTERVALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Shorter intervals of a JOB are dropped: on each stream every JOB is behind until its logs are compared.
BEHIND_US = 1_000_000


class Standing(Enum):
    """State in which a board, or one of its JOBs, is followed."""

    CONNECTING = "connecting"  # the board has not been reached yet
    COVERED = "covered"  # the link is up, and everything but what is on its way has arrived
    BEHIND = "behind"  # the link is up, and the host is behind
    SILENT = "silent"  # the link is open and no message arrives: the board is frozen, or the network is cut
    AWAY = "away"  # there is no link
    PAUSED = "paused"  # the host's disk is full


class Interval(Struct, frozen=True):
    """Time during which the standing did not change; `job` is empty for the board itself.

    Times are microseconds of the host's wall clock. `detail` is the reason, if it is known.
    """

    job: str
    from_us: int
    to_us: int
    standing: Standing
    detail: str = ""


class Coverage:
    """Intervals of one capture. Those of the board follow each other without a gap.

    A JOB has intervals only while it is behind and the board itself is followed.
    """

    def __init__(self, now_us: int) -> None:
        # not taken yet; the oldest go first when it is full
        # Ended intervals, in the order of their ends.
        self._ended: deque[Interval] = deque(maxlen=MOST_ENDED_INTERVALS)
        # The board's present interval: its standing, begin and reason; `to_us` is not set yet.
        self.board = Interval("", now_us, now_us, Standing.CONNECTING)
        self._behind: dict[str, int] = {}  # JOBs that are behind now, and when that began
        # The end of the capture, after which no interval grows; None while it runs.
        self._ended_us: int | None = None
        self._lasted_us = dict.fromkeys(Standing, 0)  # sums over ended intervals of the board

    def lasted_us(self, standing: Standing, now_us: int) -> int:
        """Return for how long the board had this standing, in µs."""
        now_us = now_us if self._ended_us is None else self._ended_us
        going_on = max(0, now_us - self.board.from_us) if standing is self.board.standing else 0
        return self._lasted_us[standing] + going_on

    def stand(self, standing: Standing, now_us: int, since_us: int | None = None, detail: str = "") -> None:
        """Note the board's standing; `since_us` is its begin if that lies before now."""
        if standing is self.board.standing:
            return
        at_us = max(now_us if since_us is None else since_us, self.board.from_us)
        self._close(self.board, at_us)
        self._lasted_us[self.board.standing] += at_us - self.board.from_us
        self.board = Interval("", at_us, at_us, standing, detail)
        if standing not in (Standing.COVERED, Standing.BEHIND):
            self.jobs((), at_us)

    def jobs(self, behind: Iterable[str], now_us: int) -> None:
        """Note the JOBs that are behind."""
        names = {*behind}
        for job in [*self._behind]:
            if job not in names:
                self._close(Interval(job, self._behind.pop(job), now_us, Standing.BEHIND), now_us)
        for job in names:
            self._behind.setdefault(job, now_us)

    def end(self, now_us: int) -> None:
        """Note that the capture is over: no interval grows any more."""
        self._ended_us = now_us

    def take(self, now_us: int) -> list[Interval]:
        """Return intervals that are new or have grown since the last call. A growing one keeps its `from_us`."""
        now_us = now_us if self._ended_us is None else self._ended_us
        taken, self._ended = self._ended, deque(maxlen=MOST_ENDED_INTERVALS)
        jobs = (Interval(job, since, now_us, Standing.BEHIND) for job, since in self._behind.items())
        going_on = [_until(self.board, now_us), *(each for each in jobs if _lasts(each))]
        return [*taken, *going_on]

    def put_back(self, intervals: Sequence[Interval]) -> None:
        """Put back intervals that could not be stored; the next take() returns them again."""
        self._ended = deque([*intervals, *self._ended], MOST_ENDED_INTERVALS)

    def _close(self, interval: Interval, at_us: int) -> None:
        ended = _until(interval, at_us)
        if not ended.job or _lasts(ended):
            self._ended.append(ended)


def _until(interval: Interval, at_us: int) -> Interval:
    # The host's clock may have been set back: an interval never ends before it begins.
    to_us = max(at_us, interval.from_us)
    return Interval(interval.job, interval.from_us, to_us, interval.standing, interval.detail)


def _lasts(interval: Interval) -> bool:
    return interval.to_us - interval.from_us >= BEHIND_US

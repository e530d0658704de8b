"""Which part of a capture's time its board was followed, in intervals. Pure: the caller brings the time."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from profagent.limits import MOST_ENDED_INTERVALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# A JOB that is behind for less than this is not: each stream begins with looking at what is there.
BEHIND_US = 1_000_000


class Standing(Enum):
    """A way in which a board, or one of its JOBs, is followed."""

    CONNECTING = "connecting"  # the board was not reached yet
    COVERED = "covered"  # the link is up, and everything that the board told of has come, but for what is on its way
    BEHIND = "behind"  # the link is up, and much is still to come
    SILENT = "silent"  # the link is open, and the board says nothing: it is frozen, or the network is cut
    AWAY = "away"  # there is no link
    PAUSED = "paused"  # the host's disk is full


class Interval(Struct, frozen=True):
    """A time in which nothing of this changed; `job` is empty for the board itself.

    Times are microseconds of the host's wall clock. `detail` says why, where that is known.
    """

    job: str
    from_us: int
    to_us: int
    standing: Standing
    detail: str = ""


class Coverage:
    """The intervals of one capture. Those of the board follow each other without a gap.

    Intervals of a JOB are there only while it is behind and its board is not.
    """

    def __init__(self, now_us: int) -> None:
        self._ended: deque[Interval] = deque(maxlen=MOST_ENDED_INTERVALS)  # and not taken yet
        # The interval of the board that goes on: how it is followed now, since when, and why.
        self.board = Interval("", now_us, now_us, Standing.CONNECTING)
        self._behind: dict[str, int] = {}  # JOBs, and since when
        self._ended_us: int | None = None
        self._lasted_us = dict.fromkeys(Standing, 0)  # sums over the intervals of the board that have ended

    def lasted_us(self, standing: Standing, now_us: int) -> int:
        """Return for how long the board was followed so, in µs."""
        now_us = now_us if self._ended_us is None else self._ended_us
        going_on = max(0, now_us - self.board.from_us) if standing is self.board.standing else 0
        return self._lasted_us[standing] + going_on

    def stand(self, standing: Standing, now_us: int, since_us: int | None = None, detail: str = "") -> None:
        """Note how the board is followed; `since_us` is earlier than now where that is found out late."""
        if standing is self.board.standing:
            return
        at_us = max(now_us if since_us is None else since_us, self.board.from_us)
        self._close(self.board, at_us)
        self._lasted_us[self.board.standing] += at_us - self.board.from_us
        self.board = Interval("", at_us, at_us, standing, detail)
        if standing not in (Standing.COVERED, Standing.BEHIND):
            self.jobs((), at_us)

    def jobs(self, behind: Iterable[str], now_us: int) -> None:
        """Note the JOBs of which not everything has come."""
        names = {*behind}
        for job in [*self._behind]:
            if job not in names:
                self._close(Interval(job, self._behind.pop(job), now_us, Standing.BEHIND), now_us)
        for job in names:
            self._behind.setdefault(job, now_us)

    def end(self, now_us: int) -> None:
        """Note that the capture is over: no interval becomes longer."""
        self._ended_us = now_us

    def take(self, now_us: int) -> list[Interval]:
        """Return the intervals that are new or longer since the last call. One that goes on keeps its `from_us`."""
        now_us = now_us if self._ended_us is None else self._ended_us
        taken, self._ended = self._ended, deque(maxlen=MOST_ENDED_INTERVALS)
        jobs = (Interval(job, since, now_us, Standing.BEHIND) for job, since in self._behind.items())
        going_on = [_until(self.board, now_us), *(each for each in jobs if _lasts(each))]
        return [*taken, *going_on]

    def put_back(self, intervals: Sequence[Interval]) -> None:
        """Take back intervals that could not be stored; they are given again."""
        self._ended = deque([*intervals, *self._ended], MOST_ENDED_INTERVALS)

    def _close(self, interval: Interval, at_us: int) -> None:
        ended = _until(interval, at_us)
        if not ended.job or _lasts(ended):
            self._ended.append(ended)


def _until(interval: Interval, at_us: int) -> Interval:
    # The host's clock may have been set back.
    to_us = max(at_us, interval.from_us)
    return Interval(interval.job, interval.from_us, to_us, interval.standing, interval.detail)


def _lasts(interval: Interval) -> bool:
    return interval.to_us - interval.from_us >= BEHIND_US

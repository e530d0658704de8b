"""Whether the JOBs of a capture are over; one that is removed before it has ended may come back for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from profagent.ingest.changes import LinkLedger
from profagent.ingest.reasons import REMOVED_OPEN
from profagent.link.messages import REMOVED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from profagent.ingest.changes import JobChanges
    from profagent.link.messages import JobStatus

# However long the board says that a quiet JOB is waited for.
LONGEST_PATIENCE_S = 3600.0


class JobEnds:
    """What is known of the ends of one board's JOBs. All calls come from the loop."""

    def __init__(self, tell: Callable[[str], None], over: Callable[[], None], *, awaits: bool) -> None:
        """`over` is called when a JOB was waited for in vain; unless it `awaits` them, none is."""
        self._tell = tell
        self._over = over
        self._awaits = awaits
        self._patience_s = 0.0
        self._jobs: dict[str, JobStatus] | None = None  # None until they are told
        self._seen: set[str] = set()
        self._removed: set[str] = set()
        self._awaited: dict[str, asyncio.TimerHandle] = {}

    def linked(self, patience_s: float) -> None:
        """The board will tell its JOBs; one that is at rest it takes for quiet after so long."""
        self._patience_s = min(patience_s, LONGEST_PATIENCE_S)
        self._jobs = None

    def show(self, jobs: Sequence[JobStatus]) -> None:
        """The JOBs that are followed are these."""
        self._jobs = {job.name: job for job in sorted(jobs, key=lambda job: job.handle)}
        self._seen |= self._jobs.keys()

    def take(self, changes: Sequence[JobChanges]) -> None:
        """Note which JOBs were removed, and whether that is a loss, and which are back."""
        entries = (
            (batch.job, each.entry) for batch in changes for each in batch.changes if isinstance(each, LinkLedger)
        )
        losses = {job for job, entry in entries if entry.grade == "loss" and entry.reason == REMOVED_OPEN}
        for batch in changes:
            if batch.state == REMOVED:
                self._removed.add(batch.job)
                if batch.job in losses & self._seen:
                    self._wait(batch.job)
            elif batch.state is not None:
                self._come_back(batch.job)

    @property
    def are_over(self) -> bool:
        """Whether there were JOBs, and nothing more is to be expected of any."""
        if self._jobs is None or self._awaited or not (self._jobs or self._removed):
            return False
        return all(map(self._is_over, self._jobs.values()))

    def close(self) -> None:
        """Wait for nothing any more."""
        for timer in self._awaited.values():
            timer.cancel()
        self._awaited.clear()

    def _is_over(self, job: JobStatus) -> bool:
        # What its removal means is known a moment after the removal itself.
        return job.name in self._removed if job.state == REMOVED else job.is_over

    def _wait(self, job: str) -> None:
        told = f"{job} was removed from the board before it had ended"
        if not self._awaits:
            self._tell(told)
        elif job not in self._awaited:
            self._tell(f"{told}: waiting {self._patience_s:g} s for it to come back")
            self._awaited[job] = asyncio.get_running_loop().call_later(self._patience_s, self._give_up, job)

    def _come_back(self, job: str) -> None:
        self._removed.discard(job)
        timer = self._awaited.pop(job, None)
        if timer is not None:
            timer.cancel()
            self._tell(f"{job} is back")

    def _give_up(self, job: str) -> None:
        del self._awaited[job]
        self._tell(f"{job} did not come back")
        self._over()

"""The JOBs that one program makes while it is recorded, and how far they have come."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from profagent.link.messages import Loss
from profagent.record.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from profagent.ingest.changes import JobChanges
    from profagent.link.messages import Acknowledgement, Happened, JobStatus, LogEvent, Profiling

__all__ = ["MadeJobs", "RunRecording"]

# When the program is gone: what has come and rests for so long is all that comes.
REST_S = 3.0
# Without a byte for so long, something is wrong; a link that is away is waited for longer.
SILENCE_S, AWAY_S = 30.0, 600.0
# So often the board is asked whether somebody still writes.
GROWTH_S = 10.0
_LOOK_S = 0.1


class MadeJobs:
    """JOBs that come into one directory of the board while the program runs."""

    def __init__(self, directory: str, before: Collection[str], told: Profiling | None = None) -> None:
        """`before` are the paths of JOBs that stood there; `told` is what the program's acl.json says."""
        self.told = told
        self.growing: set[str] = set()
        """JOBs that are written to when the program is gone."""
        self.has_ended = False
        """Whether the program is gone."""
        self._directory = directory
        self._before = frozenset(before)
        self._has_begun = False
        self._passed_over: set[str] = set()
        self._made: frozenset[str] = frozenset()  # known when the program is gone
        self._jobs: Sequence[JobStatus] = ()
        self._changes = 0
        self._is_linked = asyncio.Event()
        self._is_listed = asyncio.Event()

    def begin(self) -> None:
        """The program is about to be started."""
        self._has_begun = True

    def wants(self, job: JobStatus, listed: bool) -> bool:
        """Whether the program may have made it; what the board lists first was there, though it may be gone by now."""
        path = f"{self._directory}/{job.name}"
        if job.directory != path:
            return False
        runs = self._has_begun and (not self.has_ended or job.name in self._made)
        is_made = runs and not listed and path not in self._before
        if not is_made:
            self._passed_over.add(job.name)
        return is_made

    def linked(self) -> None:
        """The board can be heard."""
        self._changes += 1
        self._is_linked.set()

    def unlinked(self) -> None:
        """It cannot."""
        self._is_linked.clear()

    def changed(self, changes: Sequence[JobChanges]) -> None:
        """Something has come."""
        self._changes += any(batch.job not in self.growing for batch in changes)

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """The JOBs are these."""
        before = self._its_own()
        self._jobs = jobs
        self._changes += self._its_own() != before
        self._is_listed.set()

    async def ready(self) -> None:
        """Wait until the board has listed what it had before the program."""
        await self._is_listed.wait()

    async def settled(
        self,
        names: Collection[str],
        stop: asyncio.Event,
        tell: Callable[[str], None],
        written: Callable[[], Awaitable[Collection[str]]],
    ) -> bool:
        """Wait until these have come whole, once the program is gone. Whether they have, before `stop` and in time.

        `written` asks the board which JOBs were written to since then: they are not waited for.
        """
        now = asyncio.get_running_loop().time
        self.has_ended, self._made = True, frozenset(names)
        seen, since = self._changes, now()
        look_at = since + REST_S
        while not stop.is_set():
            if seen != self._changes:
                seen, since = self._changes, now()
            if now() > look_at:
                self.growing |= {*await written()}
                look_at = now() + GROWTH_S
            quiet_s = now() - since
            jobs = self._its_own()
            has_all = self._made - self._passed_over <= {job.name for job in self._jobs}
            have_come = self._is_linked.is_set() and all(job.caught_up for job in jobs) and quiet_s > REST_S
            if has_all and (have_come or all(job.is_over for job in jobs)):
                self.growing |= {*await written()}
                return not self.growing
            if quiet_s > (SILENCE_S if self._is_linked.is_set() else AWAY_S):
                tell(f"nothing has come for {quiet_s:.0f} s: what is missing stays on the board")
                return False
            await asyncio.sleep(_LOOK_S)
        return False

    def _its_own(self) -> list[JobStatus]:
        return [job for job in self._jobs if job.name not in self.growing]


class RunRecording(Recording):
    """A recording of what one program makes: nothing about other JOBs of the board is written into its session."""

    async def listed(self, names: Collection[str]) -> Sequence[JobChanges]:
        """As of Sink: that a JOB of another session is gone, or stands where this daemon does not look, is no news."""
        others = {job.name for job in await self.session.standing_jobs()} - await self.session.begun_jobs()
        return await super().listed({*names, *others})

    async def take(
        self, events: Sequence[Happened], acknowledge: Callable[[Sequence[Acknowledgement]], Awaitable[None]]
    ) -> Sequence[JobChanges]:
        """As of Sink; a kept loss of another JOB is left to whoever hears it next."""
        return await super().take([each for each in events if not self._is_loss_of_others(each.event)], acknowledge)

    def _is_loss_of_others(self, event: LogEvent) -> bool:
        return isinstance(event, Loss) and event.id > 0 and event.job_name not in self._directories

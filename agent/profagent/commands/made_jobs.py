"""The JOBs that one program makes while it is recorded, and how far they have come."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from profagent.link.following import is_over

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from profagent.link.messages import JobStatus, Profiling

__all__ = ["MadeJobs"]

# When the program is gone: what has come and rests for so long is all that comes.
REST_S = 3.0
# Without a byte for so long, something is wrong; a link that is away is waited for longer.
SILENCE_S, AWAY_S = 30.0, 600.0
_LOOK_S = 0.1


class MadeJobs:
    """JOBs in one directory of the board, but for those that stood there before."""

    def __init__(self, directory: str, before: Collection[str], told: Profiling | None = None) -> None:
        """`told` is what the program's acl.json says."""
        self.told = told
        self._directory = directory
        self._before = frozenset(before)
        self._jobs: Sequence[JobStatus] = ()
        self._changes = 0
        self._is_linked = asyncio.Event()
        self._is_listed = asyncio.Event()
        self.has_ended = False
        """Whether the program is gone."""

    def wants(self, job: JobStatus, listed: bool) -> bool:
        """Whether the program made it; what the board lists first was there before, though it may be deleted by now."""
        return not listed and job.directory == f"{self._directory}/{job.name}" and job.name not in self._before

    def linked(self) -> None:
        """The board can be heard."""
        self._changes += 1
        self._is_linked.set()

    def unlinked(self) -> None:
        """It cannot."""
        self._is_linked.clear()

    def changed(self) -> None:
        """Something has come."""
        self._changes += 1

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """The JOBs are these."""
        self._changes += 1
        self._jobs = jobs
        self._is_listed.set()

    async def ready(self) -> None:
        """Wait until the board has listed what it had before the program."""
        await self._is_listed.wait()

    async def settled(self, names: Collection[str], stop: asyncio.Event, tell: Callable[[str], None]) -> bool:
        """Wait until these have come whole, once the program is gone. Whether they have, before `stop` and in time."""
        self.has_ended = True
        now = asyncio.get_running_loop().time
        seen, since = self._changes, now()
        while not stop.is_set():
            if seen != self._changes:
                seen, since = self._changes, now()
            quiet_s = now() - since
            has_all = {*names} <= {job.name for job in self._jobs}
            if has_all and all(is_over(job) for job in self._jobs):
                return True
            if has_all and self._is_linked.is_set() and self._have_come() and quiet_s > REST_S:
                return True
            if quiet_s > (SILENCE_S if self._is_linked.is_set() else AWAY_S):
                tell(f"nothing has come for {quiet_s:.0f} s: what is missing stays on the board")
                return False
            await asyncio.sleep(_LOOK_S)
        return False

    def _have_come(self) -> bool:
        return all(job.caught_up for job in self._jobs)

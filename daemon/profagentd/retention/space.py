"""How much room the roots' file systems have, and the losses where there is none while a JOB is written."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagentd.follow.log import LossReason
from profagentd.loop import Clock, Moment, moment, on_disk
from profagentd.sources.files import open_directory
from profagentd.sources.state import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagentd.follow.registry import Job, JobRegistry
    from profagentd.retention.losses import KeptLosses
    from profagentd.roots import Roots
    from profagentd.sources.files import Place

_LOGGER = logging.getLogger(__name__)

# How often file systems are asked; a shortage that is over sooner may stay unseen.
LOOK_S = 0.25
# A shortage is told when it begins, then so often with its newer end.
TELL_S = 10.0
# One that comes back so soon is the same.
MERGE_S = 60.0
# Blocks that ext4 keeps back from the superuser as well, at most: a share, and bytes.
_KEPT_BACK_SHARE = 0.02
_KEPT_BACK_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Space:
    """A file system's size and room; `superuser_free_bytes` counts what is reserved for root."""

    total_bytes: int
    free_bytes: int
    superuser_free_bytes: int
    block_bytes: int
    has_inodes: bool

    def is_full(self, *, for_superuser: bool) -> bool:
        """Whether not a block, or not a file, more can be written."""
        kept_back = min(_KEPT_BACK_SHARE * self.total_bytes, _KEPT_BACK_BYTES)
        has_reserve = for_superuser and self.superuser_free_bytes > max(kept_back, self.block_bytes)
        return not self.has_inodes or (self.free_bytes < self.block_bytes and not has_reserve)


def space_of(root: bytes) -> Space:
    """The room on the file system of a directory now. OSError; may block for long."""
    found = os.statvfs(root)
    return Space(
        total_bytes=found.f_blocks * found.f_frsize,
        free_bytes=found.f_bavail * found.f_frsize,
        superuser_free_bytes=found.f_bfree * found.f_frsize,
        block_bytes=found.f_frsize,
        has_inodes=not found.f_files or found.f_favail > 0,
    )


def look(root: bytes, places: Sequence[Place]) -> tuple[Space, list[Place]]:
    """The room, and those JOBs whose owner has none. OSError; may block for long."""
    space = space_of(root)
    if not space.is_full(for_superuser=False):
        return space, []
    return space, [place for place in places if space.is_full(for_superuser=_owner(place) == 0)]


def _owner(place: Place) -> int | None:
    try:
        descriptor = open_directory(place)
    except OSError:
        return None
    try:
        return os.fstat(descriptor).st_uid
    finally:
        os.close(descriptor)


@dataclass
class _Shortage:
    """A JOB that has no room, or had none lately."""

    number: int  # of its loss
    seen: Moment
    told: Moment


class SpaceWatch:
    """Asks each root's file system in turn of its own."""

    def __init__(self, roots: Roots, clock: Clock, board: JobRegistry, losses: KeptLosses) -> None:
        self._roots = roots
        self._clock = clock
        self._board = board
        self._losses = losses
        self._spaces: dict[bytes, Space] = {}
        self._shortages: dict[str, _Shortage] = {}

    @property
    def free_bytes(self) -> tuple[int, ...]:
        """Free space of each root's file system; 0 where it is not known."""
        return tuple(self._spaces[root].free_bytes if root in self._spaces else 0 for root in self._roots)

    @property
    def known(self) -> list[Space]:
        """The newest answers of those that have answered."""
        return list(self._spaces.values())

    def space(self, root: bytes) -> Space | None:
        """The newest answer of a root's file system; None before the first."""
        return self._spaces.get(root)

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._roots.each(self._watch)

    async def _watch(self, root: bytes) -> None:
        while True:
            await self.look(root)
            await self._clock.sleep(LOOK_S)

    async def look(self, root: bytes) -> None:
        """Ask one root's file system, and note what is lost there."""
        writing = [job for job in self._board.jobs if job.place.root == root and job.state is JobState.OPEN]
        try:
            self._spaces[root], full = await on_disk(root, look, root, [job.place for job in writing])
        except OSError:
            self._spaces.pop(root, None)
            return
        now = moment(self._clock)
        for job in writing:
            if job.place in full:
                self._note(job, now)
        self._tell(now)
        await self._losses.save()

    def _note(self, job: Job, now: Moment) -> None:
        shortage = self._shortages.get(job.name)
        if shortage is None:
            _LOGGER.warning("no space is left for %s: what its program writes is lost", job.name)
            number = self._losses.begin(LossReason.DISK_FULL, job.name, now.wall_us)
            self._shortages[job.name] = _Shortage(number, now, now)
        else:
            shortage.seen = now

    def _tell(self, now: Moment) -> None:
        for name, shortage in list(self._shortages.items()):
            is_news = shortage.seen.monotonic > shortage.told.monotonic
            if is_news and now.monotonic - shortage.told.monotonic >= TELL_S:
                self._losses.go_on(shortage.number, shortage.seen.wall_us)
                shortage.told = now
            if not is_news and now.monotonic - shortage.seen.monotonic > MERGE_S:
                del self._shortages[name]

"""Losses that happened whether or not somebody listened, kept over the daemon's restarts (board.proto, Loss.id).

One of them is found here: a JOB is written while its file system has no room.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Callable

from profagentd.follow.log import LossReason
from profagentd.limits import LOSSES_LIMIT, SEGMENTS_LIMIT
from profagentd.loop import US_PER_S, DaemonClock, on_disk
from profagentd.sources.files import open_directory, write_whole
from profagentd.sources.state import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from profagentd.follow.registry import JobRegistry
    from profagentd.loop import Roots
    from profagentd.sources.files import FolderPlace

_LOGGER = logging.getLogger(__name__)

FILE_NAME = "losses.jsonl"
_ID_BITS = 63


@dataclass(frozen=True)
class KeptLoss:
    """One loss; its number names it for ever. Times are the board's wall clock in microseconds."""

    id: int
    reason: str
    job: str
    from_wall_us: int
    to_wall_us: int
    lost_bytes: int = 0
    lost_logs: int = 0

    @property
    def detail(self) -> str:
        """A sentence for people."""
        if self.reason == LossReason.DISK_FULL.value:
            return "no space was left for the JOB: what its program wrote meanwhile is gone, how much is not known"
        return f"{self.lost_logs} logs of {self.lost_bytes} bytes were deleted to make room before they were delivered"


class KeptLosses:
    """All that are kept, the one that changed last at the end. All calls come from the loop."""

    def __init__(self, directory: Path | None) -> None:
        """`directory`: where they are kept; None keeps them in memory only."""
        self._directory = directory
        self._losses: dict[int, tuple[int, KeptLoss]] = {}  # by id, with the revision of the newest change
        self.revision = 0  # grows with each change
        self._saved_revision = 0
        self._is_failing = False
        self._saving = asyncio.Lock()
        self._listeners: list[Callable[[], None]] = []

    def since(self, revision: int) -> list[KeptLoss]:
        """What has changed after that revision, oldest change first."""
        return [loss for changed, loss in self._losses.values() if changed > revision]

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call it, on the loop, after each change."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Call it no more."""
        self._listeners.remove(listener)

    def last(self, reason: LossReason, job: str) -> KeptLoss | None:
        """The newest loss of this kind in this JOB."""
        found = [loss for _, loss in self._losses.values() if (loss.reason, loss.job) == (reason.value, job)]
        return found[-1] if found else None

    def begin(self, reason: LossReason, job: str, at_wall_us: int) -> KeptLoss:
        """Something is lost from now on."""
        number = random.SystemRandom().getrandbits(_ID_BITS) or 1
        loss = KeptLoss(number, reason.value, job, at_wall_us, at_wall_us)
        self._put(loss)
        return loss

    def go_on(self, loss: KeptLoss, at_wall_us: int, *, lost_bytes: int = 0, lost_logs: int = 0) -> None:
        """It still goes on, with so much more."""
        bytes_now, logs_now = loss.lost_bytes + lost_bytes, loss.lost_logs + lost_logs
        self._put(replace(loss, to_wall_us=at_wall_us, lost_bytes=bytes_now, lost_logs=logs_now))

    def deleted(self, job: str, at_wall_us: int, *, lost_bytes: int, lost_logs: int) -> None:
        """These logs go before they were delivered."""
        loss = self.last(LossReason.DELETED_UNDELIVERED, job)
        loss = loss or self.begin(LossReason.DELETED_UNDELIVERED, job, at_wall_us)
        self.go_on(loss, at_wall_us, lost_bytes=lost_bytes, lost_logs=lost_logs)

    async def load(self) -> None:
        """Take up what an earlier daemon kept."""
        if self._directory is None:
            return
        path = self._directory / FILE_NAME
        try:
            text = await on_disk(os.fsencode(self._directory), path.read_bytes)
            for line in text.splitlines():
                self._put(KeptLoss(**json.loads(line)))
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError) as error:
            _LOGGER.warning("%s: %s: earlier losses are not known", path, error)
        self._saved_revision = self.revision

    async def save(self) -> None:
        """Make what is known durable; where that is not possible it is in memory only, which is said once."""
        async with self._saving:
            revision = self.revision
            if self._directory is None or revision == self._saved_revision:
                return
            text = "".join(json.dumps(asdict(loss)) + "\n" for _, loss in self._losses.values())
            try:
                file = self._directory / FILE_NAME
                await on_disk(os.fsencode(self._directory), _write, file, text.encode("utf-8"))
            except OSError as error:
                if not self._is_failing:
                    _LOGGER.warning("%s: %s: losses are kept in memory only", self._directory, error.strerror)
                self._is_failing = True
            else:
                self._saved_revision, self._is_failing = revision, False

    def _put(self, loss: KeptLoss) -> None:
        self.revision += 1
        self._losses.pop(loss.id, None)
        self._losses[loss.id] = (self.revision, loss)
        if len(self._losses) > LOSSES_LIMIT:
            del self._losses[next(iter(self._losses))]
        for listener in self._listeners:
            listener()


class SpoolLosses:
    """What spools give up at their cap: a loss, unless somebody has it. All calls come from the loop."""

    def __init__(self, losses: KeptLosses, clock: DaemonClock) -> None:
        self._losses = losses
        self._clock = clock
        self._delivered: dict[tuple[bytes, bytes], None] = {}

    def delivered(self, collection: bytes, segment: bytes) -> None:
        """A consumer has the whole segment."""
        self._delivered[collection, segment] = None
        if len(self._delivered) > SEGMENTS_LIMIT:
            del self._delivered[next(iter(self._delivered))]

    def dropped(self, collection: str, segment: str, size: int) -> None:
        """A spool has deleted its oldest segment."""
        if self._delivered.pop((os.fsencode(collection), os.fsencode(segment)), self) is self:
            self._losses.deleted(collection, self._clock.wall_us(), lost_bytes=size, lost_logs=1)


def _write(file: Path, text: bytes) -> None:
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_whole(file, text, synced=True)


# Room

# How often file systems are asked while a JOB is open, and else; a shortage that is over sooner may stay unseen.
LOOK_S, REST_LOOK_S = 0.5, 1.0
# A shortage is told when it begins, then so often with its newer end.
TELL_S = 10.0
# One that comes back so soon is the same.
MERGE_S = 60.0
# Blocks that ext4 keeps back from the superuser as well, at most: a share, and bytes.
_RESERVED_SHARE = 0.02
_RESERVED_BYTES = 16 * 1024 * 1024


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
        kept_back = min(_RESERVED_SHARE * self.total_bytes, _RESERVED_BYTES)
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


def _look(root: bytes, places: Sequence[FolderPlace]) -> tuple[Space, list[FolderPlace]]:
    """The room, and those JOBs whose owner has none. OSError; may block for long."""
    space = space_of(root)
    if not space.is_full(for_superuser=False):
        return space, []
    return space, [place for place in places if space.is_full(for_superuser=_owner(place) == 0)]


def _owner(place: FolderPlace) -> int | None:
    try:
        descriptor = open_directory(place)
    except OSError:
        return None
    try:
        return os.fstat(descriptor).st_uid
    finally:
        os.close(descriptor)


class SpaceWatch:
    """Asks each root's file system in turn of its own."""

    def __init__(self, roots: Roots, clock: DaemonClock, board: JobRegistry, losses: KeptLosses) -> None:
        self._roots = roots
        self._clock = clock
        self._board = board
        self._losses = losses
        # The newest answer of each root's file system that has answered.
        self.spaces: dict[bytes, Space] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._roots.each(self._watch)

    async def look(self, root: bytes) -> bool:
        """Ask one root's file system, and note what is lost there; whether a JOB is open on it."""
        writing = [job for job in self._board.jobs if job.place.root == root and job.state is JobState.OPEN]
        try:
            self.spaces[root], full = await on_disk(root, _look, root, [job.place for job in writing])
        except OSError:
            self.spaces.pop(root, None)
            return bool(writing)
        for job in writing:
            if job.place in full:
                self._note(job.name)
        await self._losses.save()
        return bool(writing)

    async def _watch(self, root: bytes) -> None:
        while True:
            await self._clock.sleep(LOOK_S if await self.look(root) else REST_LOOK_S)

    def _note(self, job: str) -> None:
        now_us, last = self._clock.wall_us(), self._losses.last(LossReason.DISK_FULL, job)
        since_s = (now_us - last.to_wall_us) / US_PER_S if last else MERGE_S
        if not last or not 0 <= since_s < MERGE_S:
            _LOGGER.warning("no space is left for %s: what its program writes is lost", job)
            self._losses.begin(LossReason.DISK_FULL, job, now_us)
        elif since_s >= TELL_S:
            self._losses.go_on(last, now_us)

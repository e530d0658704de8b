"""The board's ledger of losses, which survives restarts of the daemon (board.proto, Loss.id).

One kind is found here: a JOB that is open while its file system is full.
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
from profagentd.sources.files import open_directory, replace_file
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
class RecordedLoss:
    """Recorded loss; `id` identifies it for ever. Times are of the board's wall clock, in microseconds."""

    id: int
    reason: str
    job: str
    from_wall_us: int
    to_wall_us: int
    lost_bytes: int = 0
    lost_logs: int = 0

    @property
    def detail(self) -> str:
        """Sentence that describes the loss to people."""
        if self.reason == LossReason.DISK_FULL.value:
            return "no space was left for the JOB: what its program wrote meanwhile is gone, how much is not known"
        return f"{self.lost_logs} logs of {self.lost_bytes} bytes were deleted to make room before they were delivered"


class LossLedger:
    """All recorded losses, the last changed one at the end. All calls come from the loop."""

    def __init__(self, directory: Path | None) -> None:
        """Keep losses in `directory`; with None in memory only."""
        self._directory = directory
        self._losses: dict[int, tuple[int, RecordedLoss]] = {}  # by id, with the revision of the newest change
        self.revision = 0  # grows with each change
        self._saved_revision = 0  # revision that the file holds
        self._is_failing = False  # the disk refused the file, which is logged once
        self._saving = asyncio.Lock()  # one writer of the file: an older state must not replace a newer one
        # Streams, which send the changed losses.
        self._listeners: list[Callable[[], None]] = []

    def since(self, revision: int) -> list[RecordedLoss]:
        """Return losses that changed after that revision, oldest change first."""
        return [loss for changed, loss in self._losses.values() if changed > revision]

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call the listener, on the loop, after each change."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Call the listener no more."""
        self._listeners.remove(listener)

    def newest(self, reason: LossReason, job: str) -> RecordedLoss | None:
        """Return the newest loss of this kind in this JOB, or None."""
        found = [loss for _, loss in self._losses.values() if (loss.reason, loss.job) == (reason.value, job)]
        return found[-1] if found else None

    def begin(self, reason: LossReason, job: str, at_wall_us: int) -> RecordedLoss:
        """Record a loss that begins now, and return it."""
        number = random.SystemRandom().getrandbits(_ID_BITS) or 1
        loss = RecordedLoss(number, reason.value, job, at_wall_us, at_wall_us)
        self._put(loss)
        return loss

    def extend(self, loss: RecordedLoss, at_wall_us: int, *, lost_bytes: int = 0, lost_logs: int = 0) -> None:
        """Extend a loss to this time, and add to its figures."""
        bytes_now, logs_now = loss.lost_bytes + lost_bytes, loss.lost_logs + lost_logs
        self._put(replace(loss, to_wall_us=at_wall_us, lost_bytes=bytes_now, lost_logs=logs_now))

    def note_deleted(self, job: str, at_wall_us: int, *, lost_bytes: int, lost_logs: int) -> None:
        """Record logs that are deleted before they were delivered; a JOB has one such loss, which grows."""
        loss = self.newest(LossReason.DELETED_UNDELIVERED, job)
        loss = loss or self.begin(LossReason.DELETED_UNDELIVERED, job, at_wall_us)
        self.extend(loss, at_wall_us, lost_bytes=lost_bytes, lost_logs=lost_logs)

    async def load(self) -> None:
        """Read the losses that an earlier daemon saved."""
        if self._directory is None:
            return
        path = self._directory / FILE_NAME
        try:
            text = await on_disk(os.fsencode(self._directory), path.read_bytes)
            for line in text.splitlines():
                self._put(RecordedLoss(**json.loads(line)))
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError) as error:
            _LOGGER.warning("cannot read %s: %s: losses from before this start are unknown", path, error)
        self._saved_revision = self.revision

    async def save(self) -> None:
        """Write the losses durably. Where that fails they are in memory only, which is logged once."""
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
                    _LOGGER.warning(
                        "cannot write %s: %s: losses are kept in memory, and a restart forgets them",
                        self._directory,
                        error.strerror,
                    )
                self._is_failing = True
            else:
                self._saved_revision, self._is_failing = revision, False

    def _put(self, loss: RecordedLoss) -> None:
        self.revision += 1
        self._losses.pop(loss.id, None)
        self._losses[loss.id] = (self.revision, loss)
        # The dict is in the order of changes, so its first entry changed longest ago.
        if len(self._losses) > LOSSES_LIMIT:
            del self._losses[next(iter(self._losses))]
        for listener in self._listeners:
            listener()


class SpoolLosses:
    """Deletions by the spools' cap: each is a loss, unless a consumer has the segment. All calls come from the loop."""

    def __init__(self, losses: LossLedger, clock: DaemonClock) -> None:
        self._losses = losses
        self._clock = clock
        # Delivered segments by collection and name, oldest first; bounded by SEGMENTS_LIMIT.
        self._delivered: dict[tuple[bytes, bytes], None] = {}

    def note_delivered(self, collection: bytes, segment: bytes) -> None:
        """Record that a consumer has the whole segment."""
        self._delivered[collection, segment] = None
        if len(self._delivered) > SEGMENTS_LIMIT:
            del self._delivered[next(iter(self._delivered))]

    def note_dropped(self, collection: str, segment: str, size: int) -> None:
        """Record that a spool has deleted its oldest segment."""
        if self._delivered.pop((os.fsencode(collection), os.fsencode(segment)), self) is self:
            self._losses.note_deleted(collection, self._clock.wall_us(), lost_bytes=size, lost_logs=1)


def _write(file: Path, text: bytes) -> None:
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    replace_file(file, text, synced=True)


# Free space

# Interval of checking file systems while a JOB is open, and otherwise. A shorter shortage may remain unseen.
LOOK_S, REST_LOOK_S = 0.5, 1.0
# A shortage is recorded when it begins, then extended at this interval.
TELL_S = 10.0
# A shortage that returns within this time continues the earlier one.
MERGE_S = 60.0
# Most space that ext4 withholds from the superuser as well: a share, and bytes.
_RESERVED_SHARE = 0.02
_RESERVED_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Space:
    """Size and free space of a file system; `superuser_free_bytes` includes what is reserved for root."""

    total_bytes: int
    free_bytes: int
    superuser_free_bytes: int
    block_bytes: int
    has_inodes: bool

    def is_full(self, *, for_superuser: bool) -> bool:
        """Return True if not one more block, or not one more file, can be written."""
        withheld = min(_RESERVED_SHARE * self.total_bytes, _RESERVED_BYTES)
        has_reserve = for_superuser and self.superuser_free_bytes > max(withheld, self.block_bytes)
        return not self.has_inodes or (self.free_bytes < self.block_bytes and not has_reserve)


def space_of(root: bytes) -> Space:
    """Return the space of a directory's file system now. Raises OSError; may block for long."""
    found = os.statvfs(root)
    return Space(
        total_bytes=found.f_blocks * found.f_frsize,
        free_bytes=found.f_bavail * found.f_frsize,
        superuser_free_bytes=found.f_bfree * found.f_frsize,
        block_bytes=found.f_frsize,
        has_inodes=not found.f_files or found.f_favail > 0,
    )


def _check_space(root: bytes, places: Sequence[FolderPlace]) -> tuple[Space, list[FolderPlace]]:
    """Return the space, and those JOBs whose owner has none left. Raises OSError; may block for long."""
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
    """Watch over the free space of each root's file system."""

    def __init__(self, roots: Roots, clock: DaemonClock, registry: JobRegistry, losses: LossLedger) -> None:
        self._roots = roots
        self._clock = clock
        self._registry = registry
        self._losses = losses
        # Newest result for each root whose file system has answered.
        self.spaces: dict[bytes, Space] = {}

    async def run(self) -> None:
        """Check all roots in turn, until cancelled."""
        await self._roots.each(self._watch)

    async def look(self, root: bytes) -> bool:
        """Check one root's file system, and record losses; return True if a JOB is open on it."""
        writing = [job for job in self._registry.jobs if job.place.root == root and job.state is JobState.OPEN]
        try:
            self.spaces[root], full = await on_disk(root, _check_space, root, [job.place for job in writing])
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
        now_us, last = self._clock.wall_us(), self._losses.newest(LossReason.DISK_FULL, job)
        since_s = (now_us - last.to_wall_us) / US_PER_S if last else MERGE_S
        if not last or not 0 <= since_s < MERGE_S:
            _LOGGER.warning("the disk has no space left for %s: the records that its program writes are lost", job)
            self._losses.begin(LossReason.DISK_FULL, job, now_us)
        elif since_s >= TELL_S:
            self._losses.extend(last, now_us)

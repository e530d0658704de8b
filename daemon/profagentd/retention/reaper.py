"""The reaper: deletes logs from the board by the retention policy, with one loop for each root."""

from __future__ import annotations

import asyncio
import errno
import heapq
import logging
import os
import stat
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Callable

from profagentd.limits import LOGS_LIMIT, REAPING_SHARE
from profagentd.loop import DaemonClock, on_disk, until_first
from profagentd.retention.losses import SpaceWatch, SpoolLosses
from profagentd.retention.policy import AckTracker, DeletableJob, Policy, Retain, StoredLog, is_over, plan_deletions
from profagentd.sources import SPOOLS, source_of
from profagentd.sources.files import (
    Fingerprint,
    FolderPlace,
    Gone,
    JobGone,
    NotAFile,
    OpenCollection,
    Unreadable,
    fingerprint,
    is_local,
    is_remote,
    open_directory,
)
from profagentd.sources.source import DATA, LogPart
from profagentd.sources.state import JobState, is_npu_open
from profagentd.sources.walk import directories_of, entries

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence
    from pathlib import Path

    from profagentd.follow.registry import FollowedJob, JobRegistry
    from profagentd.loop import Roots
    from profagentd.retention.losses import LossLedger
    from profagentd.sources.source import Source

    Files = tuple[tuple[bytes, Fingerprint], ...]
    IsDelivered = Callable[[FolderPlace, bytes, Fingerprint], bool]


# The number of CAP_DAC_OVERRIDE (capabilities(7)).
_DAC_OVERRIDE = 1
# A file that was written within this time may still be written to, so it is not deleted yet.
SETTLE_NS = 500_000_000


# Contents of a JOB


class DeletionScan:
    """Scan of a JOB for logs that may be deleted: delivered ones and, where the policy says so, complete ones."""

    def __init__(
        self, place: FolderPlace, source: Source, is_delivered: IsDelivered, now_ns: int, *, with_undelivered: bool
    ) -> None:
        self._place = place
        self._source = source
        self._is_delivered = is_delivered
        self._now_ns = now_ns
        self._with_undelivered = with_undelivered
        self._has_others = False  # files that may not be deleted were found
        self._is_settled = True  # no deletable log was left out for being written just now

    def facts(self, *, is_over: bool) -> DeletableJob:
        """Return the deletable logs, of very many the oldest. Raises JobGone or OSError where that cannot be read."""
        with OpenCollection(self._place) as files:
            names = {path for path, _ in entries(files, self._source)}
            found = (self._stored(files, path, names) for path in names if self._source.ended_by(path) not in names)
            logs = heapq.nsmallest(LOGS_LIMIT, (each for each in found if each), key=lambda each: each.age_key)
        is_all = not self._has_others and len(logs) < LOGS_LIMIT
        return DeletableJob(logs, is_all, is_over, self._is_settled)

    def _stored(self, files: OpenCollection, path: bytes, names: set[bytes]) -> StoredLog | None:
        part = self._source.part(path)
        end = self._source.end_of(path) if self._source.kind(path) is DATA else None
        paths = [path, end] if end in names else [path]
        try:
            seen = tuple((each, fingerprint(files.status(each))) for each in paths)
        except (Gone, NotAFile, Unreadable):
            seen = ()
        if part is None or not seen:
            self._has_others = True
            return None
        if end and len(paths) == 1 and not seen[0][1].size:
            # Models that are not built for profiling leave empty logs without a `.done` (the-format.md 2.1).
            return StoredLog(self._place, seen, LogPart.TABLE, is_delivered=True)
        is_delivered = all(self._is_delivered(self._place, each, found) for each, found in seen)
        may_go = is_delivered or (
            self._with_undelivered and (end is None or files.announced_length(self._source, path) is not None)
        )
        if may_go and any(abs(self._now_ns - each.mtime_ns) < SETTLE_NS for _, each in seen):
            may_go = self._is_settled = False
        self._has_others |= not may_go
        return StoredLog(self._place, seen, part, is_delivered) if may_go else None


# Deleting


def check_deletable(place: FolderPlace) -> None:
    """Raise OSError unless files of the JOB can be deleted.

    A loss is recorded before its files are deleted, so this must be known before.
    """
    with _directories(place) as directories:
        for descriptor in directories.values():
            if not _may_write(descriptor):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def delete_logs(place: FolderPlace, logs: Sequence[Files]) -> set[bytes]:
    """Delete these logs; return the paths that were deleted. Raises OSError.

    A log of which any file has changed stays. A log is deleted before its `.done`: a crash in between leaves a `.done`
    alone, never data that seems to be open.
    """
    gone: set[bytes] = set()
    with _directories(place) as directories:
        for files in logs:
            if all(_is_as_it_was(directories, path, seen) for path, seen in files):
                for path, _ in files:
                    directory, _, name = path.rpartition(b"/")
                    os.unlink(name, dir_fd=directories[directory])
                    gone.add(path)
    return gone


def remove_directories(place: FolderPlace) -> bool:
    """Delete the JOB's directories; return True if they were empty.

    Raises OSError where they are not ours to delete.
    """
    parent, _, name = place.path.rpartition(b"/")
    with _directories(place) as directories:
        above = open_directory(FolderPlace(place.root, parent))
        try:
            for inside in filter(None, directories):
                os.rmdir(inside, dir_fd=directories[b""])
            os.rmdir(name, dir_fd=above)
        except OSError:
            return False
        finally:
            os.close(above)
    return True


@contextmanager
def _directories(place: FolderPlace) -> Iterator[dict[bytes, int]]:
    """Open the JOB's directories; yield their descriptors by path inside the JOB. Raises OSError on a network."""
    opened: dict[bytes, int] = {}
    try:
        for inside in directories_of(place):
            with suppress(*((FileNotFoundError, NotADirectoryError) if inside else ())):
                opened[inside] = open_directory(place.below(inside))
        if not all(map(is_local, opened.values())):
            raise OSError(errno.EREMOTE, "is on a network file system")
        yield opened
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


def _is_as_it_was(directories: dict[bytes, int], path: bytes, seen: Fingerprint) -> bool:
    directory, _, name = path.rpartition(b"/")
    try:
        status = os.stat(name, dir_fd=directories[directory], follow_symlinks=False)
    except (OSError, KeyError):
        return False
    return stat.S_ISREG(status.st_mode) and fingerprint(status) == seen


def _may_write(directory: int) -> bool:
    if os.access(f"/proc/self/fd/{directory}", os.W_OK):
        return True
    # access(2) ignores the capabilities of a user other than root, so they are read here.
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        effective = next((line.split()[1] for line in file if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _DAC_OVERRIDE & 1) and not os.fstatvfs(directory).f_flag & os.ST_RDONLY


# The policy

_LOGGER = logging.getLogger(__name__)

# Shortest interval between two scans; scanning and deleting take at most REAPING_SHARE of the time.
LOOK_S = 0.25
# Interval of saving deliveries to the disk.
SAVE_S = 0.25
# Interval of checking if a JOB is over, which walks all processes.
OVER_S = 5.0
# Share of the wanted space that is freed beyond it, so that not each new file is another shortage.
MARGIN = 0.1
# Interval of retrying a JOB whose files cannot be deleted, or a root that has nothing to delete.
RETRY_S = 10.0


class RetentionKeeper:
    """Owner of the policy. Undelivered logs are recorded as a loss before they are deleted."""

    def __init__(
        self,
        policy: Policy,
        roots: Roots,
        clock: DaemonClock,
        registry: JobRegistry,
        losses: LossLedger,
        state: Path | None,
        *,
        has_npu: bool,
    ) -> None:
        """Keep deliveries in `state`. `has_npu` is False for a simulated board, whose programs open no NPU."""
        self.policy = policy
        self.losses = losses  # the ledger, from which streams send
        self.spools = SpoolLosses(losses, clock)
        self.space = SpaceWatch(roots, clock, registry, losses)
        self._roots = roots
        self._clock = clock
        self._registry = registry
        self._has_npu = has_npu
        self._acks = AckTracker(policy.retain_for, state)
        self._policy_changed = asyncio.Event()  # ends the loops of the old policy
        self._was_over: dict[FolderPlace, bool] = {}  # result of the last check
        self._next_over: dict[FolderPlace, float] = {}  # monotonic time of the next such check
        self._postponed_until: dict[FolderPlace, float] = {}  # monotonic time before which nothing is deleted
        self._warned: set[str] = set()  # subjects of warnings; each is logged once

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """Return the tasks that run as long as the daemon does."""
        return [self.space.run(), self._run()]

    async def save_deliveries(self) -> None:
        """Save the last deliveries, once no client is served any more."""
        await self._acks.save()

    def change_policy(self, policy: Policy) -> None:
        """Set another policy. Streams that begin after this report again what their clients have."""
        self.policy = policy
        self._acks.set_consumers(policy.retain_for)
        self._was_over.clear()
        self._policy_changed.set()

    def delivery_counter(self, consumer: str) -> Callable[[FolderPlace, bytes, Fingerprint], None] | None:
        """Return the function that counts this consumer's deliveries; None where they do not matter."""
        if self.policy.retain_for and consumer not in self.policy.retain_for:
            return None
        return partial(self._delivered, consumer)

    def _delivered(self, consumer: str, place: FolderPlace, path: bytes, seen: Fingerprint) -> None:
        if self.policy.retain is not Retain.KEEP:
            self._acks.note_delivered(consumer, place, path, seen)
        if source_of(place.name) in SPOOLS:
            self.spools.note_delivered(place.name, path)

    async def _run(self) -> None:
        while True:
            self._policy_changed.clear()
            if self.policy.retain is Retain.KEEP:
                await self._policy_changed.wait()
                continue
            self._registry.add_listener(self._acks)
            try:
                # The tracker listens only under a policy that deletes: otherwise deliveries do not matter.
                await until_first(self._roots.each(self._apply_policy), self._save_acks(), self._policy_changed.wait())
            finally:
                self._registry.remove_listener(self._acks)

    async def _save_acks(self) -> None:
        while True:
            await self._acks.save()
            await self._clock.sleep(SAVE_S)

    async def _apply_policy(self, root: bytes) -> None:
        if is_remote(root):
            self._warn_once(os.fsdecode(root), "is on a network file system: nothing is deleted there")
        while True:
            begun = self._clock.monotonic()
            jobs = {job.place: job for job in self._registry.jobs if job.place.root == root}
            for known in (self._was_over, self._next_over, self._postponed_until):
                # JOBs come and go for years: without this their entries would stay.
                for place in [each for each in known if each.root == root and each not in jobs]:
                    known.pop(place)
            open_to_us = [job for job in jobs.values() if self._postponed_until.get(job.place, begun) <= begun]
            if self.policy.retain is Retain.MIN_FREE:
                await self._make_room(root, open_to_us)
            else:
                for job in open_to_us:
                    await self._delete_delivered_of(job)
            used_s = self._clock.monotonic() - begun
            await self._clock.sleep(max(LOOK_S, used_s * (1 / REAPING_SHARE - 1)))

    async def _delete_delivered_of(self, job: FollowedJob) -> None:
        place = job.place
        has_changed = place in self._acks.changed_jobs or place not in self._was_over
        # Discarded before the scan: what changes during it is scanned again.
        self._acks.changed_jobs.discard(place)
        is_over_now = (has_changed or not self._was_over[place]) and await self._is_over(job)
        if not has_changed and not is_over_now:
            return
        self._was_over[place] = is_over_now
        facts = await self._facts(job, is_over=is_over_now)
        if not facts.is_settled:
            self._acks.changed_jobs.add(place)
        await self._delete([(job, facts)], 0)

    async def _make_room(self, root: bytes, jobs: Sequence[FollowedJob]) -> None:
        space = self.space.spaces.get(root)
        wanted = self.policy.wanted_bytes(space.total_bytes) if space else 0
        if space is None or space.free_bytes >= wanted:
            self._warned.discard(os.fsdecode(root))
            return
        self._next_over.clear()
        found = [(job, await self._facts(job, is_over=await self._is_over(job))) for job in jobs]
        if await self._delete(found, int(wanted * (1 + MARGIN)) - space.free_bytes):
            await self.space.look(root)
        else:
            self._warn_once(os.fsdecode(root), f"has {space.free_bytes} bytes left, and nothing may be deleted")
            await self._clock.sleep(RETRY_S)

    async def _is_over(self, job: FollowedJob) -> bool:
        """Return True if nothing more will be written to the JOB; the expensive check is not made too often."""
        now, rest_s, quiet_after_s = self._clock.monotonic(), self._registry.rest_s(job), self._registry.quiet_after_s
        if not is_over(job.state, rest_s, quiet_after_s, False) or now < self._next_over.get(job.place, now):
            return False
        self._next_over[job.place] = now + OVER_S
        npu_is_open = await asyncio.to_thread(is_npu_open, job.made_since_boot_us) if self._has_npu else False
        return is_over(job.state, rest_s, quiet_after_s, npu_is_open)

    async def _facts(self, job: FollowedJob, *, is_over: bool) -> DeletableJob:
        await self._acks.load_job(job.place)
        now_ns, with_undelivered = self._clock.wall_us() * 1000, self.policy.delete_undelivered
        look = DeletionScan(job.place, job.source, self._acks.has, now_ns, with_undelivered=with_undelivered)
        try:
            return await on_disk(job.place.root, partial(look.facts, is_over=is_over))
        except (JobGone, OSError):
            return DeletableJob((), is_all=False, is_over=False)

    async def _delete(self, found: Sequence[tuple[FollowedJob, DeletableJob]], short_bytes: int) -> int:
        deletions = plan_deletions(self.policy, [facts for _, facts in found], short_bytes)
        count = 0
        for job, facts in found:
            own = [each for each in deletions if each.job == job.place]
            gone = await self._delete_of(job, own)
            count += gone
            if facts.is_over and facts.is_all and gone == len(facts.logs):
                await self._delete_directories(job)
        return count

    async def _delete_of(self, job: FollowedJob, deletions: Sequence[StoredLog]) -> int:
        place, lost = job.place, [each for each in deletions if not each.is_delivered]
        try:
            # The loss is on the disk before the first file goes.
            if lost:
                await on_disk(place.root, check_deletable, place)
                await self._record_loss(job.name, lost)
            gone = await on_disk(place.root, delete_logs, place, [each.files for each in deletions])
        except OSError as error:
            self._postpone(place, error)
            return 0
        return sum(each.files[-1][0] in gone for each in deletions)

    async def _record_loss(self, job: str, lost: Sequence[StoredLog]) -> None:
        """Record the loss of these logs before they are deleted: a power failure in between only overstates it."""
        sizes = [seen.size for each in lost for _, seen in each.files]
        self.losses.note_deleted(job, self._clock.wall_us(), lost_bytes=sum(sizes), lost_logs=len(sizes))
        await self.losses.save()

    async def _delete_directories(self, job: FollowedJob) -> None:
        if job.state is JobState.REMOVED:
            return
        try:
            if await on_disk(job.place.root, remove_directories, job.place):
                _LOGGER.info("deleted %s: it was delivered", job.name)
                await self._acks.forget_job(job.place)
        except OSError as error:
            self._postpone(job.place, error)

    def _postpone(self, place: FolderPlace, error: OSError) -> None:
        self._postponed_until[place] = self._clock.monotonic() + RETRY_S
        self._acks.changed_jobs.add(place)
        self._warn_once(os.fsdecode(place.directory), f"{error.strerror}: nothing can be deleted there")

    def _warn_once(self, what: str, why: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            _LOGGER.warning("%s %s", what, why)

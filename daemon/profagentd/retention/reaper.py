"""Deleting what may go: each root in turn of its own, looking only at what there is news of."""

from __future__ import annotations

import asyncio
import errno
import heapq
import logging
import os
import re
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Callable

from profagentd.follow.log import LossReason
from profagentd.loop import Clock, moment, on_disk
from profagentd.retention.policy import Deletion, JobFacts, Part, Policy, Retain, Stored, is_over, plan
from profagentd.sources.files import (
    Fingerprint,
    Gone,
    NotAFile,
    OpenJob,
    Place,
    Unreadable,
    fingerprint,
    is_local,
    is_remote,
    open_directory,
)
from profagentd.sources.job import DATA_DIRECTORY, JobSource, api_model, done_of, ended_by, in_data, is_table, kind_of
from profagentd.sources.source import LogKind
from profagentd.sources.state import JobState, is_npu_open

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Files = tuple[tuple[bytes, Fingerprint], ...]
    IsDelivered = Callable[[Place, bytes, Fingerprint], bool]
    from collections.abc import Iterable

    from profagentd.follow.registry import Job, JobRegistry
    from profagentd.retention.acks import AckTracker
    from profagentd.retention.losses import KeptLosses
    from profagentd.retention.space import SpaceWatch
    from profagentd.roots import Roots


# The number of CAP_DAC_OVERRIDE (capabilities(7)).
_DAC_OVERRIDE = 1
_STATUS = "/proc/self/status"


def may_write(directory: int) -> bool:
    """Whether names in an open directory may be made and removed."""
    if os.access(f"/proc/self/fd/{directory}", os.W_OK):
        return True
    # access(2) passes over the capabilities of a user who is not root.
    return _overrides_permissions() and not os.fstatvfs(directory).f_flag & os.ST_RDONLY


def _overrides_permissions() -> bool:
    with open(_STATUS, encoding="ascii", errors="replace") as file:
        effective = next((line.split()[1] for line in file if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _DAC_OVERRIDE & 1)


# A fifo would block in open without O_NONBLOCK; regular files do not care.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass
class Removed:
    """What came of it. `late_bytes` were written to files in the very moment in which they went."""

    paths: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    changed: list[bytes] = field(default_factory=list)  # not deleted: they are not what they were
    late_bytes: int = 0


class NotOurs(Exception):  # noqa: N818 - a state of the board, not a fault
    """The JOB is not on a file system of this board alone."""


def check(place: Place) -> None:
    """Make sure that files of the JOB can be deleted. Raises NotOurs, and OSError when that is not allowed."""
    with _directories(place) as directories:
        for descriptor in directories.values():
            if not may_write(descriptor):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def remove(place: Place, logs: Sequence[Files]) -> Removed:
    """Delete these logs, each file after the other; a log of which a part is not what it was stays.

    A log goes before its `.done`: what is left by a crash in between is a `.done` alone, never data that seems open.
    Raises NotOurs, and OSError when the directory cannot be written.
    """
    removed = Removed()
    with _directories(place) as directories:
        for files in logs:
            if all(_is_as_it_was(directories, path, seen) for path, seen in files):
                for path, seen in files:
                    _unlink(directories, path, seen, removed)
            else:
                removed.changed += [path for path, _ in files]
    return removed


def remove_directories(place: Place) -> bool:
    """Delete the JOB's two directories; whether they were empty. Raises NotOurs and OSError."""
    parent, _, name = place.path.rpartition(b"/")
    with _directories(place) as directories:
        try:
            if DATA_DIRECTORY in directories:
                os.rmdir(DATA_DIRECTORY, dir_fd=directories[b""])
        except OSError:
            return False
    above = open_directory(Place(place.root, parent))
    try:
        os.rmdir(name, dir_fd=above)
    except OSError:
        return False
    finally:
        os.close(above)
    return True


@contextmanager
def _directories(place: Place) -> Iterator[dict[bytes, int]]:
    """Descriptors of the JOB's directories, by their path inside it."""
    opened: dict[bytes, int] = {}
    try:
        opened[b""] = open_directory(place)
        with suppress(FileNotFoundError, NotADirectoryError):
            opened[DATA_DIRECTORY] = open_directory(Place(place.root, os.path.join(place.path, DATA_DIRECTORY)))
        if not all(map(is_local, opened.values())):
            raise NotOurs
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


def _unlink(directories: dict[bytes, int], path: bytes, seen: Fingerprint, removed: Removed) -> None:
    """Delete one file, held open meanwhile: what is written to it until it has no name is noticed."""
    directory, _, name = path.rpartition(b"/")
    descriptor = os.open(name, _FILE, dir_fd=directories[directory])
    try:
        if fingerprint(os.fstat(descriptor)) != seen:
            removed.changed.append(path)
            return
        os.unlink(name, dir_fd=directories[directory])
        removed.late_bytes += max(0, os.fstat(descriptor).st_size - seen.size)
    finally:
        os.close(descriptor)
    removed.paths.append(path)
    removed.size_bytes += seen.size


# Logs of one JOB that are weighed in one go, oldest first.
LOGS_LIMIT = 10_000
# What was written so lately may be written still.
SETTLE_NS = 1_000_000_000

_CONTINUATION = re.compile(rb"cont\.\d+\..*\d", re.DOTALL)


def part_of(path: bytes) -> Part | None:
    """What the runtime's file at `path` inside a JOB is to it; None for what the runtime does not write."""
    directory, _, name = path.rpartition(b"/")
    if is_table(path):
        return Part.TABLE
    if directory != DATA_DIRECTORY:
        return None
    data = ended_by(name) or name
    if kind_of(data) is LogKind.DATA:
        return Part.WORK if api_model(data) is None else Part.CALLS
    return Part.WORK if _CONTINUATION.fullmatch(name) else None


@dataclass(frozen=True)
class Look:
    """How a JOB is looked at: the wall clock now, and who has what."""

    now_ns: int
    is_delivered: IsDelivered
    with_undelivered: bool

    def facts(self, place: Place, is_over: bool) -> JobFacts:
        """Everything in the JOB; of very many logs the oldest. OSError when it cannot be read."""
        with OpenJob(place) as files:
            names = list(_paths(place))
            present = set(names)
            logs = (self._stored(place, files, path, present) for path in names if not _comes_with(path, present))
            known = [each for each in logs if each is not None]
        is_all = len(known) + sum(_comes_with(path, present) for path in names) == len(names)
        if len(known) > LOGS_LIMIT:
            known, is_all = heapq.nsmallest(LOGS_LIMIT, known, key=lambda each: each.changed_ns), False
        return JobFacts(known, is_all, is_over)

    def _stored(self, place: Place, files: OpenJob, path: bytes, present: set[bytes]) -> Stored | None:
        part = part_of(path)
        if part is None:
            return None
        done = done_of(path)
        paths = [path, done] if kind_of(path) is LogKind.DATA and done in present else [path]
        try:
            seen = tuple((each, fingerprint(files.status(each))) for each in paths)
        except (Gone, NotAFile, Unreadable):
            return None
        if len(paths) == 1 and kind_of(path) is LogKind.DATA and not seen[0][1].size:
            # Models that are not built for profiling leave such; nothing is in it (format page 2.1).
            return Stored(place, seen, Part.TABLE, is_complete=True, is_delivered=True)
        is_delivered = all(self.is_delivered(place, each, found) for each, found in seen)
        is_complete = is_delivered or (self.with_undelivered and self._is_complete(files, path, seen))
        return Stored(place, seen, part, is_complete, is_delivered)

    def _is_complete(self, files: OpenJob, path: bytes, seen: tuple[tuple[bytes, Fingerprint], ...]) -> bool:
        """Whether it has stopped changing, by a wall clock that may jump, and a data log's `.done` parses."""
        if any(abs(self.now_ns - each.mtime_ns) < SETTLE_NS for _, each in seen):
            return False
        return kind_of(path) is not LogKind.DATA or files.told_length(JobSource(), path) is not None


def _comes_with(path: bytes, present: set[bytes]) -> bool:
    """Whether it is a `.done` that goes with its data."""
    ended = ended_by(path)
    return ended is not None and ended in present


def _paths(place: Place) -> Iterator[bytes]:
    """Every name in the JOB and in its data directory, but that directory itself."""
    for name, is_directory in _entries(place):
        if name != DATA_DIRECTORY or not is_directory:
            yield name
            continue
        data = Place(place.root, os.path.join(place.path, DATA_DIRECTORY))
        yield from (in_data(below) for below, _ in _entries(data))


def _entries(place: Place) -> list[tuple[bytes, bool]]:
    descriptor = open_directory(place)
    try:
        with os.scandir(descriptor) as entries:
            return [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
    finally:
        os.close(descriptor)


_LOGGER = logging.getLogger(__name__)

# How often it is looked whether something may go; looking and deleting take at most this share of the time.
LOOK_S = 0.25
SHARE = 0.5
# Logs that are deleted in one go.
REMOVE_LOGS = 500
# An ended JOB is looked through at most so often.
SWEEP_S = 5.0
# Space is made for so much more than is wanted, as a share of it, so that not each file is a new shortage.
MARGIN = 0.1
# A JOB of which nothing can be deleted, or space that cannot be made, is tried again after this.
RETRY_S = 10.0


class Reaper:
    """Keeps the policy. What goes undelivered is a kept loss before it goes."""

    def __init__(
        self,
        policy: Policy,
        roots: Roots,
        clock: Clock,
        board: JobRegistry,
        deliveries: AckTracker,
        losses: KeptLosses,
        space: SpaceWatch,
        *,
        has_npu: bool,
    ) -> None:
        """`has_npu`: not for a simulated board, whose programs have none open."""
        self._policy = policy
        self._roots = roots
        self._clock = clock
        self._board = board
        self._deliveries = deliveries
        self._losses = losses
        self._space = space
        self._has_npu = has_npu
        self._next_sweep: dict[Place, float] = {}
        self._refused_until: dict[Place, float] = {}
        self._complaints: set[str] = set()

    async def run(self) -> None:
        """Delete until cancelled."""
        await self._roots.each(self._keep)

    def keep_to(self, policy: Policy) -> None:
        """Another policy from now on."""
        self._policy = policy
        for root in self._roots:
            self._note_remote(root)

    async def _keep(self, root: bytes) -> None:
        self._note_remote(root)
        while True:
            begun = self._clock.monotonic()
            if self._policy.retain is not Retain.KEEP:
                await self.clean(root)
            used_s = self._clock.monotonic() - begun
            await self._clock.sleep(max(LOOK_S, used_s * (1 / SHARE - 1)))

    async def clean(self, root: bytes) -> None:
        """Delete what may go below one root now."""
        now = self._clock.monotonic()
        jobs = [job for job in self._board.jobs if job.place.root == root]
        known = {job.place for job in self._board.jobs}
        for places in (self._next_sweep, self._refused_until):
            for place in [each for each in places if each not in known]:
                del places[place]
        jobs = [job for job in jobs if self._refused_until.get(job.place, now) <= now]
        if self._policy.retain is Retain.MIN_FREE:
            await self._make_room(root, jobs)
            return
        for job in jobs:
            await self._delete_settled(job)
            await self._sweep(job)

    # Delivered logs, as they settle

    async def _delete_settled(self, job: Job) -> None:
        due = self._deliveries.due(job.place, self._clock.monotonic(), REMOVE_LOGS)
        parts = [(files, part_of(files[0][0])) for files in due]
        logs = [Stored(job.place, files, part, is_complete=True, is_delivered=True) for files, part in parts if part]
        # Of a JOB that goes on only what its inferences left may go, whatever else there is.
        await self._delete(plan(self._policy, [JobFacts(logs, is_all=False, is_over=False)], 0))

    async def _sweep(self, job: Job) -> None:
        """Delete all that is delivered of a JOB that is over, and its directories when nothing is left."""
        now = self._clock.monotonic()
        is_news = job.place not in self._next_sweep or self._deliveries.has_news(job.place)
        if not is_news or now < self._next_sweep.get(job.place, now) or not _has_ended(job):
            return
        self._next_sweep[job.place] = now + SWEEP_S
        if await self._is_over(job):
            self._deliveries.take_news(job.place)
            facts = await self._facts(job, is_over=True)
            await self._finish([(job, facts)], 0)

    # Room

    async def _make_room(self, root: bytes, jobs: Sequence[Job]) -> None:
        space = self._space.space(root)
        if space is None:
            return
        wanted = self._policy.wanted_bytes(space.total_bytes)
        if space.free_bytes >= wanted:
            self._complaints.discard(os.fsdecode(root))
            return
        found = [(job, await self._facts(job, is_over=_has_ended(job) and await self._is_over(job))) for job in jobs]
        short_bytes = int(wanted * (1 + MARGIN)) - space.free_bytes
        if await self._finish(found, short_bytes):
            await self._space.look(root)
        else:
            self._complain(os.fsdecode(root), f"has {space.free_bytes} bytes left, and nothing may be deleted")
            await self._clock.sleep(RETRY_S)

    # Both

    async def _is_over(self, job: Job) -> bool:
        npu_is_open = await asyncio.to_thread(is_npu_open, job.made_since_boot_us) if self._has_npu else False
        return is_over(job.state, self._board.rest_s(job), self._board.quiet_after_s, npu_is_open)

    async def _facts(self, job: Job, *, is_over: bool) -> JobFacts:
        """What stands in a JOB; nothing where that cannot be read."""
        await self._deliveries.recall(job.place)
        look = Look(moment(self._clock).wall_us * 1000, self._deliveries.has, self._policy.delete_undelivered)
        try:
            return await on_disk(job.place.root, look.facts, job.place, is_over)
        except OSError:
            self._deliveries.give_news_back(job.place)
            return JobFacts((), is_all=False, is_over=False)

    async def _finish(self, found: Sequence[tuple[Job, JobFacts]], short_bytes: int) -> int:
        """Delete what the policy says, then what is empty; how many logs went."""
        deletions = plan(self._policy, [facts for _, facts in found], short_bytes)
        gone = await self._delete(deletions)
        for job, facts in found:
            if facts.is_over and facts.is_all and all(id(stored) in gone for stored in facts.logs):
                await self._delete_directories(job)
        return len(gone)

    async def _delete(self, deletions: Iterable[Deletion]) -> set[int]:
        """Delete these; the identities of those that went."""
        gone: set[int] = set()
        by_job: dict[Place, list[Deletion]] = {}
        for each in deletions:
            by_job.setdefault(each.stored.job, []).append(each)
        for place, group in by_job.items():
            for start in range(0, len(group), REMOVE_LOGS):
                gone |= await self._delete_of(place, group[start : start + REMOVE_LOGS])
        return gone

    async def _delete_of(self, place: Place, group: Sequence[Deletion]) -> set[int]:
        try:
            return await self._try_delete(place, group)
        except NotOurs:
            self._refuse(place, "is on a network file system: nothing is deleted there")
        except OSError as error:
            self._refuse(place, f"{error.strerror}: nothing can be deleted there")
            self._deliveries.give_news_back(place)
        logs = [each.stored.files[0][0] for each in group]
        self._deliveries.offer_again(place, logs, self._refused_until[place])
        return set()

    async def _try_delete(self, place: Place, group: Sequence[Deletion]) -> set[int]:
        lost = [each.stored for each in group if each.is_loss]
        await on_disk(place.root, check, place)
        number = await self._lose(place, lost)
        still = [each.stored.files for each in group if each.is_loss or self._is_still_delivered(each.stored)]
        removed = await on_disk(place.root, remove, place, still)
        self._complaints.discard(os.fsdecode(place.directory))
        self._deliveries.forget(place, [*removed.paths, *removed.changed])
        paths = set(removed.paths)
        await self._correct(place, number, [each for each in lost if each.files[0][0] not in paths], removed)
        return {id(each.stored) for each in group if each.stored.files[-1][0] in paths}

    def _is_still_delivered(self, stored: Stored) -> bool:
        """Writing down what goes takes a while, in which its JOB may have been away; nobody has what is empty."""
        return all(self._deliveries.has(stored.job, path, seen) for path, seen in stored.files if seen.size)

    async def _lose(self, place: Place, lost: Sequence[Stored]) -> int | None:
        """Keep the loss of these before they go: when power fails in between, too much was told."""
        if not lost:
            return None
        name, now_us = _name(place), self._clock.wall_us()
        figures = {
            "lost_bytes": sum(each.size_bytes for each in lost),
            "lost_logs": sum(len(each.files) for each in lost),
        }
        number = self._losses.last(LossReason.DELETED_UNDELIVERED, name)
        if number is None:
            number = self._losses.begin(LossReason.DELETED_UNDELIVERED, name, now_us, **figures)
        else:
            self._losses.go_on(number, now_us, **figures)
        await self._losses.save()
        return number

    async def _correct(self, place: Place, number: int | None, kept: Sequence[Stored], removed: Removed) -> None:
        """What stayed after all is no loss; what was written to a file while it went is one."""
        now_us = self._clock.wall_us()
        if number is not None and kept:
            size, logs = sum(each.size_bytes for each in kept), sum(len(each.files) for each in kept)
            self._losses.go_on(number, now_us, lost_bytes=-size, lost_logs=-logs)
        if removed.late_bytes:
            reason = LossReason.DELETED_UNDELIVERED
            self._losses.begin(reason, _name(place), now_us, lost_bytes=removed.late_bytes, lost_logs=1)
        await self._losses.save()

    async def _delete_directories(self, job: Job) -> None:
        if job.state is JobState.REMOVED:
            self._next_sweep.pop(job.place, None)  # what stands there now is to be looked at anew
            return
        try:
            if await on_disk(job.place.root, remove_directories, job.place):
                _LOGGER.info("%s was delivered and is deleted", job.name)
                await self._deliveries.drop(job.place)
        except (NotOurs, OSError) as error:
            self._refuse(job.place, f"{error}: the empty directory stays")
            self._deliveries.give_news_back(job.place)

    def _note_remote(self, root: bytes) -> None:
        if self._policy.retain is not Retain.KEEP and is_remote(root):
            self._complain(os.fsdecode(root), "is on a network file system: nothing is deleted there")

    def _refuse(self, place: Place, why: str) -> None:
        self._refused_until[place] = self._clock.monotonic() + RETRY_S
        self._complain(os.fsdecode(place.directory), why)

    def _complain(self, what: str, why: str) -> None:
        if what not in self._complaints:
            self._complaints.add(what)
            _LOGGER.warning("%s %s", what, why)


def _has_ended(job: Job) -> bool:
    return job.state in (JobState.FINISHED, JobState.QUIET)


def _name(place: Place) -> str:
    return os.path.basename(place.path).decode("ascii")

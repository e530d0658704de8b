"""Deleting what may go: each root in turn of its own, looking only at what there is news of."""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable

from profagentd.clock import Clock, moment
from profagentd.disks import on_disk
from profagentd.events import LossReason
from profagentd.filesystems import is_remote
from profagentd.logs import DATA_DIRECTORY, LogKind, api_model, done_of, ended_by, is_table, kind_of
from profagentd.npu import is_npu_open
from profagentd.opening import (
    Fingerprint,
    Gone,
    NotAFile,
    OpenJob,
    Place,
    Unreadable,
    fingerprint,
    in_data,
    open_directory,
)
from profagentd.removal import NotOurs, Removed, check, remove, remove_directories
from profagentd.retention import Deletion, JobFacts, Part, Policy, Retain, Stored, is_over, plan
from profagentd.state import JobState

if TYPE_CHECKING:
    from collections.abc import Iterator

    IsDelivered = Callable[[Place, bytes, Fingerprint], bool]
    from collections.abc import Iterable, Sequence

    from profagentd.board import Board, Job
    from profagentd.delivery import Deliveries
    from profagentd.losses import KeptLosses
    from profagentd.roots import Roots
    from profagentd.space import SpaceWatch


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
        return kind_of(path) is not LogKind.DATA or files.done_length(path) is not None


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


class Cleaner:
    """Keeps the policy. What goes undelivered is a kept loss before it goes."""

    def __init__(
        self,
        policy: Policy,
        roots: Roots,
        clock: Clock,
        board: Board,
        deliveries: Deliveries,
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

"""What may be deleted from the board, by its policy and by what is known; pure."""

from __future__ import annotations

import enum
import hashlib
import logging
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Callable, TypeVar

from profagentd.limits import JOBS_LIMIT, SPARE_RECORDS
from profagentd.loop import on_disk
from profagentd.sources.files import write_whole
from profagentd.sources.source import LogPart
from profagentd.sources.state import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagentd.follow.registry import FollowedJob, Touches
    from profagentd.sources.files import Fingerprint, FolderPlace


_LOGGER = logging.getLogger(__name__)
_T = TypeVar("_T")
# Of one consumer's log, which file of it was delivered: each by its key.
_Records = dict[bytes, bytes]

DIRECTORY_NAME = "delivered"
DIGEST_BYTES = 8
RECORD_BYTES = 2 * DIGEST_BYTES
_SEEN = struct.Struct("<QQq")
# Whose delivery counts where nobody is named: whoever's.
_ANYONE = ""


class AckTracker:
    """A listener of the board: whatever happens to a log takes its delivery back. All calls but `has` on the loop."""

    def __init__(self, retain_for: Sequence[str], state: Path | None) -> None:
        """`state`: where deliveries are kept; None keeps them in memory only."""
        self._directory = state / DIRECTORY_NAME if state else None
        self._is_failing = False
        self._known: dict[FolderPlace, _Records] = {}  # as in the JOB's file, as far as that was read
        self._unkept: dict[FolderPlace, _Records] = {}
        # JOBs of which anything was delivered, or whose state changed, since they were looked at.
        self.news: set[FolderPlace] = set()
        self.expect(retain_for)

    def expect(self, retain_for: Sequence[str]) -> None:
        """These consumers, or anyone when none is named, must have a log; of earlier ones what was kept counts."""
        self._consumers = tuple(retain_for) or (_ANYONE,)
        self._known.clear()
        self._unkept.clear()

    def delivered(self, consumer: str, place: FolderPlace, path: bytes, seen: Fingerprint) -> None:
        """The consumer has the whole of this log, as it was when it had this fingerprint."""
        counted = consumer if consumer in self._consumers else _ANYONE
        if counted in self._consumers:
            self._unkept.setdefault(place, {})[_log_key(counted, path)] = _file_key(seen)
            self.news.add(place)

    def has(self, place: FolderPlace, path: bytes, seen: Fingerprint) -> bool:
        """Whether every consumer has this very file. Any thread may ask."""
        unkept, known, file = self._unkept.get(place, {}), self._known.get(place, {}), _file_key(seen)
        return all((unkept.get(key) or known.get(key)) == file for key in self._keys(path))

    # What is kept

    async def recall(self, place: FolderPlace) -> None:
        """Know what was delivered of a JOB before it was found."""
        if place not in self._known:
            found = await self._on_disk(_read, place)
            self._known.setdefault(place, found or {})

    async def keep(self) -> None:
        """Keep the deliveries: from then on a restart changes nothing about them."""
        for place in list(self._unkept):
            await self.recall(place)
            known, unkept = self._known.get(place, {}), self._unkept.pop(place, {})
            records = b"".join(key + file for key, file in unkept.items() if known.get(key) != file)
            known.update(unkept)
            size = await self._on_disk(_append, place, records) if records else None
            if size and size > (2 * len(known) + SPARE_RECORDS) * RECORD_BYTES:
                await self._on_disk(write_whole, place, b"".join(key + file for key, file in known.items()))

    async def drop(self, place: FolderPlace) -> None:
        """The JOB was deleted."""
        await self._on_disk(Path.unlink, place, True)  # missing_ok

    async def _on_disk(self, work: Callable[..., _T], place: FolderPlace, *arguments: object) -> _T | None:
        """What a thread gives; None where nothing can be kept, which is said once."""
        if self._directory is None:
            return None
        file = self._directory / os.path.basename(place.path).decode("ascii")
        try:
            return await on_disk(os.fsencode(self._directory), work, file, *arguments)
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                _LOGGER.warning("%s: %s: deliveries are known in memory only", self._directory, error.strerror)
            return None

    # What the board tells

    def job_changed_state(self, job: FollowedJob) -> None:
        """A JOB that is gone has no logs."""
        if job.state is not JobState.REMOVED:
            self.news.add(job.place)
            return
        self.news.discard(job.place)
        for records in (self._known, self._unkept):
            records.pop(job.place, None)

    def names_changed(self, job: FollowedJob, touches: Touches) -> None:
        """What was written, made or removed is to be delivered again; files that are others have other fingerprints."""
        if touches is None:
            self.news.add(job.place)
        for records in (self._known.get(job.place), self._unkept.get(job.place)):
            if records:
                for key in (key for path, touch in (touches or {}).items() if touch for key in self._keys(path)):
                    records.pop(key, None)

    def _keys(self, path: bytes) -> list[bytes]:
        return [_log_key(consumer, path) for consumer in self._consumers]


def _log_key(consumer: str, path: bytes) -> bytes:
    return hashlib.blake2b(consumer.encode("utf-8") + b"\0" + path, digest_size=DIGEST_BYTES).digest()


def _file_key(seen: Fingerprint) -> bytes:
    return hashlib.blake2b(_SEEN.pack(*seen), digest_size=DIGEST_BYTES).digest()


def _read(file: Path) -> _Records:
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return {}
    records = range(0, len(text) - RECORD_BYTES + 1, RECORD_BYTES)
    return {text[at : at + DIGEST_BYTES]: text[at + DIGEST_BYTES : at + RECORD_BYTES] for at in records}


def _append(file: Path, records: bytes) -> int:
    """How large the file is then. It need not outlive the board's power: what was written last does not either."""
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not file.exists():
        _bound(file.parent)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "ab") as text:
        whole = text.tell() - text.tell() % RECORD_BYTES
        text.truncate(whole)  # what a daemon that was killed wrote in part
        text.write(records)
    return whole + len(records)


def _bound(directory: Path) -> None:
    """Forget JOBs that were removed long ago by others than retention."""
    newest_first = sorted(directory.iterdir(), key=lambda file: -file.stat().st_mtime_ns)
    for file in newest_first[JOBS_LIMIT - 1 :]:
        file.unlink(missing_ok=True)


# Where it cannot be seen who has the NPU open, a JOB must rest so long before its last files go.
UNSEEN_REST_S = 600.0

# What file systems give to files at a time.
BLOCK_BYTES = 4096


class Retain(enum.Enum):
    """When logs are deleted; the numbers are the wire's."""

    KEEP = 1  # never
    DELIVERED = 2  # once they are delivered
    MIN_FREE = 3  # when space runs short: delivered ones, then, where that is allowed, others


@dataclass(frozen=True)
class Policy:
    """What a person chose. `min_free_bytes` and `min_free_share` (of the file system's size) hold with MIN_FREE."""

    retain: Retain = Retain.KEEP
    retain_for: tuple[str, ...] = ()
    min_free_bytes: int = 0
    min_free_share: float = 0.0
    delete_undelivered: bool = False

    def wanted_bytes(self, total_bytes: int) -> int:
        """The free space below which deleting begins, on a file system of this size."""
        return max(self.min_free_bytes, int(self.min_free_share * total_bytes))


@dataclass(frozen=True)
class Stored:
    """A complete log that may go: a file, or a data log with its `.done`, in the order in which they go."""

    job: FolderPlace
    files: tuple[tuple[bytes, Fingerprint], ...]
    part: LogPart
    is_delivered: bool

    @property
    def disk_bytes(self) -> int:
        """What its files take of the disk."""
        return sum(-(-seen.size // BLOCK_BYTES) * BLOCK_BYTES for _, seen in self.files)

    @property
    def age(self) -> tuple[int, bytes]:
        """What sorts the oldest first."""
        return max(seen.mtime_ns for _, seen in self.files), self.files[0][0]


@dataclass(frozen=True)
class DeletableJob:
    """A JOB as it stands: logs that may go, whether it holds nothing else, and whether nothing more will come.

    `is_settled`: nothing that was delivered was left out since it was written just now.
    """

    logs: Sequence[Stored]
    is_all: bool
    is_over: bool
    is_settled: bool = True


def is_over(state: JobState, rest_s: float, quiet_after_s: float, npu_is_open: bool | None) -> bool:
    """Whether nothing more will be written to a JOB.

    A finished one may go on: its program can load a model again, and then writes into the directory by its name (format
    page 1). So it must have rested, and no program that is older than it may have the NPU open.
    """
    if state not in (JobState.FINISHED, JobState.QUIET) or npu_is_open:
        return False
    return rest_s >= max(quiet_after_s, UNSEEN_REST_S if npu_is_open is None else 0.0)


def plan(policy: Policy, jobs: Sequence[DeletableJob], short_bytes: int) -> list[Stored]:
    """What is to be deleted now, in order. `short_bytes`: with MIN_FREE, how much space is missing."""
    if policy.retain is Retain.KEEP:
        return []
    may_lose = policy.retain is Retain.MIN_FREE and policy.delete_undelivered
    candidates = [
        stored
        for job in jobs
        for stored in job.logs
        if (stored.part is LogPart.WORK or (stored.part is LogPart.CALLS and job.is_over))
        and (stored.is_delivered or may_lose)
    ]
    chosen: list[Stored] = []
    for stored in sorted(candidates, key=lambda each: (not each.is_delivered, each.age)):
        if policy.retain is Retain.MIN_FREE and short_bytes <= 0:
            break
        short_bytes -= stored.disk_bytes
        chosen.append(stored)
    if policy.retain is Retain.DELIVERED or short_bytes > 0:
        gone = {id(stored) for stored in chosen}
        chosen += [table for job in jobs for table in _last_tables(job, gone, may_lose=may_lose)]
    return chosen


def _last_tables(job: DeletableJob, gone: set[int], *, may_lose: bool) -> list[Stored]:
    """The tables of a JOB that is over, when nothing else is left of it: all of them or none."""
    tables = [each for each in job.logs if each.part is LogPart.TABLE]
    is_rest_gone = len(tables) + sum(id(each) in gone for each in job.logs) == len(job.logs)
    may_go = may_lose or all(each.is_delivered for each in tables)
    return tables if job.is_over and job.is_all and is_rest_gone and may_go else []

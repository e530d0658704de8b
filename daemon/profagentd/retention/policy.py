"""The retention policy: deliveries that consumers acknowledged, and the plan of deletions that follows from them."""

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
from profagentd.sources.files import replace_file
from profagentd.sources.source import LogPart
from profagentd.sources.state import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagentd.follow.registry import FollowedJob, Touches
    from profagentd.sources.files import Fingerprint, FolderPlace


_LOGGER = logging.getLogger(__name__)
_T = TypeVar("_T")
# Delivered files: the key of a consumer's log → the key of the file that was delivered of it.
_Records = dict[bytes, bytes]

DIRECTORY_NAME = "delivered"
DIGEST_BYTES = 8
RECORD_BYTES = 2 * DIGEST_BYTES
_SEEN = struct.Struct("<QQq")
# Stands for any consumer where none is named.
_ANYONE = ""


class AckTracker:
    """Tracker of deliveries, and a listener of the registry: a change of a log takes its delivery back.

    All calls but `has` come from the loop.
    """

    def __init__(self, retain_for: Sequence[str], state: Path | None) -> None:
        """Keep deliveries in `state`; with None in memory only."""
        self._directory = state / DIRECTORY_NAME if state else None
        self._is_failing = False  # the disk refused deliveries, which is logged once
        self._saved: dict[FolderPlace, _Records] = {}  # content of each JOB's file that was read
        self._unsaved: dict[FolderPlace, _Records] = {}  # deliveries that are not in the file yet
        # JOBs with deliveries or changes since the reaper last scanned them.
        self.changed_jobs: set[FolderPlace] = set()
        self.set_consumers(retain_for)

    def set_consumers(self, retain_for: Sequence[str]) -> None:
        """Set the consumers that must have a log; without any, one consumer is enough.

        Deliveries saved for the earlier ones stay in the files, and count where the consumers are the same.
        """
        self._consumers = tuple(retain_for) or (_ANYONE,)
        self._saved.clear()
        self._unsaved.clear()

    def note_delivered(self, consumer: str, place: FolderPlace, path: bytes, fingerprint: Fingerprint) -> None:
        """Record that the consumer has all of this log's file, as it was with this fingerprint."""
        counted = consumer if consumer in self._consumers else _ANYONE
        if counted in self._consumers:
            self._unsaved.setdefault(place, {})[_log_key(counted, path)] = _file_key(fingerprint)
            self.changed_jobs.add(place)

    def has(self, place: FolderPlace, path: bytes, fingerprint: Fingerprint) -> bool:
        """Return True if every consumer has this very file. Any thread may call this."""
        unsaved, saved, file = self._unsaved.get(place, {}), self._saved.get(place, {}), _file_key(fingerprint)
        return all((unsaved.get(key) or saved.get(key)) == file for key in self._keys(path))

    # Deliveries on the disk

    async def load_job(self, place: FolderPlace) -> None:
        """Load the deliveries of a JOB from before this daemon started."""
        if place not in self._saved:
            found = await self._on_disk(_read, place)
            self._saved.setdefault(place, found or {})

    async def save(self) -> None:
        """Append new deliveries to the JOBs' files: after that a restart does not forget them."""
        for place in list(self._unsaved):
            await self.load_job(place)
            saved, unsaved = self._saved.get(place, {}), self._unsaved.pop(place, {})
            records = b"".join(key + file for key, file in unsaved.items() if saved.get(key) != file)
            saved.update(unsaved)
            size = await self._on_disk(_append, place, records) if records else None
            # Records are only appended; a file with mostly old ones is written anew.
            if size and size > (2 * len(saved) + SPARE_RECORDS) * RECORD_BYTES:
                await self._on_disk(replace_file, place, b"".join(key + file for key, file in saved.items()))

    async def forget_job(self, place: FolderPlace) -> None:
        """Delete the deliveries of a JOB that was deleted."""
        await self._on_disk(Path.unlink, place, True)  # missing_ok

    async def _on_disk(self, work: Callable[..., _T], place: FolderPlace, *arguments: object) -> _T | None:
        """Run `work` on a thread; return None, and log it once, where nothing can be saved."""
        if self._directory is None:
            return None
        file = self._directory / os.path.basename(place.path).decode("ascii")
        try:
            return await on_disk(os.fsencode(self._directory), work, file, *arguments)
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                _LOGGER.warning(
                    "cannot write %s: %s: the deliveries are kept in memory, and a restart forgets them",
                    self._directory,
                    error.strerror,
                )
            return None

    # Events of the registry

    def job_changed_state(self, job: FollowedJob) -> None:
        """Forget the deliveries of a JOB that is gone."""
        if job.state is not JobState.REMOVED:
            self.changed_jobs.add(job.place)
            return
        self.changed_jobs.discard(job.place)
        for records in (self._saved, self._unsaved):
            records.pop(job.place, None)

    def names_changed(self, job: FollowedJob, touches: Touches) -> None:
        """Take back the deliveries of changed logs. Replaced files have other fingerprints anyway."""
        if touches is None:
            self.changed_jobs.add(job.place)
        for records in (self._saved.get(job.place), self._unsaved.get(job.place)):
            if records:
                for key in (key for path, touch in (touches or {}).items() if touch for key in self._keys(path)):
                    records.pop(key, None)

    def _keys(self, path: bytes) -> list[bytes]:
        return [_log_key(consumer, path) for consumer in self._consumers]


def _log_key(consumer: str, path: bytes) -> bytes:
    return hashlib.blake2b(consumer.encode("utf-8") + b"\0" + path, digest_size=DIGEST_BYTES).digest()


def _file_key(fingerprint: Fingerprint) -> bytes:
    return hashlib.blake2b(_SEEN.pack(*fingerprint), digest_size=DIGEST_BYTES).digest()


def _read(file: Path) -> _Records:
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return {}
    records = range(0, len(text) - RECORD_BYTES + 1, RECORD_BYTES)
    return {text[at : at + DIGEST_BYTES]: text[at + DIGEST_BYTES : at + RECORD_BYTES] for at in records}


def _append(file: Path, records: bytes) -> int:
    """Append records to a JOB's file; return its size.

    Not synced: a power failure only makes clients acknowledge again.
    """
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not file.exists():
        _bound(file.parent)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "ab") as text:
        complete_bytes = text.tell() - text.tell() % RECORD_BYTES
        text.truncate(complete_bytes)  # drops the part of a record that a killed daemon wrote
        text.write(records)
    return complete_bytes + len(records)


def _bound(directory: Path) -> None:
    """Delete the files of JOBs that others removed long ago, so that at most JOBS_LIMIT remain."""
    newest_first = sorted(directory.iterdir(), key=lambda file: -file.stat().st_mtime_ns)
    for file in newest_first[JOBS_LIMIT - 1 :]:
        file.unlink(missing_ok=True)


# Rest of a JOB before its last files are deleted, where it cannot be seen who has the NPU open.
UNSEEN_REST_S = 600.0

# Unit in which file systems allocate space.
BLOCK_BYTES = 4096


class Retain(enum.Enum):
    """Condition for deleting logs; the numbers are the wire's."""

    KEEP = 1  # never
    DELIVERED = 2  # once they are delivered
    MIN_FREE = 3  # when space runs short: delivered ones first, then, where allowed, others


@dataclass(frozen=True)
class Policy:
    """Retention policy of the settings.

    `min_free_bytes` and `min_free_share` (of the file system) apply to MIN_FREE.
    """

    retain: Retain = Retain.KEEP
    retain_for: tuple[str, ...] = ()
    min_free_bytes: int = 0
    min_free_share: float = 0.0
    delete_undelivered: bool = False

    def wanted_bytes(self, total_bytes: int) -> int:
        """Return the free bytes below which deleting begins, on a file system of this size."""
        return max(self.min_free_bytes, int(self.min_free_share * total_bytes))


@dataclass(frozen=True)
class StoredLog:
    """Complete log that may be deleted: a file, or a data log and its `.done`, in the order of deletion."""

    job: FolderPlace
    files: tuple[tuple[bytes, Fingerprint], ...]
    part: LogPart
    is_delivered: bool

    @property
    def disk_bytes(self) -> int:
        """Bytes that the files take of the disk."""
        return sum(-(-seen.size // BLOCK_BYTES) * BLOCK_BYTES for _, seen in self.files)

    @property
    def age_key(self) -> tuple[int, bytes]:
        """Sort key that puts the oldest log first."""
        return max(seen.mtime_ns for _, seen in self.files), self.files[0][0]


@dataclass(frozen=True)
class DeletableJob:
    """Deletable logs of a JOB. `is_all`: it holds no other files; `is_over`: nothing more will be written.

    `is_settled`: no delivered log was left out because it was written just now.
    """

    logs: Sequence[StoredLog]
    is_all: bool
    is_over: bool
    is_settled: bool = True


def is_over(state: JobState, rest_s: float, quiet_after_s: float, npu_is_open: bool | None) -> bool:
    """Return True if nothing more will be written to a JOB.

    A finished JOB may go on: its program can load a model again, and then writes into the directory by its name (format
    page 1). So the JOB must have rested, and no program that is older than it may have the NPU open.
    """
    if state not in (JobState.FINISHED, JobState.QUIET) or npu_is_open:
        return False
    return rest_s >= max(quiet_after_s, UNSEEN_REST_S if npu_is_open is None else 0.0)


def plan_deletions(policy: Policy, jobs: Sequence[DeletableJob], short_bytes: int) -> list[StoredLog]:
    """Return the logs to delete now, in order. `short_bytes`: the missing space, with MIN_FREE."""
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
    chosen: list[StoredLog] = []
    for stored in sorted(candidates, key=lambda each: (not each.is_delivered, each.age_key)):
        if policy.retain is Retain.MIN_FREE and short_bytes <= 0:
            break
        short_bytes -= stored.disk_bytes
        chosen.append(stored)
    if policy.retain is Retain.DELIVERED or short_bytes > 0:
        gone = {id(stored) for stored in chosen}
        chosen += [table for job in jobs for table in _last_tables(job, gone, may_lose=may_lose)]
    return chosen


def _last_tables(job: DeletableJob, gone: set[int], *, may_lose: bool) -> list[StoredLog]:
    """Return all tables of a JOB that is over and holds nothing else, or none of them."""
    tables = [each for each in job.logs if each.part is LogPart.TABLE]
    is_rest_gone = len(tables) + sum(id(each) in gone for each in job.logs) == len(job.logs)
    may_go = may_lose or all(each.is_delivered for each in tables)
    return tables if job.is_over and job.is_all and is_rest_gone and may_go else []

"""What may be deleted from the board, by its policy and by what is known; pure."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagentd.sources.job import DATA_DIRECTORY, api_model, ended_by, is_table, kind_of
from profagentd.sources.source import LogKind
from profagentd.sources.state import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagentd.sources.files import Fingerprint, Place

# Where it cannot be seen who has the NPU open, a JOB must rest so long before its last files go.
UNSEEN_REST_S = 600.0

# What file systems give to files at a time.
BLOCK_BYTES = 4096

_CONTINUATION = re.compile(rb"cont\.\d+\..*\d", re.DOTALL)


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

    def counts(self, consumer: str) -> bool:
        """Whether it matters what this consumer has; where nobody is named and anything may go, that of each does."""
        return self.retain is not Retain.KEEP and (not self.retain_for or consumer in self.retain_for)


class Part(enum.Enum):
    """What a log is to its JOB, and so when it may go."""

    WORK = "work"  # an inference's: while the JOB goes on
    CALLS = "calls"  # acl_api: a model that is loaded again appends, and its end shows that the JOB has ended
    TABLE = "table"  # explains the others: with the last of them


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
class Stored:
    """A complete log that may go: a file, or a data log with its `.done`, in the order in which they go."""

    job: Place
    files: tuple[tuple[bytes, Fingerprint], ...]
    part: Part
    is_delivered: bool

    @property
    def size_bytes(self) -> int:
        """Bytes in its files."""
        return sum(seen.size for _, seen in self.files)

    @property
    def disk_bytes(self) -> int:
        """What its files take of the disk."""
        return sum(-(-seen.size // BLOCK_BYTES) * BLOCK_BYTES for _, seen in self.files)

    @property
    def age(self) -> tuple[int, bytes]:
        """What sorts the oldest first."""
        return max(seen.mtime_ns for _, seen in self.files), self.files[0][0]


@dataclass(frozen=True)
class JobFacts:
    """A JOB as it stands: logs that may go, whether it holds nothing else, and whether nothing more will come.

    `is_settled`: nothing that was delivered was left out since it was written just now.
    """

    logs: Sequence[Stored]
    is_all: bool
    is_over: bool
    is_settled: bool = True


@dataclass(frozen=True)
class Deletion:
    """What is to go now; `is_loss` when somebody was to have it and has not."""

    stored: Stored
    is_loss: bool


def is_over(state: JobState, rest_s: float, quiet_after_s: float, npu_is_open: bool | None) -> bool:
    """Whether nothing more will be written to a JOB.

    A finished one may go on: its program can load a model again, and then writes into the directory by its name (format
    page 1). So it must have rested, and no program that is older than it may have the NPU open.
    """
    if state not in (JobState.FINISHED, JobState.QUIET) or npu_is_open:
        return False
    return rest_s >= max(quiet_after_s, UNSEEN_REST_S if npu_is_open is None else 0.0)


def plan(policy: Policy, jobs: Sequence[JobFacts], short_bytes: int) -> list[Deletion]:
    """What is to be deleted now, in order. `short_bytes`: with MIN_FREE, how much space is missing."""
    if policy.retain is Retain.KEEP:
        return []
    may_lose = policy.retain is Retain.MIN_FREE and policy.delete_undelivered
    candidates = [
        stored
        for job in jobs
        for stored in job.logs
        if (stored.part is Part.WORK or (stored.part is Part.CALLS and job.is_over))
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
    return [Deletion(stored, is_loss=not stored.is_delivered) for stored in chosen]


def _last_tables(job: JobFacts, gone: set[int], *, may_lose: bool) -> list[Stored]:
    """The tables of a JOB that is over, when nothing else is left of it: all of them or none."""
    tables = [each for each in job.logs if each.part is Part.TABLE]
    is_rest_gone = len(tables) + sum(id(each) in gone for each in job.logs) == len(job.logs)
    may_go = may_lose or all(each.is_delivered for each in tables)
    return tables if job.is_over and job.is_all and is_rest_gone and may_go else []

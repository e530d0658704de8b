"""What may be deleted from the board, by its policy and by what is known; pure."""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagentd.sources.state import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from profagentd.sources.files import Fingerprint, Place

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

    def counts(self, consumer: str) -> bool:
        """Whether it matters what this consumer has; where nobody is named and anything may go, that of each does."""
        if self.retain is Retain.KEEP:
            return False
        is_open_to_all = not self.retain_for and self.retain is Retain.MIN_FREE and self.delete_undelivered
        return is_open_to_all or consumer in self.retain_for


class Part(enum.Enum):
    """What a log is to its JOB, and so when it may go."""

    WORK = "work"  # an inference's: while the JOB goes on
    CALLS = "calls"  # acl_api: a model that is loaded again appends, and its end shows that the JOB has ended
    TABLE = "table"  # explains the others: with the last of them


@dataclass(frozen=True)
class Stored:
    """A file, or a data log with its `.done`: what goes together, in the order in which it goes."""

    job: Place
    files: tuple[tuple[bytes, Fingerprint], ...]
    part: Part
    is_complete: bool
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
    def changed_ns(self) -> int:
        """Wall clock of its newest change."""
        return max(seen.mtime_ns for _, seen in self.files)


@dataclass(frozen=True)
class JobFacts:
    """A JOB as it stands: its logs, whether these are all that it holds, and whether nothing more will come."""

    logs: Sequence[Stored]
    is_all: bool
    is_over: bool


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
    chosen = list(_chosen(policy, jobs, short_bytes))
    if policy.retain is Retain.DELIVERED or short_bytes > 0:
        chosen += _tables(policy, jobs, {id(each.stored) for each in chosen})
    return chosen


def _chosen(policy: Policy, jobs: Sequence[JobFacts], short_bytes: int) -> Iterator[Deletion]:
    """Logs that are no tables."""
    candidates = [stored for job in jobs for stored in job.logs if _may_go(stored, job)]
    delivered = [each for each in candidates if each.is_delivered]
    if policy.retain is Retain.DELIVERED:
        yield from (Deletion(each, is_loss=False) for each in delivered)
        return
    others = [each for each in candidates if not each.is_delivered] if policy.delete_undelivered else []
    for stored in itertools.chain(_oldest_first(delivered), _oldest_first(others)):
        if short_bytes <= 0:
            return
        short_bytes -= stored.disk_bytes
        yield Deletion(stored, is_loss=not stored.is_delivered)


def _tables(policy: Policy, jobs: Sequence[JobFacts], gone: set[int]) -> Iterator[Deletion]:
    """Tables of JOBs of which nothing else is left."""
    for job in jobs:
        tables = [each for each in job.logs if each.part is Part.TABLE]
        is_rest_gone = len(tables) + sum(id(each) in gone for each in job.logs) == len(job.logs)
        are_theirs = all(each.is_complete and (each.is_delivered or _may_lose(policy)) for each in tables)
        if job.is_over and job.is_all and is_rest_gone and are_theirs:
            yield from (Deletion(each, is_loss=not each.is_delivered) for each in tables)


def _may_go(stored: Stored, job: JobFacts) -> bool:
    if stored.part is Part.TABLE or not stored.is_complete:
        return False
    return stored.part is Part.WORK or job.is_over


def _may_lose(policy: Policy) -> bool:
    return policy.retain is Retain.MIN_FREE and policy.delete_undelivered


def _oldest_first(stored: Iterable[Stored]) -> list[Stored]:
    return sorted(stored, key=lambda each: (each.changed_ns, each.files[0][0]))

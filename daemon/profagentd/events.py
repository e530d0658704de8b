"""What happens to logs, as values: the daemon's inside of the wire's Batch."""

from __future__ import annotations

import enum
import os
from typing import NamedTuple, Union


class StartReason(enum.IntEnum):
    """Why bytes of a log follow from where they do; the numbers are the wire's."""

    NEW = 1
    SAME = 2
    DIFFERENT = 3
    RECREATED = 4
    REWRITTEN = 5


class LossReason(enum.Enum):
    """Why something that existed is not sent; the words are the wire's."""

    UNREADABLE = "unreadable"
    REMOVED_UNSEEN = "removed-unseen"  # with its JOB, which may come back
    REMOVED_UNREAD = "removed-unread"  # from a JOB that stands
    NOT_A_FILE = "not-a-file"
    DELETED_UNDELIVERED = "deleted-undelivered"
    DISK_FULL = "disk-full"


class Started(NamedTuple):
    """Bytes of `generation` follow from `offset`; `after_deletion`: retention deleted the file that stood there.

    With `is_answer` they follow from what the client said of a log that came unasked.
    """

    handle: int
    generation: int
    offset: int
    reason: StartReason
    after_deletion: bool = False
    is_answer: bool = False


class Chunk(NamedTuple):
    """Bytes of a log at `offset`."""

    handle: int
    generation: int
    offset: int
    data: bytes


class Completed(NamedTuple):
    """The log is complete as far as the board can tell."""

    handle: int
    generation: int
    size: int
    digest: bytes


class Removed(NamedTuple):
    """The log is gone; `size` is the last one seen, or `sent` where a kept loss counts what is beyond."""

    handle: int
    generation: int
    sent: int
    size: int


class Loss(NamedTuple):
    """Something is gone or cannot be sent; `handle` 0 when no announced log is meant."""

    handle: int
    job: int
    reason: LossReason
    detail: str
    lost_bytes: int = 0


Event = Union[Started, Chunk, Completed, Removed, Loss]


def unread_loss(job: int, path: bytes, *, with_job: bool = False, read_bytes: int = 0) -> Loss:
    """What is told of a log that was removed before it was read; one that went with its JOB may come back with it.

    With `read_bytes` these were read before more was written.
    """
    reason = LossReason.REMOVED_UNSEEN if with_job else LossReason.REMOVED_UNREAD
    after = f"after {read_bytes} bytes were read, before the rest was" if read_bytes else "before it was read"
    return Loss(0, job, reason, f"{os.fsdecode(path)} was removed {after}")

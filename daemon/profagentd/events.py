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
    REMOVED_UNREAD = "removed-unread"
    NOT_A_FILE = "not-a-file"
    DELETED_UNDELIVERED = "deleted-undelivered"
    DISK_FULL = "disk-full"


class Started(NamedTuple):
    """Bytes of `generation` follow from `offset`."""

    handle: int
    generation: int
    offset: int
    reason: StartReason


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
    """The log is gone; `size` is the last one seen."""

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


def unread_loss(job: int, path: bytes, *, read_bytes: int = 0) -> Loss:
    """What is told of a log that was removed before it was read; of `read_bytes`, before more was."""
    after = f"after {read_bytes} bytes were read, before the rest was" if read_bytes else "before it was read"
    return Loss(0, job, LossReason.REMOVED_UNREAD, f"{os.fsdecode(path)} was removed {after}")

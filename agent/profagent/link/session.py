"""One stream's rules, without I/O: which handle is which log, and what a board may send of it.

Everything that a board sends is checked here before anybody writes it. What breaks the contract of `board.proto`
raises ProtocolError: the stream is of no use any more, what was durable before it stays.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Never

from profagent.errors import ProtocolError
from profagent.formats.names import display_text, is_job_name
from profagent.link.messages import (
    PROTOCOL,
    Announced,
    Batch,
    Board,
    Chunk,
    Completed,
    JobStatus,
    Loss,
    Released,
    Removed,
    ServerMessage,
    Started,
    Welcome,
)

if TYPE_CHECKING:
    from profagent.link.messages import AnnouncedLog, Holding, LogEvent

LARGEST_LOGS = 4096
LARGEST_PATH_BYTES = 1024
LARGEST_CHUNK_BYTES = 256 << 10
LARGEST_OFFSET = 2**63 - 1
# More than any board's disk holds; sums of what is lost stay numbers of the database.
LARGEST_SIZE = 2**48
LARGEST_JOBS = 100_000
# A daemon keeps 1,000, and may come by others while a stream lasts.
LARGEST_KEPT_LOSSES = 5_000
LONGEST_SHOWN_BYTES = 256


class FollowedLog(NamedTuple):
    """A log of the stream, as it stands after the latest event: bytes before `offset` have arrived.

    `held` is the generation and the offset that the host answered; None before it did.
    """

    handle: int
    job: str
    path: bytes
    snapshot: bool
    generation: int = 0
    offset: int = 0
    held: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Announcement:
    """Logs that wait for a `Holding` each."""

    logs: tuple[FollowedLog, ...]


class Happened(NamedTuple):
    """An event of a log; `log` is None for a Loss that is not about one log. `job` is empty when it is about none."""

    job: str
    log: FollowedLog | None
    event: LogEvent


SessionEvent = ServerMessage | Announcement | Happened


class Session:
    """What is known of one stream. `receive` takes each server message once, in order."""

    def __init__(self) -> None:
        self.board: Board | None = None
        self.jobs: dict[int, JobStatus] = {}
        self._logs: dict[int, FollowedLog] = {}
        self._paths: set[tuple[str, bytes]] = set()  # JOB and path of each of them
        self._kept_losses: set[int] = set()  # their numbers
        self._unasked: set[int] = set()  # handles of those that come as if the host held nothing of them
        self._passed_over: dict[
            int, str
        ] = {}  # those of them of which that is not so, until they are released: JOBs of those that come again

    def receive(self, message: ServerMessage) -> list[SessionEvent]:
        """Check a message; returns what it says with handles resolved. Raises ProtocolError."""
        if self.board is None and not isinstance(message, Welcome):
            self._refuse(f"{type(message).__name__} came before Welcome")
        match message:
            case Welcome():
                self._welcome(message.board)
            case JobStatus():
                return [self._job(message)]
            case Announced():
                return [Announcement(tuple(self._announced(log) for log in message.logs))]
            case Batch():
                return [event for event in map(self._event, message.events) if event is not None]
            case Released():
                for handle in message.handles:
                    self._forget(handle)
        return [message]

    def hold(self, holding: Holding) -> bool:
        """Note what the host answers to an announcement; whether the board must be told."""
        log = self._logs.get(holding.handle)
        if log is None:
            return True
        is_unasked = holding.handle in self._unasked
        is_told = holding.skip or holding.generation > 0 or not is_unasked
        if is_unasked and is_told:
            self._passed_over[holding.handle] = "" if holding.skip else log.job
        if not holding.skip:
            self._logs[holding.handle] = log._replace(held=(holding.generation, holding.offset))
        elif not is_unasked:
            self._forget(holding.handle)
        return is_told

    def _welcome(self, board: Board) -> None:
        if self.board is not None:
            self._refuse("Welcome came twice")
        if board.protocol[0] != PROTOCOL[0]:
            raise ProtocolError(
                f"the board speaks protocol {_dotted(board.protocol)}, this profagent {_dotted(PROTOCOL)}",
                hint="upgrade profagent on both ends",
            )
        self.board = board

    def _job(self, status: JobStatus) -> JobStatus:
        """The status, which cannot say that all has come while some was passed over."""
        if not is_job_name(status.name):
            self._refuse(f"it names a JOB {display_text(status.name[:40])!r}")
        known = self.jobs.get(status.handle)
        if known is not None and known.name != status.name:
            self._refuse(f"JOB handle {status.handle} changed its name")
        if known is None and len(self.jobs) >= LARGEST_JOBS:
            self._refuse(f"it told of more than {LARGEST_JOBS:,} JOBs")
        if status.caught_up and status.name in self._passed_over.values():
            status = replace(status, caught_up=False)  # the board says it anew once they are announced again
        self.jobs[status.handle] = status
        return status

    def _announced(self, log: AnnouncedLog) -> FollowedLog:
        job = self.jobs.get(log.job)
        if job is None or log.handle == 0 or log.handle in self._logs:
            self._refuse(f"log handle {log.handle} was announced twice, or for an unknown JOB, or is none")
        if len(log.path) > LARGEST_PATH_BYTES:
            self._refuse(f"it announced a path of {len(log.path)} bytes")
        if len(self._logs) >= LARGEST_LOGS:
            self._refuse(f"it announced more than {LARGEST_LOGS:,} logs at a time")
        followed = FollowedLog(log.handle, job.name, log.path, log.snapshot)
        if (job.name, log.path) in self._paths:
            self._refuse(f"{_shown(followed)} has two handles at a time")
        self._paths.add((job.name, log.path))
        self._logs[log.handle] = followed
        if log.unasked:
            self._unasked.add(log.handle)
        return followed

    def _forget(self, handle: int) -> None:
        log = self._logs.pop(handle, None)
        if log is not None:
            self._paths.remove((log.job, log.path))
            self._unasked.discard(handle)
            self._passed_over.pop(handle, None)

    def _event(self, told: LogEvent) -> Happened | None:
        """What an event says; None when it is passed over."""
        event = self._of_passed_over(told) if told.handle in self._passed_over else told
        if event is None:
            return None
        log = self._logs.get(event.handle)
        if isinstance(event, Loss) and event.id:
            self._kept_losses.add(event.id)
            if len(self._kept_losses) > LARGEST_KEPT_LOSSES:
                self._refuse(f"it told of more than {LARGEST_KEPT_LOSSES:,} kept losses")
        if isinstance(event, Loss) and (log is None or log.held is None):
            job = self.jobs.get(event.job)
            return Happened(job.name if job else "", None, event)
        if log is None:
            self._refuse(f"{type(event).__name__} names the unknown log handle {event.handle}")
        log = self._followed(log, event)
        if isinstance(event, Removed):
            self._forget(event.handle)
        else:
            self._logs[event.handle] = log
        return Happened(log.job, log, event)

    def _of_passed_over(self, event: LogEvent) -> LogEvent | None:
        """What an event says of a log that is passed over: what is held of it is an earlier file."""
        log = self._logs[event.handle]
        if isinstance(event, Removed) and log.held is not None:
            return replace(event, generation=log.held[0], sent=0)
        if isinstance(event, Removed):
            self._forget(event.handle)
        return event if isinstance(event, Loss) else None

    def _followed(self, log: FollowedLog, event: LogEvent) -> FollowedLog:
        match event:
            case Started():
                return self._started(log, event)
            case Chunk():
                return self._grown(log, event)
            case Completed() if log.generation == 0 or (event.generation, event.size) != (log.generation, log.offset):
                self._refuse(f"{_shown(log)} is complete with {event.size} bytes, {log.offset} came")
            case Removed() if max(event.sent, event.size) > LARGEST_SIZE:
                self._refuse(f"{_shown(log)} is removed with {event.size} bytes, of which {event.sent} were sent")
        return log

    def _started(self, log: FollowedLog, event: Started) -> FollowedLog:
        """It goes on with what the host holds, once; else a later generation begins."""
        if log.held is None:
            self._refuse(f"{_shown(log)} started before it was known what is held of it")
        goes_on = log.generation == 0 and (event.generation, event.offset) == log.held and event.generation > 0
        begins = event.offset == 0 and event.generation > max(log.generation, log.held[0])
        if not (goes_on or begins) or max(event.generation, event.offset) > LARGEST_OFFSET:
            self._refuse(f"{_shown(log)} started at generation {event.generation}, offset {event.offset}")
        if goes_on:
            return log._replace(generation=event.generation, offset=event.offset)
        return log._replace(generation=event.generation, offset=0)

    def _grown(self, log: FollowedLog, chunk: Chunk) -> FollowedLog:
        if (chunk.generation, chunk.offset) != (log.generation, log.offset) or log.generation == 0:
            self._refuse(f"{_shown(log)} goes on at byte {chunk.offset} instead of {log.offset}")
        if len(chunk.data) > LARGEST_CHUNK_BYTES or chunk.offset + len(chunk.data) > LARGEST_OFFSET:
            self._refuse(f"{_shown(log)} came in a chunk of {len(chunk.data)} bytes")
        return log._replace(offset=log.offset + len(chunk.data))

    @staticmethod
    def _refuse(what: str) -> Never:
        raise ProtocolError(f"the board broke the protocol: {what}", hint="upgrade profagent on both ends")


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _shown(log: FollowedLog) -> str:
    return f"{log.job}/{display_text(os.fsdecode(log.path[:LONGEST_SHOWN_BYTES]))}"

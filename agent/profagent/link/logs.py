"""Table of the JOBs and logs of one stream, without I/O: which handle is which log, and what a board may send of it.

Everything that a board sends about a log is checked here before it is written. A breach of `board.proto` raises
ProtocolError.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Never

from msgspec.structs import replace

from profagent.errors import ProtocolError
from profagent.formats.names import display_text, is_collection_name
from profagent.limits import (
    LARGEST_CHUNK_BYTES,
    LARGEST_JOBS,
    LARGEST_LOGS,
    LARGEST_RECORDED_LOSSES,
    LONGEST_PATH_BYTES,
    LONGEST_SHOWN_BYTES,
)
from profagent.link.messages import Chunk, Completed, FollowedLog, Loss, Received, Removed, Started

if TYPE_CHECKING:
    from collections.abc import Mapping

    from profagent.link.messages import AnnouncedLog, Holding, JobStatus, LogEvent


def refuse(what: str) -> Never:
    """Raise ProtocolError: the board broke its contract, and the stream cannot be used any more."""
    raise ProtocolError(f"the board broke the protocol: {what}", hint="upgrade profagent on both ends")


def check_job(status: JobStatus, jobs: Mapping[int, JobStatus]) -> None:
    """Check a JOB's status against those of earlier messages, by handle. Raises ProtocolError."""
    if not is_collection_name(status.name):
        refuse(f"it names a JOB {display_text(status.name[:40])!r}")
    known = jobs.get(status.handle)
    if known is not None and known.name != status.name:
        refuse(f"JOB handle {status.handle} changed its name")
    if known is None and len(jobs) >= LARGEST_JOBS:
        raise ProtocolError(
            f"the board has more than {LARGEST_JOBS:,} JOBs",
            hint="delete old ones there, or have its daemon look below a directory that has fewer (`root`)",
        )


class LogTable:
    """Logs of one stream that are announced and not released.

    The number of logs and of kept losses is bounded, because the board is not trusted.
    """

    def __init__(self) -> None:
        # By handle, each log as it stands after the latest event.
        self._logs: dict[int, FollowedLog] = {}
        self._paths: set[tuple[str, bytes]] = set()  # JOB and path of each log, to find a second handle
        self._recorded_losses: set[int] = set()  # numbers of kept losses, to bound them
        self._unasked: set[int] = set()  # handles of logs whose data comes without waiting for a Holding
        # By handle, logs of `_unasked` of which the host holds something: their events are dropped until they are
        # released and announced again. The value is the JOB's name, empty for a log that the host skips.
        self._passed_over: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._logs)

    def announce(self, log: AnnouncedLog, jobs: Mapping[int, JobStatus], *, is_asked: bool = True) -> FollowedLog:
        """Enter a new log of one of `jobs` (followed in this stream, by handle) and return it. Raises ProtocolError."""
        job = jobs.get(log.job)
        if job is None or log.handle == 0 or log.handle in self._logs:
            refuse(f"log handle {log.handle} was announced twice, or for a JOB that is not followed, or is none")
        # Checked before the path is stored or shown: a board could otherwise fill the host's memory.
        if len(log.path) > LONGEST_PATH_BYTES:
            refuse(f"it announced a path of {len(log.path)} bytes")
        if len(self._logs) >= LARGEST_LOGS:
            refuse(f"it announced more than {LARGEST_LOGS:,} logs at a time")
        followed = FollowedLog(log.handle, job.name, log.path, log.snapshot)
        # Two handles of one log at a time would let two sequences of chunks write into one file.
        if (job.name, log.path) in self._paths:
            refuse(f"{_shown(followed)} has two handles at a time")
        self._paths.add((job.name, log.path))
        self._logs[log.handle] = followed
        if not is_asked:
            self._unasked.add(log.handle)
        return followed

    def hold(self, holding: Holding) -> bool:
        """Note the host's answer to an announcement; return True if the board must get it."""
        log = self._logs.get(holding.handle)
        if log is None:
            return True
        is_unasked = holding.handle in self._unasked
        is_news = holding.skip or holding.generation > 0 or not is_unasked
        if is_unasked and is_news:
            self._passed_over[holding.handle] = "" if holding.skip else log.job
        if not holding.skip:
            self._logs[holding.handle] = replace(log, held=(holding.generation, holding.offset))
        elif not is_unasked:
            self.forget(holding.handle)
        return is_news

    def forget(self, *handles: int) -> None:
        """Release these handles: the board may use them for other logs."""
        for handle in handles:
            log = self._logs.pop(handle, None)
            if log is not None:
                self._paths.remove((log.job, log.path))
                self._unasked.discard(handle)
                self._passed_over.pop(handle, None)

    def awaits(self, job: str) -> bool:
        """Return True if events of a JOB's logs were dropped and these logs will be announced again."""
        return job in self._passed_over.values()

    def take(self, event: LogEvent, jobs: Mapping[int, JobStatus]) -> Received | None:
        """Check an event and return it with its log; None if it is dropped. `jobs` as in `announce`.

        Raises ProtocolError.
        """
        log = self._logs.get(event.handle)
        if isinstance(event, Loss):
            return self._lost(event, log, jobs)
        if log is None:
            refuse(f"{type(event).__name__} names the unknown log handle {event.handle}")
        if event.handle in self._passed_over:
            if not isinstance(event, Removed):
                return None
            if log.held is None:
                self.forget(event.handle)
                return None
            # The host holds an earlier part; of the data on this stream nothing was taken.
            event = replace(event, generation=log.held[0], sent=0)
        log = _moved(log, event)
        if isinstance(event, Removed):
            self.forget(event.handle)
        else:
            self._logs[event.handle] = log
        return Received(log.job, log, event)

    def _lost(self, loss: Loss, log: FollowedLog | None, jobs: Mapping[int, JobStatus]) -> Received:
        if loss.id:
            self._recorded_losses.add(loss.id)
            if len(self._recorded_losses) > LARGEST_RECORDED_LOSSES:
                refuse(f"it told of more than {LARGEST_RECORDED_LOSSES:,} kept losses")
        if log is not None and log.held is not None:
            return Received(log.job, log, loss)
        job = jobs.get(loss.job)
        return Received(job.name if job else "", None, loss)


def _moved(log: FollowedLog, event: Started | Chunk | Completed | Removed) -> FollowedLog:
    match event:
        case Started():
            return _started(log, event)
        case Chunk():
            return _grown(log, event)
        case Completed() if log.generation == 0 or (event.generation, event.size) != (log.generation, log.offset):
            refuse(f"{_shown(log)} is complete with {event.size} bytes, {log.offset} came")
    return log


def _started(log: FollowedLog, event: Started) -> FollowedLog:
    """Return the log after a start: once on a stream it continues what the host holds, else a new generation."""
    if log.held is None:
        refuse(f"{_shown(log)} started before it was known what is held of it")
    goes_on = log.generation == 0 and (event.generation, event.offset) == log.held and event.generation > 0
    begins = event.offset == 0 and event.generation > max(log.generation, log.held[0])
    if not (goes_on or begins):
        refuse(f"{_shown(log)} started at generation {event.generation}, offset {event.offset}")
    return replace(log, generation=event.generation, offset=_end(log, event))


def _grown(log: FollowedLog, chunk: Chunk) -> FollowedLog:
    if (chunk.generation, chunk.offset) != (log.generation, log.offset) or log.generation == 0:
        refuse(f"{_shown(log)} goes on at byte {chunk.offset} instead of {log.offset}")
    return replace(log, offset=_end(log, chunk))


def _end(log: FollowedLog, event: Started | Chunk) -> int:
    size = len(event.data)
    if size > LARGEST_CHUNK_BYTES:
        refuse(f"{_shown(log)} came in a chunk of {size} bytes")
    return event.offset + size


def _shown(log: FollowedLog) -> str:
    return f"{log.job}/{display_text(os.fsdecode(log.path[:LONGEST_SHOWN_BYTES]))}"

"""The announced logs of one stream: found by handle or path, read in turns, bounded in number."""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import TYPE_CHECKING

from profagentd.errors import Fault, Refusal
from profagentd.follow.log import ANNOUNCED, OVER, FileEvent, Log, Turn
from profagentd.limits import CHUNK_BYTES, COMMON_LOGS, IDLE_S, LARGE_READS, PIECE_BYTES, RESERVED_LOGS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from profagentd.follow.log import Event
    from profagentd.follow.reading import ReadStep
    from profagentd.sources.walk import Sighting

# Due times are rounded up to this, so that logs that wait for about the same time are read in one batch.
SLOT_S = 0.1


class Quota:
    """Counters that all streams share: open streams, and announced logs that are not over."""

    def __init__(self) -> None:
        self.streams = 0  # open streams
        self.announced_logs = 0  # of all streams, and handles whose release is not sent yet

    @property
    def read_bytes(self) -> int:
        """Bytes that one stream may read in a turn. They are in memory three times, with TLS four times."""
        return CHUNK_BYTES if self.streams <= LARGE_READS else PIECE_BYTES


class LogTurns:
    """Table of a stream's announced logs, and the queue of those that are to be read.

    A log that was taken from the queue must come back through `finish_turn` or `put_back`.
    """

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        # The announced logs by handle. Handles that are over are in neither table.
        self._logs: dict[int, Log] = {}
        self._paths: dict[int, dict[bytes, Log]] = {}  # by JOB and path
        self._last_handle = 0  # handles are never used again within a stream
        self._ready: deque[Log] = deque()  # logs in state DUE, first come first served
        # A heap of due times and handles. Entries are not removed: one that no longer equals the log's `waits_until` is
        # passed over.
        self._waiting: list[tuple[float, int]] = []
        self._released: dict[tuple[int, bytes], int] = {}  # handles whose release is not sent yet
        self._idle_checked_s = -math.inf  # monotonic time of the last search for idle logs
        self.delivered: list[Log] = []  # logs that the client has whole; the session takes them

    @property
    def room(self) -> int:
        """Number of logs that may still be announced. Released ones count until the client knows of their release."""
        own = len(self._logs) + len(self._released)
        # RESERVED_LOGS belong to each stream, so that none starves; the others are first come, first served.
        return max(RESERVED_LOGS - own, COMMON_LOGS - self._quota.announced_logs)

    @property
    def lag_bytes(self) -> int:
        """Bytes that are known and not yet sent."""
        return sum(max(0, log.size - log.sent) for log in self._logs.values())

    def of_job(self, job: int) -> list[Log]:
        """Return the announced logs of a JOB."""
        return list(self._paths.get(job, {}).values())

    def at(self, job: int, path: bytes) -> Log | None:
        """Return the log at a path, or None if it is not announced."""
        return self._paths.get(job, {}).get(path)

    def get(self, handle: int) -> Log | None:
        """Return the log, or None when its handle is over. Raises Refusal for a handle that never was."""
        if not 0 < handle <= self._last_handle:
            raise Refusal(Fault.INVALID, f"there is no log {handle} in this stream")
        return self._logs.get(handle)

    def add(self, job: int, sighting: Sighting, changed_s: float) -> Log:
        """Add a log that is to be announced, with the next handle."""
        self._quota.announced_logs += 1
        self._last_handle += 1
        log = Log(self._last_handle, job, sighting, changed_s)
        self._paths.setdefault(job, {})[log.path] = self._logs[log.handle] = log
        return log

    def clear(self) -> None:
        """Forget everything, as the stream is over, and give its room back to the quota."""
        self._quota.announced_logs -= len(self._logs) + len(self._released)
        for each in (self._logs, self._paths, self._ready, self._waiting, self._released):
            each.clear()

    # Messages of the client

    def apply_holding(self, log: Log, *, skip: bool, generation: int, offset: int, prefix_digest: bytes) -> None:
        """Apply the client's answer to an announced log: what it holds, or that it skips the log. Raises Refusal."""
        if log.state is not ANNOUNCED:
            raise Refusal(Fault.INVALID, f"log {log.handle} has its Holding already")
        if offset and not generation:
            raise Refusal(Fault.INVALID, f"the Holding of log {log.handle} has an offset without a generation")
        if skip:
            self._drop(log)
        else:
            log.set_holding(generation, offset, prefix_digest)
            self.queue(log)

    def acknowledge(self, handle: int, *, generation: int, offset: int, complete: bool) -> None:
        """Record bytes as durable at the client. Raises Refusal if they were never sent."""
        log = self.get(handle)
        if log is None or generation < log.generation:
            return  # the log was released, or began anew, while the acknowledgement was under way
        if generation > log.generation or offset > log.sent:
            raise Refusal(Fault.INVALID, f"log {handle}: acknowledged beyond what was sent")
        if complete and (log.completed is None or log.completed[0] != generation):
            raise Refusal(Fault.INVALID, f"log {handle}: acknowledged a completion that the daemon never sent")
        log.acknowledged = max(log.acknowledged, offset)
        if complete and log.completed and offset == log.completed[1]:
            log.verified = log.completed  # an offset of an earlier completion is no delivery: the log has grown since
        self._release_delivered(log)

    # Turns

    def note_event(self, log: Log, event: FileEvent) -> None:
        """Record an event of the log's file, and give the log a turn."""
        if event is not FileEvent.HINT:
            log.file_events |= event
            log.needs_comparison |= event.is_created
        if log.state is not ANNOUNCED:
            self.queue(log)

    def queue(self, log: Log) -> None:
        """Give the log a turn; one that is being read now gets another turn after this one."""
        log.waits_until = None
        if log.turn is Turn.RESTING:
            log.turn = Turn.DUE
            self._ready.append(log)
        # A worker thread may have read past the changed place already, so the change needs another turn.
        elif log.turn is Turn.TAKEN:
            log.turn = Turn.AGAIN

    @property
    def has_ready(self) -> bool:
        """True if some log is to be read."""
        return bool(self._ready)

    def take_ready(self, limit: int, now: float) -> list[Log]:
        """Take logs from the queue: at most `limit`, and about as many bytes as the stream may read in a turn.

        Each must come back through `finish_turn` or `put_back`.
        """
        while self._waiting and self._waiting[0][0] <= now:
            due, handle = heapq.heappop(self._waiting)
            log = self._logs.get(handle)
            if log and log.waits_until == due:
                self.queue(log)
        taken: list[Log] = []
        left_bytes = self._quota.read_bytes
        # Logs that are over stay in the queue until here, as a deque has no cheap removal.
        while self._ready and len(taken) < limit and left_bytes > 0:
            log = self._ready.popleft()
            if log.state is not OVER:
                log.turn = Turn.TAKEN
                taken.append(log)
                left_bytes -= max(0, log.size - log.sent)
        return taken

    def put_back(self, logs: Iterable[Log]) -> None:
        """Return logs that were taken but not read to the queue."""
        for log in logs:
            log.turn = Turn.DUE
            self._ready.append(log)

    def finish_turn(self, log: Log, step: ReadStep) -> tuple[Event, ...]:
        """Take back a log that was read; return the events for the client."""
        if log.handle not in self._logs:
            return ()  # the stream released it while it was read: the client expects nothing more of the handle
        if log.state is OVER:
            self._drop(log)
            return step.events
        is_due = step.again or log.turn is Turn.AGAIN
        log.turn = Turn.RESTING
        if is_due:
            self.queue(log)
        elif step.due is not None:
            log.waits_until = math.ceil(step.due / SLOT_S) * SLOT_S
            heapq.heappush(self._waiting, (log.waits_until, log.handle))
        self._release_delivered(log)
        return step.events

    def next_due(self) -> float:
        """Return the monotonic time at which a log is to be read though nothing changed, or infinity."""
        return self._waiting[0][0] if self._waiting else math.inf

    # Ends

    def release(self, log: Log) -> None:
        """Release a log's handle; the client has to be informed."""
        self._drop(log)
        self._quota.announced_logs += 1
        self._released[log.job, log.path] = log.handle

    def release_idle(self, now: float, limit: int) -> None:
        """Release at most `limit` durable logs that have not changed for IDLE_S, longest unchanged first."""
        if now < self._idle_checked_s + IDLE_S / 4:
            return  # the scan of all logs is bounded to four within IDLE_S
        self._idle_checked_s = now
        idle = [log for log in self._logs.values() if now - log.changed_s >= IDLE_S]
        durable = [log for log in idle if log.is_settled and log.acknowledged == log.sent]
        for log in heapq.nsmallest(limit, durable, key=lambda each: each.changed_s):
            self.release(log)

    @property
    def released_count(self) -> int:
        """Number of released handles that the client does not know of yet."""
        return len(self._released)

    def has_unreported_release(self, log: Log) -> bool:
        """Return True if the client does not know yet that an earlier handle of this log is over."""
        return (log.job, log.path) in self._released

    def take_released(self) -> list[int]:
        """Return the released handles, for the client. One released later may not even be announced yet."""
        handles = list(self._released.values())
        self._quota.announced_logs -= len(handles)
        self._released.clear()
        return handles

    def _release_delivered(self, log: Log) -> None:
        if log.is_delivered:
            self.delivered.append(log)
            self.release(log)

    def _drop(self, log: Log) -> None:
        log.set_state(OVER)
        self._quota.announced_logs -= 1
        del self._logs[log.handle]
        paths = self._paths[log.job]
        del paths[log.path]
        if not paths:
            del self._paths[log.job]

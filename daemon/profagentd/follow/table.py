"""The logs of a stream that are announced and not released: found by handle or path, in turn, bounded in number."""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import TYPE_CHECKING

from profagentd.errors import Fault, Refusal
from profagentd.follow.log import ASKED, OVER, FileEvent, Log, Turn
from profagentd.limits import CHUNK_BYTES, COMMON_LOGS, IDLE_S, LARGE_READS, PIECE_BYTES, SURE_LOGS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from profagentd.follow.log import Event
    from profagentd.follow.reading import ReadStep
    from profagentd.sources.walk import Sighting

# Logs that wait until about the same time have their turns together.
SLOT_S = 0.1


class Quota:
    """What all streams share: how many there are, and how many logs they have announced that are not over."""

    def __init__(self) -> None:
        self.streams = 0
        self.taken = 0

    @property
    def read_bytes(self) -> int:
        """How much one stream may have on its way: it is in memory three times, over TLS four."""
        return CHUNK_BYTES if self.streams <= LARGE_READS else PIECE_BYTES


class LogTurns:
    """Each log has a turn when something is due for it; a turn that was taken comes back through `stepped`."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._logs: dict[int, Log] = {}
        self._paths: dict[int, dict[bytes, Log]] = {}  # by JOB
        self._handles = 0
        self._ready: deque[Log] = deque()
        self._waiting: list[tuple[float, int]] = []
        self._released: dict[tuple[int, bytes], int] = {}  # handles whose end is not told yet, by JOB and path
        self._idle_s = -math.inf
        self.delivered: list[Log] = []  # that the client has whole; whoever counts them takes them away

    @property
    def room(self) -> int:
        """How many logs more may be announced; the client counts released ones until it is told."""
        own = len(self._logs) + len(self._released)
        return max(SURE_LOGS - own, COMMON_LOGS - self._quota.taken)

    @property
    def lag_bytes(self) -> int:
        """Bytes that are known and not yet sent."""
        return sum(max(0, log.size - log.sent) for log in self._logs.values())

    def of_job(self, job: int) -> list[Log]:
        """The logs of a JOB."""
        return list(self._paths.get(job, {}).values())

    def at(self, job: int, path: bytes) -> Log | None:
        """The log at a path, if it is announced."""
        return self._paths.get(job, {}).get(path)

    def get(self, handle: int) -> Log | None:
        """The log, or None when its handle is over. Refusal when there never was one."""
        if not 0 < handle <= self._handles:
            raise Refusal(Fault.INVALID, f"there is no log {handle} in this stream")
        return self._logs.get(handle)

    def add(self, job: int, sighting: Sighting, changed: float) -> Log:
        """A log that is to be announced."""
        self._quota.taken += 1
        self._handles += 1
        log = Log(self._handles, job, sighting, changed)
        self._paths.setdefault(job, {})[log.path] = self._logs[log.handle] = log
        return log

    def clear(self) -> None:
        """Forget everything; the stream is over."""
        self._quota.taken -= len(self._logs) + len(self._released)
        for each in (self._logs, self._paths, self._ready, self._waiting, self._released):
            each.clear()

    # What the client says

    def answered(self, log: Log, *, skip: bool, generation: int, offset: int, prefix_digest: bytes) -> None:
        """What it holds of a log that it was asked about, or that it does not want it. Raises Refusal."""
        if log.state is not ASKED:
            raise Refusal(Fault.INVALID, f"log {log.handle} has its Holding already")
        if offset and not generation:
            raise Refusal(Fault.INVALID, f"the Holding of log {log.handle} has an offset without a generation")
        if skip:
            self._drop(log)
        else:
            log.hold(generation, offset, prefix_digest)
            self.queue(log)

    def acknowledge(self, handle: int, *, generation: int, offset: int, complete: bool) -> None:
        """Bytes that are durable. Raises Refusal when they were never sent."""
        log = self.get(handle)
        if log is None or generation < log.generation:
            return  # released, or begun anew, while the acknowledgement was on its way
        if generation > log.generation or offset > log.sent:
            raise Refusal(Fault.INVALID, f"log {handle}: acknowledged beyond what was sent")
        if complete and (log.completed is None or log.completed[0] != generation):
            raise Refusal(Fault.INVALID, f"log {handle}: acknowledged a completion that was never told")
        log.acknowledged = max(log.acknowledged, offset)
        if complete and log.completed and offset == log.completed[1]:
            log.verified = log.completed  # and not of an earlier completion, beyond which it grew
        self._release_delivered(log)

    # Turns

    def touch(self, log: Log, event: FileEvent) -> None:
        """Something was seen to happen to its file."""
        if event is not FileEvent.HINT:
            log.news |= event
            log.doubted |= event.is_made
        if log.state is not ASKED:
            self.queue(log)

    def queue(self, log: Log) -> None:
        """Something is due for it."""
        log.waits_until = None
        if log.turn is Turn.RESTING:
            log.turn = Turn.DUE
            self._ready.append(log)
        elif log.turn is Turn.TAKEN:
            log.turn = Turn.AGAIN

    @property
    def has_ready(self) -> bool:
        """Whether it is the turn of some log."""
        return bool(self._ready)

    def take_ready(self, limit: int, now: float) -> list[Log]:
        """Logs whose turn it is, at most `limit`, or as much as one stream may read in a turn.

        Each must come back through `stepped` or `put_back`.
        """
        while self._waiting and self._waiting[0][0] <= now:
            due, handle = heapq.heappop(self._waiting)
            log = self._logs.get(handle)
            if log and log.waits_until == due:
                self.queue(log)
        taken: list[Log] = []
        left_bytes = self._quota.read_bytes
        while self._ready and len(taken) < limit and left_bytes > 0:
            log = self._ready.popleft()
            if log.state is not OVER:
                log.turn = Turn.TAKEN
                taken.append(log)
                left_bytes -= max(0, log.size - log.sent)
        return taken

    def put_back(self, logs: Iterable[Log]) -> None:
        """These did not have their turn after all."""
        for log in logs:
            log.turn = Turn.DUE
            self._ready.append(log)

    def stepped(self, log: Log, step: ReadStep) -> tuple[Event, ...]:
        """The log had its turn; what the client is to be told of it."""
        if log.handle not in self._logs:
            return ()  # it was given up meanwhile
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
        """Monotonic time at which a log wants a look though nothing changed."""
        return self._waiting[0][0] if self._waiting else math.inf

    # Ends

    def release(self, log: Log) -> None:
        """The handle is over, which the client is to be told."""
        self._drop(log)
        self._quota.taken += 1
        self._released[log.job, log.path] = log.handle

    def release_idle(self, now: float, limit: int) -> None:
        """Let logs that do not change give way to others, those first that did not change for longest."""
        if now < self._idle_s + IDLE_S / 4:
            return  # they were all looked at a moment ago
        self._idle_s = now
        idle = [log for log in self._logs.values() if now - log.changed >= IDLE_S]
        durable = [log for log in idle if log.is_settled and log.acknowledged == log.sent]
        for log in heapq.nsmallest(limit, durable, key=lambda each: each.changed):
            self.release(log)

    @property
    def released(self) -> int:
        """How many handles the client is to be told are over."""
        return len(self._released)

    def is_leaving(self, log: Log) -> bool:
        """Whether the client does not know yet that an earlier handle of this log is over."""
        return (log.job, log.path) in self._released

    def take_released(self) -> list[int]:
        """All released handles that the client is to be told: what is released later may not be announced yet."""
        handles = list(self._released.values())
        self._quota.taken -= len(handles)
        self._released.clear()
        return handles

    def _release_delivered(self, log: Log) -> None:
        if log.is_delivered:
            self.delivered.append(log)
            self.release(log)

    def _drop(self, log: Log) -> None:
        log.set_state(OVER)
        self._quota.taken -= 1
        del self._logs[log.handle]
        paths = self._paths[log.job]
        del paths[log.path]
        if not paths:
            del self._paths[log.job]

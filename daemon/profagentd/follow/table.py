"""The logs of a stream that are announced and not released: found by handle or path, in turn, bounded in number."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from typing import TYPE_CHECKING

from profagentd.errors import Fault, Refusal
from profagentd.follow.log import ASKED, OVER, FileEvent, Log, merged

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Callable

    from profagentd.follow.log import Event
    from profagentd.follow.reading import Step
    from profagentd.sources.walk import Sighting


# Logs of all streams that are announced and not over, beyond a few of each.
COMMON_LOGS = 3072


class Quota:
    """So much in all: `sure` for each share, and `common` beyond that for all of them together."""

    def __init__(self, sure: int, common: int) -> None:
        self.sure = sure
        self.common = common  # what is left of it

    def share(self) -> QuotaShare:
        """The part of one stream, which must be closed."""
        return QuotaShare(self)


class QuotaShare:
    """What one stream has taken."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._taken = 0

    @property
    def room(self) -> int:
        """How much more may be taken."""
        quota = self._quota
        if self._taken <= quota.sure and quota.common >= 0:
            return quota.sure - self._taken + quota.common
        return max(0, quota.sure - self._taken) + max(0, quota.common)

    def take(self, count: int = 1) -> None:
        """Take more, which there must be room for."""
        self._set(self._taken + count)

    def give_back(self, count: int = 1) -> None:
        """Need so much no longer."""
        self._set(self._taken - count)

    def close(self) -> None:
        """Need nothing any more."""
        self._set(0)

    def _set(self, taken: int) -> None:
        quota, before = self._quota, self._taken
        if taken > quota.sure or before > quota.sure:
            quota.common -= max(taken, quota.sure) - max(before, quota.sure)
        self._taken = taken


class Quotas:
    """What the streams of a daemon share."""

    def __init__(self) -> None:
        # A log that is announced takes about 0.5 KB, a name that has changed 40 bytes; bytes on their way are there
        # three times, over TLS four: as a message, serialised, in gRPC's hands, and encrypted.
        self.logs = Quota(sure=64, common=COMMON_LOGS)
        self.names = Quota(sure=256, common=20_000)
        self.sending_bytes = Quota(sure=8 * 1024, common=384 * 1024)


WINDOW_LOGS = 4096
# Logs that wait until about the same time have their turns together.
SLOT_S = 0.1
# An incomplete log that did not change for so long gives way when others wait.
IDLE_S = 1.0
_ANOTHER = FileEvent.MADE | FileEvent.UNSURE


class LogTable:
    """Each log has a turn when something is due for it; a turn that was taken comes back through `stepped`."""

    def __init__(self, share: QuotaShare) -> None:
        self._share = share
        self._logs: dict[int, Log] = {}
        self._paths: dict[int, dict[bytes, Log]] = {}  # by JOB
        self._handles = 0
        self._ready: deque[Log] = deque()
        self._waiting: list[tuple[float, int]] = []
        self.on_delivered: Callable[[Log], None] | None = None
        self._released: dict[int, Log] = {}  # handles whose end is not told yet
        self._leaving: dict[tuple[int, bytes], int] = {}  # the newest of them by JOB and path

    @property
    def room(self) -> int:
        """How many logs more may be announced; the client counts released ones until it is told."""
        return min(WINDOW_LOGS - len(self._logs) - len(self._released), self._share.room)

    @property
    def lag_bytes(self) -> int:
        """Bytes that are known and not yet sent."""
        return sum(log.lag_bytes for log in self._logs.values())

    @property
    def due_logs(self) -> int:
        """How many logs wait for their turn."""
        return len(self._ready)

    def of_job(self, job: int) -> list[Log]:
        """The logs of a JOB."""
        return list(self._paths.get(job, {}).values())

    def at(self, job: int, path: bytes) -> Log | None:
        """The log at a path, if it is announced."""
        paths = self._paths.get(job)
        return paths.get(path) if paths else None

    def get(self, handle: int) -> Log | None:
        """The log, or None when its handle is over. Refusal when there never was one."""
        if not 0 < handle <= self._handles:
            raise Refusal(Fault.INVALID, f"there is no log {handle} in this stream")
        return self._logs.get(handle)

    def add(self, job: int, sighting: Sighting, changed: float) -> Log:
        """A log that is to be announced."""
        self._share.take()
        self._handles += 1
        log = Log(self._handles, job, sighting.path, sighting.kind, sighting.size, changed)
        self._paths.setdefault(job, {})[log.path] = self._logs[log.handle] = log
        return log

    def clear(self) -> None:
        """Forget everything; the stream is over."""
        for each in (self._logs, self._paths, self._ready, self._waiting, self._released, self._leaving):
            each.clear()

    # What the client says

    def answered(self, log: Log, *, skip: bool, generation: int, offset: int, prefix_digest: bytes) -> None:
        """What it holds of a log that it was asked about, or that it does not want it. Raises Refusal."""
        if log.state is not ASKED:
            raise Refusal(Fault.INVALID, f"log {log.handle} has its Holding already")
        if offset and not generation:
            raise Refusal(Fault.INVALID, f"the Holding of log {log.handle} has an offset without a generation")
        if skip:
            self.forget(log)
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
        self.release_delivered(log)

    # Turns

    def touch(self, job: int, path: bytes, touch: FileEvent) -> bool:
        """Something was seen to happen to a name; whether that is for an announced log to tell, in its turn."""
        log = self.at(job, path)
        if log is None or log.state is OVER:
            return False  # another file stands where the log's was found to be gone
        log.news = merged(log.news, touch)
        if log.is_followed:
            log.doubted |= log.grows and bool(touch & _ANOTHER)
            self.queue(log)
        return True

    def queue(self, log: Log) -> None:
        """Something is due for it."""
        log.waits_until = None
        if log.queued:
            log.touched = True
        else:
            log.queued = True
            self._ready.append(log)

    def take_ready(self, limit: int, now: float) -> list[Log]:
        """Logs whose turn it is, at most `limit`; each must come back through `stepped` or `put_back`."""
        while self._waiting and self._waiting[0][0] <= now:
            due, handle = heapq.heappop(self._waiting)
            log = self._logs.get(handle)
            if log and log.waits_until == due:
                self.queue(log)
        taken: list[Log] = []
        while self._ready and len(taken) < limit:
            log = self._ready.popleft()
            if log.handle in self._logs and log.state is not OVER:
                taken.append(log)
        return taken

    def put_back(self, logs: Iterable[Log]) -> None:
        """These did not have their turn after all; they stay first, in this order."""
        self._ready.extendleft(reversed(list(logs)))

    def stepped(self, log: Log, step: Step) -> tuple[Event, ...]:
        """The log had its turn; what the client is to be told of it."""
        if log.handle not in self._logs:
            return ()  # it was given up meanwhile
        if log.state is OVER:
            self.forget(log)
            return step.events
        is_due = step.again or log.touched
        log.queued = log.touched = False
        if is_due:
            self.queue(log)
        elif step.due is not None:
            log.waits_until = math.ceil(step.due / SLOT_S) * SLOT_S
            heapq.heappush(self._waiting, (log.waits_until, log.handle))
        self.release_delivered(log)
        return step.events

    def next_due(self) -> float | None:
        """Monotonic time at which a log wants a look though nothing changed; None without such a log."""
        return self._waiting[0][0] if self._waiting else None

    # Ends

    def forget(self, log: Log) -> None:
        """The handle is over, and the client knows."""
        self._share.give_back()
        self._drop(log)

    def release(self, log: Log) -> None:
        """The handle is over, which the client is to be told."""
        self._released[log.handle] = log
        self._leaving[log.job, log.path] = log.handle
        self._drop(log)

    def release_delivered(self, log: Log) -> None:
        """Release the log if it is complete and the client has said so."""
        if log.is_delivered:
            if self.on_delivered:
                self.on_delivered(log)
            self.release(log)

    def release_idle(self, now: float, limit: int) -> None:
        """Let logs that do not change give way to others, those first that did not change for longest."""
        idle = [log for log in self._logs.values() if log.is_idle and now - log.changed >= IDLE_S]
        for log in heapq.nsmallest(limit, idle, key=lambda each: each.changed):
            self.release(log)

    @property
    def has_released(self) -> bool:
        """Whether there are handles that the client is to be told are over."""
        return bool(self._released)

    def is_leaving(self, log: Log) -> bool:
        """Whether the client does not know yet that an earlier handle of this log is over."""
        return (log.job, log.path) in self._leaving

    def take_released(self, limit: int) -> list[int]:
        """Released handles that the client is to be told, at most `limit`."""
        released = list(itertools.islice(self._released, limit))
        for handle in released:
            log = self._released.pop(handle)
            if self._leaving[log.job, log.path] == handle:
                del self._leaving[log.job, log.path]
        self._share.give_back(len(released))
        return released

    def _drop(self, log: Log) -> None:
        log.set_state(OVER)
        del self._logs[log.handle]
        paths = self._paths[log.job]
        del paths[log.path]
        if not paths:
            del self._paths[log.job]

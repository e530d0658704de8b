"""The state of one client's stream, without any I/O: what it was told, what it asked, what is to be done next."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagentd.changes import Touch
from profagentd.log import Log, Phase
from profagentd.logs import LogKind, ended_by
from profagentd.refusal import Fault, Refusal
from profagentd.selection import Selection
from profagentd.state import JobState
from profagentd.turns import Turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from profagentd.board import Job
    from profagentd.clock import Moment
    from profagentd.events import Event, Loss
    from profagentd.following import Step
    from profagentd.selection import Names
    from profagentd.walk import Page

# Logs that are announced and not released, at most.
WINDOW_LOGS = 4096
# Entries of one message, at most.
PAGE_ENTRIES = 1000
# An incomplete log that did not change for so long gives way when others wait.
IDLE_S = 1.0


@dataclass
class JobView:
    """A JOB as this stream names and knows it."""

    handle: int
    job: Job
    selection: Selection | None = None
    status_due: bool = True
    caught_up_told: bool = False


class Stream:
    """Jobs, logs and their turns. Methods are called on the loop; only `advance` and `look` run in threads."""

    def __init__(self) -> None:
        self._views: dict[int, JobView] = {}
        self._handles: dict[Job, int] = {}
        self._job_handles = 0
        self._logs: dict[int, Log] = {}
        self._log_handles = 0
        self._ready: deque[Log] = deque()
        self._waiting: list[tuple[float, int]] = []
        self._released: list[int] = []
        self.is_short_of_room = False

    # What the board tells

    def job_changed_state(self, job: Job) -> None:
        """The JOB is new or has another state."""
        view = self._views.get(self._handles.get(job, 0)) or self._new_view(job)
        view.status_due = True
        view.caught_up_told = False
        if view.selection and job.state is JobState.REMOVED:
            view.selection.end()
            self._touch_all(view.selection, Touch.MADE)

    def names_changed(self, job: Job, touches: Mapping[bytes, Touch]) -> None:
        """These names of the JOB may have changed."""
        view = self._views.get(self._handles.get(job, 0))
        if not view or not view.selection:
            return
        for path, touch in touches.items():
            self._touch(view.selection, path, touch)
            ended = ended_by(path)
            if ended is not None:
                self._touch(view.selection, ended, Touch.HINT)
        self._settle_again(view)

    def names_removed(self, job: Job) -> None:
        """Names of the JOB may be gone."""
        view = self._views.get(self._handles.get(job, 0))
        if view and view.selection:
            self._touch_all(view.selection, Touch.HINT)

    def anything_changed(self, job: Job) -> None:
        """Any name of the JOB may have changed."""
        view = self._views.get(self._handles.get(job, 0))
        if view and view.selection:
            view.selection.changes.note_all()
            self._touch_all(view.selection, Touch.MADE)
            self._settle_again(view)

    # What the client says

    def select(self, follow: Iterable[int], unfollow: Iterable[int]) -> None:
        """Follow some JOBs, and some no longer. Raises Refusal."""
        for handle in follow:
            view = self._view(handle)
            if view and not view.selection and view.job.state is not JobState.REMOVED:
                view.selection = Selection(handle, view.job.place)
                view.caught_up_told = False
        for handle in unfollow:
            view = self._view(handle)
            if view and view.selection:
                self._unfollow(view)

    def hold(self, handle: int, *, skip: bool, generation: int, offset: int, prefix_digest: bytes) -> None:
        """The answer to an announced log. Raises Refusal."""
        log = self._log(handle)
        if log is None:
            return
        if log.phase is not Phase.ANNOUNCED:
            raise Refusal(Fault.INVALID, f"log {handle} has its Holding already")
        if skip:
            self._forget(log)
            return
        if offset and not generation:
            raise Refusal(Fault.INVALID, f"the Holding of log {handle} has an offset without a generation")
        log.hold(generation, offset, prefix_digest)
        self._queue(log)

    def acknowledge(self, handle: int, *, generation: int, offset: int, complete: bool) -> None:
        """Bytes that are durable. Raises Refusal when they were never sent."""
        log = self._log(handle)
        if log is None or generation < log.generation:
            return  # released, or begun anew, while the acknowledgement was on its way
        if generation > log.generation or offset > log.sent:
            raise Refusal(Fault.INVALID, f"log {handle}: acknowledged beyond what was sent")
        log.acknowledged = max(log.acknowledged, offset)
        if complete:
            self._verify(log)
        self._release_delivered(log)

    # What is to be done

    def take_statuses(self) -> list[JobView]:
        """JOBs whose status the client must be told, oldest first; each is asked for once."""
        due = [view for view in self._views.values() if view.status_due and self._may_tell(view)]
        for view in due:
            view.status_due = False
            if view.job.state is JobState.REMOVED:
                del self._views[view.handle], self._handles[view.job]
        return due

    def take_caught_up(self) -> list[JobView]:
        """Followed JOBs of which everything was sent that there is, each told once for its state."""
        due = [view for view in self._views.values() if _is_caught_up(view)]
        for view in due:
            view.caught_up_told = True
        return due

    def take_released(self) -> list[int]:
        """Handles that are over, at most a page of them."""
        released, self._released = self._released[:PAGE_ENTRIES], self._released[PAGE_ENTRIES:]
        return released

    def next_names(self, now: float) -> Names | None:
        """Names to look at, no more than there is room for; None when there are none, or no room."""
        selection = next((view.selection for view in self._views.values() if _wants_look(view)), None)
        if selection is None:
            self.is_short_of_room = False
            return None
        if len(self._logs) >= WINDOW_LOGS:
            self._release_idle(now)
        room = WINDOW_LOGS - len(self._logs)
        self.is_short_of_room = room <= 0
        return selection.next_names(min(room, PAGE_ENTRIES)) if room > 0 else None

    def looked(self, names: Names, page: Page, now: Moment) -> tuple[list[Log], list[Loss]]:
        """These names were looked at: logs to announce, which have handles from now on, and what is not as it was."""
        view = self._views.get(names.job)
        if not view or not view.selection or view.selection.is_over:
            return [], []
        selection = view.selection
        selection.looked(names, page)
        logs = [
            self._new_log(selection, each.path, each.kind, each.size, now.seen(each.changed_wall_us))
            for each in page.logs
            if each.path not in selection.logs
        ]
        return logs, list(selection.losses(page, names.touches))

    def take_ready(self, limit: int, now: float) -> list[Turn]:
        """The turns that are due, at most `limit`; each log must come back through `stepped` or `put_back`."""
        while self._waiting and self._waiting[0][0] <= now:
            due, handle = heapq.heappop(self._waiting)
            log = self._logs.get(handle)
            if log and log.waits_until == due:
                self._queue(log)
        taken: list[Turn] = []
        while self._ready and len(taken) < limit:
            log = self._ready.popleft()
            if log.phase is not Phase.OVER:
                job = self._views[log.job].job
                taken.append(Turn(log, job.place, job.is_scanned))
        return taken

    def put_back(self, logs: Iterable[Log]) -> None:
        """These logs did not have their turn after all; they stay first."""
        self._ready.extendleft(reversed(list(logs)))

    def stepped(self, log: Log, step: Step) -> tuple[Event, ...]:
        """The log had its turn; what the client is to be told of it."""
        if log.handle not in self._logs:
            return ()  # it was given up meanwhile
        if log.phase is Phase.OVER:
            self._forget(log)
            return step.events
        log.queued = False
        if step.again or log.touched:
            self._queue(log)
        elif step.due is not None:
            log.waits_until = step.due
            heapq.heappush(self._waiting, (step.due, log.handle))
        log.touched = False
        self._release_delivered(log)
        return step.events

    def next_due(self) -> float | None:
        """Monotonic time at which a log wants a look though nothing changed."""
        return self._waiting[0][0] if self._waiting else None

    @property
    def lag_bytes(self) -> int:
        """Bytes of announced logs that are known and not yet sent."""
        return sum(log.lag_bytes for log in self._logs.values())

    # Inside

    def _new_view(self, job: Job) -> JobView:
        self._job_handles += 1
        view = JobView(self._job_handles, job)
        self._handles[job] = view.handle
        self._views[view.handle] = view
        return view

    def _view(self, handle: int) -> JobView | None:
        if not 0 < handle <= self._job_handles:
            raise Refusal(Fault.INVALID, f"there is no JOB {handle} in this stream")
        return self._views.get(handle)

    def _log(self, handle: int) -> Log | None:
        """The log, or None when its handle is over."""
        if not 0 < handle <= self._log_handles:
            raise Refusal(Fault.INVALID, f"there is no log {handle} in this stream")
        return self._logs.get(handle)

    def _selection(self, log: Log) -> Selection:
        selection = self._views[log.job].selection
        assert selection is not None, "a JOB's logs go with its selection"
        return selection

    def _new_log(self, selection: Selection, path: bytes, kind: LogKind, size: int, changed: float) -> Log:
        self._log_handles += 1
        log = Log(self._log_handles, selection.job, path, kind, size, changed)
        selection.logs[path] = self._logs[log.handle] = log
        return log

    def _touch(self, selection: Selection, path: bytes, touch: Touch) -> None:
        log = selection.logs.get(path)
        if log is None:
            selection.changes.note(path, touch)
        elif log.phase is Phase.FOLLOWING:
            log.doubted |= bool(touch & Touch.MADE) and log.kind is LogKind.DATA
            self._queue(log)

    def _touch_all(self, selection: Selection, touch: Touch) -> None:
        for path in selection.logs:
            self._touch(selection, path, touch)

    def _settle_again(self, view: JobView) -> None:
        # While a JOB is open its client is told once; a telling for each write would be noise.
        if view.job.state is not JobState.OPEN:
            view.caught_up_told = False

    def _queue(self, log: Log) -> None:
        log.waits_until = None
        if log.queued:
            log.touched = True
        else:
            log.queued = True
            self._ready.append(log)

    def _verify(self, log: Log) -> None:
        if not log.completed or log.completed[0] != log.generation:
            raise Refusal(Fault.INVALID, f"log {log.handle}: acknowledged a completion that was never told")
        log.verified = log.completed

    def _release_delivered(self, log: Log) -> None:
        if log.is_delivered:
            self._released.append(log.handle)
            self._forget(log)

    def _release_idle(self, now: float) -> None:
        idle = [log for log in self._logs.values() if log.is_idle and now - log.changed >= IDLE_S]
        for log in sorted(idle, key=lambda each: each.changed)[:PAGE_ENTRIES]:
            self._released.append(log.handle)
            self._forget(log)

    def _forget(self, log: Log) -> None:
        log.phase = Phase.OVER
        del self._logs[log.handle]
        del self._selection(log).logs[log.path]

    def _unfollow(self, view: JobView) -> None:
        assert view.selection is not None, "it is followed"
        view.selection.end()
        for log in list(view.selection.logs.values()):
            self._released.append(log.handle)
            self._forget(log)
        view.selection = None

    def _may_tell(self, view: JobView) -> bool:
        """The end of a JOB is told after the end of its logs."""
        return not (view.job.state is JobState.REMOVED and view.selection and view.selection.logs)


def _wants_look(view: JobView) -> bool:
    return view.selection is not None and view.selection.wants_look


def _is_caught_up(view: JobView) -> bool:
    told = view.caught_up_told or view.status_due or view.job.state is JobState.REMOVED
    return not told and view.selection is not None and view.selection.is_settled

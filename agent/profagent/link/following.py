"""One stream's work, without I/O: which JOBs are selected, which logs are asked about, when events are handed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.link.actions import Ask, ChangeState, Close, Know, List, Send, ShowJobs, Take
from profagent.link.messages import REMOVED, Chunk, Holdings, JobsListed, JobStatus, Select
from profagent.link.session import Announcement, Happened, Session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from profagent.errors import UnsupportedBoardError
    from profagent.link.actions import Action
    from profagent.link.choice import JobChoice
    from profagent.link.messages import Holding, ServerMessage

LARGEST_BATCH_BYTES = 4 << 20
LARGEST_BATCH_EVENTS = 5_000
ENTRIES_PER_MESSAGE = 1_000


def is_over(job: JobStatus) -> bool:
    """Whether a JOB has ended and everything that it held has come; of a removed one nothing more comes."""
    return job.state == REMOVED or (job.has_ended and job.caught_up)


class Following:
    """What one stream is about. Each method returns what is to be done, in order."""

    def __init__(self, choice: JobChoice, gather_s: float) -> None:
        """What comes within `gather_s` is handed on together."""
        self._session = Session()
        self._choice = choice
        self._gather_s = gather_s
        self._pending: list[Happened] = []
        self._pending_bytes = 0
        self._states: dict[int, tuple[str, bool]] = {}
        self._selected: set[int] = set()
        self._heard: set[str] = set()  # names of selected JOBs of which something was said
        self._taken: dict[str, int] = {}  # handles by name, of selected JOBs that are not removed
        self.flush_at: float | None = None

    def receive(self, message: ServerMessage, now: float) -> list[Action]:
        """Take a message. Raises ProtocolError when it is against the contract."""
        events = self._session.receive(message)
        self._gather([event for event in events if isinstance(event, Happened)], now)
        actions = [action for event in events if not isinstance(event, Happened) for action in self._handle(event)]
        if self._pending_bytes >= LARGEST_BATCH_BYTES or len(self._pending) >= LARGEST_BATCH_EVENTS:
            actions += self.flush()
        return actions

    def flush(self) -> list[Action]:
        """Hand on what has gathered."""
        if not self._pending:
            return []
        pending, self._pending, self._pending_bytes, self.flush_at = tuple(self._pending), [], 0, None
        return [Take(pending)]

    def held(self, holdings: Sequence[Holding]) -> list[Action]:
        """The sink's answer to what it was asked."""
        told = [holding for holding in holdings if self._session.hold(holding)]
        starts = range(0, len(told), ENTRIES_PER_MESSAGE)
        return [Send(Holdings(tuple(told[start : start + ENTRIES_PER_MESSAGE]))) for start in starts]

    def drop(self, refused: Mapping[str, UnsupportedBoardError]) -> list[Action]:
        """Follow JOBs of another SoC no longer; where there are no others, there is nothing to follow at all."""
        handles = tuple(handle for handle in self._selected if self._session.jobs[handle].name in refused)
        if not handles:
            return []
        self._selected -= {*handles}
        for handle in handles:
            self._taken.pop(self._session.jobs[handle].name, None)
            self._choice.refuse(self._session.jobs[handle].name)
        actions: list[Action] = [Send(Select(unfollow=handles)), *self._show()]
        return actions if self._selected else [*actions, Close(refused[self._session.jobs[handles[0]].name])]

    def _handle(self, event: ServerMessage | Announcement) -> list[Action]:
        match event:
            case Announcement():
                self._heard |= {log.job for log in event.logs}
                return [*self._flush_before(event), Ask(event.logs)]
            case JobStatus():
                return self._job(event)
            case JobsListed():
                self._choice.was_listed = True
                names = frozenset(job.name for job in self._session.jobs.values() if job.state != REMOVED)
                return [List(names), *self._show()]
        return []

    def _gather(self, events: Sequence[Happened], now: float) -> None:
        if not events:
            return
        if not self._pending:
            self.flush_at = now + self._gather_s
        self._pending += events
        self._heard |= {each.job for each in events}
        self._pending_bytes += sum(len(each.event.data) for each in events if isinstance(each.event, Chunk))

    def _flush_before(self, announcement: Announcement) -> list[Action]:
        """What is held of a log is known when all that came of it under an earlier handle has been handed on."""
        pending = {(each.job, each.log.path) for each in self._pending if each.log is not None}
        waits = any((log.job, log.path) in pending for log in announcement.logs)
        return self.flush() if waits else []

    def _job(self, job: JobStatus) -> list[Action]:
        actions: list[Action] = []
        if job.handle not in self._selected:
            if job.state == REMOVED or job.name in self._taken or not self._choice.follows(job):
                return []
            self._selected.add(job.handle)
            # Of several directories of this name that exist, the first is followed.
            self._taken[job.name] = job.handle
            self._heard.discard(job.name)
            actions += [Know(job), Send(Select((job.handle,)))]
        # Whoever hears that a JOB has caught up takes what follows as new.
        if self._states.get(job.handle) == (job.state, job.caught_up):
            return [*actions, *self._show()]
        self._states[job.handle] = (job.state, job.caught_up)
        if job.state == REMOVED and self._taken.get(job.name) == job.handle:
            del self._taken[job.name]
        if job.caught_up:
            self._heard.add(job.name)
        # One that went before the board had heard that it is followed has not come.
        caught_up = job.caught_up or (job.state == REMOVED and job.name in self._heard)
        return [*actions, *self.flush(), *self._show(), ChangeState(job, caught_up), *self._next_of(job)]

    def _next_of(self, job: JobStatus) -> list[Action]:
        """What is to be done about another directory of this name, when the one that was followed is gone."""
        if job.state != REMOVED or job.name in self._taken:
            return []
        others = (each for each in self._session.jobs.values() if each.name == job.name and each.state != REMOVED)
        return [action for each in others for action in self._job(each)]

    def _show(self) -> list[Action]:
        if not self._choice.was_listed:
            return []
        return [ShowJobs(tuple(self._session.jobs[handle] for handle in self._selected))]

"""The state of one client's stream, without any I/O: what it was told, what it asked, what is to be done next."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from profagentd.errors import Fault, Refusal
from profagentd.follow import messages
from profagentd.follow.discovery import PAGE_ENTRIES, FollowedJob, JobView, JobViews, LogDiscovery
from profagentd.follow.log import DIGEST_BYTES, FileEvent
from profagentd.follow.reading import ReadTask
from profagentd.follow.table import LogTable
from profagentd.loop import is_late
from profagentd.sources.job import ended_by
from profagentd.sources.state import JobState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sized
    from typing import Callable

    from profagent_wire.v1 import board_pb2 as wire
    from profagentd.follow.log import Log
    from profagentd.follow.registry import Job
    from profagentd.follow.table import Quotas
    from profagentd.sources.job import Fingerprint, Place

_HINT = FileEvent.HINT


MAX_CLIENT_NAME = 256
# Generations count up from what a client names: the wire's numbers have one bit more.
LARGEST_HELD = 2**63 - 1
_CONSUMER = re.compile(r"[A-Za-z0-9._-]{1,64}")


class FollowSession:
    """The JOBs of a stream and what is done about them. All calls come from the loop."""

    def __init__(self, quotas: Quotas) -> None:
        self.logs, self._names = quotas.logs.share(), quotas.names.share()
        self.sending_bytes = quotas.sending_bytes.share()
        self.table = LogTable(self.logs)
        self.followed_again = 0  # JOBs that the client followed before
        self._views = JobViews()
        self.discovery = LogDiscovery(self._views, self.table, self.logs)

    def close(self) -> None:
        """Leave its room to other streams; what it knew goes now, and not when cycles are collected."""
        self.table.clear()
        self._views.clear()
        self.logs.close()
        self._names.close()
        self.sending_bytes.close()

    # What the board tells

    def job_changed_state(self, job: Job) -> None:
        """The JOB is new or has another state."""
        view = self._views.of(job) or self._views.add(job)
        view.status_due = True
        view.caught_up_sent = False
        if view.selection and job.state is JobState.REMOVED:
            view.selection.end()
            self._touch_all(view.selection, FileEvent.DELETED)

    def names_changed(self, job: Job, touches: Mapping[bytes, FileEvent]) -> None:
        """These names of the JOB may have changed."""
        view = self._views.of(job)
        if not view or not view.selection:
            return
        for path, touch in touches.items():
            self.discovery.touch(view.selection, path, touch)
            ended = ended_by(path)
            if ended is not None and not touch.is_removal:
                self.discovery.touch(view.selection, ended, _HINT)
        view.settle_again()

    def names_removed(self, job: Job) -> None:
        """Names of the JOB may be gone."""
        view = self._views.of(job)
        if view and view.selection:
            self._touch_all(view.selection, FileEvent.HINT)

    def anything_changed(self, job: Job) -> None:
        """Any name of the JOB may have changed."""
        view = self._views.of(job)
        if view and view.selection:
            view.selection.find()
            self._touch_all(view.selection, FileEvent.UNSURE)
            view.settle_again()

    def missed(self, handle: int) -> Place | None:
        """The directory of a followed JOB was not there when it was to be read: where it is to be looked for."""
        view = self._views.get(handle)
        if view and view.selection and not view.selection.is_over:
            view.selection.miss()
            return view.job.place
        return None

    def deliver_to(self, take: Callable[[Place, bytes, Fingerprint], None]) -> None:
        """Tell of each log that the client has whole, with the fingerprint of the file that it has."""

        def tell(log: Log) -> None:
            view = self._views.get(log.job)
            if view and log.fingerprint:
                take(view.job.place, log.path, log.fingerprint)

        self.table.on_delivered = tell

    # What the client says

    def select(self, follow: Iterable[int], unfollow: Iterable[int]) -> None:
        """Follow some JOBs, and some no longer. Raises Refusal."""
        for handle in follow:
            view = self._views.asked(handle)
            if view and not view.selection and view.job.state is not JobState.REMOVED:
                view.selection = FollowedJob(handle, view.job.place, self._names)
                view.caught_up_sent = False
                self.followed_again += view.was_followed
                view.was_followed = True
        for handle in unfollow:
            view = self._views.asked(handle)
            if view and view.selection:
                self._unfollow(view, view.selection)

    def hold(self, handle: int, *, skip: bool, generation: int, offset: int, prefix_digest: bytes) -> None:
        """The answer to an announced log. Raises Refusal."""
        self.discovery.is_answered = True
        log = self.table.get(handle)
        view = self._views.get(log.job) if log else None
        if log is None or view is None:
            return  # it was given up while the answer was on its way
        if not log.unasked:
            self.table.answered(log, skip=skip, generation=generation, offset=offset, prefix_digest=prefix_digest)
            return
        # The client passes over what comes of it. What it holds is asked for, so that it goes on from there.
        if skip:
            self.table.release(log)
        elif generation:
            view.caught_up_sent = False
            self.discovery.look_at(log)

    def job_handle(self, name: str) -> int:
        """The handle of the JOB of this name; 0 when there is none any more."""
        return next((view.handle for view in self._views if view.job.name == name), 0)

    # What is to be done

    @property
    def has_removed_jobs(self) -> bool:
        """Whether there are JOBs whose end the client does not know yet."""
        return any(view.job.state is JobState.REMOVED for view in self._views)

    def take_statuses(self) -> list[JobView]:
        """JOBs whose status the client must be told, each asked for once."""
        due = [view for view in self._views if view.status_due and self._may_tell(view)]
        for view in due:
            view.status_due = False
            if view.job.state is JobState.REMOVED:
                self._views.forget(view)
        return due

    def take_caught_up(self) -> list[JobView]:
        """Followed JOBs of which everything was sent that there is, each told once for its state."""
        due = [view for view in self._views if self._is_caught_up(view)]
        for view in due:
            view.caught_up_sent = True
        return due

    @property
    def follows_all(self) -> bool:
        """Whether the client has chosen to follow every JOB that it was told."""
        return all(view.was_followed for view in self._views)

    @property
    def is_caught_up(self) -> bool:
        """Whether everything was sent that there is of what is followed, on roots that answer."""
        return all(is_late(view.job.place.root) or self._has_all(view) for view in self._views)

    def take_read_tasks(self, limit: int, now: float) -> list[ReadTask]:
        """Turns that are due, at most `limit`, of one root."""
        turns = [self._turn(log) for log in self.table.take_ready(limit, now)]
        if len({turn.place.root for turn in turns}) > 1:
            self.table.put_back(turn.log for turn in turns if turn.place.root != turns[0].place.root)
            turns = [turn for turn in turns if turn.place.root == turns[0].place.root]
        return turns

    # Inside

    def _turn(self, log: Log) -> ReadTask:
        view = self._views.get(log.job)
        assert view is not None, "a JOB is forgotten after its logs"
        job = view.job
        return ReadTask(log, job.place, job.is_scanned, job.directory, is_removed=job.state is JobState.REMOVED)

    def _touch_all(self, selection: FollowedJob, touch: FileEvent) -> None:
        for log in self.table.of_job(selection.job):
            self.discovery.touch(selection, log.path, touch)

    def _unfollow(self, view: JobView, selection: FollowedJob) -> None:
        selection.forget()
        view.selection = None
        for log in self.table.of_job(view.handle):
            self.table.release(log)

    def _may_tell(self, view: JobView) -> bool:
        """The end of a JOB is told after the end of its logs."""
        is_told = not view.selection or view.selection.is_looked_at
        return view.job.state is not JobState.REMOVED or (is_told and not self.table.of_job(view.handle))

    def _is_caught_up(self, view: JobView) -> bool:
        told = view.caught_up_sent or view.status_due or view.job.state is JobState.REMOVED
        return not told and view.selection is not None and self._has_all(view)

    def _has_all(self, view: JobView) -> bool:
        if not view.selection or view.selection.wants_look:
            return not view.selection
        return all(log.is_settled for log in self.table.of_job(view.handle))


async def opening(incoming: AsyncIterator[wire.ClientMessage]) -> wire.Open:
    """The client's Open, its first message. Raises Refusal for anything else."""
    async for message in incoming:
        if message.WhichOneof("message") != "open":
            break
        _check_open(message.open)
        return message.open
    raise Refusal(Fault.INVALID, "the first message of a stream is Open")


def apply(message: wire.ClientMessage, session: FollowSession) -> None:
    """Let a message after the first have its effect. Raises Refusal."""
    kind = message.WhichOneof("message")
    if kind == "open":
        raise Refusal(Fault.INVALID, "Open comes once")
    if kind == "select":
        _limit("Select", message.select.follow, message.select.unfollow)
        session.select(message.select.follow, message.select.unfollow)
    elif kind == "holdings":
        _limit("Holdings", message.holdings.logs)
        for holding in message.holdings.logs:
            _hold(holding, session)
    elif kind == "acknowledge":
        _limit("Acknowledge", message.acknowledge.logs)
        for ack in message.acknowledge.logs:
            session.table.acknowledge(ack.handle, generation=ack.generation, offset=ack.offset, complete=ack.complete)


def _check_open(opened: wire.Open) -> None:
    if opened.protocol.major != messages.PROTOCOL_MAJOR:
        theirs = f"{opened.protocol.major}.{opened.protocol.minor}"
        ours = f"{messages.PROTOCOL_MAJOR}.{messages.PROTOCOL_MINOR}"
        raise Refusal(Fault.INCOMPATIBLE, f"the client speaks protocol {theirs}, this daemon {ours}")
    if not _CONSUMER.fullmatch(opened.consumer):
        raise Refusal(Fault.INVALID, "a consumer's name is 1 to 64 of A-Z a-z 0-9 . _ -")
    if len(opened.client) > MAX_CLIENT_NAME or not opened.client.isprintable():
        raise Refusal(Fault.INVALID, f"a client's name is at most {MAX_CLIENT_NAME} printable characters")


def _hold(holding: wire.Holding, session: FollowSession) -> None:
    if max(holding.generation, holding.offset) > LARGEST_HELD:
        raise Refusal(Fault.INVALID, f"the Holding of log {holding.handle} has a number beyond {LARGEST_HELD}")
    if holding.offset and not holding.skip and len(holding.prefix_digest) != DIGEST_BYTES:
        raise Refusal(Fault.INVALID, f"the digest of log {holding.handle} is not of {DIGEST_BYTES} bytes")
    session.hold(
        holding.handle,
        skip=holding.skip,
        generation=holding.generation,
        offset=holding.offset,
        prefix_digest=holding.prefix_digest,
    )


def _limit(what: str, *entries: Sized) -> None:
    if sum(map(len, entries)) > PAGE_ENTRIES:
        raise Refusal(Fault.EXHAUSTED, f"{what} holds at most {PAGE_ENTRIES} entries")

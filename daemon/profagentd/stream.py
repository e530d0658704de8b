"""The state of one client's stream, without any I/O: what it was told, what it asked, what is to be done next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagentd.announcing import Announcer
from profagentd.changes import Touch
from profagentd.disks import is_late
from profagentd.job_views import JobView, JobViews
from profagentd.logs import ended_by
from profagentd.selection import Selection
from profagentd.state import JobState
from profagentd.turns import Turn
from profagentd.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Callable

    from profagentd.board import Job
    from profagentd.budget import Budgets
    from profagentd.log import Log
    from profagentd.opening import Fingerprint, Place

_HINT = Touch.HINT


class Stream:
    """The JOBs of a stream and what is done about them. All calls come from the loop."""

    def __init__(self, budgets: Budgets) -> None:
        self.logs, self._names = budgets.logs.share(), budgets.names.share()
        self.sending_bytes = budgets.sending_bytes.share()
        self.window = Window(self.logs)
        self.followed_again = 0  # JOBs that the client followed before
        self._views = JobViews()
        self.announcer = Announcer(self._views, self.window, self.logs)

    def close(self) -> None:
        """Leave its room to other streams; what it knew goes now, and not when cycles are collected."""
        self.window.clear()
        self._views.clear()
        self.logs.close()
        self._names.close()
        self.sending_bytes.close()

    # What the board tells

    def job_changed_state(self, job: Job) -> None:
        """The JOB is new or has another state."""
        view = self._views.of(job) or self._views.add(job)
        view.status_due = True
        view.caught_up_told = False
        if view.selection and job.state is JobState.REMOVED:
            view.selection.end()
            self._touch_all(view.selection, Touch.DELETED)

    def names_changed(self, job: Job, touches: Mapping[bytes, Touch]) -> None:
        """These names of the JOB may have changed."""
        view = self._views.of(job)
        if not view or not view.selection:
            return
        for path, touch in touches.items():
            self.announcer.touch(view.selection, path, touch)
            ended = ended_by(path)
            if ended is not None and not touch.is_mere_end:
                self.announcer.touch(view.selection, ended, _HINT)
        view.settle_again()

    def names_removed(self, job: Job) -> None:
        """Names of the JOB may be gone."""
        view = self._views.of(job)
        if view and view.selection:
            self._touch_all(view.selection, Touch.HINT)

    def anything_changed(self, job: Job) -> None:
        """Any name of the JOB may have changed."""
        view = self._views.of(job)
        if view and view.selection:
            view.selection.find()
            self._touch_all(view.selection, Touch.UNSURE)
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

        self.window.on_delivered = tell

    # What the client says

    def select(self, follow: Iterable[int], unfollow: Iterable[int]) -> None:
        """Follow some JOBs, and some no longer. Raises Refusal."""
        for handle in follow:
            view = self._views.asked(handle)
            if view and not view.selection and view.job.state is not JobState.REMOVED:
                view.selection = Selection(handle, view.job.place, self._names)
                view.caught_up_told = False
                self.followed_again += view.was_followed
                view.was_followed = True
        for handle in unfollow:
            view = self._views.asked(handle)
            if view and view.selection:
                self._unfollow(view, view.selection)

    def hold(self, handle: int, *, skip: bool, generation: int, offset: int, prefix_digest: bytes) -> None:
        """The answer to an announced log. Raises Refusal."""
        self.announcer.is_answered = True
        log = self.window.get(handle)
        view = self._views.get(log.job) if log else None
        if log is None or view is None:
            return  # it was given up while the answer was on its way
        if not log.unasked:
            self.window.answered(log, skip=skip, generation=generation, offset=offset, prefix_digest=prefix_digest)
            return
        # The client passes over what comes of it. What it holds is asked for, so that it goes on from there.
        view.caught_up_told = False
        if skip:
            self.window.release(log)
        elif generation:
            self.announcer.look_at(log)

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
            view.caught_up_told = True
        return due

    @property
    def follows_all(self) -> bool:
        """Whether the client has chosen to follow every JOB that it was told."""
        return all(view.was_followed for view in self._views)

    @property
    def is_caught_up(self) -> bool:
        """Whether everything was sent that there is of what is followed, on roots that answer."""
        return all(is_late(view.job.place.root) or self._has_all(view) for view in self._views)

    def take_turns(self, limit: int, now: float) -> list[Turn]:
        """Turns that are due, at most `limit`, of one root."""
        turns = [self._turn(log) for log in self.window.take_ready(limit, now)]
        if len({turn.place.root for turn in turns}) > 1:
            self.window.put_back(turn.log for turn in turns if turn.place.root != turns[0].place.root)
            turns = [turn for turn in turns if turn.place.root == turns[0].place.root]
        return turns

    # Inside

    def _turn(self, log: Log) -> Turn:
        view = self._views.get(log.job)
        assert view is not None, "a JOB is forgotten after its logs"
        job = view.job
        return Turn(log, job.place, job.is_scanned, job.directory, is_removed=job.state is JobState.REMOVED)

    def _touch_all(self, selection: Selection, touch: Touch) -> None:
        for log in self.window.of_job(selection.job):
            self.announcer.touch(selection, log.path, touch)

    def _unfollow(self, view: JobView, selection: Selection) -> None:
        selection.forget()
        view.selection = None
        for log in self.window.of_job(view.handle):
            self.window.release(log)

    def _may_tell(self, view: JobView) -> bool:
        """The end of a JOB is told after the end of its logs."""
        is_told = not view.selection or view.selection.is_looked_at
        return view.job.state is not JobState.REMOVED or (is_told and not self.window.of_job(view.handle))

    def _is_caught_up(self, view: JobView) -> bool:
        told = view.caught_up_told or view.status_due or view.job.state is JobState.REMOVED
        return not told and view.selection is not None and self._has_all(view)

    def _has_all(self, view: JobView) -> bool:
        if not view.selection or view.selection.wants_look:
            return not view.selection
        return all(log.is_settled for log in self.window.of_job(view.handle))

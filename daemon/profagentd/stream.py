"""The state of one client's stream, without any I/O: what it was told, what it asked, what is to be done next."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from profagentd.changes import Touch
from profagentd.job_views import JobView, JobViews
from profagentd.log import FOLLOWING, OVER, Log
from profagentd.logs import ended_by, kind_of
from profagentd.selection import Selection
from profagentd.state import JobState
from profagentd.turns import Turn
from profagentd.walk import Sighting
from profagentd.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Callable

    from profagentd.board import Job
    from profagentd.budget import Budgets
    from profagentd.clock import Moment
    from profagentd.events import Loss
    from profagentd.opening import Fingerprint, Place
    from profagentd.selection import Names
    from profagentd.walk import Page

# Entries of one message, at most.
PAGE_ENTRIES = 1000
# Clients of this minor version and later take logs unasked, and need no check values of chunks.
UNASKED_MINOR = 2
# So much room is left to logs that a look finds: tables of layers, for one.
LOOK_LOGS = 64
# So many logs wait for their turn before those that were made are looked at.
UNSEEN_LOGS = 256
_HINT, _MADE = Touch.HINT, Touch.MADE


class Stream:
    """The JOBs of a stream and what is done about them. All calls come from the loop."""

    def __init__(self, budgets: Budgets) -> None:
        self.logs, self._names = budgets.logs.share(), budgets.names.share()
        self.sending_bytes = budgets.sending_bytes.share()
        self.window = Window(self.logs)
        self.client_minor = 0  # the version that the client speaks
        self.away: set[bytes] = set()  # roots that do not answer
        self._aside: list[Log] = []  # logs on them whose turn it is
        self.is_short_of_room = False  # names wait until announced logs are released
        self.is_answered = True  # a Holding came since logs were announced
        self.followed_again = 0  # JOBs that the client followed before
        self.was_deleted: Callable[[Place, bytes], bool] | None = None  # whether retention deleted a log of this name
        self.was_lost: Callable[[Place, bytes], bool] | None = None  # whether a kept loss counts it
        self._views = JobViews()

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
            self._touch(view.selection, path, touch)
            ended = ended_by(path)
            if ended is not None and not touch.is_mere_end:
                self._touch(view.selection, ended, _HINT)
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
            self._touch_all(view.selection, Touch.MADE)
            view.settle_again()

    def missed(self, handle: int) -> Place | None:
        """The directory of a followed JOB was not there when it was to be read: where it is to be looked for."""
        view = self._views.get(handle)
        if view and view.selection and not view.selection.is_over:
            view.selection.miss()
            return view.job.place
        return None

    def look_at(self, log: Log) -> None:
        """A log that came unasked is not what it was taken for: its handle is over, and a look tells what there is."""
        view = self._views.get(log.job)
        if view and view.selection and self.window.get(log.handle):
            self.window.release(log)
            view.selection.note(log.path, _HINT)

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
        self.is_answered = True
        log = self.window.get(handle)
        view = self._views.get(log.job) if log else None
        if log is None or view is None:
            return  # it was given up while the answer was on its way
        was_unasked = log.unasked
        self.window.answered(log, skip=skip, generation=generation, offset=offset, prefix_digest=prefix_digest)
        if was_unasked and generation and not skip:
            view.caught_up_told = False  # it was told too early

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
        return all(view.job.place.root in self.away or self._has_all(view) for view in self._views)

    def take_made(self, now: float) -> list[Log]:
        """Logs that were made since their JOBs are followed: they are announced without a look, and sent unasked.

        Where many wait for their turn, more are looked at, so that it is known how far behind the client is.
        """
        logs: list[Log] = []
        for view in self._views if self.client_minor >= UNASKED_MINOR else ():
            if self._wants_look(view) and view.selection:
                room = min(self.window.room - LOOK_LOGS, UNSEEN_LOGS - self.window.due_logs - len(logs))
                for path in view.selection.take_made(max(0, room)):
                    if self.window.at(view.handle, path):  # a look that was under way has found it
                        self._touch(view.selection, path, _MADE)
                    else:
                        logs.append(self._add(view, Sighting(path, kind_of(path), 0, 0), now))
        for log in logs:
            log.come_unasked()
            self.window.queue(log)
        return logs

    def next_names(self, now: float) -> Names | None:
        """Names to look at, no more than there is room for; None when there are none, or no room."""
        self.is_short_of_room = False
        view = next((view for view in self._views if self._wants_look(view)), None)
        if view is None or view.selection is None:
            return None
        if not self.window.room:
            self.window.release_idle(now, PAGE_ENTRIES)
        self.is_short_of_room = not self.window.room
        if self.is_short_of_room:
            return None
        names = view.selection.next_names(min(self.window.room, PAGE_ENTRIES), view.job.directory)
        self.logs.take(names.limit)  # nobody else may have this room until it is known what there is
        return names

    def looked(self, names: Names, page: Page, now: Moment) -> tuple[list[Log], list[Loss]]:
        """These names were looked at: logs to announce, which have handles from now on, and what is not as it was."""
        self.logs.give_back(names.limit)
        view = self._views.get(names.job)
        if not view or not view.selection:
            return [], []
        view.selection.looked(names, page)
        # What was announced before the look ended tells by itself how it changed.
        paths = *page.missing, *(each.path for each in page.logs)
        known = {path for path in paths if self.window.at(names.job, path)}
        for path in known:
            self._touch(view.selection, path, names.touches.get(path, _HINT))
        new = [each for each in page.logs if each.path not in known]
        if view.selection.is_over:
            # What stood there in the last moment is gone.
            page.missing += [] if names.is_after_end else [each.path for each in new]
            new = []
        room = max(0, self.window.room)
        for each in new[room:]:  # others took the room while the root was late
            view.selection.note(each.path, names.touches.get(each.path, _HINT))
        logs = [self._add(view, each, now.seen(each.changed_wall_us)) for each in new[:room]]
        self.is_answered &= not logs
        page.missing = [path for path in page.missing if path not in known]
        return logs, list(view.selection.losses(page, names.touches))

    def take_turns(self, limit: int, now: float) -> list[Turn]:
        """Turns that are due, at most `limit`, of one root."""
        turns = [self._turn(log) for log in self.window.take_ready(limit, now)]
        if self.away:
            self._aside += [turn.log for turn in turns if turn.place.root in self.away]
            turns = [turn for turn in turns if turn.place.root not in self.away]
        if len({turn.place.root for turn in turns}) > 1:
            self.window.put_back(turn.log for turn in turns if turn.place.root != turns[0].place.root)
            turns = [turn for turn in turns if turn.place.root == turns[0].place.root]
        return turns

    def came_back(self, root: bytes) -> None:
        """The root answers again."""
        self.away.discard(root)
        self.window.put_back(self._aside)
        self._aside = []

    # Inside

    def _add(self, view: JobView, sighting: Sighting, changed: float) -> Log:
        log = self.window.add(view.handle, sighting, changed)
        asked = view.job.place, log.path
        log.was_deleted = partial(self.was_deleted, *asked) if self.was_deleted else None
        log.was_lost = partial(self.was_lost, *asked) if self.was_lost else None
        return log

    def _wants_look(self, view: JobView) -> bool:
        return view.job.place.root not in self.away and view.selection is not None and view.selection.may_look

    def _turn(self, log: Log) -> Turn:
        view = self._views.get(log.job)
        assert view is not None, "a JOB is forgotten after its logs"
        job = view.job
        return Turn(log, job.place, job.is_scanned, job.directory, is_removed=job.state is JobState.REMOVED)

    def _touch(self, selection: Selection, path: bytes, touch: Touch) -> None:
        log = self.window.at(selection.job, path)
        if log is None:
            selection.note(path, touch)
        elif log.phase is FOLLOWING:
            log.doubted |= log.grows and bool(touch & _MADE)
            self.window.queue(log)
        elif log.phase is OVER:
            selection.note(path, touch)  # another file stands where the log's was found to be gone

    def _touch_all(self, selection: Selection, touch: Touch) -> None:
        for log in self.window.of_job(selection.job):
            self._touch(selection, log.path, touch)

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

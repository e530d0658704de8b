"""How names of followed JOBs become the announced logs of a stream: by a look, or unasked; without any I/O."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagentd.errors import Fault, Refusal
from profagentd.follow.log import Changes, FileEvent, Loss, LossReason, unread_loss
from profagentd.loop import is_late
from profagentd.sources.job import DATA, ended_by, group_of, is_table, kind_of, tables_of
from profagentd.sources.state import JobState
from profagentd.sources.walk import Page, Sighting, Walk, look

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from profagentd.follow.log import Log
    from profagentd.follow.registry import Job
    from profagentd.follow.table import LogTable, QuotaShare
    from profagentd.loop import Moment
    from profagentd.sources.job import DirectoryId, Place
    from profagentd.sources.walk import Page


# Names that are not files are told one by one up to so many.
ODD_LIMIT = 1000
# Tables are those of the models that a program loads: beyond so many they are looked at again.
TABLES_LIMIT = 1000


@dataclass(frozen=True)
class Names:
    """Names to look at: those that were touched, or the next ones of a walk."""

    job: int
    place: Place
    touches: Mapping[bytes, FileEvent]
    walk: Walk | None
    limit: int
    directory: DirectoryId | None = None
    is_after_end: bool = False  # the JOB was gone before: what stands there is another one's
    told: Collection[bytes] = ()  # tables that were announced

    def look(self) -> Page:
        """Look at them. Blocks; for a worker thread."""
        if self.walk:
            return self.walk.page(self.limit, self.told)
        covered = {path for path, touch in self.touches.items() if touch & FileEvent.COVERED}
        return look(self.place, self.touches, self.directory, covered.union(self.told))


class FollowedJob:
    """The names still to look at, and what was told of those that are no logs."""

    def __init__(self, job: int, place: Place, share: QuotaShare) -> None:
        self.job = job
        self.place = place
        self.changes = Changes(share, walk=True)
        self.is_over = False
        self.is_missed = False  # its directory was not there: whether it is gone is looked for
        self._walk: Walk | None = None
        self._is_unwalked = False  # it was gone before all of it was walked
        self._looks = 0  # that have not ended
        self._tables: dict[bytes, bool] = {}  # that nothing was told of since a look: whether they were announced
        self._odd_sent: set[bytes] = set()
        self._is_unreadable_sent = False

    @property
    def may_look(self) -> bool:
        """Whether there are names to look at, and a directory to look in."""
        return self.wants_look and not self.is_missed

    @property
    def wants_look(self) -> bool:
        """Whether there are names to look at."""
        return bool(self.changes) or self._walk is not None or self._is_unwalked or self.is_missed

    @property
    def is_looked_at(self) -> bool:
        """Whether every name was looked at that there was to look at."""
        return not self.wants_look and not self._looks

    def note(self, path: bytes, touch: FileEvent) -> None:
        """`path` may have changed."""
        self.changes.note(path, touch)
        self._tables.pop(path, None)
        # Of data that was made behind the walk's back others of its inference may stand that the walk has passed over.
        if self._walk is not None and kind_of(path) is DATA:
            group = group_of(path)
            for each in group[group.index(path) + 1 :]:
                self.changes.note(each, FileEvent.HINT)

    def put_back(self, touches: Mapping[bytes, FileEvent]) -> None:
        """There was no room for these, which stand; for what must be announced before them there was, or it is here."""
        covered = {path: touch | FileEvent.COVERED if ended_by(path) else touch for path, touch in touches.items()}
        self.changes.put_back(covered)

    def take_made(self, limit: int) -> list[bytes]:
        """At most `limit` logs, by their names, that were made since the JOB is followed.

        Data whose tables may stand unannounced wait for a look. So does a `.done` behind data that wait, or as long as
        data may stand that only a walk finds.
        """
        if not self.may_look or self.is_over:
            return []
        have_data_come = self._walk is None and not self.changes.has_walk

        def may_take(path: bytes, is_made: bool) -> bool:
            nonlocal have_data_come
            if kind_of(path) is not DATA:
                return have_data_come and is_made and ended_by(path) is not None
            is_made &= None not in map(self._tables.get, tables_of(path))
            have_data_come &= is_made
            return is_made

        return self.changes.take_made(limit, may_take)

    def next_names(self, limit: int, directory: DirectoryId | None = None) -> Names:
        """The next names to look at in this directory: changed ones first, then those of the walk."""
        self._looks += 1
        touches = self.changes.take(limit)
        told = {path for path, is_told in self._tables.items() if is_told}
        if touches or self.is_over:
            expected = None if self.is_over else directory
            return Names(self.job, self.place, touches, None, limit, expected, self.is_over, told)
        if self._walk is None and self.changes.take_walk():
            self._walk = Walk(self.place, directory)
        return Names(self.job, self.place, {}, self._walk, limit, directory, told=told)

    def looked(self, names: Names, page: Page) -> None:
        """These names were looked at."""
        self._looks -= 1
        if page.is_job_gone and self.is_over:
            page.missing += names.touches
        elif page.is_job_gone:
            self.miss()
            for path, touch in names.touches.items():
                self.changes.note(path, touch)
        elif names.walk is self._walk and page.is_last:
            self._walk = None

    def note_tables(self, announced: Iterable[bytes], absent: Iterable[bytes]) -> None:
        """These names were announced, and these do not stand as long as nothing is told of them."""
        if len(self._tables) > TABLES_LIMIT:
            self._tables.clear()
        if not self.changes.has_walk:  # else it is forgotten of which names something was told meanwhile
            self._tables.update({path: False for path in absent if is_table(path) and path not in self.changes})
        self._tables.update({path: True for path in announced if is_table(path)})

    def miss(self) -> None:
        """The JOB's directory was not there: all of it is looked at when it is found to be."""
        self.is_missed = not self.is_over

    def find(self) -> None:
        """Its directory stands there, and all of it is to be looked at."""
        self.is_missed = False
        self._walk = None
        self._tables.clear()
        self.changes.note_all()

    def end(self) -> None:
        """The JOB is gone: nothing more is announced, and looking tells what was lost."""
        self.is_over = True
        self.is_missed = False
        self._is_unwalked = self.changes.take_walk() or self._walk is not None
        self._walk = None

    def forget(self) -> None:
        """Nothing of the JOB is to be looked at any more."""
        self.changes.forget()

    def losses(self, page: Page, touches: Mapping[bytes, FileEvent]) -> Iterator[Loss]:
        """What the page shows that no announced log will tell."""
        if self._is_unwalked:
            self._is_unwalked = False
            yield self._loss(LossReason.REMOVED_UNREAD, "the JOB was removed before all of it was looked at")
        for path in page.missing:
            if _was_lost(touches.get(path, FileEvent.HINT)):
                yield unread_loss(self.job, path)
        for path in page.odd:
            yield from self._odd(path)
        if page.unreadable and not self._is_unreadable_sent:
            yield self._loss(LossReason.UNREADABLE, f"{os.fsdecode(self.place.directory)}: {page.unreadable}")
        self._is_unreadable_sent = page.unreadable is not None

    def _odd(self, path: bytes) -> Iterator[Loss]:
        if path in self._odd_sent or len(self._odd_sent) > ODD_LIMIT:
            return
        self._odd_sent.add(path)
        if len(self._odd_sent) > ODD_LIMIT:
            yield self._loss(LossReason.NOT_A_FILE, f"more than {ODD_LIMIT} names that are no regular files")
        else:
            yield self._loss(LossReason.NOT_A_FILE, f"{os.fsdecode(path)} is no regular file")

    def _loss(self, reason: LossReason, detail: str) -> Loss:
        return Loss(0, self.job, reason, detail)


def _was_lost(touch: FileEvent) -> bool:
    """Whether a missing name had content that nobody read: written, and not merely moved or deleted."""
    return bool(touch & (FileEvent.WRITTEN | FileEvent.MADE)) and not touch & FileEvent.MOVED


@dataclass
class JobView:
    """A JOB as this stream names and knows it."""

    handle: int
    job: Job
    selection: FollowedJob | None = None
    status_due: bool = True
    caught_up_sent: bool = False
    was_followed: bool = False

    def settle_again(self) -> None:
        """Something changed: that everything was sent is told once more, as soon as it is so."""
        # While a JOB is open its client is told once; a telling for each write would be noise.
        if self.job.state is not JobState.OPEN:
            self.caught_up_sent = False


class JobViews:
    """The JOBs that have a handle; handles count up from 1, in the order in which the JOBs came."""

    def __init__(self) -> None:
        self._views: dict[int, JobView] = {}
        self._handles: dict[Job, int] = {}
        self._last_handle = 0

    def __iter__(self) -> Iterator[JobView]:
        return iter(self._views.values())

    def get(self, handle: int) -> JobView | None:
        """The JOB that has this handle; None when it was forgotten."""
        return self._views.get(handle)

    def asked(self, handle: int) -> JobView | None:
        """The JOB that the client names, or None when it was forgotten. Refusal when there never was one."""
        if not 0 < handle <= self._last_handle:
            raise Refusal(Fault.INVALID, f"there is no JOB {handle} in this stream")
        return self._views.get(handle)

    def of(self, job: Job) -> JobView | None:
        """The JOB's view, if it has one."""
        return self._views.get(self._handles.get(job, 0))

    def add(self, job: Job) -> JobView:
        """Give the JOB the next handle."""
        self._last_handle += 1
        view = self._views[self._last_handle] = JobView(self._last_handle, job)
        self._handles[job] = view.handle
        return view

    def forget(self, view: JobView) -> None:
        """The client was told of the JOB's end."""
        del self._views[view.handle], self._handles[view.job]

    def clear(self) -> None:
        """Forget all of them."""
        self._views.clear()
        self._handles.clear()


# Entries of one message, at most.
PAGE_ENTRIES = 1000
# So much room is left to logs that a look finds: tables of layers, for one.
LOOK_LOGS = 64
# So many logs wait for their turn before those that were made are looked at.
UNSEEN_LOGS = 256
_HINT, _MADE = FileEvent.HINT, FileEvent.MADE


class LogDiscovery:
    """Gives logs their handles as long as there is room. All calls come from the loop."""

    def __init__(self, views: JobViews, window: LogTable, share: QuotaShare) -> None:
        """`share` is the window's room."""
        self._views = views
        self._table = window
        self._share = share
        self.is_short_of_room = False  # names wait until announced logs are released
        self.is_answered = True  # a Holding came since logs were announced

    def touch(self, selection: FollowedJob, path: bytes, touch: FileEvent) -> None:
        """Something was seen to happen to a name: an announced log tells what by itself, others are looked at."""
        if not self._table.touch(selection.job, path, touch):
            selection.note(path, touch)

    def take_made(self, now: float) -> list[Log]:
        """Logs that were made since their JOBs are followed: they are announced without a look, and sent unasked.

        Where many wait for their turn, more are looked at, so that it is known how far behind the client is.
        """
        logs: list[Log] = []
        for view, selection in self._to_look_at():
            room = min(self._table.room - LOOK_LOGS, UNSEEN_LOGS - self._table.due_logs - len(logs))
            for path in selection.take_made(max(0, room)):
                if self._table.at(view.handle, path):  # a look that was under way has found it
                    self.touch(selection, path, _MADE)
                else:
                    logs.append(self._add(view, Sighting(path, kind_of(path), 0, 0), now))
        for log in logs:
            log.come_unasked()
            self._table.queue(log)
        return logs

    def next_names(self, now: float) -> Names | None:
        """Names to look at, no more than there is room for; None when there are none, or no room."""
        self.is_short_of_room = False
        view, selection = next(self._to_look_at(), (None, None))
        if view is None or selection is None:
            return None
        if not self._table.room:
            self._table.release_idle(now, PAGE_ENTRIES)
        self.is_short_of_room = not self._table.room
        if self.is_short_of_room:
            return None
        names = selection.next_names(min(self._table.room, PAGE_ENTRIES), view.job.directory)
        self._share.take(names.limit)  # nobody else may have this room until it is known what there is
        return names

    def looked(self, names: Names, page: Page, now: Moment) -> tuple[list[Log], list[Loss]]:
        """These names were looked at: logs to announce, which have handles from now on, and what is not as it was."""
        self._share.give_back(names.limit)
        view = self._views.get(names.job)
        if not view or not view.selection:
            return [], []
        view.selection.looked(names, page)
        # What was announced before the look ended tells by itself how it changed.
        paths = *page.missing, *(each.path for each in page.logs)
        known = {path for path in paths if self._table.at(names.job, path)}
        for path in known - page.brought:
            self.touch(view.selection, path, names.touches.get(path, _HINT))
        new = [each for each in page.logs if each.path not in known]
        if view.selection.is_over:
            # What stood there in the last moment is gone.
            page.missing += [] if names.is_after_end else [each.path for each in new]
            new = []
        # Others may have taken the room while the root was late, and what is brought needs more.
        room = max(0, min(self._table.room, PAGE_ENTRIES))
        if len(new) > room:
            view.selection.put_back({each.path: names.touches.get(each.path, _HINT) for each in new[room:]})
        page.logs = new[:room]
        view.selection.note_tables((*known, *(each.path for each in page.logs)), (*page.missing, *page.odd))
        logs = [self._add(view, each, now.seen(each.changed_wall_us)) for each in page.logs]
        self.is_answered &= not logs
        page.missing = [path for path in page.missing if path not in known]
        return logs, list(view.selection.losses(page, names.touches))

    def look_at(self, log: Log) -> None:
        """A log that came unasked is not what it was taken for: its handle is over, and a look announces it."""
        view = self._views.get(log.job)
        if view and view.selection and self._table.get(log.handle):
            self._table.release(log)
            view.selection.note(log.path, FileEvent.WRITTEN)  # a loss when it is gone by then

    def _to_look_at(self) -> Iterator[tuple[JobView, FollowedJob]]:
        """Followed JOBs with names to look at, where that can be done."""
        for view in self._views:
            if view.selection and view.selection.may_look and not is_late(view.job.place.root):
                yield view, view.selection

    def _add(self, view: JobView, sighting: Sighting, changed: float) -> Log:
        return self._table.add(view.handle, sighting, changed)

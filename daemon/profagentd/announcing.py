"""How names of followed JOBs become the announced logs of a stream: by a look, or unasked; without any I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagentd.changes import Touch
from profagentd.disks import is_late
from profagentd.logs import kind_of
from profagentd.walk import Sighting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagentd.budget import Share
    from profagentd.clock import Moment
    from profagentd.events import Loss
    from profagentd.job_views import JobView, JobViews
    from profagentd.log import Log
    from profagentd.selection import Names, Selection
    from profagentd.walk import Page
    from profagentd.window import Window

# Entries of one message, at most.
PAGE_ENTRIES = 1000
# So much room is left to logs that a look finds: tables of layers, for one.
LOOK_LOGS = 64
# So many logs wait for their turn before those that were made are looked at.
UNSEEN_LOGS = 256
_HINT, _MADE = Touch.HINT, Touch.MADE


class Announcer:
    """Gives logs their handles as long as there is room. All calls come from the loop."""

    def __init__(self, views: JobViews, window: Window, share: Share) -> None:
        """`share` is the window's room."""
        self._views = views
        self._window = window
        self._share = share
        self.is_short_of_room = False  # names wait until announced logs are released
        self.is_answered = True  # a Holding came since logs were announced

    def touch(self, selection: Selection, path: bytes, touch: Touch) -> None:
        """Something was seen to happen to a name: an announced log tells what by itself, others are looked at."""
        if not self._window.touch(selection.job, path, touch):
            selection.note(path, touch)

    def take_made(self, now: float) -> list[Log]:
        """Logs that were made since their JOBs are followed: they are announced without a look, and sent unasked.

        Where many wait for their turn, more are looked at, so that it is known how far behind the client is.
        """
        logs: list[Log] = []
        for view, selection in self._to_look_at():
            room = min(self._window.room - LOOK_LOGS, UNSEEN_LOGS - self._window.due_logs - len(logs))
            for path in selection.take_made(max(0, room)):
                if self._window.at(view.handle, path):  # a look that was under way has found it
                    self.touch(selection, path, _MADE)
                else:
                    logs.append(self._add(view, Sighting(path, kind_of(path), 0, 0), now))
        for log in logs:
            log.come_unasked()
            self._window.queue(log)
        return logs

    def next_names(self, now: float) -> Names | None:
        """Names to look at, no more than there is room for; None when there are none, or no room."""
        self.is_short_of_room = False
        view, selection = next(self._to_look_at(), (None, None))
        if view is None or selection is None:
            return None
        if not self._window.room:
            self._window.release_idle(now, PAGE_ENTRIES)
        self.is_short_of_room = not self._window.room
        if self.is_short_of_room:
            return None
        names = selection.next_names(min(self._window.room, PAGE_ENTRIES), view.job.directory)
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
        known = {path for path in paths if self._window.at(names.job, path)}
        for path in known - page.brought:
            self.touch(view.selection, path, names.touches.get(path, _HINT))
        new = [each for each in page.logs if each.path not in known]
        if view.selection.is_over:
            # What stood there in the last moment is gone.
            page.missing += [] if names.is_after_end else [each.path for each in new]
            new = []
        # Others may have taken the room while the root was late, and what is brought needs more.
        room = max(0, min(self._window.room, PAGE_ENTRIES))
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
        if view and view.selection and self._window.get(log.handle):
            self._window.release(log)
            view.selection.note(log.path, Touch.WRITTEN)  # a loss when it is gone by then

    def _to_look_at(self) -> Iterator[tuple[JobView, Selection]]:
        """Followed JOBs with names to look at, where that can be done."""
        for view in self._views:
            if view.selection and view.selection.may_look and not is_late(view.job.place.root):
                yield view, view.selection

    def _add(self, view: JobView, sighting: Sighting, changed: float) -> Log:
        return self._window.add(view.handle, sighting, changed)

"""One JOB that a client follows: what is known of it in that client's stream."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagentd.changes import Changes, Touch
from profagentd.events import Loss, LossReason, unread_loss
from profagentd.logs import LogKind, done_of, is_log, kind_of
from profagentd.walk import Page, Walk, look

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from profagentd.budget import Share
    from profagentd.opening import DirectoryId, Place

# Names that are not files are told one by one up to so many.
ODD_LIMIT = 1000


@dataclass(frozen=True)
class Names:
    """Names to look at: those that were touched, or the next ones of a walk."""

    job: int
    place: Place
    touches: Mapping[bytes, Touch]
    walk: Walk | None
    limit: int
    directory: DirectoryId | None = None
    is_after_end: bool = False  # the JOB was gone before: what stands there is another one's

    def look(self) -> Page:
        """Look at them. Blocks; for a worker thread."""
        return self.walk.page(self.limit) if self.walk else look(self.place, self.touches, self.directory)


class Selection:
    """The names still to look at, and what was told of those that are no logs."""

    def __init__(self, job: int, place: Place, share: Share) -> None:
        self.job = job
        self.place = place
        self.changes = Changes(share, walk=True)
        self.is_over = False
        self.is_missed = False  # its directory was not there: whether it is gone is looked for
        self._walk: Walk | None = None
        self._is_unwalked = False  # it was gone before all of it was walked
        self._looks = 0  # that have not ended
        self._odd_told: set[bytes] = set()
        self._unreadable_told = False

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

    def note(self, path: bytes, touch: Touch) -> None:
        """`path` may have changed."""
        self.changes.note(path, touch)
        # Data that was made behind the walk's back may have had its `.done` before.
        if self._walk is not None and kind_of(path) is LogKind.DATA:
            self.changes.note(done_of(path), Touch.HINT)

    def take_made(self, limit: int) -> list[bytes]:
        """At most `limit` logs, by their names, that were made since the JOB is followed."""
        return self.changes.take_made(limit, is_log) if self.may_look and not self.is_over else []

    def next_names(self, limit: int, directory: DirectoryId | None = None) -> Names:
        """The next names to look at in this directory: changed ones first, then those of the walk."""
        self._looks += 1
        touches = self.changes.take(limit)
        if touches or self.is_over:
            expected = None if self.is_over else directory
            return Names(self.job, self.place, touches, None, limit, expected, self.is_over)
        if self._walk is None and self.changes.take_walk():
            self._walk = Walk(self.place, directory)
        return Names(self.job, self.place, {}, self._walk, limit, directory)

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

    def miss(self) -> None:
        """The JOB's directory was not there: all of it is looked at when it is found to be."""
        self.is_missed = not self.is_over

    def find(self) -> None:
        """Its directory stands there, and all of it is to be looked at."""
        self.is_missed = False
        self._walk = None
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

    def losses(self, page: Page, touches: Mapping[bytes, Touch]) -> Iterator[Loss]:
        """What the page shows that no announced log will tell."""
        if self._is_unwalked:
            self._is_unwalked = False
            yield self._loss(LossReason.REMOVED_UNSEEN, "the JOB was removed before all of it was looked at")
        for path in page.missing:
            if _was_lost(touches.get(path, Touch.HINT)):
                yield unread_loss(self.job, path, with_job=self.is_over)
        for path in (*page.odd, *(each.path for each in page.logs)):
            if touches.get(path, Touch.HINT) & Touch.REMADE and kind_of(path) is LogKind.DATA:
                yield unread_loss(self.job, path, with_job=self.is_over)
        for path in page.odd:
            yield from self._odd(path)
        if page.unreadable and not self._unreadable_told:
            yield self._loss(LossReason.UNREADABLE, f"{os.fsdecode(self.place.directory)}: {page.unreadable}")
        self._unreadable_told = page.unreadable is not None

    def _odd(self, path: bytes) -> Iterator[Loss]:
        if path in self._odd_told or len(self._odd_told) > ODD_LIMIT:
            return
        self._odd_told.add(path)
        if len(self._odd_told) > ODD_LIMIT:
            yield self._loss(LossReason.NOT_A_FILE, f"more than {ODD_LIMIT} names that are no regular files")
        else:
            yield self._loss(LossReason.NOT_A_FILE, f"{os.fsdecode(path)} is no regular file")

    def _loss(self, reason: LossReason, detail: str) -> Loss:
        return Loss(0, self.job, reason, detail)


def _was_lost(touch: Touch) -> bool:
    """Whether a missing name had content that nobody read: written, and not merely moved or deleted."""
    return bool(touch & (Touch.WRITTEN | Touch.MADE)) and not touch & Touch.MOVED

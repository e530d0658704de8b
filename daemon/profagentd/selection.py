"""One JOB that a client follows: what is known of it in that client's stream."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagentd.changes import Changes, Touch
from profagentd.events import Loss, LossReason, unread_loss
from profagentd.logs import DATA, ended_by, group_of, is_table, kind_of, tables_of
from profagentd.walk import Page, Walk, look

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from profagentd.budget import Share
    from profagentd.opening import DirectoryId, Place

# Names that are not files are told one by one up to so many.
ODD_LIMIT = 1000
# Tables are those of the models that a program loads: beyond so many they are looked at again.
TABLES_LIMIT = 1000


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
    told: Collection[bytes] = ()  # tables that were announced

    def look(self) -> Page:
        """Look at them. Blocks; for a worker thread."""
        if self.walk:
            return self.walk.page(self.limit, self.told)
        covered = {path for path, touch in self.touches.items() if touch & Touch.COVERED}
        return look(self.place, self.touches, self.directory, covered.union(self.told))


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
        self._tables: dict[bytes, bool] = {}  # that nothing was told of since a look: whether they were announced
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
        self._tables.pop(path, None)
        # Of data that was made behind the walk's back others of its inference may stand that the walk has passed over.
        if self._walk is not None and kind_of(path) is DATA:
            group = group_of(path)
            for each in group[group.index(path) + 1 :]:
                self.changes.note(each, Touch.HINT)

    def put_back(self, touches: Mapping[bytes, Touch]) -> None:
        """There was no room for these, which stand; for what must be announced before them there was, or it is here."""
        covered = {path: touch | Touch.COVERED if ended_by(path) else touch for path, touch in touches.items()}
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

    def losses(self, page: Page, touches: Mapping[bytes, Touch]) -> Iterator[Loss]:
        """What the page shows that no announced log will tell."""
        if self._is_unwalked:
            self._is_unwalked = False
            yield self._loss(LossReason.REMOVED_UNREAD, "the JOB was removed before all of it was looked at")
        for path in page.missing:
            if _was_lost(touches.get(path, Touch.HINT)):
                yield unread_loss(self.job, path)
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

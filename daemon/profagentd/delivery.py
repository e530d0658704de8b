"""Which logs each consumer has, as long as they stand on the board; kept in memory only.

A daemon that starts anew hears it again: each complete log is announced, held, completed and acknowledged anew.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING

from profagentd.logs import LogKind, done_of, ended_by, kind_of
from profagentd.opening import Fingerprint
from profagentd.state import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from profagentd.board import Job
    from profagentd.changes import Touch
    from profagentd.opening import Place

# A log is left alone for so long after its delivery: what happens to it meanwhile is seen.
SETTLE_S = 0.5
# A file's fingerprint and a bit for each consumer: there may be as many of them as there are files.
_MARK = struct.Struct("<QQqQ")
# The bit of each consumer where none is named.
_ANYONE = 1


class Deliveries:
    """A listener of the board: whatever seems to happen to a log takes its delivery back."""

    def __init__(self, retain_for: Sequence[str]) -> None:
        self._bits: dict[str, int] = {}
        self._all = 0
        self._marks: dict[Place, dict[bytes, bytes]] = {}
        self._due: dict[Place, dict[bytes, float]] = {}  # data and other logs that may be whole, with their time
        self._news: set[Place] = set()  # JOBs of which more may go than did
        self.expect(retain_for)

    def expect(self, retain_for: Sequence[str]) -> None:
        """These consumers, or anyone when none is named, must have a log; earlier deliveries are not known any more."""
        self._bits = {consumer: 1 << number for number, consumer in enumerate(retain_for)}
        self._all = (1 << len(retain_for)) - 1 or _ANYONE
        self._marks.clear()
        self._due.clear()

    def delivered(self, consumer: str, place: Place, path: bytes, seen: Fingerprint, now: float) -> None:
        """The consumer has the whole of this log, as it was when it had this fingerprint."""
        bit = self._bits.get(consumer) if self._bits else _ANYONE
        if bit is None:
            return
        marks = self._marks.setdefault(place, {})
        known, bits = _unpacked(marks[path]) if path in marks else (None, 0)
        marks[path] = _packed(seen, bit | bits if known == seen else bit)
        self._due.setdefault(place, {})[ended_by(path) or path] = now + SETTLE_S
        self._news.add(place)

    def has_news(self, place: Place) -> bool:
        """Whether anything was delivered of the JOB, or changed in it, since the news were taken."""
        return place in self._news

    def take_news(self, place: Place) -> None:
        """The JOB is looked through now."""
        self._news.discard(place)

    def give_news_back(self, place: Place) -> None:
        """The JOB could not be looked through, or not all that may go could be deleted."""
        self._news.add(place)

    def has(self, place: Place, path: bytes, seen: Fingerprint) -> bool:
        """Whether every consumer has this very file. Any thread may ask."""
        mark = self._marks.get(place, {}).get(path)
        return mark is not None and _unpacked(mark) == (seen, self._all)

    def due(self, place: Place, now: float, limit: int) -> list[tuple[tuple[bytes, Fingerprint], ...]]:
        """Logs, with their `.done`, that every consumer has and that have settled; each once, unless offered again."""
        waiting = self._due.get(place, {})
        settled = [path for path in itertools.islice(waiting, limit) if waiting[path] <= now]
        for path in settled:
            del waiting[path]
        return [files for files in (self._together(place, path) for path in settled) if files]

    def offer_again(self, place: Place, logs: Iterable[bytes], now: float) -> None:
        """These could not be deleted: they are due again from `now` on, as far as they are still delivered."""
        marks, waiting = self._marks.get(place, {}), self._due.get(place, {})
        waiting.update((path, now) for path in logs if path in marks)

    def forget(self, place: Place, paths: Iterable[bytes]) -> None:
        """These are not there any more, or are not what they were."""
        for path in paths:
            self._marks.get(place, {}).pop(path, None)
            self._due.get(place, {}).pop(path, None)

    def _together(self, place: Place, path: bytes) -> tuple[tuple[bytes, Fingerprint], ...]:
        """A log and its `.done`; nothing when a part is missing that somebody still is to have."""
        paths = (path, done_of(path)) if kind_of(path) is LogKind.DATA else (path,)
        marks = [self._marks.get(place, {}).get(each) for each in paths]
        known = [(each, *_unpacked(mark)) for each, mark in zip(paths, marks) if mark]
        if len(known) < len(paths) or any(bits != self._all for _, _, bits in known):
            return ()
        return tuple((each, seen) for each, seen, _ in known)

    # What the board tells

    def job_changed_state(self, job: Job) -> None:
        """A JOB that is gone has no logs."""
        if job.state is JobState.REMOVED:
            self.anything_changed(job)
            self._news.discard(job.place)

    def names_changed(self, job: Job, touches: Mapping[bytes, Touch]) -> None:
        """What was written, made or removed is to be delivered again."""
        self._news.add(job.place)
        if job.place in self._marks:
            self.forget(job.place, (path for path, touch in touches.items() if touch))

    def names_removed(self, job: Job) -> None:
        """What is gone is not found when it is to be deleted."""
        self._news.add(job.place)

    def anything_changed(self, job: Job) -> None:
        """Everything is announced again, and so delivered again."""
        self._news.add(job.place)
        self._marks.pop(job.place, None)
        self._due.pop(job.place, None)


def _packed(seen: Fingerprint, bits: int) -> bytes:
    return _MARK.pack(seen.inode, seen.size, seen.mtime_ns, bits)


def _unpacked(mark: bytes) -> tuple[Fingerprint, int]:
    inode, size, mtime_ns, bits = _MARK.unpack(mark)
    return Fingerprint(inode, size, mtime_ns), bits

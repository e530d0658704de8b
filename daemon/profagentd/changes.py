"""What may have changed in one JOB since it was last looked at: a bounded set of names, or 'all of it'."""

from __future__ import annotations

import enum
import itertools
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Callable

    from profagentd.budget import Share

NAMES_LIMIT = 10_000


class Touch(enum.Flag):
    """What was seen to happen to a name."""

    HINT = 0  # nothing itself, but something that it depends on changed
    WRITTEN = enum.auto()
    MADE = enum.auto()  # made, or moved here: another file may stand under the name
    DELETED = enum.auto()
    MOVED = enum.auto()  # moved away
    UNSURE = enum.auto()  # any of it may have happened
    COVERED = enum.auto()  # of a `.done`: the data of its inference were announced, or stand before it
    CLOSED = enum.auto()  # closed by who may have written to it before

    @property
    def is_mere_end(self) -> bool:
        """Whether the name went, and nothing else: no file stands under it, and none did that is new."""
        return self in _MERE_ENDS


@lru_cache(256)
def joined(earlier: Touch, later: Touch) -> Touch:
    """What was seen to happen to a name in all."""
    return (earlier | later) & ~Touch.COVERED


_HINT = Touch.HINT
_MADE_ONLY = tuple(Touch.MADE | more for more in (_HINT, Touch.WRITTEN, Touch.CLOSED, Touch.WRITTEN | Touch.CLOSED))
_MERE_ENDS = (Touch.DELETED, Touch.MOVED, Touch.DELETED | Touch.MOVED)


class Changes:
    """Names to look at; beyond NAMES_LIMIT, or the stream's share, only that the JOB must be walked again."""

    def __init__(self, share: Share, *, walk: bool) -> None:
        self._share = share
        self._touches: dict[bytes, Touch] = {}
        self._walk = walk

    def __bool__(self) -> bool:
        return self._walk or bool(self._touches)

    def __contains__(self, path: bytes) -> bool:
        return path in self._touches

    @property
    def has_walk(self) -> bool:
        """Whether the JOB must be walked."""
        return self._walk

    def note(self, path: bytes, touch: Touch) -> None:
        """`path` may have changed; a mere end of what was not to be looked at is no reason to look."""
        known = self._touches.get(path)
        if known is not None:
            # Joining flags costs more than all the rest, and seldom tells anything.
            if touch is not _HINT:
                self._touches[path] = joined(known, touch)
        elif touch.is_mere_end:
            return
        elif len(self._touches) < NAMES_LIMIT and self._share.room:
            self._share.take()
            self._touches[path] = touch
        else:
            self.note_all()

    def put_back(self, touches: Mapping[bytes, Touch]) -> None:
        """These were taken, and are to be looked at before all others."""
        later, self._touches = self._touches, {}
        self._share.give_back(len(later))
        for path, touch in (*touches.items(), *later.items()):
            self.note(path, touch)

    def note_all(self) -> None:
        """Any name may have changed."""
        self.forget()
        self._walk = True

    def forget(self) -> None:
        """Nothing is to be looked at."""
        self._share.give_back(len(self._touches))
        self._touches.clear()
        self._walk = False

    def take(self, limit: int) -> Mapping[bytes, Touch]:
        """At most `limit` names, oldest first; they are forgotten."""
        paths = list(itertools.islice(self._touches, limit))
        self._share.give_back(len(paths))
        return {path: self._touches.pop(path) for path in paths}

    def take_made(self, limit: int, may_take: Callable[[bytes, bool], bool]) -> list[bytes]:
        """At most `limit` names that may be taken, oldest first; they are forgotten.

        `may_take` is asked about each in turn, and told whether it came and did not go.
        """
        made = (path for path, touch in self._touches.items() if may_take(path, touch in _MADE_ONLY))
        paths = list(itertools.islice(made, limit))
        for path in paths:
            del self._touches[path]
        self._share.give_back(len(paths))
        return paths

    def take_walk(self) -> bool:
        """Whether the JOB must be walked; forgotten when asked."""
        walk, self._walk = self._walk, False
        return walk

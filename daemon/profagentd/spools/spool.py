"""One spool: collections of segments that are followed like JOBs, with a cap on the bytes of all of its kind.

    <parent>/OPS-camera-20261123T140000123Z/00000001          a segment, which grows
    <parent>/OPS-camera-20261123T140000123Z/00000001.done     it has ended: `bytes:N`
    <parent>/OPS-camera-20261123T140000123Z/end               nothing more is written here
    <parent>/OPS-camera-20261123T140000123Z/simulated         what is here was made up

The text `killed` in `end` says that the daemon which wrote did not end it: the next one did.

The segment that is written to is never deleted. The cap is one for all names of a kind: when it is passed, the name
that has most loses its oldest segments, whether anybody has them or not: the program is never held up. What earlier
daemons left counts as well.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from itertools import chain
from typing import Callable, NamedTuple

from profagentd.limits import CAP_BYTES, MOST_COLLECTIONS, SEGMENT_BYTES, SEGMENTS_OF_CAP
from profagentd.sources.files import write_whole

DONE = ".done"
END = "end"
KILLED = b"killed\n"
SIMULATED = "simulated"
_NAME = re.compile(r"[A-Za-z0-9_.]{1,64}")
_SEGMENT = re.compile(r"\d{8}")
_COLLECTION = re.compile(r"(?P<kind>[A-Z]+)-(?P<name>[A-Za-z0-9_.]{1,64})-\d{8}T\d{9}Z")

Lost = Callable[[str, str, int], None]  # collection, segment, bytes


def is_good_name(name: str) -> bool:
    """Whether a spool may be called so: letters, digits, `_` and `.`, 64 at most."""
    return _NAME.fullmatch(name) is not None


class _Segment(NamedTuple):
    """A segment that stands."""

    path: str
    size: int

    @property
    def directory(self) -> str:
        """Its collection."""
        return os.path.dirname(self.path)

    @property
    def name(self) -> str:
        """Whose spool it is of."""
        found = _COLLECTION.fullmatch(os.path.basename(self.directory))
        return "" if found is None else found["name"]

    @property
    def stamp(self) -> tuple[str, str]:
        """When its collection was made, and its number there: in the order of time."""
        return self.directory.rpartition("-")[2], self.path


class Spool:
    """Takes bytes of one name. A collection is made with the first of them. OSError when the disk refuses them.

    Each segment begins with what `preamble` gives then. `made_by` is what made up the bytes of a simulated board.
    """

    def __init__(
        self, parent: str, kind: str, name: str, *, cap_bytes: int = CAP_BYTES, segment_bytes: int = SEGMENT_BYTES,
        lost: Lost = lambda _collection, _segment, _bytes: None, preamble: Callable[[], bytes] = bytes,
        made_by: str = "",
    ) -> None:  # fmt: skip
        self._parent, self._kind, self._prefix = parent, kind.upper(), f"{kind.upper()}-{name}-"
        self._cap_bytes, self._segment_bytes = cap_bytes, min(segment_bytes, cap_bytes // SEGMENTS_OF_CAP)
        self._lost, self._preamble, self._made_by = lost, preamble, made_by
        self._directory = ""
        self._number = self._bytes = 0
        self._file = -1
        self._is_torn = False  # the disk took a part of what was written: the segment is to end

    def write(self, data: bytes) -> None:
        """Append. A segment ends between two calls, so what a call brings stays together."""
        is_over = self._file < 0 or self._is_torn or self._bytes + len(data) > self._segment_bytes
        self._is_torn = True
        if is_over:
            self._next_segment()
        self._append(data)
        self._is_torn = False

    def close(self) -> None:
        """End the segment and the collection."""
        if self._directory:
            self._end_segment()
            _write(self._directory, END, b"")
            self._directory = ""

    def _append(self, data: bytes) -> None:
        while data:
            written = os.write(self._file, data)
            self._bytes += written
            data = data[written:]

    def _next_segment(self) -> None:
        self._end_segment()
        self._make_room()
        if not self._directory:
            directory = self._made()
            if self._made_by:
                _write(directory, SIMULATED, self._made_by.encode())
            self._directory, self._number = directory, 0
        self._number += 1
        self._bytes = 0
        path = os.path.join(self._directory, f"{self._number:08d}")
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._append(self._preamble())

    def _made(self) -> str:
        """A directory that is named by the present millisecond, or by the first later one whose name is free."""
        now_ms = int(time.time() * 1000)
        while True:
            seconds, milliseconds = divmod(now_ms, 1000)
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds)) + f"{milliseconds:03d}Z"
            directory = os.path.join(self._parent, self._prefix + stamp)
            with contextlib.suppress(FileExistsError):
                os.makedirs(directory, mode=0o750)
                return directory
            now_ms += 1

    def _end_segment(self) -> None:
        if self._file >= 0:
            _write(self._directory, f"{self._number:08d}{DONE}", f"bytes:{self._bytes}\n".encode())
            os.close(self._file)
            self._file = -1

    def _make_room(self) -> None:
        """Delete segments until one more fits below the cap, and earlier collections that are empty then."""
        while (victim := self._to_go()) is not None:
            self._delete(victim)

    def _to_go(self) -> _Segment | None:
        """The oldest segment of the name that has most, where the cap is passed; None where nothing is to go."""
        held, collections = 0, set()
        ended: dict[str, list[_Segment]] = {}
        for segment in self._segments():
            held += segment.size
            collections.add(segment.directory)
            if os.path.exists(segment.path + DONE):
                ended.setdefault(segment.name, []).append(segment)
        if not ended:
            return None
        if len(collections) > MOST_COLLECTIONS:
            return min(chain(*ended.values()), key=lambda segment: segment.stamp)
        if held + self._segment_bytes <= self._cap_bytes:
            return None
        most = max(ended.values(), key=lambda segments: sum(each.size for each in segments))
        return min(most, key=lambda segment: segment.stamp)

    def _delete(self, segment: _Segment) -> None:
        self._lost(os.path.basename(segment.directory), os.path.basename(segment.path), segment.size)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(segment.path)
            os.unlink(segment.path + DONE)
        is_over = os.path.exists(os.path.join(segment.directory, END))
        if is_over and not any(map(_SEGMENT.fullmatch, os.listdir(segment.directory))):
            shutil.rmtree(segment.directory, ignore_errors=True)

    def _segments(self) -> Iterator[_Segment]:
        """The segments of all names of this kind."""
        for collection in os.listdir(self._parent):
            found = _COLLECTION.fullmatch(collection)
            if found is not None and found["kind"] == self._kind:
                with contextlib.suppress(FileNotFoundError):
                    yield from _segments(os.path.join(self._parent, collection))


def left_open(parent: str) -> list[str]:
    """Return the collections that a daemon left open which was killed; none where there is no such directory."""
    try:
        directories = [entry.path for entry in os.scandir(parent) if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    return [each for each in directories if not os.path.exists(os.path.join(each, END))]


def end_left(directory: str) -> None:
    """End a collection that its daemon did not end. Raises OSError; it may be tried again."""
    for path, size in _segments(directory):
        if not os.path.exists(path + DONE):
            _write(directory, os.path.basename(path) + DONE, f"bytes:{size}\n".encode())
    _write(directory, END, KILLED)


def _segments(directory: str) -> Iterator[_Segment]:
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        # One that was delivered may be deleted at any time.
        with contextlib.suppress(FileNotFoundError):
            if _SEGMENT.fullmatch(name):
                yield _Segment(path, os.stat(path).st_size)


def _write(directory: str, name: str, content: bytes) -> None:
    """Make a file of a collection; its draft stands beside this: it is no log."""
    parent, collection = os.path.split(directory)
    write_whole(os.path.join(directory, name), content, os.path.join(parent, f".{collection}.{name}"))

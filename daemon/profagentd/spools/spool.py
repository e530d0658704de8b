"""A spool: collections of segments that are followed like JOBs, with a cap on the bytes of all spools of its kind.

<parent>/OPS-camera-20261123T140000123Z/00000001          a segment, which grows
<parent>/OPS-camera-20261123T140000123Z/00000001.done     it has ended: `bytes:N`
<parent>/OPS-camera-20261123T140000123Z/end               nothing more is written here
<parent>/OPS-camera-20261123T140000123Z/simulated         the data here was made up

The text `killed` in `end` means that the daemon that wrote the collection did not end it: the next daemon did.

The segment that is being written is never deleted. All names of a kind share the cap. Beyond it, the name with most
bytes loses its oldest segments, delivered or not, since a program must never be held up. Collections of earlier daemons
count as well.
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
from profagentd.sources.files import replace_file

DONE = ".done"
END = "end"
KILLED = b"killed\n"
SIMULATED = "simulated"
_NAME = re.compile(r"[A-Za-z0-9_.]{1,64}")
_SEGMENT = re.compile(r"\d{8}")
_COLLECTION = re.compile(r"(?P<kind>[A-Z]+)-(?P<name>[A-Za-z0-9_.]{1,64})-\d{8}T\d{9}Z")

OnDropped = Callable[[str, str, int], None]  # collection, segment, bytes


def is_valid_name(name: str) -> bool:
    """Return True if a spool may have this name: letters, digits, `_` and `.`, at most 64."""
    return _NAME.fullmatch(name) is not None


class _StoredSegment(NamedTuple):
    """Segment on the disk."""

    path: str
    size: int

    @property
    def directory(self) -> str:
        """Directory of its collection."""
        return os.path.dirname(self.path)

    @property
    def name(self) -> str:
        """Name of its spool."""
        found = _COLLECTION.fullmatch(os.path.basename(self.directory))
        return "" if found is None else found["name"]

    @property
    def stamp(self) -> tuple[str, str]:
        """Sort key by time: the stamp of the collection, and the segment's path in it."""
        return self.directory.rpartition("-")[2], self.path


class Spool:
    """Writer of one name's bytes. Its collection is made with the first of them. Raises OSError when the disk refuses.

    Each segment begins with what `preamble` returns then. `made_by` names what makes up the data of a simulated board.
    """

    def __init__(
        self, parent: str, kind: str, name: str, *, cap_bytes: int = CAP_BYTES, segment_bytes: int = SEGMENT_BYTES,
        on_dropped: OnDropped = lambda _collection, _segment, _bytes: None, preamble: Callable[[], bytes] = bytes,
        made_by: str = "",
    ) -> None:  # fmt: skip
        self._parent, self._kind, self._prefix = parent, kind.upper(), f"{kind.upper()}-{name}-"
        self._cap_bytes, self._segment_bytes = cap_bytes, min(segment_bytes, cap_bytes // SEGMENTS_OF_CAP)
        self._on_dropped, self._preamble, self._made_by = on_dropped, preamble, made_by
        self._directory = ""  # of the present collection; empty without one
        self._number = self._bytes = 0  # of the present segment
        self._file = -1  # descriptor of the present segment, or -1
        # The disk accepted only a part of the last write: the segment has to end, so that no record follows a torn one.
        self._is_torn = False

    def write(self, data: bytes) -> None:
        """Append data. A segment ends only between two calls, so that the data of one call stay together."""
        is_over = self._file < 0 or self._is_torn or self._bytes + len(data) > self._segment_bytes
        # Set before the write and cleared after it, so that any exception in between leaves it set.
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
        # Before the new segment exists, so that the cap is never exceeded.
        self._make_room()
        if not self._directory:
            directory = self._make_collection()
            # The mark of simulated data comes before any data: no reader sees one without the other.
            if self._made_by:
                _write(directory, SIMULATED, self._made_by.encode())
            self._directory, self._number = directory, 0
        self._number += 1
        self._bytes = 0
        path = os.path.join(self._directory, f"{self._number:08d}")
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._append(self._preamble())

    def _make_collection(self) -> str:
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
            # The length is final: nothing is written to this descriptor any more.
            _write(self._directory, f"{self._number:08d}{DONE}", f"bytes:{self._bytes}\n".encode())
            os.close(self._file)
            self._file = -1

    def _make_room(self) -> None:
        """Delete segments until one more fits below the cap, and ended collections that become empty."""
        while (victim := self._next_to_delete()) is not None:
            self._delete(victim)

    def _next_to_delete(self) -> _StoredSegment | None:
        """Return the oldest ended segment of the name with most bytes if the cap is exceeded, else None."""
        held, collections = 0, set()
        ended: dict[str, list[_StoredSegment]] = {}
        for segment in self._segments():
            held += segment.size
            collections.add(segment.directory)
            # A segment without `.done` is still being written to, by this spool or another.
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

    def _delete(self, segment: _StoredSegment) -> None:
        # Reported before the deletion: retention must know of the loss even if the daemon is killed here.
        self._on_dropped(os.path.basename(segment.directory), os.path.basename(segment.path), segment.size)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(segment.path)
            os.unlink(segment.path + DONE)
        is_over = os.path.exists(os.path.join(segment.directory, END))
        if is_over and not any(map(_SEGMENT.fullmatch, os.listdir(segment.directory))):
            shutil.rmtree(segment.directory, ignore_errors=True)

    def _segments(self) -> Iterator[_StoredSegment]:
        for collection in os.listdir(self._parent):
            found = _COLLECTION.fullmatch(collection)
            if found is not None and found["kind"] == self._kind:
                with contextlib.suppress(FileNotFoundError):
                    yield from _segments(os.path.join(self._parent, collection))


def unfinished_collections(parent: str) -> list[str]:
    """Return the collections without an end, which a killed daemon left; none where the directory is missing."""
    try:
        directories = [entry.path for entry in os.scandir(parent) if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    return [each for each in directories if not os.path.exists(os.path.join(each, END))]


def finish_collection(directory: str) -> None:
    """End a collection that its daemon did not end. Raises OSError; a later call continues."""
    for path, size in _segments(directory):
        if not os.path.exists(path + DONE):
            _write(directory, os.path.basename(path) + DONE, f"bytes:{size}\n".encode())
    _write(directory, END, KILLED)


def _segments(directory: str) -> Iterator[_StoredSegment]:
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        # Retention may delete a delivered segment at any time.
        with contextlib.suppress(FileNotFoundError):
            if _SEGMENT.fullmatch(name):
                yield _StoredSegment(path, os.stat(path).st_size)


def _write(directory: str, name: str, content: bytes) -> None:
    """Write a small file of a collection. Its draft stands beside the collection, as a file inside would be a log."""
    parent, collection = os.path.split(directory)
    replace_file(os.path.join(directory, name), content, os.path.join(parent, f".{collection}.{name}"))

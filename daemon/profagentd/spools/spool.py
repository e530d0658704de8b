"""One spool: a directory of segments that is followed like a JOB, with a cap on its bytes.

    <parent>/OPS-camera-20261123T140000123Z/00000001          a segment, which grows
    <parent>/OPS-camera-20261123T140000123Z/00000001.done     it has ended: `bytes:N`
    <parent>/OPS-camera-20261123T140000123Z/end               nothing more is written here

The segment that is written to is never deleted. When the cap is passed the oldest segments go, whether anybody has them
or not: the program is never held up.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Callable

SEGMENT_BYTES = 4 << 20
CAP_BYTES = 64 << 20
DONE = ".done"
END = "end"
_NAME = re.compile(r"[A-Za-z0-9_.]{1,64}")
_SEGMENT = re.compile(r"\d{8}")

Lost = Callable[[str, str, int], None]  # collection, segment, bytes


def is_good_name(name: str) -> bool:
    """Whether a spool may be called so: letters, digits, `_` and `.`, 64 at most."""
    return _NAME.fullmatch(name) is not None


class Spool:
    """Takes bytes of one name. Its directory is made with the first bytes. OSError when the disk refuses them.

    Each segment begins with what `preamble` gives then.
    """

    def __init__(
        self, parent: str, kind: str, name: str, *, cap_bytes: int = CAP_BYTES, segment_bytes: int = SEGMENT_BYTES,
        lost: Lost = lambda _collection, _segment, _bytes: None, preamble: Callable[[], bytes] = bytes,
    ) -> None:  # fmt: skip
        self._parent, self._prefix = parent, f"{kind.upper()}-{name}-"
        self._cap_bytes, self._segment_bytes, self._lost, self._preamble = cap_bytes, segment_bytes, lost, preamble
        self._directory = ""
        self._number = self._bytes = 0
        self._file = -1

    def write(self, data: bytes) -> None:
        """Append. A segment ends between two calls, so what a call brings stays together."""
        if self._file < 0 or self._bytes + len(data) > self._segment_bytes:
            self._next_segment()
        self._append(data)

    def close(self) -> None:
        """End the segment and the collection."""
        if self._directory:
            self._end_segment()
            _write(os.path.join(self._directory, END), b"")
            self._directory = ""

    def _append(self, data: bytes) -> None:
        written = os.write(self._file, data)
        self._bytes += written
        if written < len(data):
            self._bytes += os.write(self._file, data[written:])  # a full disk tells here

    def _next_segment(self) -> None:
        if not self._directory:
            now = time.time()
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f"{int(now * 1000) % 1000:03d}Z"
            self._directory, self._number = os.path.join(self._parent, self._prefix + stamp), 0
            os.makedirs(self._directory, mode=0o750)
        self._end_segment()
        self._make_room()
        self._number += 1
        self._bytes = 0
        path = os.path.join(self._directory, f"{self._number:08d}")
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._append(self._preamble())

    def _end_segment(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            done = os.path.join(self._directory, f"{self._number:08d}{DONE}")
            _write(done, f"bytes:{self._bytes}\n".encode())

    def _make_room(self) -> None:
        """Delete the oldest segments until one more fits below the cap."""
        sizes = [(name, _size(os.path.join(self._directory, name))) for name in _segments(self._directory)]
        held = sum(size for _, size in sizes)
        for name, size in sizes:
            if held + self._segment_bytes <= self._cap_bytes:
                return
            path = os.path.join(self._directory, name)
            os.unlink(path)
            _unlink(path + DONE)
            held -= size
            self._lost(os.path.basename(self._directory), name, size)


def end_those_left(parent: str) -> None:
    """End the collections that a daemon left open which was killed."""
    for entry in os.scandir(parent):
        if entry.is_dir(follow_symlinks=False) and not os.path.exists(os.path.join(entry.path, END)):
            for name in _segments(entry.path):
                path = os.path.join(entry.path, name)
                if not os.path.exists(path + DONE):
                    _write(path + DONE, f"bytes:{_size(path)}\n".encode())
            _write(os.path.join(entry.path, END), b"")


def _segments(directory: str) -> list[str]:
    return sorted(name for name in os.listdir(directory) if _SEGMENT.fullmatch(name))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0  # it was delivered, and deleted


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _write(path: str, content: bytes) -> None:
    """Make a small file whole: a reader finds all of it or nothing."""
    draft = path + ".new"
    with open(draft, "wb") as file:
        file.write(content)
    os.replace(draft, path)

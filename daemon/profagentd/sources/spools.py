"""The sources that the daemon writes itself: subscribed operators, marks, metrics (`profagentd.spools`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from profagentd.sources.files import Gone, NotAFile, Unreadable
from profagentd.sources.source import DATA, SNAPSHOT, LogMode, LogPart, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagentd.sources.files import OpenCollection

_SEGMENT = re.compile(rb"\d{8}")
_DONE = b".done"
_END = b"end"
_SIMULATED = b"simulated"
_BYTES = re.compile(rb"bytes:(\d{1,19})\n")


class SpoolSource(Source):
    """Source of one kind of spools. `.done` announces a segment's length; `end` ends the spool."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._pattern = re.compile(name.upper().encode() + rb"-[A-Za-z0-9_.]{1,64}-\d{8}T\d{9}Z")

    def is_collection(self, name: bytes) -> bool:
        """Return True for names like `OPS-camera-20261123T140000123Z`."""
        return self._pattern.fullmatch(name) is not None

    def kind(self, path: bytes) -> LogMode:
        """Return DATA for segments."""
        return DATA if _SEGMENT.fullmatch(path) else SNAPSHOT

    def is_early(self, path: bytes) -> bool:
        """Return True for the file that marks the spool as simulated."""
        return path == _SIMULATED

    def announced_before(self, _path: bytes) -> tuple[bytes, ...]:
        """Return the file that marks the spool as simulated."""
        return (_SIMULATED,)

    def part(self, path: bytes) -> LogPart | None:
        """Return the role: delivered segments may go, the other files with the last of them."""
        if _SEGMENT.fullmatch(self.ended_by(path) or path):
            return LogPart.WORK
        return LogPart.TABLE if path in (_END, _SIMULATED) else None

    def end_of(self, path: bytes) -> bytes | None:
        """Return the path of its `.done`."""
        return path + _DONE

    def ended_by(self, path: bytes) -> bytes | None:
        """Return the segment whose `.done` this is."""
        data = path[: -len(_DONE)]
        return data if path.endswith(_DONE) and _SEGMENT.fullmatch(data) else None

    def end_length(self, _path: bytes, text: bytes) -> int | None:
        """Return the number in `bytes:N`."""
        found = _BYTES.fullmatch(text)
        return None if found is None else int(found[1])

    def has_ended(self, files: OpenCollection) -> Iterator[bool | None]:
        """Yield True if the daemon that wrote the spool has ended it."""
        try:
            files.status(_END)
        except (Gone, NotAFile, Unreadable):
            yield False
        yield True

"""The interface of a source of data: its collections and their logs. A new source is one file beside this one."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagentd.sources.files import OpenCollection


class LogMode(enum.IntEnum):
    """Manner in which a log is written; the numbers are the wire's."""

    DATA = 1  # it grows at its end
    SNAPSHOT = 2  # it is rewritten as a whole


class LogPart(enum.Enum):
    """Role of a log in its collection, which decides when it may be deleted."""

    WORK = "work"  # data of an inference: may go while the collection is still written to
    CALLS = "calls"  # API calls: a model loaded again appends to them, and their end shows the collection's end
    TABLE = "table"  # needed to read the others: goes with the last of them


# Module constants: looking up an enum's member takes ten times as long, which shows where it is done for each file.
DATA, SNAPSHOT = LogMode


class Source:
    """Kind of collections. The defaults describe a directory of growing logs that are complete when they rest."""

    name = ""  # the name on the wire
    directories: tuple[bytes, ...] = (b"",)  # directories of a collection that hold logs, relative to it
    inference_logs = 0  # length of `announced_together` for an inference; 0 without inferences

    def is_collection(self, name: bytes) -> bool:
        """Return True if a directory of this name is a collection of this source."""
        raise NotImplementedError

    def kind(self, _path: bytes) -> LogMode:
        """Return the kind of the log at `path` inside a collection."""
        return DATA

    def is_early(self, _path: bytes) -> bool:
        """Return True if a walk has to give this small file before all others."""
        return False

    def end_of(self, _path: bytes) -> bytes | None:
        """Return the file that announces the length of the data log at `path`; None if the log is complete at rest."""
        return None

    def ended_by(self, _path: bytes) -> bytes | None:
        """Return the data log whose length the file at `path` announces; None for any other file."""
        return None

    def end_length(self, _path: bytes, _text: bytes) -> int | None:
        """Return the length in the text of that file; None for a text without a valid one."""
        return None

    def part(self, _path: bytes) -> LogPart | None:
        """Return the role of the log at `path`; None for a file that is never deleted."""
        return None

    def announced_before(self, _path: bytes) -> tuple[bytes, ...]:
        """Return small files to announce before the log at `path`; not all need to exist."""
        return ()

    def announced_together(self, path: bytes) -> tuple[bytes, ...]:
        """Return logs to announce in this order, `path` among them; not all need to exist."""
        return (path,)

    def has_ended(self, _files: OpenCollection) -> Iterator[bool | None]:
        """Yield None for each step that decides nothing, then True if nothing more is expected, else False."""
        yield False

"""What every source of data answers about its collections and their logs; a new one is one file beside this."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagentd.sources.files import OpenCollection


class LogKind(enum.IntEnum):
    """How a log is written; the numbers are the wire's."""

    DATA = 1  # it grows at its end
    SNAPSHOT = 2  # it is rewritten whole


class LogPart(enum.Enum):
    """What a log is to its collection, and so when it may be deleted."""

    WORK = "work"  # an inference's: while the collection goes on
    CALLS = "calls"  # a model that is loaded again appends, and its end shows that the collection has ended
    TABLE = "table"  # explains the others: with the last of them


# Looking up an enum's member takes ten times as long as a name, which shows where it is done for every file.
DATA, SNAPSHOT = LogKind


class Source:
    """A kind of collections. As it stands here: a directory of logs that grow, and are complete when they rest."""

    name = ""  # the wire's
    directories: tuple[bytes, ...] = (b"",)  # where a collection's logs lie, inside it
    inference_logs = 0  # how many logs `together` gives of an inference; 0 where there are none

    def is_collection(self, name: bytes) -> bool:
        """Whether a directory of this name is a collection of this source."""
        raise NotImplementedError

    def kind(self, _path: bytes) -> LogKind:
        """How the log at `path` inside a collection is written."""
        return DATA

    def is_early(self, _path: bytes) -> bool:
        """Whether it is one of the small files that a walk gives before all others."""
        return False

    def end_of(self, _path: bytes) -> bytes | None:
        """The file that tells how long the data log at `path` is; None where it is complete when it rests."""
        return None

    def ended_by(self, _path: bytes) -> bytes | None:
        """The data log that the file at `path` is the end of; None for any other file."""
        return None

    def end_length(self, _path: bytes, _text: bytes) -> int | None:
        """How many bytes the text of its end tells of the data log at `path`; None for a text that tells none."""
        return None

    def part(self, _path: bytes) -> LogPart | None:
        """What the log at `path` is to its collection; None for a file that is never deleted."""
        return None

    def before(self, _path: bytes) -> tuple[bytes, ...]:
        """Small files that are announced before the log at `path`; not all of them need to stand."""
        return ()

    def together(self, path: bytes) -> tuple[bytes, ...]:
        """Logs that are announced in this order, that at `path` among them; not all of them need to stand."""
        return (path,)

    def has_ended(self, _files: OpenCollection) -> Iterator[bool | None]:
        """Whether nothing more is expected in a collection; before that None for each look that decides nothing."""
        yield False

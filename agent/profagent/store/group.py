"""Changes of several sessions that wait share one durable transaction: a commit costs more than its rows."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.store.writer import write_together

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from profagent.ingest.changes import JobChanges
    from profagent.store.writer import Writer


@dataclass(slots=True, eq=False)
class Waiting:
    """A session's changes that wait for the store's thread; `error` is why they could not be written."""

    writer: Writer
    changes: Sequence[JobChanges]
    error: Exception | None = None


class WriteGroup:
    """Changes that wait. They are added on any thread and written on the store's."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()

    def add(self, writer: Writer, changes: Sequence[JobChanges]) -> Waiting:
        """Let changes wait; each is written by the next `write`, whoever calls it."""
        waiting = Waiting(writer, changes)
        self._waiting.append(waiting)
        return waiting

    def write(self, connection: sqlite3.Connection, asked: Waiting) -> None:
        """Write all that waits, unless it was written before; raises why `asked` was not.

        Where the transaction fails that all share, each has one of its own, and fails or not by itself.
        """
        together = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if not _is_written(connection, together):
            for each in together:
                _is_written(connection, [each])
        if asked.error is not None:
            raise asked.error


def _is_written(connection: sqlite3.Connection, together: Sequence[Waiting]) -> bool:
    if not together:
        return True
    try:
        write_together(connection, [(each.writer, each.changes) for each in together])
    except Exception as error:  # noqa: BLE001 - it is raised to whoever asked for these changes
        if len(together) == 1:
            together[0].error = error
            return True
        return False
    return True

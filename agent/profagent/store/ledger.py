"""Rows of the ledger: what is not as it should be. An entry belongs to the session that told it first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from profagent.formats.names import display_text
from profagent.ingest.changes import Entry

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from profagent.store.logs import LogRow

_INSERT = (
    "INSERT INTO ledger_entry (session, job, log, origin, grade, reason, detail, first, last, count)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class LedgerRows:
    """The ledger of one JOB, or of the board itself where `job` is None, for one session."""

    def __init__(self, connection: sqlite3.Connection, session: int, job: int | None) -> None:
        self._connection = connection
        self._session = session
        self._job = job

    def replace(self, row: LogRow, entries: Sequence[Entry]) -> None:
        """Make `entries` all that follows from a log's bytes; those that were told before stay as they are."""
        if not entries and row.entries == {}:
            return
        wanted = [_displayed(entry) for entry in entries]
        if row.entries is None:
            row.entries = self._of_content(row.log)
        gone = [row.entries.pop(entry) for entry in [*row.entries] if entry not in wanted]
        self._connection.executemany("DELETE FROM ledger_entry WHERE entry = ?", [(entry,) for entry in gone])
        for entry in wanted:
            if entry not in row.entries:
                row.entries[entry] = self._add(row.log, "content", entry)

    def add(self, row: LogRow | None, entry: Entry) -> None:
        """Add what happened on the way; a board that tells it again after a reconnection adds nothing."""
        log, entry = None if row is None else row.log, _displayed(entry)
        told = self._connection.execute(
            "SELECT 1 FROM ledger_entry WHERE job IS ? AND log IS ? AND origin = 'link' AND reason = ? AND detail = ?"
            " AND (job IS NOT NULL OR session = ?)",
            (self._job, log, entry.reason, entry.detail, self._session),
        ).fetchone()
        if told is None:
            self._add(log, "link", entry)

    def void(self, row: LogRow) -> None:
        """Remove what followed from a log's bytes."""
        self._connection.execute("DELETE FROM ledger_entry WHERE log = ? AND origin <> 'link'", (row.log,))
        row.entries = {}

    def _of_content(self, log: int) -> dict[Entry, int]:
        rows = self._connection.execute(
            "SELECT grade, reason, detail, first, last, count, entry FROM ledger_entry"
            " WHERE log = ? AND origin = 'content'",
            (log,),
        )
        return {Entry(*fields): number for *fields, number in rows}

    def _add(self, log: int | None, origin: str, entry: Entry) -> int:
        place = (entry.first, entry.last, entry.count)
        cursor = self._connection.execute(
            _INSERT, (self._session, self._job, log, origin, entry.grade, entry.reason, entry.detail, *place)
        )
        return int(cursor.lastrowid or 0)


def _displayed(entry: Entry) -> Entry:
    return replace(entry, detail=display_text(entry.detail))

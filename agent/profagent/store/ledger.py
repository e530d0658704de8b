"""Rows of the ledger: what is not as it should be. An entry belongs to the session that told it first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from profagent.formats.names import display_text
from profagent.ingest import reasons
from profagent.ingest.changes import Entry

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from profagent.store.logs import LogRow

LONGEST_REASON = 64
LONGEST_DETAIL = 1000
# More than any board's disk holds; the sum of many is still a number of the database.
LARGEST_COUNT = 2**48
# What happened on the way is told one by one up to so many, of each JOB, of the board and of each log; the rest is
# counted.
MOST_TOLD = 1000
MOST_TOLD_OF_A_LOG = 100

_INSERT = (
    "INSERT INTO ledger_entry (session, job, log, origin, grade, reason, detail, first, last, count)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
# What comes after it as another file, as an entry that follows tells, is not what was missing.


class LedgerRows:
    """The ledger of one JOB, or of the board itself where `job` is None, for one session."""

    def __init__(self, connection: sqlite3.Connection, session: int, job: int | None) -> None:
        self._connection = connection
        self._session = session
        self._job = job
        # What is about no log, of which there may be much: reason and detail of entries, and the rows that count more.
        self._told: set[tuple[str, str]] | None = None
        self._more: dict[str, int] = {}

    def replace_job(self, entries: Sequence[Entry]) -> None:
        """Make `entries` all that follows from the JOB's files together."""
        known = self._of_content("log IS NULL AND job = ?", self._job)
        self._exchange(None, known, [_displayed(entry) for entry in entries])

    def replace(self, row: LogRow, entries: Sequence[Entry]) -> None:
        """Make `entries` all that follows from a log's bytes; those that were told before stay as they are."""
        if not entries and row.entries == {}:
            return
        if row.entries is None:
            row.entries = self._of_content("log = ?", row.log)
        self._exchange(row.log, row.entries, [_displayed(entry) for entry in entries])

    def add(self, row: LogRow | None, entry: Entry) -> None:
        """Add what happened on the way; a board that tells it again after a reconnection adds nothing."""
        entry = _displayed(entry)
        if row is None:
            self._add_to_job(entry)
            return
        told = self._connection.execute(
            "SELECT count(*), ifnull(max(reason = ? AND detail = ?), 0) FROM ledger_entry"
            " WHERE log = ? AND origin = 'link'",
            (entry.reason, entry.detail, row.log),
        )
        count, is_known = told.fetchone()
        if is_known:
            return
        if count < MOST_TOLD_OF_A_LOG:
            self._add(row.log, "link", entry)
        else:
            self._add_more(entry)

    def void(self, row: LogRow) -> None:
        """Remove what followed from a log's bytes."""
        self._connection.execute(
            "DELETE FROM ledger_entry WHERE log = ? AND origin NOT IN ('link', 'cleared')", (row.log,)
        )
        row.entries = {}

    def _add_to_job(self, entry: Entry) -> None:
        """Add what is about no log, but of the JOB or the board."""
        if self._told is None:
            rows = self._connection.execute(
                "SELECT reason, detail FROM ledger_entry WHERE log IS NULL AND job IS ? AND origin = 'link'"
                " AND (job IS NOT NULL OR session = ?)",
                (self._job, self._session),
            )
            self._told = set(rows)
        if (entry.reason, entry.detail) in self._told:
            return
        if len(self._told) < MOST_TOLD:
            self._told.add((entry.reason, entry.detail))
            self._add(None, "link", entry)
        else:
            self._add_more(entry)

    def _add_more(self, entry: Entry) -> None:
        """Count an entry with others that have no row of their own."""
        if entry.grade not in self._more:
            known = self._connection.execute(
                "SELECT entry FROM ledger_entry"
                " WHERE session = ? AND log IS NULL AND job IS ? AND reason = ? AND grade = ?",
                (self._session, self._job, reasons.MORE, entry.grade),
            ).fetchone()
            detail = "beyond those that are told one by one; count is the sum of theirs"
            self._more[entry.grade] = (
                known[0]
                if known
                else self._add(None, "link", reasons.entry(reasons.MORE, detail, count=0, grade=entry.grade))
            )
        self._connection.execute(
            "UPDATE ledger_entry SET count = min(count + ?, ?) WHERE entry = ?",
            (entry.count, LARGEST_COUNT, self._more[entry.grade]),
        )

    def _exchange(self, log: int | None, known: dict[Entry, int], wanted: Sequence[Entry]) -> None:
        """Bring the rows that are known, by their numbers, to what is wanted."""
        gone = [known.pop(entry) for entry in [*known] if entry not in wanted]
        self._connection.executemany("DELETE FROM ledger_entry WHERE entry = ?", [(entry,) for entry in gone])
        for entry in wanted:
            if entry not in known:
                known[entry] = self._add(log, "content", entry)

    def _of_content(self, where: str, number: int | None) -> dict[Entry, int]:
        rows = self._connection.execute(
            "SELECT grade, reason, detail, first, last, count, entry FROM ledger_entry"  # noqa: S608 - constant text
            f" WHERE {where} AND origin = 'content'",
            (number,),
        )
        return {Entry(*fields): entry for *fields, entry in rows}

    def _add(self, log: int | None, origin: str, entry: Entry) -> int:
        place = (entry.first, entry.last, entry.count)
        cursor = self._connection.execute(
            _INSERT, (self._session, self._job, log, origin, entry.grade, entry.reason, entry.detail, *place)
        )
        return int(cursor.lastrowid or 0)


def _displayed(entry: Entry) -> Entry:
    detail = display_text(entry.detail)[:LONGEST_DETAIL]
    return replace(entry, reason=display_text(entry.reason)[:LONGEST_REASON], detail=detail, count=_figure(entry.count))


def _figure(count: int) -> int:
    return min(count, LARGEST_COUNT)

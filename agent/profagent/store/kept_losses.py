"""Rows of losses that a board's daemon keeps: each once, whichever sessions hear of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagent.ingest import reasons

if TYPE_CHECKING:
    import sqlite3

    from profagent.ingest.changes import KeptLoss
    from profagent.store.ledger import LedgerRows

# A daemon keeps its newest 1,000; a board that tells ever more would fill the database.
LARGEST_NUMBER = 2_000
TOO_MANY = reasons.entry(
    reasons.TOO_MANY_LOSSES, f"the board has told of {LARGEST_NUMBER:,} losses: others are not listed"
)
_FIGURES = ("job_name", "lost_logs", "lost_bytes", "from_us", "to_us")


class KeptLossRows:
    """The kept losses of one board, for the session that hears them now."""

    def __init__(self, connection: sqlite3.Connection, session: int, board: int, ledger: LedgerRows) -> None:
        self._connection = connection
        self._session = session
        self._board = board
        self._ledger = ledger

    def write(self, loss: KeptLoss) -> None:
        """Add a loss that is told for the first time, as this session's; bring one that is known up to date."""
        key = (self._board, f"{loss.number:016x}")
        figures = (loss.job or None, loss.lost_logs, loss.lost_bytes, loss.from_us, loss.to_us)
        known = self._connection.execute("SELECT entry FROM kept_loss WHERE board = ? AND id = ?", key).fetchone()
        if known is not None:
            self._update(int(known[0]), loss, key, figures)
            return
        (number,) = self._connection.execute("SELECT count(*) FROM kept_loss WHERE board = ?", key[:1]).fetchone()
        if number >= LARGEST_NUMBER:
            self._ledger.add(None, TOO_MANY)
            return
        entry = loss.entry
        cursor = self._connection.execute(
            "INSERT INTO ledger_entry (session, job, origin, grade, reason, detail, count)"
            " VALUES (?, (SELECT job FROM job WHERE board = ? AND name = ?), 'board', ?, ?, ?, ?)",
            (self._session, self._board, loss.job, entry.grade, entry.reason, entry.detail, entry.count),
        )
        self._connection.execute(
            f"INSERT INTO kept_loss (board, id, entry, {', '.join(_FIGURES)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            (*key, cursor.lastrowid, *figures),
        )

    def _update(self, number: int, loss: KeptLoss, key: tuple[int, str], figures: tuple[Any, ...]) -> None:
        self._connection.execute(
            "UPDATE ledger_entry SET detail = ?, count = ? WHERE entry = ?",
            (loss.entry.detail, loss.entry.count, number),
        )
        self._connection.execute(
            f"UPDATE kept_loss SET {' = ?, '.join(_FIGURES)} = ? WHERE board = ? AND id = ?",  # noqa: S608 - constants
            (*figures, *key),
        )


def kept_losses_of(connection: sqlite3.Connection, session: int) -> list[dict[str, Any]]:
    """The kept losses that a session heard first, by column name, in the order in which they happened."""
    cursor = connection.execute(
        "SELECT job, reason, detail, lost_logs, lost_bytes, from_us, to_us FROM kept_losses WHERE session = ?"
        " ORDER BY from_us, id",
        (session,),
    )
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]

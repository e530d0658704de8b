"""Changes become rows. Everything here runs on the writer's own thread, inside one transaction a batch."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from profagent.formats.figure_states import CAPTURE_ENDED, JOB_ENDED
from profagent.formats.plausible import PEAK_MEMORY_RATE
from profagent.ingest.changes import KeptLoss, LinkLedger
from profagent.link.messages import ENDED_STATES
from profagent.store.job_rows import JobRows
from profagent.store.kept_losses import KeptLossRows
from profagent.store.ledger import LedgerRows
from profagent.store.sessions import end_session, join_job
from profagent.store.transaction import transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from profagent.ingest.changes import Change, JobChanges

# JOBs whose row numbers are remembered; any other is looked up again.
REMEMBERED_JOBS = 8
_JOBS = "SELECT job FROM session_job WHERE session = ?"


class Writer:
    """All rows of one session."""

    def __init__(
        self, connection: sqlite3.Connection, session: int, board: int, peak_bytes_per_s: float = PEAK_MEMORY_RATE
    ) -> None:
        self._connection = connection
        self.session = session
        self.board = board
        self._peak = peak_bytes_per_s
        self._jobs: OrderedDict[str, JobRows] = OrderedDict()
        self._ledger = LedgerRows(connection, session, None)

    def apply(self, batches: Sequence[JobChanges]) -> None:
        """Write everything in one transaction; on an error nothing of it."""
        write_together(self._connection, [(self, batches)])

    def write(self, batches: Sequence[JobChanges]) -> None:
        """Write everything in the transaction that is open."""
        for batch in batches:
            self._apply(batch)

    def end(self, ended_us: int) -> None:
        """The capture has ended: what is pending stays unknown, unless a later one goes on with its JOB."""
        with transaction(self._connection):
            for (job,) in self._connection.execute(_JOBS, (self.session,)).fetchall():
                JobRows(self._connection, self.session, job, self._peak).settle(CAPTURE_ENDED)
            end_session(self._connection, self.session, ended_us)
        self.forget()

    def forget(self) -> None:
        """Numbers that were handed out in the transaction are void."""
        self._jobs.clear()
        self._ledger = LedgerRows(self._connection, self.session, None)

    def _apply(self, batch: JobChanges) -> None:
        if not batch.job:
            self._apply_to_board(batch.changes)
            return
        rows = self._job(batch.job, batch.directory)
        rows.apply(batch.changes)
        if batch.state is not None:
            state = (batch.state, int(batch.caught_up), rows.job)
            self._connection.execute("UPDATE job SET state = ?, caught_up = ? WHERE job = ?", state)
            if batch.caught_up and batch.state in ENDED_STATES:
                rows.settle(JOB_ENDED)
                # Most likely nothing more comes of it.
                del self._jobs[batch.job]

    def _apply_to_board(self, changes: Sequence[Change]) -> None:
        kept = KeptLossRows(self._connection, self.session, self.board, self._ledger)
        for change in changes:
            if isinstance(change, KeptLoss):
                kept.write(change)
            else:
                assert isinstance(change, LinkLedger), "nothing else is about the board itself"
                self._ledger.add(None, change.entry)

    def _job(self, name: str, directory: str) -> JobRows:
        rows = self._jobs.get(name)
        if rows is None:
            job = self._find_or_add(name, directory)
            rows = self._jobs[name] = JobRows(self._connection, self.session, job, self._peak)
            if len(self._jobs) > REMEMBERED_JOBS:
                self._jobs.popitem(last=False)
        self._jobs.move_to_end(name)
        return rows

    def _find_or_add(self, name: str, directory: str) -> int:
        self._connection.execute(
            "INSERT OR IGNORE INTO job (board, name, directory, state) VALUES (?, ?, ?, 'open')",
            (self.board, name, directory),
        )
        (job,) = self._connection.execute(
            "SELECT job FROM job WHERE board = ? AND name = ?", (self.board, name)
        ).fetchone()
        join_job(self._connection, self.session, job)
        return int(job)


def write_together(connection: sqlite3.Connection, writes: Sequence[tuple[Writer, Sequence[JobChanges]]]) -> None:
    """Write what several sessions have in one transaction; on an error nothing of it."""
    try:
        with transaction(connection):
            for writer, batches in writes:
                writer.write(batches)
    except BaseException:
        for writer, _ in writes:
            writer.forget()
        raise

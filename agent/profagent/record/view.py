"""Messages of a running capture for its user, and the conditions that end it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from profagent import ledger
from profagent.cli.running import LinkRemarks, remarks
from profagent.ingest.changes import InferenceTimed, LinkLedger, PlainLogs, RecordedLoss
from profagent.ledger import Entry
from profagent.limits import MOST_SHOWN_LOSSES
from profagent.link.messages import REMOVED
from profagent.record.beginnings import PastFilter
from profagent.tables.provenance import recorded_loss_line
from profagent.tables.table import counted

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from profagent.errors import ProfagentError
    from profagent.ingest.changes import Change
    from profagent.link.messages import Board, JobStatus
    from profagent.record.options import RecordOptions
    from profagent.store.writer import Applied

NO_JOB = "no open JOB yet: waiting for a program that records"
# Kinds of changes that the view looks at; batches have many others.
_SHOWN = (RecordedLoss, LinkLedger, InferenceTimed, PlainLogs)


class RecordView:
    """Observer of a recording: writes remarks with `tell`, and sets `stop` when an end condition is met."""

    def __init__(self, address: str, options: RecordOptions, tell: Callable[[str], None], stop: asyncio.Event) -> None:
        self._address, self._options, self._tell, self._stop = address, options, tell, stop
        # Inferences that arrived, by JOB, name and load; only filled if their number ends the capture.
        self._inferences: set[tuple[Any, ...]] = set()
        # Whether the line about a missing JOB was written, and whether this stream has shown its JOBs.
        self._has_waited = self._is_listed = False
        # Names of all JOBs that were ever followed, and of those that were removed since.
        self._seen: set[str] = set()
        self._removed: set[str] = set()
        self._links = LinkRemarks(time.monotonic)
        # By number, the kept losses that were shown; every stream reports them again.
        self._recorded_losses: dict[int, RecordedLoss] = {}
        self.past_filter = PastFilter(from_start=False) if options.from_now else None
        self.jobs: Sequence[JobStatus] = ()
        # True once every JOB has ended and is complete, with --until-finished.
        self.is_over = False
        # The error of the link while there is none.
        self.away: ProfagentError | None = None

    def linked(self, board: Board, role: str) -> None:
        """Write which board is recorded, and remarks about its state."""
        self.away, self._is_listed = None, False
        self._links.linked()
        if self._options.made is not None:
            self._options.made.linked()
        mark = " [simulated]" if board.simulated else ""
        self._tell(f"recording {board.hostname or self._address} at {self._address}{mark}")
        for remark in remarks(board, role, time.time_ns() // 1000):
            self._tell(remark)

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        """Write that the link is lost, unless that was written lately."""
        self.away = error
        if self._options.made is not None:
            self._options.made.unlinked()
        if self.past_filter is not None:
            self.past_filter.link_is_new()
        if (line := self._links.gone(error, wait_s)) is not None:
            self._tell(line)

    def remark(self, text: str) -> None:
        """Write the text."""
        self._tell(text)

    def changed(self, applied: Sequence[Applied]) -> None:
        """Write losses; count inferences if their number ends the capture."""
        if self._options.made is not None:
            self._options.made.changed(applied)
        for batch in (each.batch for each in applied):
            if batch.state is not None:
                (self._removed.add if batch.state == REMOVED else self._removed.discard)(batch.job)
            for change in batch.changes:
                if isinstance(change, _SHOWN):
                    self._know(batch.job, change)
        if self.has_all_asked:
            self._stop.set()
        self._end_if_over()

    def _know(self, job: str, change: Change) -> None:
        match change:
            case RecordedLoss() if (
                self._recorded_losses.get(change.number) != change and len(self._recorded_losses) < MOST_SHOWN_LOSSES
            ):
                self._recorded_losses[change.number] = change
                self._tell(recorded_loss_line(change.fields))
            case LinkLedger(entry=Entry(grade=ledger.LOSS, reason=ledger.REMOVED_OPEN)) if job in self._seen:
                self._tell(f"{job} was removed from the board before it had ended")
            case InferenceTimed() if change.done is not None and self._options.inferences is not None:
                self._inferences.add((job, change.name, change.load))
            case PlainLogs() if self._options.inferences is not None:
                self._inferences.update((job, group.name, 0) for group in change.groups)

    def tell_surplus(self) -> None:
        """Write that more inferences arrived than the user asked for: a batch is stored as one."""
        asked, came = self._options.inferences, len(self._inferences)
        if asked is not None and came > asked:
            self._tell(f"asked for {counted(asked, 'inference')}, got {came}: what came together is kept together")

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """Take the JOBs as they are now; end the capture if all have ended and are complete."""
        self.jobs, self._is_listed = jobs, True
        # Names stay: the loss of a JOB that was removed is reported after it has left the list.
        self._seen |= {job.name for job in jobs}
        if self._options.made is not None:
            self._options.made.jobs_changed(jobs)
        elif not any(job.is_job for job in jobs) and not self._has_waited:
            self._has_waited = True
            self._tell(NO_JOB if self._options.backlog else f"{NO_JOB}; --backlog copies those that have ended")
        for job in jobs:
            if job.caught_up and self.past_filter is not None:
                self.past_filter.caught_up(job.name)
        self._end_if_over()

    @property
    def inferences(self) -> int:
        """The number of inferences that arrived, 0 if it does not end the capture."""
        return len(self._inferences)

    @property
    def has_all_asked(self) -> bool:
        """True if as many inferences arrived as the user asked for."""
        return self._options.inferences is not None and len(self._inferences) >= self._options.inferences

    def _end_if_over(self) -> None:
        if not self._options.until_finished or not self._is_listed:
            return
        latest = {job.name: job for job in sorted(self.jobs, key=lambda job: job.handle) if job.is_job}
        # Other sources have no end: it is enough that they have caught up.
        others = [job for job in self.jobs if not job.is_job]
        if not (latest or self._removed.difference(job.name for job in others)):
            return
        if not all(job.caught_up or job.is_over for job in others):
            return
        # The ledger entry of a removal comes after the state itself, so `_removed` is waited for.
        if all(job.name in self._removed if job.state == REMOVED else job.is_over for job in latest.values()):
            self.is_over = True
            self._stop.set()

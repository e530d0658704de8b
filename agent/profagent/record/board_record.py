"""One board of a `record`: its capture, its session, and how it ended."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from profagent.cli.provenance import keeping_line, kept_loss_fields, kept_loss_line
from profagent.cli.remarks import LinkRemarks, remarks
from profagent.errors import IncompleteError, SameBoardError, UnreachableError, UnsupportedBoardError
from profagent.ingest import reasons
from profagent.ingest.changes import InferenceTimed, KeptLoss
from profagent.link.credentials import BY_ADDRESS, own_consumer
from profagent.link.pulse import US_PER_S
from profagent.record.backlog import Backlog, not_copied_text
from profagent.record.beginnings import Beginnings
from profagent.record.capture import Capture
from profagent.record.job_ends import JobEnds
from profagent.record.made_jobs import RunRecording
from profagent.record.recording import Recording
from profagent.record.recording_options import RecordingOptions
from profagent.store.counter_maps import BUILT_IN, CounterMaps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from profagent.errors import ProfagentError
    from profagent.formats.sampling import Keeping
    from profagent.ingest.changes import JobChanges
    from profagent.link.credentials import Access
    from profagent.link.messages import Board, JobStatus
    from profagent.record.made_jobs import MadeJobs
    from profagent.store.store import Store
    from profagent.store.workspace import Workspace

# Bytes gather so long before they are committed; design section 6 allows 250 ms.
GATHER_S = 0.1
# A daemon keeps no more.
TOLD_LOSSES = 1_000
TELL_KEPT_S = 5.0


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What to record and when to stop. `inferences` and `until_finished` are for each board, `for_s` for all.

    Deliveries are counted by `consumer` on the board; without it the host's name is in it.
    `from_now`: of JOBs that stand already only what begins after that is taken.
    `keeping` is that of RecordingOptions. `made` are the JOBs of one program: no other is recorded.
    """

    addresses: tuple[str, ...]
    workspace: Workspace
    for_s: float | None = None
    inferences: int | None = None
    until_finished: bool = False
    backlog: bool = False
    new: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    maps: CounterMaps = BUILT_IN
    keeping: Keeping | None = None
    access: Access = BY_ADDRESS
    consumer: str | None = None
    source: str = "record"
    made: MadeJobs | None = None
    from_now: bool = False


def exit_code_of(summary: Mapping[str, Any]) -> int:
    """What a script is told of a session."""
    if reasons.UNSUPPORTED_SOC in summary["ledger"]["note"]:
        return UnsupportedBoardError.exit_code
    return 0 if summary["complete"] else IncompleteError.exit_code


class RecordView:
    """The observer of a recording: remarks to `tell`, and the end conditions."""

    def __init__(
        self,
        address: str,
        options: RecordOptions,
        tell: Callable[[str], None],
        stop: asyncio.Event,
        backlog: Backlog,
    ) -> None:
        self._address = address
        self._backlog = backlog
        self._options = options
        self._tell = tell
        self._stop = stop
        self._inferences: set[tuple[Any, ...]] = set()
        self._has_waited = False
        self._ends = JobEnds(tell, self._end_if_over, awaits=options.until_finished)
        self._links = LinkRemarks(time.monotonic)
        self._kept_losses: dict[int, KeptLoss] = {}
        self.beginnings = Beginnings(from_start=False) if options.from_now else None
        self.jobs: Sequence[JobStatus] = ()
        # What was last said of a link that is not there.
        self.away: ProfagentError | None = None

    def linked(self, board: Board, role: str) -> None:
        """Say whom we record, and what is odd about it."""
        self.away = None
        self._links.linked()
        if self._options.made is not None:
            self._options.made.linked()
        self._ends.linked(board.quiet_after_us / US_PER_S)
        mark = " [simulated]" if board.simulated else ""
        self._tell(f"recording {board.hostname or self._address} at {self._address}{mark}")
        for remark in remarks(board, role, time.time_ns() // 1000):
            self._tell(remark)

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        """Say that the link is gone."""
        self.away = error
        if self._options.made is not None:
            self._options.made.unlinked()
        if self.beginnings is not None:
            self.beginnings.link_is_new()
        if (line := self._links.gone(error, wait_s)) is not None:
            self._tell(line)

    def remark(self, text: str) -> None:
        """Say it."""
        self._tell(text)

    def changed(self, changes: Sequence[JobChanges]) -> None:
        """Tell losses that the board kept; count inferences, where their number ends the capture."""
        if self._options.made is not None:
            self._options.made.changed(changes)
        self._ends.take(changes)
        self._end_if_over()
        for loss in (change for batch in changes for change in batch.changes if isinstance(change, KeptLoss)):
            if self._kept_losses.get(loss.number) != loss and len(self._kept_losses) < TOLD_LOSSES:
                self._kept_losses[loss.number] = loss
                self._tell(kept_loss_line(kept_loss_fields(loss)))
        if self._options.inferences is None:
            return
        for batch in changes:
            for change in batch.changes:
                if isinstance(change, InferenceTimed) and change.done is not None:
                    self._inferences.add((batch.job, change.name, change.stretch))
        if len(self._inferences) >= self._options.inferences:
            self._stop.set()

    def tell_surplus(self) -> None:
        """Say that more inferences came than were asked for: those of a batch are kept together."""
        asked, came = self._options.inferences, len(self._inferences)
        if asked is not None and came > asked:
            self._tell(f"asked for {asked} inferences, got {came}: what came together is kept together")

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """End when every JOB that was followed has ended and has come whole."""
        self.jobs = jobs
        if self._options.made is not None:
            self._options.made.jobs_changed(jobs)
        elif not jobs and not self._has_waited:
            self._has_waited = True
            self._tell("no open JOB yet: waiting for a program that records")
        for job in jobs:
            if job.caught_up:
                self._backlog.catch_up(job.name)
                if self.beginnings is not None:
                    self.beginnings.caught_up(job.name)
        self._ends.show(jobs)
        self._end_if_over()

    @property
    def has_all_asked(self) -> bool:
        """Whether as many inferences came as were asked for."""
        return self._options.inferences is not None and len(self._inferences) >= self._options.inferences

    def close(self) -> None:
        """Wait for nothing any more."""
        self._ends.close()

    def _end_if_over(self) -> None:
        if self._options.until_finished and self._ends.are_over:
            self._stop.set()


class BoardRecord:
    """Records one of the boards until it has reached its end, or is told to stop."""

    def __init__(self, address: str, options: RecordOptions, store: Store, tell: Callable[[str], None]) -> None:
        self.address = address
        self._options = options
        self._is_alone = len(options.addresses) == 1
        self._tell = tell if self._is_alone else lambda text: tell(f"{address}: {text}")
        self._stop = asyncio.Event()
        self._backlog = Backlog(address, options.access, self._tell, self._copied_bytes)
        self._view = RecordView(address, options, self._tell, self._stop, self._backlog)
        self._recording = (Recording if options.made is None else RunRecording)(
            options.workspace,
            store,
            RecordingOptions(
                lambda: time.time_ns() // 1000,
                source=options.source,
                told=None if options.made is None else options.made.told,
                maps=options.maps,
                labels=options.labels,
                always_new=options.new,
                keeping=options.keeping,
                beginnings=self._view.beginnings,
            ),
        )
        self._error: ProfagentError | None = None

    def stop(self) -> None:
        """End the capture in good order."""
        self._stop.set()

    async def run(self) -> None:
        """Record until the end; the session ends with it.

        What speaks against this board ends it and no other: it is told, and kept for the outcome. Where it is the only
        one, it is raised. Raises StoreError.
        """
        telling = [asyncio.create_task(each) for each in (self._tell_kept(), self._backlog.run())]
        try:
            await self._capture().run()
        except (SameBoardError, UnreachableError, UnsupportedBoardError) as error:
            self._error = error
            if not self._is_alone:
                self._tell(f"{error}; {error.hint}")
        finally:
            for task in telling:
                task.cancel()
            self._view.close()
            await asyncio.wait(telling)
        if self._is_alone and isinstance(self._error, UnreachableError):
            raise self._error
        await self._end()
        if self._is_alone and self._error is not None:
            raise self._error

    async def summary(self) -> dict[str, Any]:
        """The session in figures. Raises UnreachableError when the board was never reached."""
        if not self._recording.is_begun:
            raise UnreachableError("stopped before the board was reached", hint="start again, and let it run longer")
        return {**await self._recording.session.summary(), "mirror": str(self._recording.mirror)}

    async def outcome(self) -> dict[str, Any]:
        """The address, what the session came to (null where there is none), what went wrong, and an exit code."""
        error = self._error or self._view.away
        told = {"address": self.address, "error": None if error is None else str(error)}
        if not self._recording.is_begun:
            code = SameBoardError.exit_code if isinstance(error, SameBoardError) else UnreachableError.exit_code
            told["error"] = told["error"] or "stopped before the board was reached"
            return {**told, "session": None, "complete": False, "exit_code": code}
        summary = await self.summary()
        return {**told, **summary, "exit_code": self._error.exit_code if self._error else exit_code_of(summary)}

    async def _tell_kept(self) -> None:
        """Say now and then how many inferences were kept, where some are passed over on purpose."""
        told = None
        while self._options.keeping is not None:
            await asyncio.sleep(TELL_KEPT_S)
            line = keeping_line(await self._recording.session.sampling()) if self._recording.is_begun else None
            if line is not None and line != told:
                told = line
                self._tell(line)

    async def _end(self) -> None:
        self._view.tell_surplus()
        for job in self._view.jobs:
            if not job.caught_up and job.state != "removed":
                await self._note_early(job.name)
            elif not job.has_ended and self._options.made is not None and self._options.made.has_ended:
                # Its program is gone, which the board finds out later.
                await self._recording.change_state(job.name, "quiet", caught_up=True)
        await self._recording.end()

    async def _note_early(self, job: str) -> None:
        """A JOB was not copied to its end; where that was asked for, it is told and no more."""
        held = await self._backlog.measure(job)
        left = None if held is None else max(0, held.inferences - await self._recording.session.final_inferences(job))
        if self._options.from_now:
            left = None  # those from before were not to be copied
        text = not_copied_text(left, job)
        self._tell(f"stopped early: {text}")
        if not self._view.has_all_asked:
            detail = f"the capture was stopped before all that the board held had come: {text}"
            self._recording.note(job, reasons.entry(reasons.STOPPED_EARLY, detail, first=left))

    async def _copied_bytes(self, job: str) -> int:
        return await self._recording.session.copied_bytes(job) if self._recording.is_begun else 0

    def _capture(self) -> Capture:
        return Capture(
            self.address,
            self._recording,
            self._view,
            wants=self._is_wanted,
            consumer=self._options.consumer or own_consumer(),
            gather_s=GATHER_S,
            stop=self._stop,
            is_patient=not self._is_alone,
            access=self._options.access,
        )

    def _is_wanted(self, job: JobStatus, listed: bool) -> bool:
        """Whether a JOB is captured: it runs, appears later, was begun by the session before, or is of the backlog."""
        if self._options.made is not None:
            return self._options.made.wants(job, listed)
        if self._view.beginnings is not None:
            return self._view.beginnings.wants(job, listed)
        if listed and not job.has_ended:
            self._backlog.find(job.name)
        return self._options.backlog or not listed or not job.has_ended or self._recording.has_begun(job.name)

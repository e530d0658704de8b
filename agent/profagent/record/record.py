"""Command `record`: a headless capture of boards into a workspace, one task for each board, and one writer for all."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from profagent import ledger
from profagent.cli.exit_codes import exit_code_of
from profagent.cli.progress import BYTES, JobsProgress, Progress, progress
from profagent.errors import (
    DiskFullError,
    FaultError,
    SameBoardError,
    StoreError,
    UnreachableError,
    UnsupportedBoardError,
    UsageError,
    WorkspaceBusyError,
)
from profagent.formats.names import is_job_name
from profagent.limits import MEASURING_AT_END_S, MEASURING_S, MEASURING_SHARE, MOST_JOB_LINES
from profagent.link.channel import connected
from profagent.link.coverage import Standing
from profagent.link.credentials import own_consumer
from profagent.link.messages import QUIET, REMOVED, Loss
from profagent.record.capture import Capture
from profagent.record.options import RecordingOptions
from profagent.record.recording import Recording
from profagent.record.slo import JUDGE_EACH_S, JudgingObserver
from profagent.record.view import RecordView
from profagent.store.coverage import NOT_ENDED
from profagent.store.marks import add_mark
from profagent.store.store import Store
from profagent.tables.incidents import incident_line
from profagent.tables.provenance import keeping_line, not_copied_text
from profagent.tables.table import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from profagent.errors import ProfagentError
    from profagent.link.messages import JobMeasure, JobStatus, LogEvent, Received
    from profagent.record.exposition import Exposition
    from profagent.record.options import RecordOptions
    from profagent.record.recording import Acknowledge
    from profagent.record.slo import Alarm
    from profagent.store.writer import Applied

# Batching delay before a commit, out of the 250 ms within which a row is to be in the database.
GATHER_S = 0.1
TELL_PASSED_OVER_S = 5.0
KEEP_COVERAGE_S = 5.0
# A backlog below this size is not announced: it is copied before the line has been read.
LEAST_BYTES = 1 << 20
MEASURE_S = 1.0
BYTES_PER_MB = 1e6


async def record(options: RecordOptions, tell: Callable[[str], None], stop: asyncio.Event) -> dict[str, Any]:
    """Record until the end conditions or `stop`; return the summary of one board's session, or those of several.

    Raises UsageError and StoreError; the error that ends the capture of the only board is raised too.
    """
    await _check(options)
    listening = _exposed(options.metrics_listen, tell)
    with listening as exposition, options.workspace.shared(), progress("record", BYTES) as shown:
        async with Store(options.workspace.database) as store:
            sides = JobsProgress(shown), exposition
            boards = [BoardRecord(address, options, store, tell, *sides) for address in options.addresses]
            await _run(boards, options.for_s, stop)
            database = str(options.workspace.database)
            if len(boards) == 1:
                return {**await boards[0].summary(), "database": database}
            outcomes = [await board.outcome() for board in boards]
    return {"boards": outcomes, "total": _total(outcomes), "database": database}


@contextmanager
def _exposed(address: str | None, tell: Callable[[str], None]) -> Iterator[Exposition | None]:
    if address is None:
        yield None
        return
    from profagent.record.exposition import exposed  # noqa: PLC0415 - its client is imported only where it is used

    with exposed(address) as (exposition, url):
        tell(f"metrics for Prometheus: {url}")
        yield exposition


async def _check(options: RecordOptions) -> None:
    # Compared by address: two names of one board would otherwise capture it twice.
    targets = Counter(options.access.named(address).address for address in options.addresses)
    for target, count in targets.items():
        if count > 1:
            raise UsageError(f"the board {target} is named {count} times", hint="name each board once")
    for address in options.addresses:
        # On a thread, because keys are read from files.
        await asyncio.to_thread(options.access.check, address)


async def _run(boards: Sequence[BoardRecord], for_s: float | None, stop: asyncio.Event) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(_stop_all(boards, for_s, stop))
            await asyncio.wait([group.create_task(board.run()) for board in boards])
            # No board is left to stop, and the task would wait for `for_s` to pass.
            stopping.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _stop_all(boards: Sequence[BoardRecord], for_s: float | None, stop: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(for_s):
            await stop.wait()
    for board in boards:
        board.stop()


def _total(outcomes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    reached = [each["session"] for each in outcomes if each["session"] is not None]
    records: Counter[str] = Counter()
    ledger: dict[str, Counter[str]] = {"loss": Counter(), "note": Counter()}
    for session in reached:
        records.update(session["records"])
        for grade, counts in session["ledger"].items():
            ledger[grade].update(counts)
    return {
        "boards": len(outcomes),
        "reached": len(reached),
        "jobs": sum(len(session["jobs"]) for session in reached),
        "bytes": sum(session["bytes"] for session in reached),
        "records": records,
        "ledger": ledger,
        "complete": all(each["complete"] for each in outcomes),
        "exit_code": min((each["exit_code"] for each in outcomes if each["exit_code"]), default=0),
    }


def before_line(job: str, held: JobMeasure, copied: int, here: int) -> str:
    """Return the message about a JOB that was begun before: how much of it is still to be copied.

    `copied` bytes and `here` inferences of what the board holds are in the mirror.
    """
    size = f"{(held.bytes - copied) / BYTES_PER_MB:,.1f} MB"
    inferences = counted(max(0, held.inferences - here), "inference")
    # Only JOBs have inferences to count; of other sources the board measures bytes.
    amount = f"{'' if held.is_all else 'more than '}{inferences} ({size})" if is_job_name(job) else size
    return f"{job} holds {amount} that came before: copying that first. --from-now leaves it out"


class RunRecording(Recording):
    """Recording of the JOBs that one program makes; its session holds nothing about the board's other JOBs."""

    async def listed(self, names: Collection[str]) -> Sequence[Applied]:
        """Take the names of the board's JOBs; a missing JOB of another session is not recorded as gone."""
        others = {job.name for job in await self.session.standing_jobs()} - await self.session.begun_jobs()
        return await super().listed({*names, *others})

    async def take(
        self, events: Sequence[Received], acknowledge: Acknowledge, *, more: bool = False
    ) -> Sequence[Applied]:
        """Take events as Recording does, but leave kept losses of other JOBs to the captures that follow those."""
        ours = [each for each in events if not self._is_loss_of_others(each.event)]
        return await super().take(ours, acknowledge, more=more)

    def _is_loss_of_others(self, event: LogEvent) -> bool:
        return isinstance(event, Loss) and event.id > 0 and event.job_name not in self._directories


class BoardRecord:
    """Recording of one board, until its end conditions or a stop."""

    def __init__(
        self,
        address: str,
        options: RecordOptions,
        store: Store,
        tell: Callable[[str], None],
        backlog: JobsProgress | None = None,
        exposition: Exposition | None = None,
    ) -> None:
        self.address = address
        self._backlog = backlog or JobsProgress(Progress("record", BYTES, is_shown=False))
        # By JOB, the bytes that the board held when it was measured; entries go once they are copied.
        self._held: dict[str, int] = {}
        self._lock = ExitStack()  # holds the board's lock in the workspace, once its identity is known
        self._options = options
        self._is_alone = len(options.addresses) == 1
        self._tell = tell if self._is_alone else lambda text: tell(f"{address}: {text}")
        self._stop = asyncio.Event()
        # JOBs that existed when the board listed them, and whether each was open; _tell_held() measures them.
        self._found: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        # Names of JOBs that were put into `_found`.
        self._known: set[str] = set()
        self._view = RecordView(address, options, self._tell, self._stop)
        self._recording = (Recording if options.made is None else RunRecording)(
            options.workspace,
            store,
            RecordingOptions(
                lambda: time.time_ns() // 1000,
                source=options.source,
                profiling=None if options.made is None else options.made.profiling,
                maps=options.maps,
                labels={**options.access.named(address).labels, **options.labels},
                always_new=options.new,
                keeping=options.keeping,
                keep_when=options.keep_when,
                found=lambda incident: self._tell(incident_line(incident)),
                past_filter=self._view.past_filter,
                hold=lambda identity: self._lock.enter_context(options.workspace.board_locked(identity)),
                with_columns=exposition is not None or bool(options.objectives),
            ),
        )
        self._measured = None if exposition is None else exposition.measuring(self._view, address)
        # Alarms of the last judgement, until they are written.
        self._alarms: list[Alarm] = []
        self._judging = None
        if options.objectives:
            seen = self._measured.judged if self._measured is not None else lambda _: None
            observer = self._measured or self._view
            self._judging = JudgingObserver(observer, options.objectives, self._alarms.append, seen)
        self._capture = self._made_capture()
        # The first error that ended this board's capture.
        self._error: ProfagentError | None = None
        self._full = ""  # why the session's end could not be written: the disk was full

    @property
    def session(self) -> int | None:
        """The number of the board's session, None before the board was reached."""
        return self._recording.session.number if self._recording.is_begun else None

    def stop(self) -> None:
        """End the capture in good order: what has arrived is committed."""
        self._stop.set()

    async def run(self) -> None:
        """Record until the end, and end the session.

        Errors of the only board are raised. With several boards an error is reported, kept for the outcome, and ends
        only its own board.
        """
        with self._lock:
            try:
                await self._follow()
                await self._end()
            except DiskFullError as error:
                # The database has no end of this session, so a later capture continues it.
                self._full = f"not covered at the end: {error}"
                self._tell(f"{self._full}; {error.hint}")
            except Exception as error:
                if self._is_alone:
                    raise
                self._fail(FaultError.of(error))
        if self._is_alone and self._error is not None:
            raise self._error

    async def _follow(self) -> None:
        sides = (self._tell_passed_over(), self._tell_held(), self._show_backlog(), self._keep_coverage())
        telling = [asyncio.create_task(each) for each in sides]
        if self._judging is not None:
            telling.append(asyncio.create_task(self._mind_objectives(self._judging)))
        try:
            # A task of its own, so that each step of the capture is not passed through the frames of this one.
            await asyncio.create_task(self._capture.run())
        except (SameBoardError, UnreachableError, UnsupportedBoardError, WorkspaceBusyError) as error:
            self._fail(error)
        finally:
            for task in telling:
                task.cancel()
            await asyncio.wait(telling)
            if self._judging is not None:
                await self._judge(self._judging)
                for line in self._judging.live.undecided_lines() if self._recording.is_begun else ():
                    self._tell(line)
            if self._measured is not None:
                self._measured.ended()

    async def _mind_objectives(self, judging: JudgingObserver) -> None:
        while True:
            await asyncio.sleep(JUDGE_EACH_S)
            await self._judge(judging)

    async def _judge(self, judging: JudgingObserver) -> None:
        """Judge the objectives; write a line for each alarm, and a mark into the session where one begins.

        A mark of the session is an incident of its flight recorder.
        """
        judging.judge()
        alarms = [*self._alarms]
        self._alarms.clear()
        for alarm in alarms:
            self._tell(alarm.line())
            if alarm.is_on and self._recording.is_begun:
                try:
                    session = self._recording.session.number
                    await add_mark(self._options.workspace.database, session, alarm.time_us, alarm.line())
                except StoreError as error:
                    self._tell(f"the alarm is not stored: {error}")

    def _fail(self, error: ProfagentError) -> None:
        self._error = self._error or error
        if not self._is_alone:
            self._tell(f"{error}; {error.hint}")

    async def summary(self) -> dict[str, Any]:
        """Return the figures of the session. Raises UnreachableError if the board was never reached."""
        if not self._recording.is_begun:
            raise UnreachableError("stopped before the board was reached", hint="run it again, and let it run longer")
        summary = await self._recording.session.summary()
        if self._full:
            summary["incomplete"] = [self._full if each == NOT_ENDED.text else each for each in summary["incomplete"]]
        code = exit_code_of(summary, waits_for_records=self._waits_for_records)
        if self._judging is not None:
            summary["slo"] = self._judging.live.documents()
            code = code or self._judging.live.exit_code
        return {**summary, "mirror": str(self._recording.mirror), "exit_code": code}

    async def outcome(self) -> dict[str, Any]:
        """Return the address, the error's text, completeness, an exit code, and the summary (None without one)."""
        error = self._error or self._view.away
        head = {"address": self.address, "error": None if error is None else str(error)}
        if not self._recording.is_begun:
            code = UnreachableError.exit_code if self._error is None else self._error.exit_code
            head["error"] = head["error"] or "stopped before the board was reached"
            return {**head, "complete": False, "exit_code": code, "session": None}
        summary = await self.summary()
        code = self._error.exit_code if self._error else summary["exit_code"]
        return {**head, "complete": summary["complete"], "exit_code": code, "session": summary}

    async def _tell_passed_over(self) -> None:
        previous = None
        while self._options.keeping is not None:
            await asyncio.sleep(TELL_PASSED_OVER_S)
            line = keeping_line(await self._recording.session.sampling()) if self._recording.is_begun else None
            if line is not None and line != previous:
                previous = line
                self._tell(line)

    @property
    def _waits_for_records(self) -> bool:
        """True if the capture ends when something has arrived: an empty capture is a failure then."""
        options = self._options
        return options.until_finished or options.inferences is not None or options.made is not None

    async def _keep_coverage(self) -> None:
        """Store the coverage at intervals, so that a capture that is killed has claimed no more than it saw."""
        while True:
            await asyncio.sleep(KEEP_COVERAGE_S)
            if self._recording.is_begun:
                # Recording.cover() keeps intervals that could not be stored, and a later call stores them.
                with suppress(StoreError):
                    await self._recording.cover(self._capture.coverage)

    async def _end(self) -> None:
        if not self._recording.is_begun:
            return
        self._view.tell_surplus()
        for job in self._view.jobs:
            # The program has exited; the board finds that out only after its own timeout.
            is_left = self._options.made is not None and self._options.made.has_ended
            if job.caught_up and not job.has_ended and is_left:
                await self._recording.change_state(job.name, QUIET, caught_up=True)
        if self._view.has_all_asked:
            left = await self._left(self._behind())
            self._tell_first(
                f"{not_copied_text(count, job)}: as many as asked for have come" for job, count in left.items()
            )
        elif not self._view.is_over:
            await self._note_shortcomings()
        # An empty session is only reported if everything arrived: otherwise records may be on their way.
        has_all = self._capture.session.has_synced or not any(job.is_job for job in self._view.jobs)
        if has_all and not await self._recording.session.has_recorded():
            self._note_nothing()
        await self._recording.cover(self._capture.coverage)
        await self._recording.end()

    def _behind(self) -> list[JobStatus]:
        jobs = [] if self._capture.session.has_synced else self._view.jobs
        return [job for job in jobs if not job.caught_up and job.state != REMOVED and (job.is_job or job.has_ended)]

    async def _note_shortcomings(self) -> None:
        session, coverage, behind = self._capture.session, self._capture.coverage, self._behind()
        stopped = []
        for name, left in (await self._left(behind)).items():
            stopped.append(f"stopped early: {not_copied_text(left, name)}")
            self._recording.note(name, ledger.entry(ledger.STOPPED_EARLY, stopped[-1], first=left))
        self._tell_first(stopped)
        going_on = [job for job in self._view.jobs if job.is_job and not job.is_over and job not in behind]
        for job in going_on if self._options.until_finished else ():
            count = 0 if session.has_synced else None
            self._note(job.name, ledger.STOPPED_EARLY, f"stopped early: {job.name} had not ended", count)
        if self._options.inferences is not None:
            came = f"{self._view.inferences} of {counted(self._options.inferences, 'inference')} came"
            self._note("", ledger.STOPPED_EARLY, f"stopped early: {came}")
        is_known = behind and coverage.board.standing in (Standing.COVERED, Standing.BEHIND)
        if not (session.has_synced or is_known):
            self._tell(self._recording.note_uncovered(coverage))

    def _note_nothing(self) -> None:
        jobs = [job.name for job in self._view.jobs if job.is_job]
        what = f"{', '.join(jobs)} has no record" if jobs else "no JOB came"
        self._note("", ledger.NOTHING_RECORDED, f"nothing recorded: {what}; waited for a program that records")

    def _note(self, job: str, reason: str, text: str, first: int | None = None) -> None:
        self._tell(text)
        self._recording.note(job, ledger.entry(reason, text, first=first))

    def _tell_first(self, lines: Iterable[str]) -> None:
        """Write the first MOST_JOB_LINES lines and the number of the others: a board may have any number of JOBs."""
        known = list(lines)
        for line in known[:MOST_JOB_LINES]:
            self._tell(line)
        if len(known) > MOST_JOB_LINES:
            self._tell(f"the same of {len(known) - MOST_JOB_LINES:,} other JOBs: `profagent ledger` lists them")

    async def _left(self, jobs: Sequence[JobStatus]) -> dict[str, int | None]:
        """Return by JOB how many inferences the board has that are not in the session; None if that is not known.

        With --from-now earlier inferences were not to be copied, so nothing is measured. MEASURING_AT_END_S bounds all
        of the measurements together.
        """
        left: dict[str, int | None] = {job.name: None for job in jobs}
        held: dict[str, JobMeasure | None] = {}
        if left and not self._options.from_now:
            with suppress(UnreachableError, TimeoutError):
                async with (
                    asyncio.timeout(MEASURING_AT_END_S),
                    connected(self.address, self._options.access) as channel,
                ):
                    for name in left:
                        held[name] = await channel.measure(name)
        for name, measure in held.items():
            if measure is not None:
                left[name] = max(0, measure.inferences - await self._recording.session.final_inferences(name))
        return left

    async def _tell_held(self) -> None:
        while True:
            job, is_open = await self._found.get()
            copied = await self._copied(job)
            held = await self._measure(job)
            if held is not None:
                self._held[job] = held.bytes
            if held is not None and is_open and held.bytes - copied >= LEAST_BYTES:
                here = await self._recording.session.final_inferences(job) if copied else 0
                self._tell(before_line(job, held, copied, here))
                await self._tell_time(job, held.bytes)

    async def _tell_time(self, job: str, held_bytes: int) -> None:
        begun, took_s, copied = await self._copied(job), 0.0, 0
        while copied - begun < LEAST_BYTES:  # bytes that are here are compared first, which takes time
            await asyncio.sleep(MEASURE_S)
            copied, took_s = await self._copied(job), took_s + MEASURE_S
            if any(each.name == job and each.caught_up for each in self._view.jobs):
                return
        rate = (copied - begun) / took_s
        left_s = max(0, held_bytes - copied) / rate
        self._tell(f"{job}: about {left_s:,.0f} s to copy it, at {rate / BYTES_PER_MB:,.1f} MB/s")

    async def _show_backlog(self) -> None:
        took_s = 0.0
        while self._backlog.is_shown:
            await asyncio.sleep(max(MEASURE_S, took_s / MEASURING_SHARE))
            begun_s = time.monotonic()
            come = {job.name for job in self._view.jobs if job.caught_up}
            for job, held in [*self._held.items()]:
                copied = held if job in come else await self._copied(job)
                self._backlog.know(self.address, job, copied, held)
                if copied >= held:
                    del self._held[job]
            took_s = time.monotonic() - begun_s

    async def _copied(self, job: str) -> int:
        return await self._recording.session.copied_bytes(job) if self._recording.is_begun else 0

    async def _measure(self, job: str) -> JobMeasure | None:
        try:
            async with asyncio.timeout(MEASURING_S), connected(self.address, self._options.access) as channel:
                return await channel.measure(job)
        except (UnreachableError, TimeoutError):
            return None

    def _made_capture(self) -> Capture:
        capture = Capture(
            self.address,
            self._recording,
            self._judging or self._measured or self._view,
            wants=self._is_wanted,
            consumer=self._options.consumer or own_consumer(),
            gather_s=GATHER_S,
            stop=self._stop,
            is_patient=not self._is_alone,
            access=self._options.access,
            asks_at_end=True,
        )
        if self._measured is not None:
            self._measured.follow(capture)
        return capture

    def _is_wanted(self, job: JobStatus, listed: bool) -> bool:
        """Return True if a JOB is captured: it runs, appears later, was begun by this session, or is in the backlog."""
        if self._options.made is not None:
            return self._options.made.wants(job, listed)
        if self._view.past_filter is not None:
            return self._view.past_filter.wants(job, listed)
        wanted = self._options.backlog or not listed or not job.has_ended or self._recording.has_begun(job.name)
        is_reported = not job.has_ended or (wanted and self._backlog.is_shown)
        if listed and is_reported and job.name not in self._known:
            self._known.add(job.name)
            self._found.put_nowait((job.name, not job.has_ended))
        return wanted

"""Live events of watched boards, and their summaries (`watch --board`)."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import socket
import time
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from cachetools import LRUCache
from msgspec import Struct
from msgspec.structs import replace

from profagent.cli.running import LinkRemarks, remarks
from profagent.errors import FaultError, UnreachableError
from profagent.formats.counter_maps import BUILT_IN, CounterMaps
from profagent.formats.figure_states import FigureState
from profagent.formats.names import LogKind
from profagent.formats.sampling import interval_of
from profagent.ingest.changes import ApiRecords, PlainLogs, SegmentRecords
from profagent.ingest.source import SOURCES, is_job
from profagent.limits import HELD_INFERENCES, HOLD_S, PATIENCE_S, REMEMBERED_FIRST_SEEN, SILENCE_S
from profagent.link.credentials import BY_ADDRESS
from profagent.link.messages import OPEN, QUIET
from profagent.record.beginnings import PastFilter
from profagent.record.capture import Capture
from profagent.record.options import RecordingOptions
from profagent.record.recording import Recording
from profagent.record.slo import JudgingObserver
from profagent.record.view import NO_JOB
from profagent.store.live_events import LiveComposer
from profagent.store.store import Store
from profagent.tables.provenance import doubt_line
from profagent.watch.live_board import LiveBoard
from profagent.watch.memory import MemoryWorkspace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from profagent.errors import ProfagentError
    from profagent.formats.names import LogName
    from profagent.formats.records import Unit
    from profagent.ingest.changes import JobChanges
    from profagent.link.coverage import Coverage
    from profagent.link.credentials import Access
    from profagent.link.messages import Board, JobStatus
    from profagent.record.slo import Alarm
    from profagent.store.events import Event
    from profagent.store.workspace import Workspace
    from profagent.store.writer import Applied
    from profagent.tables.slo import Objective

INTERVAL_ZERO = (
    "no inference for some seconds. If the program goes on, its interval is 0, the runtime's default: only the first"
    ' inference after a load is recorded. Set "interval" in its acl.json, and start it again'
)


class Silence:
    """Detector of silence: no inference for SILENCE_S although a JOB goes on. It makes each remark once."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        # When the silence began: the last inference, or the last time that a JOB began to go on.
        self._since_s = now_s()
        # JOBs that are caught up and whose program may still write.
        self._going_on: frozenset[str] = frozenset()
        # Count of the first inference of each JOB and model.
        self._counts: LRUCache[tuple[str, str | None, int | None, int | None, int | None], int | None]
        self._counts = LRUCache(REMEMBERED_FIRST_SEEN)
        # JOBs whose interval is not 0.
        self._sampled: set[str] = set()
        # Remarks that were made: True for the one about interval 0.
        self._remarked: set[bool] = set()

    def take(self, batch: JobChanges) -> None:
        """Register the inferences of a batch.

        With interval 0, each recorded inference is the first after a load and has the same count. A JOB with two
        different counts therefore has another interval.
        """
        for names, _ in _units_of(batch):
            self._since_s = self._now_s()
            for name in names:
                model = (batch.job, name.model, name.model_id, name.device, name.stream)
                if self._counts.setdefault(model, name.current_pic_count) != name.current_pic_count:
                    self._sampled.add(batch.job)

    def is_sampled(self, job: str) -> None:
        """Register that the JOB's interval is not 0."""
        self._sampled.add(job)

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """Register the board's present JOBs, their intervals and which of them go on."""
        self._sampled |= {job.name for job in jobs if job.profiling is not None and interval_of(job.profiling.interval)}
        going_on = frozenset(job.name for job in jobs if job.caught_up and job.state in (OPEN, QUIET))
        if going_on - self._going_on:
            self._since_s = self._now_s()
        self._going_on = going_on

    def unlinked(self) -> None:
        """Stop measuring, because without a link the state of the program is not known; the next link begins anew."""
        self._going_on = frozenset()

    def remark(self) -> str | None:
        """Return the remark that is due now; None if there is none."""
        silent_s = self._now_s() - self._since_s
        may_be_zero = not self._going_on & self._sampled
        if not self._going_on or silent_s < SILENCE_S or may_be_zero in self._remarked:
            return None
        self._remarked.add(may_be_zero)
        return INTERVAL_ZERO if may_be_zero else f"no inference has come for {SILENCE_S:.0f} s"


# Interval of the board events: metrics, subscriptions and spans.
BOARD_EACH_S = 2.0
NO_COUNTER_MAP = (
    "no counter map: PMU columns are missing, because no public source says which word of a record is which counter;"
    " name one with --counter-map FILE"
)


class WatchOptions(Struct, frozen=True):
    """Options of one watched board.

    `save` is the workspace that stores the capture; `with_layers` has the meaning that it has for Composer.
    `objectives` are judged meanwhile.
    """

    address: str
    from_start: bool = False
    with_records: bool = False
    with_layers: bool = False
    maps: CounterMaps = BUILT_IN
    save: Workspace | None = None
    access: Access = BY_ADDRESS
    objectives: tuple[Objective, ...] = ()


class WatchView:
    """Observer of a watched capture: it passes events to `show` and remarks to `tell`."""

    # How long bytes gather before they are decoded: not at all, because a line is to appear at once.
    gather_s = 0.0
    board_each_s = BOARD_EACH_S

    def __init__(
        self,
        options: WatchOptions,
        show: Callable[[Event], None],
        tell: Callable[[str], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a view; `now_s` is a monotonic clock in seconds."""
        self._now_s = now_s
        self.events = LiveComposer(with_records=options.with_records, with_layers=options.with_layers)
        self.board = LiveBoard(with_all=options.with_layers)
        self.past_filter = PastFilter(from_start=options.from_start)
        self._options = options
        self._show = show
        self._tell = tell
        # Destination of the stream, once the capture has begun.
        self.recording: Recording | None = None
        # The same recording if it saves the capture; None if it is only in memory.
        self.saving: Recording | None = None
        # Observer that judges objectives, if there are any.
        self.judging: JudgingObserver | None = None
        # True once the board was reached.
        self.was_linked = False
        # Coverage of the capture, once that has begun.
        self.coverage: Coverage | None = None
        # Remarks that are made once and were made.
        self._remarked: set[str] = set()
        # When watching began, in µs by the board's clock; 0 before the first link.
        self._begun_us = 0
        self._silence = Silence(time.monotonic)
        self._links = LinkRemarks(time.monotonic)
        # The logs that a JOB already holds arrive in any order. Their inferences are held back until the JOBs are
        # caught up or HOLD_S has passed, and are then shown by time. HELD_INFERENCES bounds them.
        self._held: list[Event] = []
        # Until when inferences of a JOB are held back, by the monotonic clock.
        self._held_until_s: dict[str, float] = {}

    def wants(self, job: JobStatus, listed: bool) -> bool:
        """Return True if a collection is to be followed; of sources other than JOBs, only those that have not ended."""
        if job.is_job:
            return self.past_filter.wants(job, listed)
        return job.source in SOURCES and not job.has_ended

    def linked(self, board: Board, role: str) -> None:
        """Remark which board is watched, and anything unusual about it."""
        self.was_linked = True
        self.events.simulated |= board.simulated
        self._begun_us = self._begun_us or board.clocks.wall_us
        self._links.linked()
        mark = " [simulated]" if board.simulated else ""
        self._tell(f"watching {board.hostname or self._options.address} at {self._options.address}{mark}")
        # The sink has read this counter map already.
        used = self._options.maps.of(simulated=board.simulated, sdk=board.sdk_version)
        self.events.likely = () if used is None else used.likely
        if self.events.likely:
            self._tell_once(doubt_line(self.events.likely))
        for remark in remarks(board, role, time.time_ns() // 1000):
            self._tell_once(remark)

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        """Remark that the link is lost, and forget what the next link lists anew."""
        self.past_filter.link_is_new()
        self.events.samples.unlist()
        self.board.link_is_lost()
        self._silence.unlinked()
        if (line := self._links.gone(error, wait_s)) is not None:
            self._tell(line)

    def remark(self, text: str) -> None:
        """Pass on a remark of the capture."""
        self._tell(text)

    def changed(self, applied: Sequence[Applied]) -> None:
        """Show the events of applied batches; inferences from before the watching are counted but not shown."""
        for each in applied:
            batch = each.batch
            if not is_job(batch.job):
                self.board.take(batch)
                for event in self.events.batch_events(replace(each, batch=replace(batch, state=None)), self._now_s()):
                    self._show(event)
                continue
            self._silence.take(batch)
            if self.past_filter.is_in_past(batch.job):
                self.events.pass_over(replace(each, batch=replace(batch, state=None)), self._now_s())
                continue
            shown = replace(each, batch=self._without_earlier_calls(batch))
            for event in self.events.batch_events(shown, self._now_s()):
                self._show_in_order(event)
                if event["event"] == "inference" and event["figures"] != FigureState.PENDING:
                    self.past_filter.note_shown(event)
            if any(unit.kind is LogKind.AICORE and not unit.counters for _, unit in _units_of(batch)):
                self._tell_once(NO_COUNTER_MAP)

    def _without_earlier_calls(self, batch: JobChanges) -> JobChanges:
        """Return the batch without calls from before the watching: the board sends a ring of calls as a whole."""
        if not self.past_filter.was_there(batch.job):
            return batch
        changes = [
            _ended_after(change, self._begun_us) if isinstance(change, ApiRecords) else change
            for change in batch.changes
        ]
        return replace(batch, changes=changes)

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """Register the board's JOBs: whether a program runs, its sampling, and which JOBs are caught up."""
        jobs = [job for job in jobs if job.is_job]
        if not jobs:
            self._tell_once(NO_JOB)
        for job in jobs:
            if job.profiling is not None:
                self.events.samples.set_interval(job.name, interval_of(job.profiling.interval))
            if self.past_filter.has_passed_later(job.name):
                self._silence.is_sampled(job.name)
        self._silence.jobs_changed(jobs)
        for job in jobs:
            if job.caught_up:
                self.past_filter.caught_up(job.name)
                self.events.samples.list(job.name)
                self._held_until_s[job.name] = 0.0
        if self._held and all(job.caught_up for job in jobs):
            self.show_held()

    def show_held(self) -> None:
        """Show all held inferences, in the order of their start."""
        held, self._held = self._held, []
        for event in sorted(held, key=lambda event: (event["start_us"] or 0, event["current_pic_count"])):
            self._show(event)

    def _show_in_order(self, event: Event) -> None:
        now_s = self._now_s()
        if event["event"] != "inference" or now_s >= self._held_until_s.setdefault(event["job"], now_s + HOLD_S):
            self.show_held()
            self._show(event)
            return
        self._held.append(event)
        if len(self._held) > HELD_INFERENCES:
            self.show_held()

    async def show_waiting(self) -> None:
        """Show inferences that have waited longer than PATIENCE_S, once each, with pending figures."""
        if self.recording is None or not self.events.has_overdue(self._now_s()):
            return
        for event in self.events.overdue_events(await self.recording.pending(), self._now_s()):
            if not self.past_filter.is_in_past(event["job"]):
                self._show(event)

    def show_alarm(self, alarm: Alarm) -> None:
        """Show an alarm that began or ended."""
        self._show({**alarm.event(), "simulated": self.events.simulated})

    async def mind_board(self) -> None:
        """Show a board event every `board_each_s`, until cancelled."""
        while True:
            await asyncio.sleep(self.board_each_s)
            self.show_board()

    def show_board(self) -> None:
        """Show a board event if its sources have anything new."""
        event = self.board.event()
        if event is not None:
            self._show({**event, "simulated": self.events.simulated})

    async def mind(self) -> None:
        """Show waiting inferences and remark on silence, until cancelled."""
        while True:
            await asyncio.sleep(PATIENCE_S / 8)
            await self.show_waiting()
            if (remark := self._silence.remark()) is not None:
                self._tell(remark)

    def _tell_once(self, text: str) -> None:
        if text not in self._remarked:
            self._remarked.add(text)
            self._tell(text)


def _units_of(batch: JobChanges) -> Iterator[tuple[Sequence[LogName], Unit]]:
    for change in batch.changes:
        if isinstance(change, SegmentRecords):
            yield [change.name], change.unit
        elif isinstance(change, PlainLogs):
            names = [group.name for group in change.groups]
            yield from ((names, unit) for unit in change.units.values())


def _ended_after(calls: ApiRecords, begun_us: int) -> ApiRecords:
    is_new = calls.records["end_us"] > begun_us
    return replace(calls, number=calls.number[is_new], records=calls.records[is_new])


async def watch(
    options: WatchOptions, show: Callable[[Event], None], tell: Callable[[str], None], stop: asyncio.Event
) -> Event:
    """Watch a board until `stop`; return the summary.

    Raises UnreachableError if the board cannot be reached at first, and UsageError before anything has begun.
    """
    (summary,) = await watch_all([options], lambda _, event: show(event), lambda _, text: tell(text), stop)
    return summary


async def watch_all(
    boards: Sequence[WatchOptions],
    show: Callable[[str, Event], None],
    tell: Callable[[str, str], None],
    stop: asyncio.Event,
) -> list[Event]:
    """Watch boards until `stop`; return their summaries, as `follow` does.

    A single board must be reachable at first; several are waited for.
    """
    async with store_in(boards[0].save) as store:
        following = [
            follow(
                each,
                WatchView(each, partial(show, each.address), partial(tell, each.address)),
                stop,
                store,
                is_patient=len(boards) > 1,
            )
            for each in boards
        ]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(each) for each in following]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]


async def follow(
    options: WatchOptions,
    view: WatchView,
    stop: asyncio.Event,
    store: Store | None,
    *,
    is_patient: bool = False,
    compared: Callable[[int], None] | None = None,
) -> Event:
    """Follow a board into a view until `stop`; return the summary. A `store` saves the capture.

    A board that cannot be reached at first raises UnreachableError, unless `is_patient`: then profagent waits for it
    to return, and an error that ends it becomes a remark and stands in its summary with the exit code. `compared`
    receives the µs by which the board's clock is ahead; it is called only if nothing is saved.
    """
    # The check may read files, which would block the event loop.
    await asyncio.to_thread(options.access.check, options.address)
    ended: dict[str, Any] = {}
    try:
        await _watched(options, view, stop, store, is_patient=is_patient, compared=compared)
    except Exception as error:
        if not is_patient:
            raise
        known = FaultError.of(error)
        ended = {"error": str(known), "exit_code": known.exit_code}
        view.remark(f"{known}; {known.hint}")
    view.show_held()
    view.show_board()
    summary = view.events.summary() | ended
    for line in view.judging.live.undecided_lines() if view.judging is not None and view.was_linked else ():
        view.remark(line)
    if view.judging is not None and (code := view.judging.live.exit_code):
        summary = {"exit_code": code, **summary}
    if is_patient and not view.was_linked:
        summary = {"exit_code": UnreachableError.exit_code, **summary, "reached": False}
    if options.save is not None and view.saving is not None and view.saving.is_begun:
        summary |= {"session": view.saving.session.number, "workspace": str(options.save.root)}
    return summary


async def _watched(
    options: WatchOptions,
    view: WatchView,
    stop: asyncio.Event,
    store: Store | None,
    *,
    is_patient: bool,
    compared: Callable[[int], None] | None,
) -> None:
    async with _recording(options, view.past_filter, store, compared) as recording:
        view.recording = recording
        view.saving = None if store is None else recording
        if options.objectives:
            view.judging = JudgingObserver(view, options.objectives, view.show_alarm)
        capture = Capture(
            options.address,
            recording,
            view.judging or view,
            wants=view.wants,
            consumer=own_name(),
            gather_s=view.gather_s,
            stop=stop,
            is_patient=is_patient,
            access=options.access,
            asks_at_end=view.saving is not None,
        )
        view.coverage = capture.coverage
        minding = [asyncio.create_task(each) for each in (view.mind(), view.mind_board())]
        if view.judging is not None:
            minding.append(asyncio.create_task(view.judging.mind()))
        try:
            await capture.run()
        finally:
            # Both tasks must have ended before the recording closes, because they read it.
            for task in minding:
                task.cancel()
            await asyncio.wait(minding)
            if view.judging is not None:
                view.judging.judge()
            if view.saving is not None and view.saving.is_begun:
                if not capture.session.has_synced:
                    view.remark(view.saving.note_uncovered(capture.coverage))
                await view.saving.cover(capture.coverage)


def own_name() -> str:
    """Return the consumer's name of this watch: its acknowledgements do not count as deliveries on the board."""
    return f"watch-{socket.gethostname()[:32]}-{os.getpid()}"


@asynccontextmanager
async def store_in(workspace: Workspace | None) -> AsyncIterator[Store | None]:
    """Open the store of a workspace, shared with captures of other boards; yield None without a workspace."""
    if workspace is None:
        yield None
        return
    with workspace.shared():
        async with Store(workspace.database) as store:
            yield store


@asynccontextmanager
async def _recording(
    options: WatchOptions, past_filter: PastFilter, store: Store | None, compared: Callable[[int], None] | None
) -> AsyncIterator[Recording]:
    chosen = RecordingOptions(
        lambda: time.time_ns() // 1000,
        source="watch",
        maps=options.maps,
        labels=options.access.named(options.address).labels,
        always_new=True,
        compared=compared or (lambda _: None),
        with_columns=True,
    )
    if store is None or options.save is None:
        async with Store(None) as in_memory:
            seen = dataclasses.replace(chosen, past_filter=past_filter, notes_past=False)
            yield Recording(MemoryWorkspace(), in_memory, seen)
        return
    with ExitStack() as lock:
        workspace = options.save
        recording = Recording(
            workspace,
            store,
            dataclasses.replace(chosen, hold=lambda identity: lock.enter_context(workspace.board_locked(identity))),
        )
        try:
            yield recording
        finally:
            await recording.end()

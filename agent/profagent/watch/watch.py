"""`watch`: live lines of one board."""

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
from profagent.record.beginnings import Beginnings
from profagent.record.capture import Capture
from profagent.record.options import RecordingOptions
from profagent.record.recording import Recording
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
    from profagent.store.events import Event
    from profagent.store.workspace import Workspace
    from profagent.store.writer import Applied

INTERVAL_ZERO = (
    "no inference for some seconds. If the program goes on, its interval is 0, the runtime's default: only the first"
    ' inference after a load is recorded. Set "interval" in its acl.json, and start it again'
)


class Silence:
    """When the last inference came, and of which JOBs the interval may be 0. Each remark is made once."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._since_s = now_s()
        self._going_on: frozenset[str] = frozenset()
        self._counts: LRUCache[tuple[str, str | None, int | None, int | None, int | None], int | None]
        self._counts = LRUCache(REMEMBERED_FIRST_SEEN)
        self._sampled: set[str] = set()  # JOBs whose interval is not 0
        self._remarked: set[bool] = set()

    def take(self, batch: JobChanges) -> None:
        """What came of a JOB: with interval 0 each inference is the first after a load, and has the same count."""
        for names, _ in _units_of(batch):
            self._since_s = self._now_s()
            for name in names:
                model = (batch.job, name.model, name.model_id, name.device, name.stream)
                if self._counts.setdefault(model, name.current_pic_count) != name.current_pic_count:
                    self._sampled.add(batch.job)

    def is_sampled(self, job: str) -> None:
        """The JOB's interval is not 0."""
        self._sampled.add(job)

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """The JOBs are these."""
        self._sampled |= {job.name for job in jobs if job.profiling is not None and interval_of(job.profiling.interval)}
        going_on = frozenset(job.name for job in jobs if job.caught_up and job.state in (OPEN, QUIET))
        if going_on - self._going_on:
            self._since_s = self._now_s()
        self._going_on = going_on

    def unlinked(self) -> None:
        """Nobody knows whether the program goes on; the silence begins anew with the next link."""
        self._going_on = frozenset()

    def remark(self) -> str | None:
        """What is to be said now, if anything."""
        silent_s = self._now_s() - self._since_s
        may_be_zero = not self._going_on & self._sampled
        if not self._going_on or silent_s < SILENCE_S or may_be_zero in self._remarked:
            return None
        self._remarked.add(may_be_zero)
        return INTERVAL_ZERO if may_be_zero else f"no inference has come for {SILENCE_S:.0f} s"


# So often a line tells of metrics, subscriptions and spans.
BOARD_EACH_S = 2.0
NO_COUNTER_MAP = (
    "no counter map: PMU columns are missing, because no public source says which word of a record is which counter;"
    " name one with --counter-map FILE"
)


class WatchOptions(Struct, frozen=True):
    """What to watch and how. `save` names a workspace that keeps the capture; `with_layers` as of Composer."""

    address: str
    from_start: bool = False
    with_records: bool = False
    with_layers: bool = False
    maps: CounterMaps = BUILT_IN
    save: Workspace | None = None
    access: Access = BY_ADDRESS


class WatchView:
    """The observer of a watched capture: events to `show`, remarks to `tell`."""

    # So long bytes gather before they are decoded: a line is to come at once.
    gather_s = 0.0
    board_each_s = BOARD_EACH_S

    def __init__(
        self,
        options: WatchOptions,
        show: Callable[[Event], None],
        tell: Callable[[str], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now_s` is a clock that never goes back."""
        self._now_s = now_s
        self.events = LiveComposer(with_records=options.with_records, with_layers=options.with_layers)
        self.board = LiveBoard(with_all=options.with_layers)
        self.beginnings = Beginnings(from_start=options.from_start)
        self._options = options
        self._show = show
        self._tell = tell
        self.recording: Recording | None = None
        self.kept: Recording | None = None  # that, where it keeps the capture
        self.was_linked = False
        self.coverage: Coverage | None = None  # of the capture, once that has begun
        self._remarked: set[str] = set()
        self._begun_us = 0  # when watching began, by the board's clock
        self._silence = Silence(time.monotonic)
        self._links = LinkRemarks(time.monotonic)
        # What a JOB held when it was found comes in any order: it is shown in time's, when all of it is there.
        self._held: list[Event] = []
        self._held_until_s: dict[str, float] = {}

    def wants(self, job: JobStatus, listed: bool) -> bool:
        """Whether to follow a collection: of other sources than JOBs those that go on."""
        if job.is_job:
            return self.beginnings.wants(job, listed)
        return job.source in SOURCES and not job.has_ended

    def linked(self, board: Board, role: str) -> None:
        """Say whom we watch, and what is odd about it."""
        self.was_linked = True
        self.events.simulated |= board.simulated
        self._begun_us = self._begun_us or board.clocks.wall_us
        self._links.linked()
        mark = " [simulated]" if board.simulated else ""
        self._tell(f"watching {board.hostname or self._options.address} at {self._options.address}{mark}")
        # The sink has read it already.
        used = self._options.maps.of(simulated=board.simulated, sdk=board.sdk_version)
        self.events.likely = () if used is None else used.likely
        if self.events.likely:
            self._tell_once(doubt_line(self.events.likely))
        for remark in remarks(board, role, time.time_ns() // 1000):
            self._tell_once(remark)

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        """Say that the link is gone."""
        self.beginnings.link_is_new()
        self.events.samples.unlist()
        self.board.link_is_lost()
        self._silence.unlinked()
        if (line := self._links.gone(error, wait_s)) is not None:
            self._tell(line)

    def remark(self, text: str) -> None:
        """Say it."""
        self._tell(text)

    def changed(self, applied: Sequence[Applied]) -> None:
        """Show what a batch meant, unless it is from before the watching."""
        for each in applied:
            batch = each.batch
            if not is_job(batch.job):
                self.board.take(batch)
                for event in self.events.told(replace(each, batch=replace(batch, state=None)), self._now_s()):
                    self._show(event)
                continue
            self._silence.take(batch)
            if self.beginnings.is_in_past(batch.job):
                self.events.pass_over(replace(each, batch=replace(batch, state=None)), self._now_s())
                continue
            shown = replace(each, batch=self._without_earlier_calls(batch))
            for event in self.events.told(shown, self._now_s()):
                self._show_in_order(event)
                if event["event"] == "inference" and event["figures"] != FigureState.PENDING:
                    self.beginnings.note_shown(event)
            if any(unit.kind is LogKind.AICORE and not unit.counters for _, unit in _units_of(batch)):
                self._tell_once(NO_COUNTER_MAP)

    def _without_earlier_calls(self, batch: JobChanges) -> JobChanges:
        """A batch without calls from before the watching: a ring of them comes whole."""
        if not self.beginnings.was_there(batch.job):
            return batch
        changes = [
            _ended_after(change, self._begun_us) if isinstance(change, ApiRecords) else change
            for change in batch.changes
        ]
        return replace(batch, changes=changes)

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """Know whether a program runs, and which JOBs are up to date."""
        jobs = [job for job in jobs if job.is_job]
        if not jobs:
            self._tell_once(NO_JOB)
        for job in jobs:
            if job.profiling is not None:
                self.events.samples.tell(job.name, interval_of(job.profiling.interval))
            if self.beginnings.has_passed_later(job.name):
                self._silence.is_sampled(job.name)
        self._silence.jobs_changed(jobs)
        for job in jobs:
            if job.caught_up:
                self.beginnings.caught_up(job.name)
                self.events.samples.list(job.name)
                self._held_until_s[job.name] = 0.0
        if self._held and all(job.caught_up for job in jobs):
            self.show_held()

    def show_held(self) -> None:
        """Show inferences that were held back, oldest first."""
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
        """Show inferences that have waited for long, once, as ones whose figures are not known yet."""
        if self.recording is None or not self.events.waits(self._now_s()):
            return
        for event in self.events.waited(await self.recording.pending(), self._now_s()):
            if not self.beginnings.is_in_past(event["job"]):
                self._show(event)

    async def mind_board(self) -> None:
        """Tell of the board itself, and of what its programs mark and subscribe to."""
        while True:
            await asyncio.sleep(self.board_each_s)
            self.show_board()

    def show_board(self) -> None:
        """Show what is new of that."""
        event = self.board.event()
        if event is not None:
            self._show({**event, "simulated": self.events.simulated})

    async def mind(self) -> None:
        """Tell of inferences that wait for long, and of silence."""
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
    """Yield the records of a batch, each time with the names of the inferences that they are of."""
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
    """Watch a board until `stop`; returns the summary. Raises UnreachableError when it cannot be reached at first.

    UsageError comes before anything is begun.
    """
    (summary,) = await watch_all([options], lambda _, event: show(event), lambda _, text: tell(text), stop)
    return summary


async def watch_all(
    boards: Sequence[WatchOptions],
    show: Callable[[str, Event], None],
    tell: Callable[[str, str], None],
    stop: asyncio.Event,
) -> list[Event]:
    """Watch boards until `stop`; returns their summaries, as `follow` does. Several are waited for."""
    async with kept_in(boards[0].save) as store:
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
    """Let a view see a board until `stop`; returns the summary. A `store` keeps the capture, as the view is told.

    A board that cannot be reached at first raises UnreachableError. One that `is_patient` is of several: it is waited
    for, and what ends it is told, and stands in its summary with the exit code. `compared` is told by how many µs the
    board's clock is ahead, where nothing is kept.
    """
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
    if is_patient and not view.was_linked:
        summary = {"exit_code": UnreachableError.exit_code, **summary, "reached": False}
    if options.save is not None and view.kept is not None and view.kept.is_begun:
        summary |= {"session": view.kept.session.number, "workspace": str(options.save.root)}
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
    async with _recording(options, view.beginnings, store, compared) as recording:
        view.recording = recording
        view.kept = None if store is None else recording
        capture = Capture(
            options.address,
            recording,
            view,
            wants=view.wants,
            consumer=own_name(),
            gather_s=view.gather_s,
            stop=stop,
            is_patient=is_patient,
            access=options.access,
            asks_at_end=view.kept is not None,
        )
        view.coverage = capture.coverage
        minding = [asyncio.create_task(each) for each in (view.mind(), view.mind_board())]
        try:
            await capture.run()
        finally:
            for task in minding:
                task.cancel()
            await asyncio.wait(minding)
            if view.kept is not None and view.kept.is_begun:
                if not capture.session.has_synced:
                    view.remark(view.kept.note_uncovered(capture.coverage))
                await view.kept.cover(capture.coverage)


def own_name() -> str:
    """What the board calls this watch: what it has taken counts for nobody."""
    return f"watch-{socket.gethostname()[:32]}-{os.getpid()}"


@asynccontextmanager
async def kept_in(workspace: Workspace | None) -> AsyncIterator[Store | None]:
    """The store of a workspace, shared with captures of other boards; None without one."""
    if workspace is None:
        yield None
        return
    with workspace.shared():
        async with Store(workspace.database) as store:
            yield store


@asynccontextmanager
async def _recording(
    options: WatchOptions, beginnings: Beginnings, store: Store | None, compared: Callable[[int], None] | None
) -> AsyncIterator[Recording]:
    """Where the stream goes: into memory, or into a session of the workspace, which ends with the context."""
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
            seen = dataclasses.replace(chosen, beginnings=beginnings, notes_past=False)
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

"""`record`: a headless capture of one board into a workspace."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from profagent.commands.capture import Capture
from profagent.commands.recording import Recording, RecordingOptions
from profagent.commands.remarks import remarks
from profagent.errors import UnreachableError, UnsupportedBoardError, UsageError
from profagent.export.kept_loss import kept_loss_fields, kept_loss_line
from profagent.ingest.changes import Entry, InferenceTimed, KeptLoss
from profagent.link.channel import full_address
from profagent.link.credentials import BY_ADDRESS
from profagent.link.following import is_over
from profagent.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from profagent.commands.workspace import Workspace
    from profagent.errors import ProfagentError
    from profagent.formats.countermap import CounterMap
    from profagent.ingest.changes import JobChanges
    from profagent.link.credentials import Access
    from profagent.link.messages import Board, JobStatus

# Bytes gather so long before they are committed; design section 6 allows 250 ms.
GATHER_S = 0.1
STOPPED_EARLY = Entry("note", "stopped-early", "the capture was stopped before all that the board held had come")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What to record and when to stop."""

    address: str
    workspace: Workspace
    for_s: float | None = None
    inferences: int | None = None
    until_finished: bool = False
    backlog: bool = False
    new: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    counter_map: CounterMap | None = None
    access: Access = BY_ADDRESS


def duration_s(text: str) -> float:
    """Seconds of `90`, `90s`, `10m`, `1h30m`; UsageError for anything else or nothing."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise UsageError(f"{text!r} is no duration", hint="write it like 90s, 10m or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


class RecordView:
    """The observer of a recording: remarks to `tell`, and the end conditions."""

    def __init__(self, options: RecordOptions, tell: Callable[[str], None], stop: asyncio.Event) -> None:
        self._options = options
        self._tell = tell
        self._stop = stop
        self._inferences: set[tuple[Any, ...]] = set()
        self._has_waited = False
        self._has_removed = False
        self._kept_losses: dict[int, KeptLoss] = {}
        self.jobs: Sequence[JobStatus] = ()

    def linked(self, board: Board, role: str) -> None:
        """Say whom we record, and what is odd about it."""
        mark = " [simulated]" if board.simulated else ""
        self._tell(f"recording {board.hostname or self._options.address} at {self._options.address}{mark}")
        for remark in remarks(board, role, time.time_ns() // 1000):
            self._tell(remark)

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        """Say that the link is gone."""
        self._tell(f"{error}; next attempt in {wait_s:.1f} s")

    def remark(self, text: str) -> None:
        """Say it."""
        self._tell(text)

    def changed(self, changes: Sequence[JobChanges]) -> None:
        """Tell losses that the board kept; count inferences, where their number ends the capture."""
        self._has_removed |= any(batch.state == "removed" for batch in changes)
        for loss in (change for batch in changes for change in batch.changes if isinstance(change, KeptLoss)):
            if self._kept_losses.get(loss.number) != loss:
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

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """End when every JOB that was followed has ended and has come whole."""
        self.jobs = jobs
        if not jobs and not self._has_waited:
            self._has_waited = True
            self._tell("no open JOB yet: waiting for a program that records")
        if self._options.until_finished and (jobs or self._has_removed) and all(is_over(job) for job in jobs):
            self._stop.set()


async def record(options: RecordOptions, tell: Callable[[str], None], stop: asyncio.Event) -> dict[str, Any]:
    """Record until an end condition or `stop`; returns the summary. Raises UnreachableError, StoreError, UsageError."""
    await asyncio.to_thread(options.access.credentials, full_address(options.address))
    with options.workspace.locked():
        async with Store(options.workspace.database) as store:
            recording = _recording(options, store)
            view = RecordView(options, tell, stop)
            try:
                await _run(_capture(options, recording, view, stop), options.for_s)
            except UnsupportedBoardError:
                await recording.end()
                raise
            if not recording.is_begun:
                raise UnreachableError(
                    "stopped before the board was reached", hint="start again, and let it run longer"
                )
            for job in view.jobs:
                if not job.caught_up and job.state != "removed":
                    recording.note(job.name, STOPPED_EARLY)
            await recording.end()
            summary = await recording.session.summary()
    return {**summary, "database": str(options.workspace.database), "mirror": str(recording.mirror)}


def _capture(options: RecordOptions, recording: Recording, view: RecordView, stop: asyncio.Event) -> Capture:
    return Capture(
        options.address,
        recording,
        view,
        wants=lambda job, listed: _is_wanted(options, recording, job, listed),
        consumer=f"record-{socket.gethostname()[:48]}",
        gather_s=GATHER_S,
        stop=stop,
        access=options.access,
    )


def _recording(options: RecordOptions, store: Store) -> Recording:
    return Recording(
        options.workspace,
        store,
        RecordingOptions(
            lambda: time.time_ns() // 1000,
            counter_map=options.counter_map,
            labels=options.labels,
            always_new=options.new,
        ),
    )


def _is_wanted(options: RecordOptions, recording: Recording, job: JobStatus, listed: bool) -> bool:
    """Whether a JOB is captured: it runs, appears later, was begun before this process was, or the backlog is asked."""
    return options.backlog or not listed or not job.has_ended or recording.has_begun(job.name)


async def _run(capture: Capture, for_s: float | None) -> None:
    timer = asyncio.get_running_loop().call_later(for_s, capture.stop.set) if for_s is not None else None
    try:
        await capture.run()
    finally:
        if timer is not None:
            timer.cancel()

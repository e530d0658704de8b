"""`watch`: live lines of one board."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.commands.capture import Capture
from profagent.commands.recording import Recording, RecordingOptions
from profagent.commands.watching import Watching
from profagent.export.live import LiveEvents
from profagent.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from profagent.commands.workspace import Workspace
    from profagent.errors import ProfagentError
    from profagent.export.live import Event
    from profagent.formats.countermap import CounterMap
    from profagent.ingest.changes import JobChanges
    from profagent.link.messages import Board, JobStatus

# After so long without an inference, say what an interval of 0 does.
SILENCE_S = 5.0
NO_COUNTER_MAP = (
    "no counter map: PMU columns are missing, because no public source says which word of a record is which counter;"
    " name one with --counter-map FILE"
)
INTERVAL_ZERO = (
    "no inference for some seconds. If the program goes on, its interval is 0, the runtime's default: only the first"
    ' inference after a load is recorded. Set "interval" in its acl.json, and start it again'
)


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What to watch and how. `save` names a workspace that keeps the capture."""

    address: str
    from_start: bool = False
    with_records: bool = False
    counter_map: CounterMap | None = None
    save: Workspace | None = None


class WatchView:
    """The observer of a watched capture: events to `show`, remarks to `tell`."""

    def __init__(self, options: WatchOptions, show: Callable[[Event], None], tell: Callable[[str], None]) -> None:
        self.events = LiveEvents(with_records=options.with_records)
        self._options = options
        self._show = show
        self._tell = tell
        self._told: set[str] = set()
        self._job_is_open = False
        self._inferences_seen = 0
        self._quiet_since_s = time.monotonic()

    def linked(self, board: Board) -> None:
        """Say whom we watch."""
        self.events.simulated = board.simulated
        mark = " [simulated]" if board.simulated else ""
        self._tell(f"watching {board.hostname or self._options.address} at {self._options.address}{mark}")
        if self._options.counter_map is None and not board.simulated:
            self._tell_once(NO_COUNTER_MAP)

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        """Say that the link is gone."""
        self._tell(f"{error}; next attempt in {wait_s:.1f} s")

    def changed(self, changes: Sequence[JobChanges]) -> None:
        """Show what a batch meant."""
        for batch in changes:
            for event in self.events.feed(batch):
                self._show(event)

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """Know whether a program runs."""
        if not jobs:
            self._tell_once("no open JOB yet: waiting for a program that records")
        self._job_is_open = any(job.state in ("open", "quiet") for job in jobs)

    async def mind_silence(self) -> None:
        """Say once why nothing comes, when a JOB is open and no inference does."""
        while True:
            await asyncio.sleep(SILENCE_S)
            if self._job_is_open and self.events.inferences == self._inferences_seen:
                self._tell_once(INTERVAL_ZERO)
            self._inferences_seen = self.events.inferences

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)


def is_open(job: JobStatus, listed: bool) -> bool:  # noqa: FBT001 - the capture's interface
    """Watch what is running, and what appears later."""
    return not listed or not job.has_ended


async def watch(
    options: WatchOptions, show: Callable[[Event], None], tell: Callable[[str], None], stop: asyncio.Event
) -> Event:
    """Watch a board until `stop`; returns the summary. Raises UnreachableError when it cannot be reached at first."""
    view = WatchView(options, show, tell)
    async with AsyncExitStack() as stack:
        sink = await _saving(options, stack) if options.save is not None else None
        capture = Capture(
            options.address,
            sink or Watching(options.counter_map, from_start=options.from_start),
            view,
            wants=is_open,
            consumer=f"watch-{socket.gethostname()[:32]}-{os.getpid()}",
            gather_s=0.0,
            stop=stop,
        )
        minding = asyncio.create_task(view.mind_silence())
        try:
            await capture.run()
        finally:
            minding.cancel()
            await asyncio.wait([minding])
    return view.events.summary()


async def _saving(options: WatchOptions, stack: AsyncExitStack) -> Recording:
    workspace = options.save
    assert workspace is not None
    stack.enter_context(workspace.locked())
    store = await stack.enter_async_context(Store(workspace.database))
    recording = Recording(
        workspace,
        store,
        RecordingOptions(lambda: time.time_ns() // 1000, source="watch", counter_map=options.counter_map, always_new=True),
    )
    stack.push_async_callback(recording.end)
    return recording

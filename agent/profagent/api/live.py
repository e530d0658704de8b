"""Captures of the Python API while they run: recording into a workspace, and the events of a watched board."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from profagent.api.arguments import checked
from profagent.api.provenance import frozen
from profagent.api.workspace import open as open_workspace
from profagent.errors import UsageError
from profagent.formats.counter_maps import CounterMaps, maps_folder
from profagent.formats.sampling import EachNth
from profagent.limits import MOST_WAITING_EVENTS
from profagent.link.boards_file import BoardsFile
from profagent.link.credentials import Access
from profagent.record.options import RecordOptions
from profagent.record.record import record as run_record
from profagent.store.workspace import Workspace as StoredWorkspace
from profagent.watch.watch import WatchOptions
from profagent.watch.watch import watch as run_watch

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from profagent.api.session import Session

    _Run = Callable[[Access, asyncio.Event], Awaitable[dict[str, Any]]]

_LOG = logging.getLogger("profagent")


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """Event of a board: its `kind`, its other `fields` by name, and whether it is invented (`simulated`).

    Kinds are `inference`, `record`, `ledger`, `kept_loss`, `job` and `board`; docs/howto/watch-the-screen.md explains
    their fields. Durations are in µs, None where they are unknown.
    """

    kind: str
    simulated: bool
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """Return a field. Raises KeyError if events of this kind have none of that name."""
        return self.fields[name]

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> LiveEvent:
        """Return an event from its JSON object."""
        fields = {name: frozen(value) for name, value in event.items() if name not in {"event", "simulated"}}
        return cls(event["event"], event["simulated"], MappingProxyType(fields))


class _Live:
    """Capture that runs in a task until it ends by itself, or is stopped."""

    def __init__(self, run: _Run, board: str, access: Access) -> None:
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._run(run, board, access))

    async def _run(self, run: _Run, board: str, access: Access) -> dict[str, Any]:
        if not BoardsFile().behind_ssh([board]):
            return await run(access, self._stop)
        from profagent.boards.tunnel import access_to  # noqa: PLC0415 - asyncssh takes time to import

        async with access_to([board], access, None, _LOG.warning, self._stop) as tunnelled:
            return await run(tunnelled, self._stop)

    def stop(self) -> None:
        """Ask for the end: what has arrived is kept."""
        self._stop.set()

    async def end(self) -> None:
        """Stop, and wait for the end, whatever error it has."""
        self._stop.set()
        await asyncio.wait([self._task])
        # asyncio would report an error that nobody has looked at.
        if not self._task.cancelled():
            self._task.exception()

    async def wait(self) -> None:
        """Wait for the end. Raises the error that ended the capture, as UnreachableError."""
        await asyncio.shield(self._task)

    @property
    def summary(self) -> Mapping[str, Any]:
        """Summary of the capture, as the command prints it with `--json`. Raises UsageError before the end."""
        if not self._task.done():
            raise UsageError("the capture still runs", hint="leave its context, or await wait(), first")
        found: Mapping[str, Any] = frozen(self._task.result())
        return found


L = TypeVar("L", bound=_Live)


class LiveRecording(_Live):
    """Capture of a board into a workspace: `stop()` asks for its end, `wait()` waits for it."""

    def __init__(self, options: RecordOptions) -> None:
        self._workspace = options.workspace

        async def run(access: Access, stop: asyncio.Event) -> dict[str, Any]:
            return await run_record(replace(options, access=access), _LOG.warning, stop)

        super().__init__(run, options.addresses[0], options.access)

    def session(self) -> Session:
        """Return the session that was recorded. Raises UsageError before the end."""
        number = self.summary["session"]
        return open_workspace(self._workspace.root).session(number)


class LiveEvents(_Live, AsyncIterator[LiveEvent]):
    """Events of a watched board, to be read by `async for`; `lost` counts those that nobody read in time.

    MOST_WAITING_EVENTS wait for the reader; then the oldest is dropped.
    """

    def __init__(self, options: WatchOptions) -> None:
        self.lost = 0
        self._waiting: asyncio.Queue[LiveEvent | None] = asyncio.Queue(MOST_WAITING_EVENTS)

        async def run(access: Access, stop: asyncio.Event) -> dict[str, Any]:
            reached = msgspec.structs.replace(options, access=access)
            return await run_watch(reached, lambda event: self._put(LiveEvent.of(event)), _LOG.warning, stop)

        super().__init__(run, options.address, options.access)
        # None is the end.
        self._task.add_done_callback(lambda _: self._put(None))

    def _put(self, event: LiveEvent | None) -> None:
        if self._waiting.full():
            self._waiting.get_nowait()
            self.lost += 1
        self._waiting.put_nowait(event)

    async def __anext__(self) -> LiveEvent:
        """Return the next event. Raises the error that ended the capture."""
        event = await self._waiting.get()
        if event is not None:
            return event
        # A later call finds the end, too.
        self._put(None)
        self._task.result()
        raise StopAsyncIteration


@asynccontextmanager
async def _running(begin: Callable[[], L]) -> AsyncIterator[L]:
    live = begin()
    try:
        yield live
    except BaseException:
        await live.end()
        raise
    live.stop()
    await live.wait()


def _maps() -> CounterMaps:
    return CounterMaps(None, maps_folder(), _LOG.warning)


@checked
def record(  # noqa: PLR0913 - one argument an option
    board: str,
    *,
    workspace: Path | str | None = None,
    for_s: float | None = None,
    inferences: int | None = None,
    until_finished: bool = False,
    backlog: bool = False,
    from_now: bool = False,
    every: int | None = None,
    labels: Mapping[str, str] | None = None,
    keys: Path | None = None,
    insecure: bool = False,
) -> AbstractAsyncContextManager[LiveRecording]:
    """Record a board into a workspace while the block runs; leaving it ends the session.

    `board` is a name of `profagent boards`, or HOST[:PORT]; `for_s` is in s; other arguments are the options of the
    same name of `profagent record`. Raises UsageError at once for a value that is none of them. The end of the block
    raises the error that ended the capture: UnreachableError if the board was never reached, UsageError for keys that
    do not fit, StoreError.

        async with profagent.record("euler", labels={"build": "1234"}, until_finished=True) as recording:
            await recording.wait()
        recording.session().layers()
    """
    options = RecordOptions(
        (board,),
        StoredWorkspace.at(None if workspace is None else Path(workspace)),
        for_s=for_s,
        inferences=inferences,
        until_finished=until_finished,
        backlog=backlog,
        from_now=from_now,
        keeping=None if every is None else EachNth(every),
        labels=labels or {},
        maps=_maps(),
        access=Access(keys, insecure, BoardsFile().known()),
    )
    return _running(lambda: LiveRecording(options))


@checked
def watch(
    board: str,
    *,
    from_start: bool = False,
    with_records: bool = False,
    save_in: Path | str | None = None,
    keys: Path | None = None,
    insecure: bool = False,
) -> AbstractAsyncContextManager[LiveEvents]:
    """Watch a board while the block runs: its events come as they happen, without an end of their own.

    With `from_start` those of open JOBs come first; with `with_records` there is an event for each record, too. Nothing
    is kept unless `save_in` names a workspace. `board`, `keys` and `insecure` are as in `record`, and so are errors.

        async with profagent.watch("euler") as events:
            async for event in events:
                if event.kind == "inference" and event["latency_us"] > 20_000:
                    break
    """
    options = WatchOptions(
        board,
        from_start=from_start,
        with_records=with_records,
        maps=_maps(),
        save=None if save_in is None else StoredWorkspace.at(Path(save_in)),
        access=Access(keys, insecure, BoardsFile().known()),
    )
    return _running(lambda: LiveEvents(options))

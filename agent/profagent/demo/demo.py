"""`demo`: the whole way on a simulated board of one's own."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from profagent.errors import ProfagentError, UnreachableError
from profagent.export.export import SummaryOptions, export_summary, export_timeline
from profagent.record.record import RecordOptions, record
from profagent.watch.watch import WatchOptions, watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from profagent.store.workspace import Workspace
    from profagent.watch.live import Event

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
# A board that cannot be reached is given so long to be gone.
ENDING_S = 2.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How long the simulated program runs, at which rate and with which network."""

    workspace: Workspace
    for_s: float = 5.0
    rate: float = 10.0
    model: str = "yolov5s"


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The recorded session's summary, and the folder with the exports."""

    summary: dict[str, Any]
    exports: Path


async def demo(
    options: DemoOptions, show: Callable[[Event], None], tell: Callable[[str], None], stop: asyncio.Event
) -> DemoResult:
    """Run the simulated board, show it live, record it, export it. Raises ProfagentError when a step fails."""
    async with simulated_board(options) as board:
        summary = await board.lives_through(_capture(options, board.address, show, tell, stop))
    tell("exporting")
    folder = options.workspace.root / "exports" / f"session-{summary['session']}"
    await asyncio.to_thread(_export, options.workspace.database, folder, summary["session"])
    return DemoResult(summary, folder)


def _export(database: Path, folder: Path, session: int) -> None:
    export_timeline(database, folder / "timeline", session=session)
    export_summary(database, folder / "summary", session=session)
    export_summary(database, folder / "aggregate", session=session, options=SummaryOptions(aggregate=True))


class SimulatedBoard:
    """A `profagentd --simulate` of our own."""

    def __init__(self, address: str, process: asyncio.subprocess.Process) -> None:
        self.address = address
        self._process = process

    async def lives_through(self, work: Coroutine[Any, Any, T]) -> T:
        """What some work gives, which is given up when the board ends before it. Raises ProfagentError then."""
        task, ended = asyncio.create_task(work), asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait([task, ended], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        except UnreachableError as error:
            if await _has_ended(self._process, ENDING_S):
                raise self._end_by_itself() from error
            raise
        finally:
            task.cancel()
            ended.cancel()
            await asyncio.wait([task, ended])
        raise self._end_by_itself()

    def _end_by_itself(self) -> ProfagentError:
        return _board_failed(f"ended by itself (exit code {self._process.returncode})")


@asynccontextmanager
async def simulated_board(options: DemoOptions) -> AsyncIterator[SimulatedBoard]:
    """A simulated board on a free loopback port."""
    arguments = ["--listen", "127.0.0.1:0", "--simulate", "--model", options.model]
    arguments += ("--rate", f"{options.rate:g}", "--for", f"{options.for_s:g}", "--log-level", "warning")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "profagentd", *arguments),
        stdout=asyncio.subprocess.PIPE,
        # Ctrl-C is ours: the board goes on until everything has been fetched.
        start_new_session=True,
    )
    try:
        yield SimulatedBoard(await _address(process), process)
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    if not await _has_ended(process, STOP_TIMEOUT_S):
        process.kill()
        await process.wait()


async def _has_ended(process: asyncio.subprocess.Process, within_s: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await process.wait()
    return process.returncode is not None


def _board_failed(how: str) -> ProfagentError:
    return ProfagentError(f"the simulated board {how}", hint="profagentd's own message above says why")


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    line = b""
    with suppress(TimeoutError):
        async with asyncio.timeout(START_TIMEOUT_S):
            line = await process.stdout.readline()
    address = line.decode().rpartition(" serving ")[2].strip()
    if not address:
        raise _board_failed("did not start")
    return address


async def _capture(
    options: DemoOptions, address: str, show: Callable[[Event], None], tell: Callable[[str], None], stop: asyncio.Event
) -> dict[str, Any]:
    """Watch and record at the same time, as two clients, until the simulated program has finished."""
    watching = asyncio.Event()
    live = asyncio.create_task(watch(WatchOptions(address, from_start=True), show, tell, watching))
    try:
        return await record(RecordOptions((address,), options.workspace, until_finished=True, backlog=True), tell, stop)
    finally:
        watching.set()
        await _settled(live)


async def _settled(live: asyncio.Task[Event]) -> None:
    """Wait for the live view; that it lost a board that has just stopped is no error."""
    try:
        await live
    except UnreachableError:
        return

"""A command of ours in a process of its own: what happens to it happens to nobody else."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Ended", "run_command"]

PROGRAM = (sys.executable, "-c", "from profagent.cli.main import main; main()")
# One that is told to end has so long for its summary.
ENDING_S = 60.0
LEAVING_S = 5.0
LONGEST_LINE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Ended:
    """A command's exit code, what it printed as JSON (None: none), and the last line that it said.

    It had to be ended because its time was over (`is_late`), or because the caller was told to stop (`is_stopped`).
    """

    code: int
    document: Mapping[str, Any] | None
    said: str
    is_late: bool = False
    is_stopped: bool = False


async def run_command(
    arguments: Sequence[str], limit_s: float, stop: asyncio.Event, tell: Callable[[str], None]
) -> Ended:
    """Run `profagent` with arguments and pass its remarks on; past the limit, or when `stop` is set, it has to end."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # A terminal's Ctrl-C is for us: a command that hears it from both would leave at once.
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.TaskGroup() as group:
            output = group.create_task(process.stdout.read())
            said = group.create_task(_passed_on(process.stderr, tell))
            was_ended = await _end(process, limit_s, stop)
    finally:
        code = await _left(process)
    is_stopped = was_ended and stop.is_set()
    return Ended(code, _document(output.result()), said.result(), was_ended and not is_stopped, is_stopped)


async def _end(process: asyncio.subprocess.Process, limit_s: float, stop: asyncio.Event) -> bool:
    """Wait for its end, and have it end when it must; whether it had to."""
    ending, stopping = asyncio.create_task(process.wait()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({ending, stopping}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        was_ended = not ending.done()
        if was_ended:
            process.send_signal(signal.SIGINT)
            await asyncio.wait({ending}, timeout=ENDING_S)
        if not ending.done():
            process.kill()
        await ending
    finally:
        ending.cancel()
        stopping.cancel()
    return was_ended


async def _left(process: asyncio.subprocess.Process) -> int:
    """Its exit code; one that runs has to leave at once, which it does better by itself."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
        await asyncio.wait({asyncio.ensure_future(process.wait())}, timeout=LEAVING_S)
        process.kill()
    return await process.wait()


async def _passed_on(stream: asyncio.StreamReader, tell: Callable[[str], None]) -> str:
    """Tell each line; the last that says something of itself, and is no hint below one."""
    said, rest = "", b""
    while piece := await stream.read(LONGEST_LINE_BYTES):
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) >= LONGEST_LINE_BYTES:
            # A program may write without end and never a line.
            lines, rest = [*lines, rest], b""
        for line in lines:
            said = _told(line, tell) or said
    if rest:
        said = _told(rest, tell) or said
    return said.removeprefix("profagent: ")


def _told(line: bytes, tell: Callable[[str], None]) -> str:
    """Tell a line; what it says of itself."""
    text = line.decode("utf-8", "replace").rstrip()
    tell(text)
    return "" if text.startswith(" ") else text


def _document(output: bytes) -> Mapping[str, Any] | None:
    lines = output.splitlines()
    try:
        document = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return document if isinstance(document, dict) else None

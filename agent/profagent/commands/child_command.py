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
LONGEST_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Ended:
    """A command's exit code, what it printed as JSON (None: none), and the last line that it said.

    `is_late`: it had to be ended, because its time was over.
    """

    code: int
    document: Mapping[str, Any] | None
    said: str
    is_late: bool


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
        limit=LONGEST_LINE_BYTES,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.TaskGroup() as group:
            output = group.create_task(process.stdout.read())
            said = group.create_task(_passed_on(process.stderr, tell))
            is_late = await _end(process, limit_s, stop)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        code = await process.wait()
    return Ended(code, _document(output.result()), said.result(), is_late)


async def _end(process: asyncio.subprocess.Process, limit_s: float, stop: asyncio.Event) -> bool:
    """Wait for its end, and have it end when it must; whether it was late."""
    ending, stopping = asyncio.create_task(process.wait()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({ending, stopping}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        is_late = not ending.done() and not stop.is_set()
        if not ending.done():
            process.send_signal(signal.SIGINT)
            await asyncio.wait({ending}, timeout=ENDING_S)
        if not ending.done():
            process.kill()
        await ending
    finally:
        ending.cancel()
        stopping.cancel()
    return is_late


async def _passed_on(stream: asyncio.StreamReader, tell: Callable[[str], None]) -> str:
    """Tell each line; the last that says something of itself, and is no hint below one."""
    said = ""
    async for line in stream:
        text = line.decode("utf-8", "replace").rstrip()
        tell(text)
        said = text if text and not text.startswith(" ") else said
    return said.removeprefix("profagent: ")


def _document(output: bytes) -> Mapping[str, Any] | None:
    lines = output.splitlines()
    try:
        document = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return document if isinstance(document, dict) else None

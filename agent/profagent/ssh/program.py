"""A command that runs on a board: its pipes, its end, and what came of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncssh

from profagent.errors import ProfagentError
from profagent.ssh.failures import connected, lost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Program", "Ran"]

# A command's output beyond this is nothing that was asked for.
LARGEST_OUTPUT_BYTES = 16 << 20
_READ_BYTES = 64 << 10
_END_S = 3.0
# GNU tar's last line, whatever was wrong.
_TAR_FAILED = "tar: Exiting with failure status due to previous errors"


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended. A status below 0 is a signal."""

    stdout: bytes
    stderr: bytes
    status: int

    @property
    def text(self) -> str:
        """Its output without the last line's end."""
        return self.stdout.decode("utf-8", "replace").rstrip("\n")

    @property
    def complaint(self) -> str:
        """The last line that it wrote to stderr, else its status."""
        lines = [line.strip() for line in self.stderr.decode("utf-8", "replace").split("\n")]
        said = (line for line in reversed(lines) if line and line != _TAR_FAILED)
        return next(said, f"exit status {self.status}")


class Program:
    """A command that runs on the board. Its pipes carry bytes."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes], where: str) -> None:
        self._process = process
        self._where = where
        self.stdin = process.stdin
        self.stdout = process.stdout
        self.stderr = process.stderr

    async def read_line(self) -> bytes:
        """The next line of its output, empty at the end of it. Raises UnreachableError."""
        with connected(self._where):
            return await self.stdout.readline()

    async def rest(self) -> bytes:
        """The rest of its output, once that has ended. Raises UnreachableError; ProfagentError for too much."""
        with connected(self._where):
            return await _read(self.stdout)

    async def complaint(self) -> str:
        """The same of what it writes to stderr."""
        with connected(self._where):
            return (await _read(self.stderr)).decode("utf-8", "replace")

    async def wait(self) -> int:
        """Its exit status; below 0 for a signal. UnreachableError when the link is lost before."""
        with connected(self._where):
            await self._process.wait_closed()
        if self._process.exit_signal is not None:
            return -1
        if self._process.returncode is None:
            raise lost(self._where, ConnectionError("it ended while a command ran"))
        return self._process.returncode

    async def fed(self, pieces: AsyncIterator[bytes]) -> Ran:
        """Give it its input, and wait for its end. Raises UnreachableError; ProfagentError for too much output."""
        with connected(self._where):
            stdout, stderr = await _conversed(self, pieces)
        return Ran(stdout, stderr, await self.wait())

    async def end(self) -> None:
        """Tell it the end of its input, and give it a while to heed that."""
        with suppress(OSError):
            self.stdin.write_eof()
        self._process.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._process.wait_closed()


async def _conversed(program: Program, pieces: AsyncIterator[bytes]) -> tuple[bytes, bytes]:
    """Feed a program; what it writes to stdout and stderr until it ends."""
    try:
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(_feed(program, pieces))
            reading = [group.create_task(_read(pipe)) for pipe in (program.stdout, program.stderr)]
            await asyncio.wait(reading)
            # A command that has ended takes no more.
            feeding.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return reading[0].result(), reading[1].result()


async def _feed(program: Program, pieces: AsyncIterator[bytes]) -> None:
    async for piece in pieces:
        try:
            program.stdin.write(piece)
            await program.stdin.drain()
        except (OSError, asyncssh.Error):
            # It has ended: its output and its status tell why.
            return
    with suppress(OSError):
        program.stdin.write_eof()


async def _read(pipe: asyncssh.SSHReader[bytes]) -> bytes:
    """All that comes. Raises ProfagentError beyond LARGEST_OUTPUT_BYTES."""
    content = bytearray()
    while piece := await pipe.read(_READ_BYTES):
        content += piece
        if len(content) > LARGEST_OUTPUT_BYTES:
            raise ProfagentError(
                f"the board sends more than {LARGEST_OUTPUT_BYTES} bytes where a few were expected",
                hint="log in and see what the user's shell prints by itself (.profile, .bashrc)",
            )
    return bytes(content)

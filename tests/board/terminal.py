"""A command on a terminal of its own, or without any, and what a person sees and types there."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.daemon.daemon_process import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 60.0
LOGIN = """
import asyncio, sys
from profagent.errors import ProfagentError
from profagent.ssh.connection import connect
from profagent.ssh.connection import Person

async def main():
    async with connect(sys.argv[1], Person()) as remote:
        print("logged in:", (await remote.must("echo as $USER")).text)

try:
    asyncio.run(main())
except ProfagentError as error:
    sys.exit(f"{type(error).__name__}: {error}\\n  {error.hint}")
"""


class Terminal:
    """The person's side."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.seen = ""
        self._master = master

    @property
    def is_open(self) -> bool:
        """Whether the person is still there."""
        return self._master >= 0

    def until(self, text: str) -> None:
        """Wait until it was shown."""
        until = time.monotonic() + TIMEOUT_S
        while text not in self.seen:
            assert time.monotonic() < until, self.seen
            assert self._read(), self.seen

    def look(self, seconds: float) -> int:
        """Look on for so long; the characters that were drawn meanwhile."""
        before, until = len(self.seen), time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._read(left)
        return len(self.seen) - before

    def type(self, line: str, end: str = "\n") -> None:
        """Type a line, or a key without an end."""
        os.write(self._master, f"{line}{end}".encode())

    def close(self) -> None:
        """Go away."""
        os.close(self._master)
        self._master = -1

    def ended(self) -> int:
        """Wait for the command's end; its exit code."""
        while self._read():
            pass
        return self.process.wait(TIMEOUT_S)

    def _read(self, timeout_s: float = TIMEOUT_S) -> bool:
        if not select.select([self._master], [], [], timeout_s)[0]:
            return False
        try:
            piece = os.read(self._master, 4096)
        except OSError:
            # Nobody has the other side open any more.
            return False
        self.seen += piece.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(piece)


@contextmanager
def at_terminal(*command: str, **variables: str) -> Iterator[Terminal]:
    """A command whose terminal is a new one; it is killed when it still runs at the end."""
    master, slave = pty.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        command,
        env={**environment("protos", "daemon", "agent"), **variables},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=take_terminal,  # noqa: PLW1509 - no threads of ours run here that hold locks
    )
    os.close(slave)
    terminal = Terminal(master, process)
    try:
        yield terminal
    finally:
        process.kill()
        process.wait()
        if terminal.is_open:
            terminal.close()


def login_command(target: str) -> list[str]:
    """A program that logs in as profagent does."""
    return [sys.executable, "-c", LOGIN, target]


def without_terminal(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command that has no terminal, to its end."""
    return subprocess.run(
        command,
        env={**environment("protos", "daemon", "agent"), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=TIMEOUT_S,
        check=False,
    )

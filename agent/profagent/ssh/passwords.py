"""Asking a person: on the terminal, or through the program that SSH_ASKPASS names."""

from __future__ import annotations

import asyncio
import os
import termios
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from profagent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TERMINAL = "/dev/tty"
_LONGEST_LINE = 1024
_LOCAL_FLAGS = 3


class Asker(Protocol):
    """Somebody who can be asked. None as an answer: nobody is there."""

    async def confirm(self, question: str) -> bool | None:
        """Yes or no."""

    async def secret(self, prompt: str) -> str | None:
        """A password or passphrase."""


class Person:
    """Who sits at the terminal of this process; secrets also from SSH_ASKPASS, as `ssh` takes them.

    SSH_ASKPASS_REQUIRE is `force` or `prefer` for the program in any case, `never` for the terminal alone.
    """

    async def confirm(self, question: str) -> bool | None:
        """Asked at the terminal only."""
        answer = await _asked(question, is_secret=False)
        return None if answer is None else answer.strip().lower() in ("yes", "y")

    async def secret(self, prompt: str) -> str | None:
        """Nothing that is typed is shown. Raises UsageError when SSH_ASKPASS cannot be run."""
        program = os.environ.get("SSH_ASKPASS", "")
        wish = os.environ.get("SSH_ASKPASS_REQUIRE", "").lower()
        if program and wish in ("force", "prefer"):
            return await _from_program(program, prompt)
        answer = await _asked(prompt, is_secret=True)
        return await _from_program(program, prompt) if answer is None and program and wish != "never" else answer


class Given:
    """Somebody who knows the board's password, and asks another person for all else."""

    def __init__(self, password: str, person: Asker) -> None:
        self._password = password
        self._person = person

    async def confirm(self, question: str) -> bool | None:
        """As the person says."""
        return await self._person.confirm(question)

    async def secret(self, prompt: str) -> str | None:
        """The password; what else is asked for, as a key's passphrase, the person tells."""
        if "password" not in prompt.lower():
            return await self._person.secret(prompt)
        return self._password


async def _asked(prompt: str, *, is_secret: bool) -> str | None:
    try:
        terminal = os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with _without_echo(terminal) if is_secret else nullcontext():
            os.write(terminal, prompt.encode())
            line = await _line(terminal)
        if is_secret:
            os.write(terminal, b"\n")
    finally:
        os.close(terminal)
    return line


@contextmanager
def _without_echo(terminal: int) -> Iterator[None]:
    was = termios.tcgetattr(terminal)
    silent = [*was]
    silent[_LOCAL_FLAGS] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSAFLUSH, silent)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, was)


async def _line(terminal: int) -> str | None:
    """A line that was typed; the loop goes on meanwhile, so that Ctrl-C is heard. None at the terminal's end."""
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    loop.add_reader(terminal, typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(terminal)
    line = os.read(terminal, _LONGEST_LINE)
    return line.decode("utf-8", "surrogateescape").rstrip("\r\n") if line else None


async def _from_program(program: str, prompt: str) -> str | None:
    """The line that the program prints; None when it was cancelled."""
    try:
        process = await asyncio.create_subprocess_exec(program, prompt, stdout=asyncio.subprocess.PIPE)
    except OSError as error:
        raise UsageError(
            f"SSH_ASKPASS: cannot run {program}: {error.strerror}", hint="name a program that prints the password"
        ) from error
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = output.decode("utf-8", "surrogateescape").splitlines()
    return lines[0] if process.returncode == 0 and lines else None

"""Logging in to a board with asyncssh: its configuration, keys and agents first, then passphrases and passwords."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import asyncssh

from profagent.errors import UsageError
from profagent.ssh.failures import connecting
from profagent.ssh.known_hosts import HostKeys
from profagent.ssh.remote import Remote
from profagent.ssh.target import Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from profagent.ssh.passwords import Asker

__all__ = ["connect"]

_FILES = ("~/.ssh/config", "/etc/ssh/ssh_config")
_MOST_PROMPTS = 3
_CLOSE_S = 3.0
# Where ConnectTimeout and ServerAliveInterval say nothing; people who are asked have no limit but asyncssh's own.
_CONNECT_S = 15.0
_ALIVE_S = 5.0


@asynccontextmanager
async def connect(target: str, asker: Asker) -> AsyncIterator[Remote]:
    """A board that `asker` has logged in to; the connection, and those to jump hosts, end with the context.

    Raises UsageError, UnreachableError, RefusedError.
    """
    login = await asyncio.to_thread(_Login.read, Target.parse(target))
    connection = await login.connected(asker)
    try:
        yield Remote(connection, login.options.host)
    finally:
        await _close(connection)


class _Login(asyncssh.SSHClient):
    """The way to one board, as the configuration has it; it answers what the server asks, once there is an asker."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.options = asyncssh.SSHClientConnectionOptions(**arguments)
        self._arguments = arguments
        self._keys = HostKeys(self.options)
        self._login = f"{self.options.username}@{self.options.orig_host}"
        self._asker: Asker | None = None
        self._prompts = 0
        self._is_reached = False

    @classmethod
    def read(cls, target: Target) -> Self:
        """What the files say. Raises UsageError for one that cannot be read."""
        named = {"username": target.user, "port": target.port}
        files = [path for path in (Path(file).expanduser() for file in _FILES) if path.is_file()]
        try:
            return cls({"host": target.host, "config": files, **{key: each for key, each in named.items() if each}})
        except (ValueError, OSError, asyncssh.Error) as error:
            raise UsageError(
                f"the SSH configuration for {target}: {error}",
                hint="mend ~/.ssh/config, or the keys and known_hosts in that folder",
            ) from error

    async def connected(self, asker: Asker) -> asyncssh.SSHClientConnection:
        """First with what asks nobody; a person is asked when that was not enough."""
        with connecting(self.options, lambda: self._is_reached):
            try:
                return await self._with_known_host(asker)
            except asyncssh.PermissionDenied:
                self._asker = asker
                return await self._with_known_host(asker)

    async def _with_known_host(self, asker: Asker) -> asyncssh.SSHClientConnection:
        while True:
            self._is_reached = False
            try:
                return await asyncssh.connect(
                    **self._arguments,
                    client_factory=lambda: self,
                    known_hosts=self._keys.match,
                    server_host_key_algs=self._keys.kinds,
                    passphrase=_passphrases(self._asker) if self._asker else None,
                    connect_timeout=None if self._asker else self.options.connect_timeout or _CONNECT_S,
                    keepalive_interval=self.options.keepalive_interval or _ALIVE_S,
                )
            except asyncssh.HostKeyNotVerifiable as error:
                if not self._is_reached:
                    raise
                await self._keys.judge(error.reason, asker)

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:  # noqa: ARG002 - asyncssh's interface
        """The board is reached: what fails from now on is no jump host's."""
        self._is_reached = True

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:  # noqa: ARG002 - as above
        """An unknown one ends this connection: nothing is asked while it waits."""
        self._keys.seen = key
        return False

    async def password_auth_requested(self) -> str | None:
        """The password; None when nobody is asked, or was often enough."""
        return await self._secret(f"{self._login}'s password: ")

    def kbdint_auth_requested(self) -> str | None:
        """No method in particular; None when nobody can be asked."""
        return None if self._asker is None else ""

    async def kbdint_challenge_received(
        self,
        name: str,
        instructions: str,
        lang: str,  # noqa: ARG002 - as above
        prompts: Sequence[tuple[str, bool]],
    ) -> list[str] | None:
        """The answer to each prompt of the server."""
        said = "".join(f"{_shown(text)}\n" for text in (name, instructions) if text)
        answers: list[str] = []
        for prompt, _ in prompts:
            answer = await self._secret(f"{said}({self._login}) {_shown(prompt)}")
            if answer is None:
                return None
            answers.append(answer)
            said = ""
        return answers

    async def _secret(self, prompt: str) -> str | None:
        if self._asker is None or self._prompts == _MOST_PROMPTS:
            return None
        self._prompts += 1
        return await self._asker.secret(prompt)


def _passphrases(asker: Asker) -> Any:
    """What asyncssh calls, in a thread of its own, for a key that the server takes."""
    loop = asyncio.get_running_loop()

    def ask(file: str) -> str | None:
        for half in (f"{file}.pub", file):
            with suppress(OSError, ValueError):
                asyncssh.read_public_key(half)
                break
        else:
            # asyncssh can use no passphrase for a key of which it knows no public half; by this it passes over it.
            raise asyncssh.KeyImportError("Passphrase")
        asking = asker.secret(f"Passphrase of the key {Path(file).expanduser()}: ")
        return asyncio.run_coroutine_threadsafe(asking, loop).result()

    return ask


def _shown(text: str) -> str:
    """What a server says, fit for a terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)


async def _close(connection: asyncssh.SSHClientConnection) -> None:
    """End a connection in good order, or after a while in any: a dead link takes no farewell."""
    connection.close()
    try:
        async with asyncio.timeout(_CLOSE_S):
            await connection.wait_closed()
    except TimeoutError:
        connection.abort()

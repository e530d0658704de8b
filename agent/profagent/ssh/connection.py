"""Logging in to a board: ~/.ssh/config, jump hosts, host keys, keys and agents, then passphrases and passwords."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncssh

from profagent.errors import UsageError
from profagent.ssh.config import config_files, named
from profagent.ssh.failures import connecting
from profagent.ssh.host_keys import HostKeys
from profagent.ssh.identities import Identities, identities
from profagent.ssh.proxy import proxied
from profagent.ssh.remote import Remote
from profagent.ssh.settings import Settings
from profagent.ssh.target import Target

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Sequence

    from profagent.ssh.passwords import Asker

__all__ = ["connect"]

_MOST_JUMPS = 8
_MOST_PROMPTS = 3
_CLOSE_S = 3.0
_ALIVE_COUNT = 3


@asynccontextmanager
async def connect(target: str, asker: Asker) -> AsyncIterator[Remote]:
    """A board that `asker` has logged in to; the connection, and those to jump hosts, end with the context.

    Raises UsageError, UnreachableError, RefusedError.
    """
    async with AsyncExitStack() as stack:
        login = _Login(asker, stack)
        connection, settings = await login.reach(Target.parse(target), None, 0)
        yield Remote(connection, settings.host)


class _Login:
    """The way to one board, over its jump hosts."""

    def __init__(self, asker: Asker, stack: AsyncExitStack) -> None:
        self._asker = asker
        self._stack = stack

    async def reach(
        self, target: Target, tunnel: asyncssh.SSHClientConnection | None, depth: int
    ) -> tuple[asyncssh.SSHClientConnection, Settings]:
        """Log in to a target, through `tunnel` or over its own jump hosts."""
        settings = await Settings.read(target)
        if depth > _MOST_JUMPS:
            raise UsageError(f"{target}: more than {_MOST_JUMPS} jump hosts", hint="ProxyJump may go in a circle")
        for hop in settings.jumps if tunnel is None else ():
            tunnel, _ = await self.reach(hop, tunnel, depth + 1)
        return await self._log_in(settings, tunnel), settings

    async def _log_in(
        self, settings: Settings, tunnel: asyncssh.SSHClientConnection | None
    ) -> asyncssh.SSHClientConnection:
        """First with what asks nobody; a person is asked when that was not enough."""
        keys = await asyncio.to_thread(HostKeys, settings)
        unusable: list[str] = []
        with connecting(settings, unusable):
            try:
                return await self._with_known_host(_Attempt(settings, tunnel, keys, None, unusable))
            except asyncssh.PermissionDenied:
                unusable.clear()
                return await self._with_known_host(_Attempt(settings, tunnel, keys, self._asker, unusable))

    async def _with_known_host(self, attempt: _Attempt) -> asyncssh.SSHClientConnection:
        while True:
            try:
                return await attempt.connected(self._stack)
            except asyncssh.HostKeyNotVerifiable:
                await attempt.keys.judge(self._asker)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One login, with or without somebody to ask."""

    settings: Settings
    tunnel: asyncssh.SSHClientConnection | None
    keys: HostKeys
    asker: Asker | None
    unusable: list[str]

    async def connected(self, stack: AsyncExitStack) -> asyncssh.SSHClientConnection:
        """The connection, which `stack` ends.

        With an asker there is no limit but the one for the login, which asyncssh has: people think.
        """
        proxy = self.settings.proxy if self.tunnel is None else None
        async with (
            asyncio.timeout(self.settings.connect_s if self.asker is None else None),
            AsyncExitStack() as way,
        ):
            sock = await way.enter_async_context(proxied(proxy)) if proxy else None
            async with identities(self.settings, self.asker, self.unusable) as offered:
                connection = await self._connect(sock, offered)
            way.push_async_callback(_close, connection)
            stack.push_async_callback(way.pop_all().aclose)
            return connection

    async def _connect(self, sock: socket.socket | None, offered: Identities) -> asyncssh.SSHClientConnection:
        target = self.settings.target
        return await asyncssh.connect(
            target.host,
            **named(target),
            config=config_files(),
            sock=sock,
            tunnel=self.tunnel,
            proxy_command=None,
            client_factory=lambda: _Client(self.settings, self.keys, offered, self.asker),
            # All keys come from the client, which has them in order.
            client_keys=None,
            known_hosts=self.keys.match,
            server_host_key_algs=self.keys.algorithms,
            connect_timeout=None,
            keepalive_interval=self.settings.alive_s,
            keepalive_count_max=_ALIVE_COUNT,
        )


class _Client(asyncssh.SSHClient):
    """Answers what the server asks during the login."""

    def __init__(self, settings: Settings, keys: HostKeys, offered: Identities, asker: Asker | None) -> None:
        self._login = f"{settings.user}@{settings.target.host}"
        self._keys = keys
        self._offered = offered
        self._asker = asker
        self._prompts = 0

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:  # noqa: ARG002 - asyncssh's interface
        """Whether it is known. Where it is not, nothing is asked while the connection waits."""
        return self._keys.is_known(key)

    async def public_key_auth_requested(self) -> asyncssh.SSHKeyPair | None:
        """The next key to log in with."""
        return await self._offered.next()

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

"""Logging in to a board: ~/.ssh/config, jump hosts, host keys, keys and agents, then passphrases and passwords."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncssh

from profagent.errors import UsageError
from profagent.ssh.failures import connecting
from profagent.ssh.host_keys import HostKeys
from profagent.ssh.remote import Remote
from profagent.ssh.settings import Settings, config_files, named
from profagent.ssh.target import Target

if TYPE_CHECKING:
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
        connection = await self._log_in(settings, tunnel)
        self._stack.push_async_callback(_close, connection)
        return connection, settings

    async def _log_in(
        self, settings: Settings, tunnel: asyncssh.SSHClientConnection | None
    ) -> asyncssh.SSHClientConnection:
        """First with what asks nobody; a person is asked when that was not enough."""
        keys = await asyncio.to_thread(HostKeys, settings)
        with connecting(settings):
            try:
                return await self._with_known_host(settings, tunnel, keys, None)
            except asyncssh.PermissionDenied:
                return await self._with_known_host(settings, tunnel, keys, self._asker)

    async def _with_known_host(
        self,
        settings: Settings,
        tunnel: asyncssh.SSHClientConnection | None,
        keys: HostKeys,
        asker: Asker | None,
    ) -> asyncssh.SSHClientConnection:
        try:
            return await _attempt(settings, tunnel, keys, asker)
        except asyncssh.HostKeyNotVerifiable:
            await keys.judge(self._asker)
            return await _attempt(settings, tunnel, keys, asker)


async def _attempt(
    settings: Settings, tunnel: asyncssh.SSHClientConnection | None, keys: HostKeys, asker: Asker | None
) -> asyncssh.SSHClientConnection:
    """One connection. With an asker there is no limit but the one for the login, which asyncssh has: people think."""
    target = settings.target
    chosen: dict[str, Any] = {}
    if settings.keys:
        chosen["client_keys"] = list(settings.keys)
    if asker is not None:
        chosen["passphrase"] = lambda file: _passphrase(asker, file)
    async with asyncio.timeout(settings.connect_s if asker is None else None):
        return await asyncssh.connect(
            target.host,
            **named(target),
            **chosen,
            config=config_files(),
            tunnel=tunnel,
            client_factory=lambda: _Client(settings, keys, asker),
            known_hosts=keys.match,
            server_host_key_algs=keys.algorithms,
            ignore_encrypted=asker is None,
            connect_timeout=None,
            keepalive_interval=settings.alive_s,
            keepalive_count_max=_ALIVE_COUNT,
        )


async def _passphrase(asker: Asker, file: str) -> str:
    return await asker.secret(f"Passphrase of the key {file}: ") or ""


class _Client(asyncssh.SSHClient):
    """Answers what the server asks during the login."""

    def __init__(self, settings: Settings, keys: HostKeys, asker: Asker | None) -> None:
        self._login = f"{settings.user}@{settings.target.host}"
        self._keys = keys
        self._asker = asker
        self._prompts = 0

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:  # noqa: ARG002 - asyncssh's interface
        """Whether it is known. Where it is not, nothing is asked while the connection waits."""
        return self._keys.is_known(key)

    async def password_auth_requested(self) -> str | None:
        """The password; None when nobody is asked, or was often enough."""
        return await self._secret(f"{self._login}'s password: ")

    def kbdint_auth_requested(self) -> str | None:
        """No method in particular; None when nobody can be asked."""
        return None if self._asker is None else ""

    async def kbdint_challenge_received(
        self,
        name: str,  # noqa: ARG002 - as above
        instructions: str,  # noqa: ARG002 - as above
        lang: str,  # noqa: ARG002 - as above
        prompts: Sequence[tuple[str, bool]],
    ) -> list[str] | None:
        """The answer to each prompt of the server."""
        answers: list[str] = []
        for prompt, _ in prompts:
            answer = await self._secret(f"({self._login}) {prompt}")
            if answer is None:
                return None
            answers.append(answer)
        return answers

    async def _secret(self, prompt: str) -> str | None:
        if self._asker is None or self._prompts == _MOST_PROMPTS:
            return None
        self._prompts += 1
        return await self._asker.secret(prompt)


async def _close(connection: asyncssh.SSHClientConnection) -> None:
    """End a connection in good order, or after a while in any: a dead link takes no farewell."""
    connection.close()
    try:
        async with asyncio.timeout(_CLOSE_S):
            await connection.wait_closed()
    except TimeoutError:
        connection.abort()

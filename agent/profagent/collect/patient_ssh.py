"""An SSH connection that is made again when it was lost."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self, TypeVar

from profagent.cli.remarks import retrying
from profagent.errors import RefusedError, UnreachableError
from profagent.link.session import delay_s
from profagent.ssh.connection import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from profagent.ssh.passwords import Asker
    from profagent.ssh.remote import Remote

__all__ = ["PatientSsh"]

T = TypeVar("T")


class PatientSsh:
    """A way to one board; a context, in which it stands at first."""

    def __init__(self, target: str, asker: Asker, tell: Callable[[str], None]) -> None:
        self._target = target
        self._asker = asker
        self._tell = tell
        self._stack = AsyncExitStack()
        self._remote: Remote | None = None
        self._making = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Raises UsageError, UnreachableError, RefusedError."""
        self._remote = await self._stack.enter_async_context(connect(self._target, self._asker))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The connection ends."""
        await self._stack.aclose()

    @property
    def remote(self) -> Remote:
        """The board, on the connection that stands or was lost last."""
        assert self._remote is not None, "it is a context"
        return self._remote

    async def persist(self, action: Callable[[Remote], Awaitable[T]]) -> T:
        """Do something that may be done again, on another connection when one is lost, for as long as that takes.

        Raises RefusedError, and what the action raises but UnreachableError.
        """
        attempt = 0
        while True:
            remote = self.remote
            try:
                if attempt:
                    remote = await self._another(remote)
                return await action(remote)
            except RefusedError:
                raise
            except UnreachableError as error:
                wait_s = delay_s(attempt, random.uniform)
                attempt += 1
                self._tell(f"{error}; {retrying(wait_s)}")
            await asyncio.sleep(wait_s)

    async def _another(self, lost: Remote) -> Remote:
        """A connection in place of one that was lost, which may have been made for somebody else already."""
        async with self._making:
            if self._remote is lost:
                await self._stack.aclose()
                self._remote = await self._stack.enter_async_context(connect(self._target, self._asker))
            return self.remote

"""Following one board: the link's machine with a real clock, real channels, a sink and an observer."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from profagent import __version__
from profagent.commands.conversation import Conversation
from profagent.errors import DiskFullError, UnreachableError
from profagent.link.actions import Close, Connect, FindRoom, Tell, Unlink
from profagent.link.channel import connected
from profagent.link.choice import JobChoice
from profagent.link.credentials import BY_ADDRESS
from profagent.link.machine import Link
from profagent.link.messages import Open
from profagent.link.states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from profagent.commands.sink import Observer, Sink
    from profagent.link.actions import Action
    from profagent.link.credentials import Access
    from profagent.link.messages import JobStatus


class Capture:
    """Follows one board until `stop` is set."""

    def __init__(  # noqa: PLR0913 - what it follows, for whom, and how
        self,
        address: str,
        sink: Sink,
        observer: Observer,
        *,
        wants: Callable[[JobStatus, bool], bool],
        consumer: str,
        gather_s: float,
        stop: asyncio.Event,
        is_patient: bool = False,
        access: Access = BY_ADDRESS,
    ) -> None:
        """`wants` as of JobChoice; what comes within `gather_s` is handed to the sink together.

        One that `is_patient` waits for a board that has never answered as for one that was lost.
        """
        self.address = address
        self.sink = sink
        self.observer = observer
        self.stop = stop
        self.access = access
        self.link = Link(
            address,
            Open(consumer, f"profagent {__version__}"),
            JobChoice(wants),
            gather_s=gather_s,
            is_patient=is_patient,
            uniform=random.uniform,
        )

    async def run(self) -> None:
        """Follow the board; a link that is lost is tried again, a full disk is waited for.

        A first connection that fails raises UnreachableError unless the capture is patient.
        """
        now = asyncio.get_running_loop().time
        while self.link.state is not State.CLOSED:
            await self._pause()
            await self._perform(self.link.stop() if self.stop.is_set() else self.link.tick(now()))

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout_at(self.link.due):
                await self.stop.wait()
        except TimeoutError:
            return

    async def _perform(self, actions: Sequence[Action]) -> None:
        now = asyncio.get_running_loop().time
        for action in actions:
            match action:
                case Connect():
                    await self._converse()
                case FindRoom():
                    await self._perform(self.link.room(await self.sink.has_room(), now()))
                case Unlink() | Tell() | Close():
                    self.observe(action)
                case _:
                    raise AssertionError(action)

    async def _converse(self) -> None:
        now = asyncio.get_running_loop().time
        try:
            await self._follow()
        except UnreachableError as error:
            await self._perform(self.link.lost(error, now()))
        except DiskFullError as error:
            if self.link.state is State.CLOSED:
                raise
            await self._perform(self.link.full(error, now()))

    async def _follow(self) -> None:
        async with connected(self.address, self.access) as channel, channel.follow() as stream:
            await Conversation(self, channel, stream).run()

    def observe(self, action: Unlink | Tell | Close) -> None:
        """Tell the observer; raises what closed the link."""
        match action:
            case Unlink():
                self.observer.unlinked(action.error, action.wait_s)
            case Tell():
                self.observer.remark(action.text)
            case Close() if action.error is not None:
                raise action.error

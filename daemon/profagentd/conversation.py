"""One client's Follow stream: a reader of its messages, and a writer beside it (speaker.py)."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Protocol

from profagent_wire.seal import is_sealed
from profagent_wire.v1 import board_pb2 as wire
from profagentd import messages
from profagentd.announcing import PAGE_ENTRIES
from profagentd.clock import US_PER_S, Clock
from profagentd.log import DIGEST_BYTES
from profagentd.refusal import Fault, Refusal
from profagentd.roles import Role
from profagentd.speaker import HEARTBEAT_S, Speaker
from profagentd.stream import Stream
from profagentd.supervisor import until_first

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence, Sized
    from typing import Callable

    from profagentd.board import Board, Job
    from profagentd.budget import Budgets
    from profagentd.changes import Touch
    from profagentd.custody import Custody
    from profagentd.roles import Caller


MAX_CLIENT_NAME = 256
# Generations count up from what a client names: the wire's numbers have one bit more.
LARGEST_HELD = 2**63 - 1
_CONSUMER = re.compile(r"[A-Za-z0-9._-]{1,64}")


async def opening(incoming: AsyncIterator[wire.ClientMessage]) -> wire.Open:
    """The client's Open, its first message. Raises Refusal for anything else."""
    async for message in incoming:
        if message.WhichOneof("message") != "open":
            break
        _check_open(message.open)
        return message.open
    raise Refusal(Fault.INVALID, "the first message of a stream is Open")


def apply(message: wire.ClientMessage, stream: Stream) -> None:
    """Let a message after the first have its effect. Raises Refusal."""
    kind = message.WhichOneof("message")
    if kind == "open":
        raise Refusal(Fault.INVALID, "Open comes once")
    if kind == "select":
        _limit("Select", message.select.follow, message.select.unfollow)
        stream.select(message.select.follow, message.select.unfollow)
    elif kind == "holdings":
        _limit("Holdings", message.holdings.logs)
        for holding in message.holdings.logs:
            _hold(holding, stream)
    elif kind == "acknowledge":
        _limit("Acknowledge", message.acknowledge.logs)
        for ack in message.acknowledge.logs:
            stream.window.acknowledge(ack.handle, generation=ack.generation, offset=ack.offset, complete=ack.complete)


def _check_open(opened: wire.Open) -> None:
    if opened.protocol.major != messages.PROTOCOL_MAJOR:
        theirs = f"{opened.protocol.major}.{opened.protocol.minor}"
        ours = f"{messages.PROTOCOL_MAJOR}.{messages.PROTOCOL_MINOR}"
        raise Refusal(Fault.INCOMPATIBLE, f"the client speaks protocol {theirs}, this daemon {ours}")
    if not _CONSUMER.fullmatch(opened.consumer):
        raise Refusal(Fault.INVALID, "a consumer's name is 1 to 64 of A-Z a-z 0-9 . _ -")
    if len(opened.client) > MAX_CLIENT_NAME or not opened.client.isprintable():
        raise Refusal(Fault.INVALID, f"a client's name is at most {MAX_CLIENT_NAME} printable characters")


def _hold(holding: wire.Holding, stream: Stream) -> None:
    if max(holding.generation, holding.offset) > LARGEST_HELD:
        raise Refusal(Fault.INVALID, f"the Holding of log {holding.handle} has a number beyond {LARGEST_HELD}")
    if holding.offset and not holding.skip and len(holding.prefix_digest) != DIGEST_BYTES:
        raise Refusal(Fault.INVALID, f"the digest of log {holding.handle} is not of {DIGEST_BYTES} bytes")
    stream.hold(
        holding.handle,
        skip=holding.skip,
        generation=holding.generation,
        offset=holding.offset,
        prefix_digest=holding.prefix_digest,
    )


def _limit(what: str, *entries: Sized) -> None:
    if sum(map(len, entries)) > PAGE_ENTRIES:
        raise Refusal(Fault.EXHAUSTED, f"{what} holds at most {PAGE_ENTRIES} entries")


_LOGGER = logging.getLogger(__name__)

# Three times of silence end a stream, which finds a half-open link within 15 s.
SILENCE_S = 3 * HEARTBEAT_S
# A client is heard for so long after the goodbye: what is on its way to it may be lost when the stream ends under it.
LEAVE_S = 2.0
# Why, unless there is another reason.
STOPPING = "the daemon is stopping"
# A client that follows a JOB again is heard so much later: all of it is looked through again.
FOLLOWED_AGAIN_S = 1.0


class Site(Protocol):
    """What a conversation needs of the daemon."""

    @property
    def clock(self) -> Clock:
        """The board's clocks."""

    @property
    def board(self) -> Board:
        """Its JOBs."""

    @property
    def roots(self) -> Sequence[bytes]:
        """Directories under which JOBs are looked for."""

    @property
    def budgets(self) -> Budgets:
        """What all streams share."""

    @property
    def custody(self) -> Custody:
        """What becomes of their files."""

    async def ready(self) -> None:
        """Wait until the JOBs that there are have been found and looked at."""

    def describe(self) -> wire.Description:
        """The board and its daemon now."""


class Conversation:
    """The talk with one client; a listener of the board as long as it runs."""

    def __init__(
        self,
        site: Site,
        incoming: AsyncIterator[wire.ClientMessage],
        write: Callable[[wire.ServerMessage], Awaitable[None]],
        caller: Caller,
    ) -> None:
        self._site = site
        self._caller = caller
        self._incoming = incoming
        self._write = write
        self._stream = Stream(site.budgets)
        self._wake = asyncio.Event()
        self._speaker = Speaker(site, self._stream, write)
        self._heard = site.clock.monotonic()
        self._is_closing = self._is_draining = False
        self._reason = STOPPING

    @property
    def is_operator(self) -> bool:
        """Whether what this client acknowledges may release anything on the board."""
        return self._caller.role is Role.OPERATOR

    async def run(self) -> None:
        """Talk until the client half-closes, or `close` was called. Raises Refusal."""
        try:
            await until_first(self._talk(), self._mind_silence())
        finally:
            self._stream.close()

    def drain(self) -> None:
        """Say goodbye when everything is sent that there is."""
        self._is_draining = True
        self._wake.set()

    def close(self, reason: str = STOPPING) -> None:
        """Say goodbye soon."""
        self._is_closing, self._reason = True, reason
        self._wake.set()

    # What the board tells

    def job_changed_state(self, job: Job) -> None:
        """The JOB is new or has another state."""
        self._stream.job_changed_state(job)
        self._wake.set()

    def names_changed(self, job: Job, touches: Mapping[bytes, Touch]) -> None:
        """These names of the JOB may have changed."""
        self._stream.names_changed(job, touches)
        self._wake.set()

    def names_removed(self, job: Job) -> None:
        """Names of the JOB may be gone."""
        self._stream.names_removed(job)
        self._wake.set()

    def anything_changed(self, job: Job) -> None:
        """Any name of the JOB may have changed."""
        self._stream.anything_changed(job)
        self._wake.set()

    # Both directions

    async def _talk(self) -> None:
        opened = await opening(self._incoming)
        role = self._caller.role.name.lower()
        _LOGGER.info("%s (%s) follows: %s, %s", opened.consumer, opened.client, self._caller, role)
        welcome = messages.welcome(self._site.describe(), self._caller.role, int(HEARTBEAT_S * US_PER_S))
        await self._write(wire.ServerMessage(welcome=welcome))
        await until_first(self._site.ready(), self._beat())
        for job in self._site.board.jobs:
            self._stream.job_changed_state(job)
        take = self._site.custody.taker(opened.consumer) if self.is_operator else None
        if take:
            self._stream.deliver_to(take)
        self._site.board.add_listener(self)
        self._site.custody.losses.add_listener(self._wake.set)
        try:
            await until_first(self._read(), self._speak())
        finally:
            self._site.custody.losses.remove_listener(self._wake.set)
            self._site.board.remove_listener(self)
            _LOGGER.info("%s left", opened.consumer)

    async def _beat(self) -> None:
        """Prove that we live while JOBs are looked for; nobody listens yet, so the client's silence does not count."""
        while True:
            await self._site.clock.sleep(HEARTBEAT_S)
            await self._speaker.send_heartbeat()
            self._heard = self._site.clock.monotonic()

    async def _read(self) -> None:
        was_sealed = False
        async for message in self._incoming:
            was_sealed = is_sealed(message, before=was_sealed)
            self._heard = self._site.clock.monotonic()
            apply(message, self._stream)
            self._wake.set()
            again, self._stream.followed_again = self._stream.followed_again, 0
            if again:
                await self._site.clock.sleep(min(again * FOLLOWED_AGAIN_S, HEARTBEAT_S))

    async def _mind_silence(self) -> None:
        while (left_s := self._heard + SILENCE_S - self._site.clock.monotonic()) > 0:
            await self._site.clock.sleep(left_s)
        raise Refusal(Fault.SILENT, f"no message for {SILENCE_S:.0f} s")

    async def _speak(self) -> None:
        await self._speaker.list_jobs()
        while not self._is_closing:
            self._wake.clear()
            if await self._speaker.turn():
                continue
            if self._is_draining and self._speaker.has_all:
                break
            await self._pause()
        await self._speaker.say_goodbye(self._reason)
        await self._site.clock.sleep(LEAVE_S)

    async def _pause(self) -> None:
        """Wait until something happens, a log is due, or it is time for a heartbeat."""
        delay_s = max(0.0, self._speaker.due - self._site.clock.monotonic())
        timer = asyncio.get_running_loop().call_later(delay_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

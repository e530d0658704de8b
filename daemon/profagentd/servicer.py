"""The gRPC service: requests in, the daemon's answers out."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from profagent_wire.seal import DamagedError
from profagent_wire.v1 import board_pb2 as wire
from profagent_wire.v1.board_pb2_grpc import BoardServicer
from profagentd import __version__, messages
from profagentd.budget import Budgets
from profagentd.clock import US_PER_S, Clock, moment
from profagentd.conversation import STOPPING, Conversation
from profagentd.measure import Measurer
from profagentd.refusal import Fault, Refusal
from profagentd.retention import Retain
from profagentd.roles import caller_of
from profagentd.supervisor import until_first

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from profagentd.board import Board
    from profagentd.clock import Clock
    from profagentd.custody import Custody
    from profagentd.describe import Identity
    from profagentd.examine import Examiner
    from profagentd.gate import Gate
    from profagentd.watch import Watch


# At a time: Follow streams in all, those of one client, and other calls that take a while.
STREAMS = 64
STREAMS_OF_A_CLIENT = 8
CALLS = 32
# Streams open at this rate at most, beyond a few; others wait for their turn.
OPENINGS_PER_S = 20.0
OPENINGS_AT_ONCE = 16


class Admission:
    """Counts what goes on. A context is left when its stream or call is over."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Whoever waits is served in order; who leaves meanwhile costs no turn.
        self._turns = asyncio.Lock()
        self._next_opening = float("-inf")  # monotonic
        self._streams: Counter[str] = Counter()
        self._calls = 0

    @contextmanager
    def stream(self, client: str) -> Iterator[None]:
        """A stream of a client: a certificate's fingerprint, or an address. Raises Refusal when there are too many."""
        if sum(self._streams.values()) >= STREAMS:
            raise Refusal(Fault.EXHAUSTED, f"{STREAMS} streams are open already")
        if self._streams[client] >= STREAMS_OF_A_CLIENT:
            raise Refusal(Fault.EXHAUSTED, f"{STREAMS_OF_A_CLIENT} streams of this client are open already")
        self._streams[client] += 1
        try:
            yield
        finally:
            self._streams[client] -= 1
            self._streams += Counter()  # drops clients without a stream

    async def opening(self) -> None:
        """Wait for the turn of a stream that opens: finding out what is new for it takes more than the rest."""
        async with self._turns:
            now = self._clock.monotonic()
            if self._next_opening > now:
                await self._clock.sleep(self._next_opening - now)
            earliest = now - OPENINGS_AT_ONCE / OPENINGS_PER_S
            self._next_opening = max(self._next_opening, earliest) + 1 / OPENINGS_PER_S

    @contextmanager
    def call(self) -> Iterator[None]:
        """A call that takes a while. Raises Refusal when there are too many."""
        if self._calls >= CALLS:
            raise Refusal(Fault.EXHAUSTED, f"{CALLS} calls are going on already")
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1


def address_of(peer: str) -> str:
    """The address that a client calls from, of gRPC's name of a peer: without the port."""
    return peer if peer.startswith("unix:") else peer.rpartition(":")[0]


_LOGGER = logging.getLogger(__name__)

_CODES = {
    Fault.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Fault.EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Fault.INCOMPATIBLE: grpc.StatusCode.FAILED_PRECONDITION,
    Fault.DAMAGED: grpc.StatusCode.DATA_LOSS,
    Fault.AWAY: grpc.StatusCode.UNAVAILABLE,
    Fault.SILENT: grpc.StatusCode.DEADLINE_EXCEEDED,
    Fault.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Fault.UNTRUSTED: grpc.StatusCode.UNAUTHENTICATED,
}


class Servicer(BoardServicer):
    """Board, as board.proto has it."""

    def __init__(
        self,
        board: Board,
        watch: Watch,
        clock: Clock,
        custody: Custody,
        identity: Identity,
        gate: Gate,
        examiner: Examiner,
        *,
        simulated: bool,
    ) -> None:
        self.board = board
        self.clock = clock
        self.custody = custody
        self._gate = gate
        self._examiner = examiner
        self._watch = watch
        self._identity = identity
        self._simulated = simulated
        self._conversations: set[Conversation] = set()
        self._left = asyncio.Event()  # a conversation is over
        self._is_draining = False
        self._admission = Admission(clock)
        self._measurer = Measurer(clock)
        self.budgets = Budgets()

    @property
    def roots(self) -> Sequence[bytes]:
        """Directories under which JOBs are looked for."""
        return tuple(self._watch.roots)

    async def ready(self) -> None:
        """Wait until the JOBs that there are have been found and looked at."""
        await self._watch.ready.wait()
        await self.board.know_all()

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return len(self._conversations)

    async def drain(self) -> None:
        """Send each client what there is for it, and say goodbye; return when all have left."""
        self._is_draining = True
        for conversation in self._conversations:
            conversation.drain()
        while self._conversations:
            self._left.clear()
            await self._left.wait()

    def close(self, reason: str = STOPPING) -> None:
        """Say goodbye to every client."""
        for conversation in self._conversations:
            conversation.close(reason)

    def describe(self) -> wire.Description:
        """The board and its daemon now."""
        return wire.Description(
            identity=self._identity.identity,
            identity_source=wire.IdentitySource.ValueType(self._identity.source.value),
            hostname=self._identity.hostname,
            boot_id=self._identity.boot_id,
            model=self._identity.model,
            daemon_version=__version__,
            protocol=messages.protocol(),
            simulated=self._simulated,
            sdk_version=self._identity.sdk_version,
            clocks=messages.clocks(moment(self.clock)),
            roots=[messages.text(root) for root in self.roots],
            retention=self._retention(),
            quiet_after_us=int(self.board.quiet_after_s * US_PER_S),
            insecure=self._gate.insecure,
        )

    def _retention(self) -> wire.Retention | None:
        if self.custody.policy.retain is Retain.KEEP:
            return None
        return messages.retention(self.custody.policy, self.custody.space.known)

    async def Describe(self, _request: wire.DescribeRequest, _context: Any) -> wire.Description:
        """Who the board is."""
        return self.describe()

    async def SyncClock(self, _request: wire.SyncClockRequest, _context: Any) -> wire.SyncClockReply:
        """Both clocks, twice."""
        received = messages.clocks(moment(self.clock))
        return wire.SyncClockReply(received=received, sent=messages.clocks(moment(self.clock)))

    async def Examine(self, _request: wire.ExamineRequest, context: Any) -> wire.Examination:
        """Facts for a diagnosis."""
        try:
            with self._admission.call():
                return await self._examiner.examine()
        except Refusal as refusal:
            await context.abort(_CODES[refusal.fault], str(refusal))
            raise

    async def MeasureJob(self, request: wire.MeasureJobRequest, context: Any) -> wire.JobMeasure:
        """How much a JOB holds."""
        try:
            with self._admission.call():
                await self._watch.ready.wait()
                job = next((each for each in self.board.jobs if each.name == request.name), None)
                return messages.job_measure(await self._measurer.measure(job))
        except Refusal as refusal:
            await context.abort(_CODES[refusal.fault], str(refusal))
            raise

    async def Follow(  # type: ignore[override]  # grpc.aio also takes a coroutine that writes
        self, request_iterator: AsyncIterator[wire.ClientMessage], context: Any
    ) -> None:
        """The live copy for one client."""
        caller = caller_of(context)
        conversation = Conversation(self, request_iterator, context.write, caller)
        refusal: Refusal | None = None
        try:
            with self._admission.stream(caller.fingerprint or address_of(context.peer())):
                await self._admission.opening()
                self._conversations.add(conversation)
                if self._is_draining:
                    conversation.drain()
                await until_first(conversation.run(), self._gate.watch_over(caller))
        except Refusal as raised:
            refusal = raised
        except DamagedError as error:
            refusal = Refusal(Fault.DAMAGED, str(error))
        except grpc.aio.InternalError:
            # gRPC's word for a message that was under way when the client left.
            _LOGGER.info("%s left while it was sent to", context.peer())
        finally:
            self._conversations.discard(conversation)
            self._left.set()
        if refusal:
            _LOGGER.warning("stream of %s refused: %s", context.peer(), refusal)
            await context.abort(_CODES[refusal.fault], str(refusal))

"""Who may have a stream or a call now: bounds for one client and for all, however many there are that ask."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from profagentd.refusal import Fault, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagentd.clock import Clock

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

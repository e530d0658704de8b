"""What a board would send, as the sinks of a capture are handed it: no link, no waiting."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from profagent.ingest.mirror import digest_of
from profagent.link.messages import (
    Acknowledgement,
    Board,
    Clocks,
    Completed,
    FollowedLog,
    Holding,
    JobStatus,
    Loss,
    Received,
    Removed,
    Started,
)

if TYPE_CHECKING:
    from profagent.ingest.changes import Change
    from profagent.record.capture import Sink
    from profagent.store.writer import Applied

JOB = "JOB" + "A" * 29
# A host looks whether a board's clock is near its own.
BOARD_US = time.time_ns() // 1000


def board(identity: str = "board-1", *, simulated: bool = False) -> Board:
    """A board's description."""
    return Board(
        identity=identity,
        hostname="euler",
        model="SS928",
        daemon_version="0.2.0",
        protocol=(1, 0),
        simulated=simulated,
        sdk_version="",
        roots=("/root",),
        clocks=Clocks(BOARD_US, 5),
    )


def job_status(name: str = JOB) -> JobStatus:
    """A JOB that is open."""
    return JobStatus(1, name, f"/root/{name}", "open", caught_up=False)


class Nobody:
    """An observer who does not look."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


@dataclass
class Sender:
    """Sends files of a JOB to a sink; remembers what the sink answered."""

    sink: Sink
    job: str = JOB
    acknowledged: list[Acknowledgement] = field(default_factory=list)
    _handles: int = 0

    async def open(self, *, of: Board | None = None) -> None:
        """The stream begins, and the JOB is followed."""
        await self.sink.begin(of or board(), "127.0.0.1:1")
        self.sink.know_job(job_status(self.job))

    async def offer(self, path: str | bytes, *, snapshot: bool = False) -> tuple[FollowedLog, Holding]:
        """Announce a log; what the sink holds of it."""
        self._handles += 1
        raw = path if isinstance(path, bytes) else path.encode("utf-8", "surrogateescape")
        log = FollowedLog(self._handles, self.job, raw, snapshot)
        (holding,) = await self.sink.holdings([log])
        return log, holding

    async def send(self, path: str, data: bytes, *, snapshot: bool = False, complete: bool = True) -> list[Change]:
        """A whole file, unless the sink does not want it; from what is held on. As a board sends one that is small."""
        log, holding = await self.offer(path, snapshot=snapshot)
        if holding.skip:
            return []
        generation, start = holding.generation or 1, holding.offset
        if snapshot:
            generation, start = holding.generation + 1, 0
        reason, digest = "same" if holding.generation else "new", digest_of(data) if complete else b""
        event = Started(log.handle, generation, start, reason, data[start:], digest)
        at = FollowedLog(log.handle, log.job, log.path, snapshot, generation, len(data))
        return await self.happen(Received(self.job, at, event))

    async def confirm(self, path: str) -> list[Change]:
        """A small file stands as it is held."""
        log, held = await self.offer(path, snapshot=True)
        at = FollowedLog(log.handle, log.job, log.path, True, held.generation, held.offset)
        begun = Started(log.handle, held.generation, held.offset, "same")
        ended = Completed(log.handle, held.generation, held.offset, held.prefix_digest)
        return await self.happen(Received(self.job, at, begun), Received(self.job, at, ended))

    async def lose(self, reason: str, detail: str) -> list[Change]:
        """Something about the JOB is gone."""
        return await self.happen(Received(self.job, None, Loss(0, 1, reason, detail, 0)))

    async def remove(self, path: str, sent: int, size: int) -> list[Change]:
        """A log is gone from the board."""
        log, _ = await self.offer(path)
        at = FollowedLog(log.handle, log.job, log.path, snapshot=False, generation=1, offset=sent)
        return await self.happen(Received(self.job, at, Removed(log.handle, 1, sent, size)))

    async def happen(self, *events: Received) -> list[Change]:
        """Events that arrive together; what they meant."""
        return changes_of(await self.sink.take(events, self._acknowledge, more=False))

    async def _acknowledge(self, logs: Sequence[Acknowledgement]) -> None:
        self.acknowledged += logs


def changes_of(applied: Sequence[Applied]) -> list[Change]:
    """All changes of some batches."""
    return [change for each in applied for change in each.batch.changes]

"""A board's messages for tests of the link: one JOB, handle 1, and logs in it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from profagent.link.messages import (
    Announced,
    AnnouncedLog,
    Arrived,
    Batch,
    Board,
    Chunk,
    ClientMessage,
    Clocks,
    Event,
    Holding,
    JobStatus,
    LogEvent,
    Open,
    Received,
    Started,
    Welcome,
)
from profagent.link.session import LinkSession

JOB = "JOB" + "A" * 29
BOARD = Board(
    identity="b0a2d",
    hostname="board",
    model="SS928",
    daemon_version="0.2.0",
    protocol=(1, 0),
    simulated=False,
    sdk_version="",
    roots=("/opt/app",),
    clocks=Clocks(1_700_000_000_000_000, 5_000_000),
)
OPENING = Open("test", "test 1")
NOW = 1000.0
STATUS = JobStatus(1, JOB, "/opt/app/" + JOB, "open", caught_up=False)


def log(handle: int = 7, path: bytes = b"data/acl_api.0.m.0", *, snapshot: bool = False, job: int = 1) -> AnnouncedLog:
    return AnnouncedLog(handle, job, path, snapshot)


def unasked(*events: LogEvent, handle: int = 7) -> Batch:
    """A log that was made, and what comes with it."""
    return Batch(events, (log(handle),))


def chunk(data: bytes, offset: int = 0, *, handle: int = 7, generation: int = 1) -> Chunk:
    return Chunk(handle, generation, offset, data)


def session(**options: Any) -> LinkSession:
    """One that draws the longest wait there can be."""
    chosen: dict[str, Any] = {"gather_s": 0.1, "is_patient": True, "uniform": lambda _, high: high, **options}
    return LinkSession("board:1", OPENING, chosen.pop("wants", lambda *_: True), **chosen)


def listed(**changes: Any) -> LinkSession:
    """A session that has been welcomed, and knows the JOB."""
    made = session()
    made.tick(NOW)
    made.opened(NOW)
    made.receive(Welcome(replace(BOARD, **changes), heartbeat_us=4_000_000), NOW)
    made.receive(STATUS, NOW)
    told(made)
    return made


def started(offset: int = 0, generation: int = 1) -> LinkSession:
    """A session whose log 7 goes on from `offset`."""
    made = listed()
    made.receive(Announced((log(),)), NOW)
    made.hold([Holding(7, generation if offset else 0, offset)])
    arrived(made, Started(7, generation, offset, "same" if offset else "new"))
    return made


def told(made: LinkSession) -> list[Event | ClientMessage]:
    """Its events and messages since the last time."""
    return [*made.events_received(), *made.messages_to_send()]


def arrived(made: LinkSession, *events: LogEvent) -> list[Received]:
    """What comes of some events of logs."""
    made.receive(batch(*events), NOW)
    made.flush()
    return [each for event in told(made) if isinstance(event, Arrived) for each in event.events]


def batch(*events: LogEvent) -> Batch:
    return Batch(events)

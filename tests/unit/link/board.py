"""A board's messages for tests of the link: one JOB, handle 1, and logs in it."""

from __future__ import annotations

from dataclasses import replace

from profagent.link.messages import (
    Announced,
    AnnouncedLog,
    Batch,
    Board,
    Chunk,
    Clocks,
    Holding,
    JobStatus,
    LogEvent,
    Started,
    Welcome,
)
from profagent.link.session import Session

JOB = "JOB" + "A" * 29
BOARD = Board(
    identity="b0a2d",
    hostname="board",
    boot_id="boot",
    model="SS928",
    daemon_version="0.1.0",
    protocol=(1, 0),
    simulated=False,
    sdk_version="",
    roots=("/opt/app",),
    quiet_after_us=60_000_000,
    clocks=Clocks(1_700_000_000_000_000, 5_000_000),
)
STATUS = JobStatus(1, JOB, "/opt/app/" + JOB, "open", caught_up=False)


def log(handle: int = 7, path: bytes = b"data/acl_api.0.m.0", *, snapshot: bool = False, job: int = 1) -> AnnouncedLog:
    return AnnouncedLog(handle, job, path, snapshot, size=0)


def unasked(handle: int = 7, path: bytes = b"data/acl_api.0.m.0") -> AnnouncedLog:
    return log(handle, path)._replace(unasked=True)


def chunk(data: bytes, offset: int = 0, *, handle: int = 7, generation: int = 1) -> Chunk:
    return Chunk(handle, generation, offset, data)


def listed(**changes: object) -> Session:
    """A session that has been welcomed, and knows the JOB."""
    session = Session()
    session.receive(Welcome(replace(BOARD, **changes), heartbeat_us=5_000_000))  # type: ignore[arg-type]
    session.receive(STATUS)
    return session


def started(offset: int = 0, generation: int = 1) -> Session:
    """A session whose log 7 goes on from `offset`."""
    session = listed()
    session.receive(Announced((log(),)))
    session.hold(Holding(7, generation if offset else 0, offset))
    session.receive(batch(Started(7, generation, offset, "same" if offset else "new")))
    return session


def batch(*events: LogEvent) -> Batch:
    return Batch(events)

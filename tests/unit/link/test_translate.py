"""Protobuf in, plain values out, and back."""

from __future__ import annotations

import pytest

from profagent.errors import ProtocolError
from profagent.link import messages as m
from profagent.link.translate import from_wire, to_wire
from profagent_wire.v1 import board_pb2 as pb


def test_what_a_client_sends() -> None:
    opened = to_wire(m.Open("nightly", "profagent 0.1.0")).open
    assert (opened.protocol.major, opened.protocol.minor, opened.consumer, opened.client) == (
        *m.PROTOCOL,
        "nightly",
        "profagent 0.1.0",
    )
    assert list(to_wire(m.Select((1, 2))).select.follow) == [1, 2]
    [held, skipped] = to_wire(m.Holdings((m.Holding(7, 2, 30, b"d" * 16), m.Holding(8, skip=True)))).holdings.logs
    assert (held.handle, held.skip, held.generation, held.offset, held.prefix_digest) == (7, False, 2, 30, b"d" * 16)
    assert (skipped.handle, skipped.skip) == (8, True)
    [durable] = to_wire(m.Acknowledge((m.Acknowledgement(7, 2, 30, complete=True),))).acknowledge.logs
    assert (durable.handle, durable.generation, durable.offset, durable.complete) == (7, 2, 30, True)
    assert to_wire(m.ClientHeartbeat()).WhichOneof("message") == "heartbeat"


def test_what_a_board_says_of_itself() -> None:
    description = pb.Description(
        identity="id",
        hostname="h",
        model="SS928",
        daemon_version="0.1.0",
        protocol=pb.ProtocolVersion(major=1, minor=0),
        simulated=True,
        sdk_version="sdk",
        roots=["/a", "/b"],
        clocks=pb.Clocks(wall_us=1, monotonic_us=2),
    )
    wire = pb.ServerMessage(welcome=pb.Welcome(description=description, heartbeat_us=5))
    board = m.Board(
        "id",
        "h",
        "SS928",
        "0.1.0",
        (1, 0),
        True,
        "sdk",
        ("/a", "/b"),
        m.Clocks(1, 2),
    )
    assert from_wire(wire) == m.Welcome(board, 5)


def test_events_keep_their_order() -> None:
    wire = pb.Batch(
        events=[
            pb.Event(started=pb.Started(handle=7, generation=1, offset=0, reason=pb.START_REASON_NEW)),
            pb.Event(chunk=pb.Chunk(handle=7, generation=1, offset=0, data=b"abc")),
            pb.Event(completed=pb.Completed(handle=7, generation=1, size=3, digest=b"d")),
            pb.Event(
                started=pb.Started(handle=8, generation=1, offset=5, reason=pb.START_REASON_NEW, data=b"a", digest=b"e")
            ),
            pb.Event(removed=pb.Removed(handle=7, generation=1, sent=3, size=4)),
            pb.Event(loss=pb.Loss(handle=7, job=1, reason="r", detail="d", lost_bytes=1)),
            pb.Event(),
        ]
    )
    assert from_wire(pb.ServerMessage(batch=wire)) == m.Batch(
        (
            m.Started(7, 1, 0, "new"),
            m.Chunk(7, 1, 0, b"abc"),
            m.Completed(7, 1, 3, b"d"),
            m.Started(8, 1, 5, "new", b"a", b"e"),
            m.Removed(7, 1, 3, 4),
            m.Loss(7, 1, "r", "d", 1),
        )
    )


@pytest.mark.parametrize(
    ("wire", "value"),
    [
        (pb.ServerMessage(jobs_listed=pb.JobsListed()), m.JobsListed()),
        (pb.ServerMessage(released=pb.Released(handles=[3, 4])), m.Released((3, 4))),
        (pb.ServerMessage(goodbye=pb.Goodbye(reason="stop", retry_after_us=9)), m.Goodbye("stop", 9)),
        (
            pb.ServerMessage(heartbeat=pb.Heartbeat(lag_bytes=4)),
            m.Heartbeat(4),
        ),
        (
            pb.ServerMessage(job_status=pb.JobStatus(handle=1, name="J", directory="/d", state=pb.JOB_STATE_QUIET)),
            m.JobStatus(1, "J", "/d", "quiet", caught_up=False),
        ),
        (
            pb.ServerMessage(job_status=pb.JobStatus(handle=1, name="J", directory="/d", state=99)),  # type: ignore[arg-type]
            m.JobStatus(1, "J", "/d", "unknown", caught_up=False),
        ),
        (
            pb.ServerMessage(
                announced=pb.Announced(
                    logs=[pb.AnnouncedLog(handle=7, job=1, path=b"\xff", kind=pb.LOG_KIND_SNAPSHOT, size=3)]
                )
            ),
            m.Announced((m.AnnouncedLog(7, 1, b"\xff", True),)),
        ),
        (pb.ServerMessage(), None),
    ],
    ids=["listed", "released", "goodbye", "heartbeat", "job", "newer state", "announced", "newer message"],
)
def test_what_a_board_sends(wire: pb.ServerMessage, value: m.ServerMessage | None) -> None:
    assert from_wire(wire) == value


def test_a_kind_of_log_that_is_not_known_is_refused() -> None:
    wire = pb.ServerMessage(announced=pb.Announced(logs=[pb.AnnouncedLog(handle=7, kind=9)]))  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="log kind 9"):
        from_wire(wire)


@pytest.mark.parametrize(
    "wire",
    [
        pb.ServerMessage(announced=pb.Announced(logs=[pb.AnnouncedLog()] * 1001)),
        pb.ServerMessage(batch=pb.Batch(events=[pb.Event()] * 1001)),
        pb.ServerMessage(released=pb.Released(handles=[1] * 1001)),
    ],
    ids=["announced", "batch", "released"],
)
def test_a_message_of_too_many_entries_is_refused(wire: pb.ServerMessage) -> None:
    with pytest.raises(ProtocolError, match="1,001 entries, more than 1,000"):
        from_wire(wire)

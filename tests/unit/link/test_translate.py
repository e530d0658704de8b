"""Protobuf in, plain values out, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from profagent.errors import ProtocolError
from profagent.limits import LARGEST_AMOUNT, LARGEST_EXAMINED_BYTES, LARGEST_TIME_US, LONGEST_LIST, LONGEST_TEXT
from profagent.link import messages as m
from profagent.link.translate import (
    AclFile,
    DaemonFacts,
    Examination,
    InotifyFacts,
    JobFacts,
    Mount,
    NpuFacts,
    NpuProcess,
    ProcessFacts,
    RootFacts,
    UmapNode,
    clocks_from_wire,
    examination_from_wire,
    from_wire,
    measure_from_wire,
    to_wire,
)
from profagent_wire.v1 import board_pb2 as pb


def test_what_a_client_sends() -> None:
    opened = to_wire(m.Open("nightly", "profagent 0.2.0")).open
    assert (opened.protocol.major, opened.protocol.minor, opened.consumer, opened.client) == (
        *m.PROTOCOL,
        "nightly",
        "profagent 0.2.0",
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
        daemon_version="0.2.0",
        protocol=pb.ProtocolVersion(major=1, minor=0),
        simulated=True,
        sdk_version="sdk",
        roots=["/a", "/b"],
        clocks=pb.Clocks(wall_us=1, monotonic_us=2),
    )
    wire = pb.ServerMessage(welcome=pb.Welcome(description=description, heartbeat_us=5))
    board = m.Board("id", "h", "SS928", "0.2.0", (1, 0), True, "sdk", ("/a", "/b"), m.Clocks(1, 2))
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
        (pb.ServerMessage(heartbeat=pb.Heartbeat(lag_bytes=4)), m.Heartbeat(4)),
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


# Of the numbers of 64 bits that a board sends these are not read, or are names that are only compared.
UNREAD = {"AnnouncedLog.size", "JobMeasure.logs", "Loss.id"}
READERS: dict[Any, Callable[[Any], object]] = {
    pb.ServerMessage: from_wire,
    pb.Examination: examination_from_wire,
    pb.JobMeasure: measure_from_wire,
    pb.Clocks: clocks_from_wire,
}


def with_largest(kind: Any) -> Iterator[tuple[str, Any]]:
    """Each number of 64 bits in a message, by its place, and the message in which it alone is as large as can be."""
    for field in kind.DESCRIPTOR.fields:
        if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
            yield f"{kind.DESCRIPTOR.name}.{field.name}", kind(**{field.name: 2**64 - 1})
        elif field.message_type is not None:
            for name, inner in with_largest(field.message_type._concrete_class):
                if field.message_type.name == "AnnouncedLog":
                    inner.kind = pb.LOG_KIND_DATA
                yield name, kind(**{field.name: [inner] if field.is_repeated else inner})


LARGEST = [(reader, *case) for kind, reader in READERS.items() for case in with_largest(kind)]


@pytest.mark.parametrize(("reader", "name", "wire"), LARGEST, ids=[name for _, name, _ in LARGEST])
def test_no_number_of_a_board_is_beyond_its_bound(reader: Callable[[Any], object], name: str, wire: Any) -> None:
    if name in UNREAD:
        reader(wire)
        return
    with pytest.raises(ProtocolError, match=f"{name} is {2**64 - 1}, more than "):
        reader(wire)


def test_what_a_board_may_just_say() -> None:
    loss = pb.Loss(lost_bytes=LARGEST_AMOUNT, lost_logs=LARGEST_AMOUNT, to_wall_us=LARGEST_TIME_US)
    batch = from_wire(pb.ServerMessage(batch=pb.Batch(events=[pb.Event(loss=loss)])))
    assert batch == m.Batch((m.Loss(0, 0, "", "", LARGEST_AMOUNT, 0, "", 0, LARGEST_TIME_US, LARGEST_AMOUNT),))
    with pytest.raises(ProtocolError, match=r"Loss\.lost_bytes"):
        from_wire(pb.ServerMessage(batch=pb.Batch(events=[pb.Event(loss=pb.Loss(lost_bytes=LARGEST_AMOUNT + 1))])))


# What a board says of itself, from the wire: each field, and no more of it than a host bears

SAID = pb.Examination(
    unknown=[pb.UnknownFacts(source="root /mnt", why="it did not answer within 3 s")],
    npu=pb.NpuFacts(has_device=True, has_other_device=True, has_other_libraries=True, modules=["ot_svp_npu"]),
    processes=pb.ProcessFacts(with_npu=[pb.NpuProcess(pid=7, name="main", uid=1, umask="0022")], count=3),
    umap=[pb.UmapNode(name="svp_npu", text="a\nb"), pb.UmapNode(name="pm", error="no")],
    roots=[
        pb.RootFacts(
            path="/opt",
            file_system="ext4",
            total_bytes=9,
            free_bytes=8,
            jobs=2,
            open_jobs=1,
            newest=[pb.JobFacts(directory="/opt/JOB", mode=0o750, uid=5, error="no")],
            unreadable=[pb.UnreadableDirectory(path="/opt/x", error="no")],
        )
    ],
    acl_json=[pb.AclJson(path="/opt/acl.json", data=b"{}", size=2, output=pb.OUTPUT_STATE_MISSING)],
    remote_mounts=[pb.Mount(point="/mnt", file_system="nfs", source="192.0.2.9:/x")],
    inotify=pb.InotifyFacts(max_user_watches=1, max_user_instances=2, max_queued_events=3, watches=4),
    tls_cert=b"own",
    tls_ca=b"ca",
    daemon=pb.DaemonFacts(uid=0, capabilities=4),
)


def test_each_field_is_taken() -> None:
    assert examination_from_wire(SAID) == Examination(
        unknown=(("root /mnt", "it did not answer within 3 s"),),
        npu=NpuFacts(has_device=True, has_other_device=True, has_other_libraries=True, modules=("ot_svp_npu",)),
        processes=ProcessFacts((NpuProcess(7, "main", 1, "0022"),), 3, are_all_seen=False),
        umap=(UmapNode("svp_npu", text="a\nb"), UmapNode("pm", error="no")),
        roots=(
            RootFacts(
                "/opt",
                "",
                "ext4",
                total_bytes=9,
                free_bytes=8,
                has_inodes=False,
                jobs=2,
                open_jobs=1,
                newest=(JobFacts("/opt/JOB", 0o750, 5, "no"),),
                unreadable=(("/opt/x", "no"),),
            ),
        ),
        acl_json=(AclFile("/opt/acl.json", b"{}", 2, "missing"),),
        remote_mounts=(Mount("/mnt", "nfs", "192.0.2.9:/x"),),
        inotify=InotifyFacts(1, 2, 3, 4),
        daemon=DaemonFacts(0, 4),
        tls_cert=b"own",
        tls_ca=b"ca",
    )


def test_what_is_not_told_is_not_known() -> None:
    assert examination_from_wire(pb.Examination()) == Examination()


def test_why_something_is_not_known() -> None:
    found = examination_from_wire(SAID)
    assert found.why_unknown("root /mnt") == "it did not answer within 3 s"
    assert found.why_unknown("npu") == ""


def test_no_text_steers_a_terminal_and_nothing_is_longer_than_borne() -> None:
    said = pb.Examination(
        unknown=[pb.UnknownFacts(source="\x1b[2J" + "x" * 5000)] * 500,
        umap=[pb.UmapNode(name="svp_npu", text="y" * (LARGEST_EXAMINED_BYTES + 1))],
        acl_json=[pb.AclJson(data=b"z" * (LARGEST_EXAMINED_BYTES + 1))],
        npu=pb.NpuFacts(modules=["\x07"] * 500),
    )
    found = examination_from_wire(said)
    assert len(found.unknown) == LONGEST_LIST
    assert found.unknown[0][0].startswith("\\x1b[2Jx")
    assert len(found.unknown[0][0]) <= LONGEST_TEXT + 3
    assert len(found.umap[0].text) == len(found.acl_json[0].data) == LARGEST_EXAMINED_BYTES
    assert found.npu is not None
    assert found.npu.modules == ("\\x07",) * LONGEST_LIST

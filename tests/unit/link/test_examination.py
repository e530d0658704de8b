"""What a board says of itself, from the wire: each field, and no more of it than a host bears."""

from __future__ import annotations

from profagent.link.translate import (
    LARGEST_FILE_BYTES,
    LONGEST_LIST,
    LONGEST_TEXT,
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
    examination_from_wire,
)
from profagent_wire.v1 import board_pb2 as pb

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
        umap=[pb.UmapNode(name="svp_npu", text="y" * (LARGEST_FILE_BYTES + 1))],
        acl_json=[pb.AclJson(data=b"z" * (LARGEST_FILE_BYTES + 1))],
        npu=pb.NpuFacts(modules=["\x07"] * 500),
    )
    found = examination_from_wire(said)
    assert len(found.unknown) == LONGEST_LIST
    assert found.unknown[0][0].startswith("\\x1b[2Jx")
    assert len(found.unknown[0][0]) <= LONGEST_TEXT + 3
    assert len(found.umap[0].text) == len(found.acl_json[0].data) == LARGEST_FILE_BYTES
    assert found.npu is not None
    assert found.npu.modules == ("\\x07",) * LONGEST_LIST

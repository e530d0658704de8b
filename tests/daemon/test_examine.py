"""What a daemon tells of a made-up board, over real gRPC and without, and what it says of what does not answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagent_wire.v1.board_pb2_grpc import BoardStub
from profagentd.examine import KEEP_S, Examiner
from profagentd.limits import EXAMINED_ACL_JSON_BYTES
from tests.daemon.board_files import UMAP_SAMPLE, add_process, make_board, served, write
from tests.daemon.clocks import FakeClock
from tests.daemon.daemon_process import make_job
from tests.fakes.spooled import METRICS

PATIENCE_S = 60.0


@pytest.fixture
def board(tmp_path: Path) -> Path:
    return make_board(tmp_path / "board")


def acl_json(output: Path | str) -> str:
    return json.dumps({"profiler": {"output": str(output)}})


def asked(address: str, jobs: int = 0) -> wire.Examination:
    """What the board says, once every source has answered and so many JOBs are known."""
    with grpc.insecure_channel(address) as channel:
        stub = BoardStub(channel)
        while True:
            found = stub.Examine(wire.ExamineRequest(), timeout=PATIENCE_S)
            is_late = any("answer" in each.why for each in found.unknown)
            if not is_late and sum(root.jobs for root in found.roots) >= jobs:
                return found


def test_a_daemon_tells_of_its_board(board: Path, tmp_path: Path) -> None:
    root = tmp_path / "output"
    job = make_job(root)
    job.chmod(0o750)
    (root / METRICS).mkdir()  # no JOB
    write(root / "acl.json", acl_json(root)[:-2] + ",}}")
    add_process(board, 7, "main", "0027")
    add_process(board, 8, "other", has_npu=False)
    with served(board, root, "--depth", "3") as daemon:
        found = asked(daemon.address, jobs=1)
    assert not found.unknown
    assert (found.npu.has_device, found.npu.has_other_device, list(found.npu.modules)) == (True, False, ["ot_svp_npu"])
    assert found.processes == wire.ProcessFacts(
        with_npu=[wire.NpuProcess(pid=7, name="main", uid=0, umask="0027")], count=1, are_all_seen=True
    )
    assert [(node.name, node.error) for node in found.umap] == [("svp_npu", ""), ("sys", "")]
    assert found.umap[0].text == UMAP_SAMPLE.read_text("utf-8")
    assert [mount.point for mount in found.remote_mounts] == ["/root/app/profiling", "/mnt/with space"]
    assert found.remote_mounts[0].source == "192.0.2.9:/home/dev/profiling"
    assert (found.inotify.max_user_watches, found.inotify.watches) == (8192, 2)
    assert found.daemon.capabilities == 4
    (seen,) = found.roots
    assert (seen.path, seen.error, seen.file_system, seen.jobs, seen.open_jobs) == (str(root), "", "ext4", 1, 1)
    assert (seen.newest[0].directory, seen.newest[0].mode, seen.newest[0].error) == (str(job), 0o750, "")
    assert 0 < seen.free_bytes < seen.total_bytes
    (acl,) = found.acl_json
    assert (acl.path, acl.output) == (str(root / "acl.json"), wire.OUTPUT_STATE_DIRECTORY)
    assert acl.data == (root / "acl.json").read_bytes()


def test_what_a_board_does_not_have_is_told_as_not_there(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    write(bare / "proc/self/mountinfo", "22 1 179:2 / / rw - ext4 /dev/root rw\n")
    write(bare / "dev/pqp", "")
    with served(bare, tmp_path / "nowhere") as daemon:
        found = asked(daemon.address)
    assert (found.npu.has_device, found.npu.has_other_device) == (False, True)
    assert not found.umap
    assert not found.remote_mounts
    assert found.roots[0].error == "No such file or directory"
    # A kernel that tells nothing of these is no reason to tell nothing at all.
    assert {each.source for each in found.unknown} == {"inotify", "daemon"}


def test_metrics_that_a_board_lacks_are_told(board: Path, tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    write(board / "proc/loadavg", "0.50 0.40 0.30 1/100 4711\n")
    with served(board, tmp_path / "output", "--spools", "metrics") as daemon:
        while not (lacking := {each.source: each.why for each in asked(daemon.address).unknown}):
            time.sleep(0.1)
    assert lacking["metrics thermal"] == f"{board}/sys/class/thermal/thermal_zone*: No such file or directory"
    assert "metrics load" not in lacking
    assert "metrics npu" not in lacking


def test_acl_json_comes_from_where_the_daemon_is_told(board: Path, tmp_path: Path) -> None:
    write(tmp_path / "output" / "acl.json", "{}")
    write(tmp_path / "apps" / "one.json", acl_json(tmp_path / "none"))
    write(tmp_path / "apps" / "two.json", "x" * (EXAMINED_ACL_JSON_BYTES + 5))
    with served(board, tmp_path / "output", "--acl-json", tmp_path / "apps" / "*.json") as daemon:
        found = {Path(each.path).name: each for each in asked(daemon.address).acl_json}
    assert set(found) == {"one.json", "two.json"}
    assert found["one.json"].output == wire.OUTPUT_STATE_MISSING
    assert (len(found["two.json"].data), found["two.json"].size) == (
        EXAMINED_ACL_JSON_BYTES,
        EXAMINED_ACL_JSON_BYTES + 5,
    )


class Sources(Examiner):
    """An examiner of two sources that the test makes up."""

    def __init__(self, clock: Any, works: dict[str, Any], patience_s: float) -> None:
        watch = SimpleNamespace(roots=(), acl_json=(), depth=4)
        super().__init__(cast("Any", None), cast("Any", watch), clock, patience_s=patience_s)
        self.works = works

    def _sources(self) -> Iterator[tuple[str, Any]]:
        return iter(self.works.items())


def free(value: int) -> Any:
    return lambda: wire.Examination(daemon=wire.DaemonFacts(uid=value))


async def test_a_source_that_hangs_holds_up_no_other_and_is_asked_again_when_it_answers() -> None:
    released = threading.Event()

    def hang() -> wire.Examination:
        released.wait(PATIENCE_S)
        return wire.Examination(npu=wire.NpuFacts(has_device=True))

    clock = FakeClock()
    found = wire.Examination()
    examiner = Sources(clock, {"slow": hang, "fast": free(5)}, patience_s=0.5)
    try:
        for why in ("it did not answer within 0.5 s", "it has not answered for long"):
            found = await examiner.examine()
            assert [(each.source, each.why) for each in found.unknown if each.source == "slow"] == [("slow", why)]
            clock.now += KEEP_S
    finally:
        released.set()

    while not found.npu.has_device:
        clock.now += KEEP_S
        found = await examiner.examine()

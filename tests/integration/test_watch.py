"""`profagent watch` as a person and a pipe use it: lines, remarks, and what is not shown twice."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.encoders import api_record
from tests.integration.board import SAMPLES, GrowingJob, eventually, mirrored, running
from tests.integration.host import COMMAND, ENVIRONMENT, is_event, profagent, started
from tests.integration.rows import query

if TYPE_CHECKING:
    from tests.daemon.daemon_process import Daemon
    from tests.integration.host import Host

INFERENCE = " inference "
SUMMARY = re.compile(r"\d inferences?, captured ")


@pytest.fixture(scope="module")
def simulating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A simulated board that runs on and on."""
    root = tmp_path_factory.mktemp("root")
    with running("--root", root, "--simulate", "--rate", "20") as daemon:
        assert eventually(lambda: any(root.iterdir()))
        yield daemon


class Program:
    """A program on the board whose inferences a test lets happen, one by one."""

    def __init__(self, root: Path, name: str = "runtime-json") -> None:
        self.job = GrowingJob(SAMPLES[name], root, 1)
        for path in (*self.job.paths("*"), *self.job.paths("data/*.info")):
            self.job.write(path)
        self._left = [path for path in self.job.paths("data/aicore*") if "yolo" in path]

    def infer(self) -> int:
        """One inference; gives its picture count."""
        path = self._left.pop(0)
        for each in (path, path.replace("aicore", "aicpu")):
            self.job.write(each)
            self.job.write(each + ".done")
        return int(path.rpartition(".")[2])

    def call(self) -> int:
        """A call just now, flushed at once; gives the time at which it began."""
        begin_us = time.time_ns() // 1000
        with (self.job.directory / "data" / "acl_api.0.yolo_v1_2_s_x.0").open("ab") as file:
            file.write(api_record(2, begin_us, begin_us + 500))
        return begin_us


def test_a_line_an_inference(simulating: Daemon) -> None:
    with started("watch", "--board", simulating.address) as host:
        lines = host.out.until(INFERENCE, 5)
        ended = host.interrupt()
    assert "no counter map" not in ended.err
    assert all(line.endswith("[simulated]") and "yolov5s.0 inference " in line and " ms " in line for line in lines)
    pictures = [int(line.partition(INFERENCE)[2].split()[0]) for line in lines]
    assert pictures == list(range(pictures[0], pictures[0] + len(pictures)))
    assert ended.code == 0
    assert SUMMARY.search(ended.out.splitlines()[-1])


def test_a_line_a_record(simulating: Daemon) -> None:
    with started("watch", "--board", simulating.address, "--records") as host:
        host.out.until("model.0.conv")
        host.out.until("aicpu ")
        host.out.until("svp_acl_mdl_execute")
        (line,) = host.out.until(lambda line: "model.0.conv" in line and "aicore 0.0" in line)[:1]
        assert host.interrupt().code == 0
    assert " us  mac " in line
    assert "  bound by " in line
    assert line.endswith("[simulated]")


def test_json_is_an_object_a_line(simulating: Daemon) -> None:
    with started("watch", "--board", simulating.address, "--json") as host:
        host.out.until(is_event("inference"), 3)
        events = [json.loads(line) for line in host.interrupt().out.splitlines()]
    assert all(event["simulated"] is True for event in events)
    inferences = [event for event in events if event["event"] == "inference"]
    for event in inferences:
        assert (event["figures"], event["why"]) == ("final", None)
        assert event["records"] > 70
        assert len(event["slowest"]) == 3
        assert all(layer["bound_by"] for layer in event["slowest"])
        assert event["end_us"] > event["start_us"]
    assert events[-1]["event"] == "summary"
    assert events[-1]["inferences"] == len(inferences)


def test_from_now_on_shows_nothing_old(root: Path) -> None:
    program = Program(root)
    program.infer()
    program.call()
    with running("--root", root) as board, started("watch", "--board", board.address, "--json", "--records") as host:
        host.err.until("watching")
        host.out.until(is_event("job"))
        picture, begin_us = program.infer(), program.call()
        host.out.until(is_event("call"))
        host.out.until(is_event("inference"))
        host.interrupt()
        assert [event["begin_us"] for event in host.events("call")] == [begin_us]
        assert {event["current_pic_count"] for event in host.events("record")} == {picture}
        assert len(host.events("inference")) == 1


def test_from_start_shows_what_is_there(root: Path) -> None:
    program = Program(root)
    old = program.infer()
    with _watched_from_start(root) as (_, host):
        host.out.until(is_event("inference"))
        new = program.infer()
        host.out.until(is_event("inference"), 2)
        host.interrupt()
        assert [event["current_pic_count"] for event in host.events("inference")] == [old, new]
        assert all(event["slowest"][0]["layer_name"] is not None for event in host.events("inference"))


@contextmanager
def _watched_from_start(root: Path) -> Iterator[tuple[Daemon, Host]]:
    with (
        running("--root", root) as board,
        started("watch", "--board", board.address, "--json", "--from-start") as host,
    ):
        yield board, host


def _is_inference_of(job: str, line: str) -> bool:
    return is_event("inference")(line) and job in line


def test_every_sample_job_is_shown_to_its_end(root: Path) -> None:
    with running("--root", root, "--quiet-after", "2") as board:
        with started("watch", "--board", board.address, "--json") as host:
            host.err.until("no open JOB yet")
            for source in SAMPLES.values():
                shutil.copytree(source, root / source.name)
            for source in SAMPLES.values():
                host.out.until(partial(_is_inference_of, source.name))
            host.out.until(is_event("inference"), 26)
            ended = host.interrupt()
        shown = {
            (event["job"], event["model"], event["current_pic_count"])
            for event in map(json.loads, ended.out.splitlines())
            if event["event"] == "inference"
        }
    assert ended.code == 0
    assert "Traceback" not in ended.err
    assert len(shown) > 25
    assert len({job for job, _, _ in shown}) == len(SAMPLES)


def test_nothing_is_shown_twice_after_a_daemon_s_restart(root: Path) -> None:
    program = Program(root)
    with _watched_from_start(root) as (board, host):
        first = program.infer()
        host.out.until(is_event("inference"))
        board.process.kill()
        board.process.wait()
        host.err.until("retrying in")
        missed = program.infer()
        with running("--root", root, listen=board.address):
            host.err.until("watching", 2)
            host.out.until(is_event("inference"), 2)
            last = program.infer()
            host.out.until(is_event("inference"), 3)
            host.interrupt()
        assert [event["current_pic_count"] for event in host.events("inference")] == [first, missed, last]


@pytest.mark.long
def test_interval_0_is_explained_once(root: Path) -> None:
    arguments = ("--simulate", "--rate", "20", "--interval", "0")
    with running("--root", root, *arguments) as board, started("watch", "--board", board.address) as host:
        host.err.until("only the first inference after a load is recorded")
        assert host.interrupt().err.count("interval") == 2


def test_a_board_that_is_away_takes_a_line(root: Path, tmp_path: Path) -> None:
    with (
        running("--root", root) as board,
        started("watch", "--board", board.address, "--save", "--workspace", tmp_path / "ws") as host,
    ):
        host.err.until("watching")
        board.process.kill()
        host.err.until("connection refused; retrying in 1 s")
        time.sleep(2)
        ended = host.interrupt()
    assert ended.err.count("connection refused") == 1
    for word in ("failed to connect", "ipv4:", "in 0"):
        assert word not in ended.err
    assert f"saved as session 1 of {tmp_path / 'ws'}" in ended.err


def test_save_keeps_a_session_whole_and_shows_from_now_on(root: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    program = Program(root)
    program.infer()
    with running("--root", root) as board:
        arguments = ("--board", board.address, "--save", "--workspace", workspace, "--json")
        with started("watch", *arguments) as host:
            host.out.until(is_event("job"))
            new = program.infer()
            host.out.until(is_event("inference"))
            assert eventually(lambda: mirrored(workspace) == program.job.content)
            summary = json.loads(host.interrupt().out.splitlines()[-1])
            assert [event["current_pic_count"] for event in host.events("inference")] == [new]
        assert summary["inferences"] == 1
        assert query(workspace / "profagent.db", "SELECT count(*) FROM inferences") == [(2,)]
        (session,) = profagent("sessions", "--workspace", workspace, "--json").document
        assert (session["source"], session["ended_us"] is None) == ("watch", False)
        # A second time clock and tables are held already, and do not come.
        with started("watch", *arguments) as host:
            host.out.until(is_event("job"))
            new = program.infer()
            host.out.until(is_event("inference"))
            host.interrupt()
            (event,) = host.events("inference")
    assert (event["current_pic_count"], event["figures"], event["why"]) == (new, "final", None)
    ((layers_us,),) = query(
        workspace / "profagent.db",
        f"SELECT sum(duration_us) FROM op_records WHERE current_pic_count = {new}",
    )
    assert event["layers_us"] - event["aicpu_us"] == pytest.approx(layers_us, abs=0.001)
    assert event["slowest"][0]["layer_name"] is not None


def test_a_closed_pipe_ends_it_quietly(simulating: Daemon) -> None:
    command = shlex.join([*COMMAND, "watch", "--board", simulating.address])
    ended = subprocess.run(
        ["bash", "-c", f"{command} | head -1; echo ${{PIPESTATUS[0]}}"],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert len(ended.stdout.splitlines()) == 2
    assert ended.stdout.splitlines()[1] == "0"
    assert "Traceback" not in ended.stderr
    assert "Error" not in ended.stderr


def test_lines_of_several_boards_name_theirs(simulating: Daemon, root: Path) -> None:
    with running("--root", root, "--simulate", "--rate", "20") as other:
        boards = ("--board", simulating.address, "--board", other.address)
        with started("watch", *boards) as host:
            host.out.until(lambda line: line.startswith(f"{simulating.address}: ") and INFERENCE in line)
            host.out.until(lambda line: line.startswith(f"{other.address}: ") and INFERENCE in line)
            host.err.until(f"{other.address}: watching ")
            ended = host.interrupt()
    assert all(SUMMARY.search(line) for line in ended.out.splitlines()[-2:])


def test_of_several_boards_one_that_was_never_reached_holds_up_no_other(simulating: Daemon) -> None:
    with started("watch", "--board", simulating.address, "--board", "127.0.0.1:1", "--json") as host:
        host.out.until(is_event("inference"))
        ended = host.interrupt()
    summaries = [json.loads(line) for line in ended.out.splitlines()[-2:]]
    assert [(each["board"], each.get("reached")) for each in summaries] == [
        (simulating.address, None),
        ("127.0.0.1:1", False),
    ]
    assert ended.code == 3


def test_an_unreachable_board_is_exit_code_3() -> None:
    assert profagent("watch", "--board", "127.0.0.1:1").code == 3

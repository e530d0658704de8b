"""`profagent record` as a script uses it: its ends, its summary, its exit codes."""

from __future__ import annotations

import re
import shutil
import signal
import socket
from pathlib import Path

import pytest

from profagent.record import record
from tests.integration.board import (
    SAMPLES,
    GrowingJob,
    content,
    eventually,
    running,
    sample,
    simulated,
    write_done,
)
from tests.integration.host import profagent, started
from tests.integration.rows import query

SUMMARY = [
    "session",
    "board",
    "simulated",
    "sdk_version",
    "counter_map",
    "hostname",
    "counter_map_digest",
    "jobs",
    "bytes",
    "records",
    "sampling",
    "earlier",
    "events",
    "ledger",
    "kept_losses",
    "implausible",
    "complete",
    "incomplete",
    "coverage",
    "exit_code",
    "not_copied",
    "not_final",
    "database",
    "mirror",
]
FAST = ("--quiet-after", "0.3")


def test_the_summary_has_the_promised_keys(root: Path, workspace: Path) -> None:
    job = sample(root, "runtime-api")
    with running("--root", root, *FAST) as board:
        arguments = ("--board", board.address, "--workspace", workspace, "--backlog", "--until-finished", "--json")
        ended = profagent("record", *arguments)
    summary = ended.document
    assert ended.code == 0
    assert sorted(summary) == sorted(SUMMARY)
    assert summary["jobs"] == [job.name]
    assert summary["bytes"] == sum(map(len, content(job).values()))
    assert sorted(summary["records"]) == ["acl_api", "aicore", "aicpu"]
    assert sorted(summary["ledger"]) == ["loss", "note"]
    assert summary["simulated"] is False
    assert Path(summary["database"]).is_file()
    assert (Path(summary["mirror"]) / job.name).is_dir()


def test_until_finished_waits_for_a_first_job(root: Path, workspace: Path, tmp_path: Path) -> None:
    source = simulated(tmp_path / "source", 2)
    with running("--root", root) as board:
        arguments = ("--board", board.address, "--workspace", workspace, "--until-finished", "--json")
        with started("record", *arguments) as host:
            host.err.until("waiting for a program")
            shutil.copytree(source, root / source.name)
            ended = host.ended()
    assert (ended.code, ended.document["jobs"]) == (0, [source.name])
    assert content(Path(ended.document["mirror"]) / source.name) == content(source)


def test_jobs_that_have_ended_are_taken_only_with_backlog(root: Path, workspace: Path, tmp_path: Path) -> None:
    old, new = sample(root, "runtime-json"), simulated(tmp_path / "source", 2)
    with running("--root", root, *FAST) as board:
        arguments = ("--board", board.address, "--workspace", workspace, "--until-finished", "--json")
        with started("watch", "--board", board.address) as watcher:
            watcher.err.until("no open JOB yet")
        with started("record", *arguments) as host:
            host.err.until("waiting for a program")
            shutil.copytree(new, root / new.name)
            assert host.ended().code == 0
        assert query(workspace / "profagent.db", "SELECT name FROM job") == [(new.name,)]
        assert sorted(profagent("record", *arguments, "--backlog").document["jobs"]) == sorted([old.name, new.name])


def test_new_leaves_the_unfinished_session_behind(root: Path, workspace: Path) -> None:
    GrowingJob(SAMPLES["runtime-json"], root, 1).write("info.json.0")
    with running("--root", root) as board:
        arguments = ("--board", board.address, "--workspace", workspace)
        with started("record", *arguments) as host:
            host.err.until("recording")
            assert eventually(lambda: any(workspace.glob("mirror/*/JOB*/info.json.0")))
            host.process.kill()
        assert profagent("record", *arguments, "--for", "0.5s", "--json", "--new").document["session"] == 2
        # Nothing was recorded in it, so it goes on.
        assert profagent("record", *arguments, "--for", "0.5s", "--json").document["session"] == 2
    listed = profagent("sessions", "--workspace", workspace, "--json").document
    assert [session["ended_us"] is None for session in listed] == [True, False]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_the_summary(number: int, root: Path, workspace: Path) -> None:
    arguments = ("--workspace", workspace, "--json")
    caught_up = "SELECT caught_up FROM job WHERE name LIKE 'JOB%'"
    with (
        running("--root", root, "--simulate", "--rate", "20") as board,
        started("record", "--board", board.address, *arguments) as host,
    ):
        host.err.until("recording")
        assert eventually(lambda: query(workspace / "profagent.db", caught_up) == [(1,)])
        host.process.send_signal(number)
        ended = host.ended()
    assert ended.code == 0
    assert ended.document["records"]["aicore"] > 0
    assert "Traceback" not in ended.err
    assert query(workspace / "profagent.db", "SELECT ended_us IS NOT NULL FROM session") == [(1,)]


def test_a_signal_ends_it_while_the_board_is_away(root: Path, workspace: Path) -> None:
    with (
        running("--root", root) as board,
        started("record", "--board", board.address, "--workspace", workspace) as host,
    ):
        host.err.until("recording")
        board.stop()
        host.err.until("retrying in")
        ended = host.interrupt()
    assert ended.code == 4
    assert "INCOMPLETE: not covered at the end: the link is down since" in ended.out


def test_an_unreachable_board_is_exit_code_3(workspace: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ended = profagent("record", "--board", f"127.0.0.1:{taken.getsockname()[1]}", "--workspace", workspace)
    assert ended.code == 3
    assert ended.out == ""
    assert "cannot reach the board" in ended.err
    assert "check the address" in ended.err


@pytest.mark.parametrize(
    "arguments",
    [(), ("--for", "soon"), ("--label", "nothing"), ("--inferences", "0"), ("--no-such-option",), ("extra",)],
    ids=lambda arguments: " ".join(arguments) or "no board",
)
def test_what_cannot_be_right_is_exit_code_2(arguments: tuple[str, ...], workspace: Path) -> None:
    board = ("--board", "127.0.0.1:1") if arguments else ()
    assert profagent("record", *board, "--workspace", workspace, *arguments).code == 2


def test_a_log_removed_before_it_was_sent_makes_a_capture_incomplete(root: Path, workspace: Path) -> None:
    job = GrowingJob(SAMPLES["runtime-json"], root, 1)
    job.write("info.json.0")
    log = job.directory / "data" / "aicore.0.demo.3.0.1.1.0"
    told = "SELECT count(*) FROM ledger WHERE reason = 'removed-unread'"
    with running("--root", root) as board:
        arguments = ("--board", board.address, "--workspace", workspace, "--json")
        with started("record", *arguments) as host:
            host.err.until("recording")
            assert eventually(lambda: any(workspace.glob("mirror/*/JOB*/info.json.0")))
            with log.open("wb") as file:
                # Unread bytes of 64 MiB are still on their way when the file goes.
                file.truncate(64 << 20)
            assert eventually(lambda: any(workspace.glob("mirror/*/JOB*/data/aicore*")))
            log.unlink()
            assert eventually(lambda: query(workspace / "profagent.db", told) == [(1,)])
            ended = host.interrupt()
    assert ended.code == 4
    assert ended.document["ledger"]["loss"]["removed-unread"] > 0
    assert ended.document["complete"] is False


def test_a_job_that_is_removed_before_it_has_ended_is_over_and_a_loss(root: Path, workspace: Path) -> None:
    job = GrowingJob(SAMPLES["runtime-json"], root, 1)
    job.write("info.json.0")
    data = job.directory / "data" / "aicore.0.demo.3.0.1.1.0"
    data.write_bytes(bytes(512))
    write_done(data)
    with running("--root", root) as board:
        arguments = ("--board", board.address, "--workspace", workspace, "--json", "--until-finished")
        with started("record", *arguments) as host:
            assert eventually(lambda: any(workspace.glob("mirror/*/JOB*/data/aicore*.done")))
            shutil.rmtree(job.directory)
            ended = host.ended()
    assert (ended.code, ended.document["jobs"]) == (4, [job.directory.name])
    assert ended.document["ledger"]["loss"] == {"removed-open": 1}


def test_from_now_takes_only_what_begins_from_then_on(root: Path, workspace: Path, tmp_path: Path) -> None:
    database = workspace / "profagent.db"
    with running("--root", root, "--simulate", "--rate", "40") as board:
        before = ("record", "--board", board.address, "--workspace", tmp_path / "before", "--inferences", "20")
        assert profagent(*before).code == 0
        # What a client has had the daemon has found, however late it is with the rest.
        ((first,),) = query(tmp_path / "before/profagent.db", "SELECT count(*) FROM inferences")
        arguments = ("--board", board.address, "--workspace", workspace, "--json")
        ended = profagent("record", *arguments, "--inferences", "5", "--from-now")
        assert ended.code == 0, ended.err
        counts = [count for (count,) in query(database, "SELECT current_pic_count FROM inferences WHERE session = 1")]
        assert min(counts) >= first - 1
        assert len(counts) >= 5
        # Once more, and what was passed over between the two is not missing.
        other = profagent("record", *arguments, "--inferences", "5", "--from-now")
        # A later one without it fetches the rest, and its figures are those of its own inferences.
        later = profagent("record", *arguments, "--inferences", str(first))
    assert query(database, "SELECT min(current_pic_count) FROM inferences WHERE session = 2")[0][0] > max(counts)
    assert query(database, "SELECT min(current_pic_count) FROM inferences WHERE session = 3") == [(0,)]
    assert query(database, "SELECT count(*) FROM ledger WHERE reason = 'sample-never-came'") == [(0,)]
    fetched = query(database, "SELECT count(*) FROM inferences GROUP BY session ORDER BY session")
    sampled = [each.document["sampling"]["sampled"] for each in (ended, other, later)]
    assert [(count,) for count in sampled[:2]] == fetched[:2]
    assert sampled[2] >= fetched[2][0]  # one that is still to be copied lies between those that are


def test_what_an_open_job_holds_and_how_long_it_takes_is_said_at_once(
    root: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "MEASURE_S", 0.02)
    monkeypatch.setattr(record, "LEAST_BYTES", 1)
    job = simulated(root, 300)
    (job / "data" / "acl_api.0.yolov5s.0.done").unlink()
    with running("--root", root, "--quiet-after", "60") as board:
        told = profagent("record", "--board", board.address, "--workspace", workspace, "--inferences", "300").err
    assert f"{job.name} holds 300 inferences (" in told
    assert re.search(rf"{job.name}: about \d+ s to copy it, at [\d.]+ MB/s", told), told


def test_who_asks_for_some_inferences_is_told_how_many_others_there_are(root: Path, workspace: Path) -> None:
    database = workspace / "profagent.db"
    job = simulated(root, 400)
    done = job / "data" / "acl_api.0.yolov5s.0.done"
    text = done.read_bytes()
    done.unlink()  # the program goes on, as far as anybody knows
    with running("--root", root, "--quiet-after", "30") as board:
        arguments = ("--board", board.address, "--workspace", workspace, "--json")
        some = profagent("record", *arguments, "--inferences", "1")
        ((copied,),) = query(database, "SELECT count(*) FROM inferences WHERE figures = 'final'")
        # It is as it was asked for, so it is complete.
        assert (some.code, some.document["complete"], some.document["not_copied"]) == (0, True, {})
        assert f"{400 - copied} inferences of {job.name} not copied: as many as asked for have come" in some.err
        assert f"{job.name} holds 400 inferences (" in some.err
        assert some.document["sampling"]["due"] is None
        done.write_bytes(text)
        rest = profagent("record", *arguments, "--until-finished")
    assert rest.code == 0, rest.err
    assert query(database, "SELECT figures, count(*) FROM inferences GROUP BY 1") == [("final", 400)]
    assert query(database, "SELECT reason FROM ledger WHERE reason = 'sample-never-came'") == []

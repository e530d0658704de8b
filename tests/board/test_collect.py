"""`profagent collect` through a real OpenSSH server, with a program that writes JOBs through the simulator."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from profagent.collect.board_run import LOCK
from profagent.link.boards_file import BoardEntry, BoardsFile
from profagent.link.credentials import own_consumer
from tests.integration.board import content, eventually, running
from tests.integration.host import profagent, started

if TYPE_CHECKING:
    from pathlib import Path

    from tests.board.bench import Bench


def test_a_job_lands_byte_for_byte_is_imported_and_exported(bench: Bench) -> None:
    ended = bench.collect("--interval", "1", "--all", "--label", "build=7")
    assert ended.code == 0, ended.err
    (job,), (board_job,) = bench.jobs, bench.board_jobs
    assert content(job).items() >= content(board_job).items()
    assert (job / "sqlite" / "profagent.db").is_file()
    for folder, prefix, number in (("timeline", "task_time", 1), ("timeline", "acl", 1), ("summary", "op_summary", 3)):
        assert len(list((job / folder).glob(f"{prefix}*"))) == number, folder
    assert ended.out == "up\ninference 0\ninference 1\ninference 2\n"
    assert "to stderr" in ended.err
    assert eventually(bench.is_tidy)
    listed = profagent("sessions", "--json", "--workspace", bench.workspace, **bench.variables).document
    assert [(each["source"], each["inferences"], each["labels_by_key"]["build"]) for each in listed] == [
        ("collect", 3, "7")
    ]
    assert listed[0]["labels_by_key"].keys() >= {"build", "main"}
    assert listed[0]["frequencies_mhz"] == [700]
    assert "interval 1, from acl.json" in ended.err


def test_release_deletes_what_has_come(bench: Bench) -> None:
    """By a daemon that is brought for the run; or by the board's own, where that deletes."""
    ended = bench.collect("--interval", "1", "--release", "--json", "--", "4", "0.1", "unload")
    (job,) = bench.jobs
    document = ended.document
    assert (ended.code, document["causes"], document["jobs"]) == (0, [], [str(job)]), ended.err
    assert len(list((job / "data").glob("aicore*.done"))) == 4
    assert not bench.board_jobs


def test_a_daemon_that_deletes_by_itself_is_used_for_a_release(bench: Bench, home: Path) -> None:
    retains = ("--retain", "delivered", "--retain-for", own_consumer())
    with running("--root", bench.remote.parent, *retains) as daemon:
        know(home, bench, daemon.address)
        ended = bench.collect("--board", "euler", "--interval", "1", "--release")
    assert ended.code == 0, ended.err
    assert "bringing a daemon" not in ended.err
    assert (len(bench.jobs), bench.board_jobs) == (1, [])


def know(home: Path, bench: Bench, address: str) -> None:
    entry = BoardEntry("euler", address, ssh=bench.friend.target)
    BoardsFile(home / ".config" / "profagent" / "boards.toml").put(entry)


@pytest.mark.parametrize("sshd", ["busybox"], indirect=True)
def test_ctrl_c_ends_the_program_and_fetches_what_it_made(served: Bench) -> None:
    with started(*served.arguments("--interval", "1", "--", "1000", "0.1", "unload"), **served.variables) as host:
        host.out.until("inference 3")
        ended = host.interrupt()
    assert ended.code == 0, ended.err
    (job,), (board_job,) = served.jobs, served.board_jobs
    assert content(job) == content(board_job)
    assert len(list((job / "data").glob("acl_api*.done"))) == 1
    assert eventually(served.is_tidy)


def test_a_second_ctrl_c_leaves_at_once(served: Bench) -> None:
    with started(*served.arguments("--", "1000", "0.1", "nothing"), **served.variables) as host:
        host.out.until("inference 3")
        host.process.send_signal(signal.SIGINT)
        host.err.until("ending the program")
        assert host.interrupt().code == 130
    assert eventually(lambda: (served.remote / "acl.json").read_text() == '{"other": "stays"}\n')
    assert eventually(lambda: not (served.friend.folder / "tmp" / LOCK).exists())


@pytest.mark.parametrize("daemon", ["served", pytest.param("bench", marks=pytest.mark.long)])
def test_a_link_that_drops_costs_nothing(request: pytest.FixtureRequest, daemon: str) -> None:
    """That of the program; with a daemon that is brought, its link drops as well."""
    bench: Bench = request.getfixturevalue(daemon)
    with started(*bench.arguments("--interval", "1", "--", "12", "0.1", "unload"), **bench.variables) as host:
        host.out.until("inference 3")
        for session in bench.friend.sessions():
            os.kill(session, signal.SIGKILL)
        host.err.until("is lost")
        ended = host.ended()
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == ["up", *(f"inference {number}" for number in range(12))]
    (job,), (board_job,) = bench.jobs, bench.board_jobs
    assert content(job) == content(board_job)
    assert len(list((job / "data").glob("aicore*.done"))) == 12
    assert eventually(bench.is_tidy)


def test_a_crash_is_told_and_what_was_recorded_is_kept(served: Bench) -> None:
    ended = served.collect("--interval", "1", "--all", "--", "4", "0", "crash")
    assert ended.code == 139
    assert "was ended by signal SIGSEGV" in ended.err
    assert "was not finished" in ended.err
    (job,), (board_job,) = served.jobs, served.board_jobs
    assert {path: data for path, data in content(job).items() if path in content(board_job)} == content(board_job)
    assert len(list((job / "summary").glob("op_summary*"))) == 4
    assert eventually(served.is_tidy)


def test_a_run_whose_end_nobody_knows_is_kept_as_far_as_it_came(served: Bench) -> None:
    """As when the board is restarted: everything of the run is gone at once."""
    with started(
        *served.arguments("--interval", "1", "--json", "--", "1000", "0.1", "nothing"), **served.variables
    ) as host:
        host.err.until("inference 3")
        folder = served.remote / ".profagent" / "run"
        pids = [int((folder / name).read_text().split()[0]) for name in ("keeper", "pid")]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        ended = host.ended()
    document = ended.document
    assert (ended.code, document["status"], len(document["jobs"])) == (1, None, 1), ended.err
    assert "nobody knows how" in document["causes"][0]["text"]
    (job,), (board_job,) = served.jobs, served.board_jobs
    assert content(job) == content(board_job)
    assert eventually(served.is_tidy)
    # PasswordAsker back last.
    assert eventually(lambda: not (served.friend.folder / "tmp" / LOCK).exists())
    (session,) = profagent("sessions", "--json", "--workspace", served.workspace, **served.variables).document
    assert session["ended_us"] is not None


def test_the_vendors_files(served: Bench) -> None:
    """An ini stays at home where it is in the project. A Dump in acl.json excludes profiling."""
    (served.project / "acl.json").write_text('{"dump": {"dump_path": "/d"}}')
    ini = served.project / "ssh.ini"
    ini.write_text(
        f"[ssh_config]\nip = 127.0.0.1\nusername = {served.friend.user}\npwd =\nport = {served.friend.port}\n"
    )
    ini.chmod(0o644)
    ended = served.collect("--config", ini)
    assert ended.code == 0, ended.err
    assert "mode 0644" not in ended.err  # there is no password in it
    assert not (served.remote / "ssh.ini").exists()
    assert len(served.jobs) == 1
    assert "a Dump, which excludes profiling" in ended.err
    assert "dump" not in json.loads((served.remote / "seen.json").read_text())
    assert eventually(lambda: "dump" in (served.remote / "acl.json").read_text())


def test_a_program_of_the_board_with_an_absolute_path(served: Bench) -> None:
    ended = served.collect("-m", served.project / "main", "--acl-json", served.project / "acl.json", "--env", "A=b c")
    assert ended.code == 0, ended.err
    assert len(served.jobs) == 1
    (session,) = profagent("sessions", "--json", "--workspace", served.workspace, **served.variables).document
    digest = hashlib.sha256((served.project / "main").read_bytes()).hexdigest()
    assert session["labels_by_key"] == {"main": digest[:16]}
    assert (served.project / "acl.json").read_text() == '{"other": "stays"}\n'
    assert sys.executable in (served.project / "main").read_text().splitlines()[0]


@pytest.mark.parametrize("still_served", [True, pytest.param(False, marks=pytest.mark.long)])
def test_jobs_of_other_programs_are_not_taken_for_its_own(
    bench: Bench, home: Path, tmp_path: Path, still_served: bool
) -> None:
    """One that a `record` left open: the daemon that serves the run knows of it, or serves another directory."""
    for folder in (tmp_path / "other", bench.remote):
        folder.mkdir()
    roots = ("--root", tmp_path / "other", *(("--root", bench.remote) if still_served else ()))
    with running("--simulate", "--rate", "5", *roots) as daemon:
        record = ("record", "--board", daemon.address, "--workspace", bench.workspace, "--inferences", "2")
        assert profagent(*record, **bench.variables).code == 0
        know(home, bench, daemon.address)
        ended = bench.collect("--interval", "1", "--json", "--board", "euler")
    assert ended.code == 0, ended.err
    assert ("bringing a daemon" in ended.err) is not still_served
    document = ended.document
    assert (len(document["jobs"]), document["causes"]) == (1, []), document
    session = document["session"]
    assert (len(session["jobs"]), session["ledger"]["loss"], session["earlier"]) == (1, {}, []), session
    (job,), (board_job,) = bench.jobs, bench.board_jobs
    assert content(job) == content(board_job)


@pytest.mark.long
def test_two_jobs_of_which_nobody_can_tell_which_is_the_programs(served: Bench) -> None:
    """The other one goes on growing."""
    with started(*served.arguments("--json", "--release", "--", "20", "0.1", "unload"), **served.variables) as host:
        host.err.until("inference 3")
        output = served.remote / "profiling"
        with running("--simulate", "--rate", "2", "--root", output):
            ended = host.ended()
    assert ended.code == 0, ended.err
    first, second = [cause["text"] for cause in ended.document["causes"]][:2]
    names = sorted(path.name for path in served.board_jobs)
    assert len(names) == 2
    assert all(name in first for name in names)
    assert "which of them are its own cannot be told" in first
    assert "was written to after the program had ended" in second

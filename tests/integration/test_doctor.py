"""`profagent doctor` as a command: a real daemon on a made-up board, over real gRPC, with each check good and bad."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from profagent.keys.keys import Keys
from profagent.link.boards_file import BoardEntry, BoardsFile
from tests.daemon.board_files import add_process, make_board, served, write
from tests.daemon.daemon_process import make_job
from tests.fakes.hung_mount import hung_mount
from tests.integration.board import eventually, running, simulated, tls_arguments
from tests.integration.host import Ended, profagent

Marks = dict[str, list[str]]


@pytest.fixture
def board(tmp_path: Path) -> Path:
    return make_board(tmp_path / "board")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A root; pytest's own directories have a hyphen, which the manual does not allow."""
    return tmp_path / "output"


def doctor(folder: Path, *arguments: str | Path, **variables: str) -> Ended:
    return profagent(
        "doctor", *arguments, XDG_CONFIG_HOME=str(folder / "config"), XDG_DATA_HOME=str(folder / "data"), **variables
    )


def looked_at(folder: Path, *arguments: str | Path) -> dict[str, Any]:
    """The document of --json."""
    ended = doctor(folder, *arguments, "--json")
    assert ended.code in (0, 1), ended.err
    document: dict[str, Any] = ended.document
    assert document["good"] == (ended.code == 0)
    return document


def answered(folder: Path, *arguments: str | Path, told: str = "") -> dict[str, Any]:
    """The same, once all sources of the board have answered, and something is told."""
    found: list[dict[str, Any]] = []

    def is_answered() -> bool:
        found.append(looked_at(folder, *arguments))
        text = json.dumps(found[-1])
        return "not answer" not in text and told in text

    assert eventually(is_answered)
    return found[-1]


def marks(document: dict[str, Any], section: str = "board ") -> Marks:
    """The marks of each check, of the sections whose titles begin so."""
    found: Marks = {}
    for each in document["sections"]:
        if each["about"].startswith(section):
            for finding in each["findings"]:
                found.setdefault(finding["check"], []).append(finding["mark"])
    return found


def test_a_board_in_good_order(board: Path, output: Path, tmp_path: Path) -> None:
    make_job(output).chmod(0o750)
    add_process(board, 7, umask="0027")
    (board / "proc/self/mountinfo").write_text("22 1 179:2 / / rw - ext4 /dev/root rw\n")
    right = {"switch": "on", "output": str(output), "interval": "1", "aic_metrics": "ArithmeticUtilization"}
    write(output / "acl.json", json.dumps({"profiler": right}))
    with served(board, output, "--identity", "u-1") as daemon:
        document = answered(tmp_path, "--board", daemon.address, told="open JOBs: 1")
    found = marks(document)
    # Directories of these tests have names that the manual does not allow.
    assert found.pop("path") == ["bad"]
    assert found == {
        check: ["good"]
        for check in (
            *("name", "link", "daemon", "listener", "clock", "npu-stack", "npu-tasks", "npu-errors"),
            *("umask", "root", "space", "mounts", "inotify"),
        )
    }
    assert marks(document, "this host") == {check: ["good"] for check in ("workspace", "host-space", "identity")}
    about_file = marks(document, str(output))
    assert about_file.pop("path") == ["bad"]
    assert about_file == {
        check: ["good"] for check in ("acl-json", "acl-switch", "acl-items", "acl-interval", "acl-output")
    }


def test_what_a_board_cannot_measure_is_told(board: Path, output: Path, tmp_path: Path) -> None:
    make_job(output).chmod(0o750)
    with served(board, output, "--spools", "metrics") as daemon:
        document = answered(tmp_path, "--board", daemon.address, told="no thermal")
    assert marks(document)["metrics"] == ["unknown"]


def test_a_board_on_which_much_is_wrong(board: Path, output: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        make_job(output, number)
        add_process(board, number, umask="0022")
    shutil.rmtree(board / "dev")
    write(board / "dev/pqp", "")
    (board / "proc/umap/svp_npu").write_text("timeout_err_cnt hw_err_cnt\n 2 0\n")
    (board / "proc/sys/fs/inotify/max_user_watches").write_text("10")
    write(output / "acl.json", json.dumps({"profiler": {"switch": "ON", "output": "/nowhere/at/all"}}))
    with served(board, output, "--root", tmp_path / "none") as daemon:
        document = answered(tmp_path, "--board", daemon.address, told="open JOBs: 2")
        shown = doctor(tmp_path, "--board", daemon.address)
    found = marks(document)
    for check in ("npu-stack", "npu-tasks", "npu-errors", "umask", "inotify"):
        assert found[check] == ["bad"], check
    assert sorted(found["root"]) == ["bad", "good"]
    assert sorted(found["mounts"]) == ["bad", "unknown"]
    about_file = marks(document, str(output))
    assert {about_file[check][0] for check in ("acl-switch", "acl-items", "acl-output")} == {"bad"}
    assert shown.code == 1
    assert "  ✗ npu-stack" in shown.out
    assert "→ on the board: umount /root/app/profiling" in shown.out
    assert "→ write it with `profagent aclconfig set`" in shown.out
    assert shown.out.splitlines()[-1].endswith(" not known")


def test_a_root_that_hangs_holds_up_no_other(board: Path, output: Path, tmp_path: Path) -> None:
    make_job(output)
    with hung_mount(tmp_path / "hung") as hung, served(board, output, "--root", hung) as daemon:
        document = looked_at(tmp_path, "--board", daemon.address)
    findings = [each for section in document["sections"] for each in section["findings"]]
    about = [each for each in findings if str(hung) in each["evidence"]]
    assert [(each["check"], each["mark"]) for each in about] == [("root", "unknown"), ("acl-json", "unknown")]
    assert all("not answer" in each["evidence"] for each in about)


def test_a_board_that_is_not_there(tmp_path: Path) -> None:
    ended = doctor(tmp_path, "--board", "127.0.0.1:1")
    assert ended.code == 1
    assert "✗ link" in ended.out
    nowhere = looked_at(tmp_path, "--board", "nowhere.invalid", "--insecure")
    assert marks(nowhere)["name"] == ["bad"]
    assert marks(nowhere)["link"] == ["bad"]


def test_certificates_and_who_may_reach_the_board(board: Path, output: Path, tmp_path: Path) -> None:
    output.mkdir()
    keys = Keys(tmp_path / "config" / "profagent" / "keys")
    keys.init("lab")
    made = keys.issue_board("euler", ("0.0.0.0",), days=5).folder
    with served(board, output, *tls_arguments(made), listen="0.0.0.0:0") as daemon:
        document = answered(tmp_path, "--board", f"0.0.0.0:{daemon.address.rpartition(':')[2]}")
    # The board's has five days left; its authority's has years.
    assert marks(document)["certificate"] == ["bad", "good"]
    assert marks(document)["listener"] == ["good"]
    assert marks(document, "this host")["certificate"] == ["good", "good"]
    with served(board, output, "--insecure", listen="0.0.0.0:0") as daemon:
        address = f"0.0.0.0:{daemon.address.rpartition(':')[2]}"
        found = marks(answered(tmp_path, "--board", address, "--insecure"))
    assert found["listener"] == ["bad"]
    assert "certificate" not in found


def test_boards_that_say_they_are_one(board: Path, output: Path, tmp_path: Path) -> None:
    file = BoardsFile(tmp_path / "config" / "profagent" / "boards.toml")
    with (
        served(board, output, "--identity", "u-1") as one,
        running("--root", output, "--identity", "u-1") as other,
        running("--root", output, "--identity", "u-2") as third,
    ):
        file.put(BoardEntry("one", one.address))
        file.put(BoardEntry("third", third.address, uuid="u-2"))
        assert marks(looked_at(tmp_path, "--board", "one"), "this host")["identity"] == ["good"]
        file.put(BoardEntry("other", other.address))
        ended = doctor(tmp_path)
        assert ended.code == 1
        assert "one and other have the same identity: u-1" in ended.out
        file.put(BoardEntry("other", other.address, uuid="u-9"))
        found = marks(looked_at(tmp_path, "--board", "other"))
        assert found["link"] == ["bad"]
        file.put(BoardEntry("other", "127.0.0.1:1"))
        assert marks(looked_at(tmp_path), "this host")["identity"] == ["unknown", "good"]


def test_a_job_and_an_acl_json_of_this_host(tmp_path: Path) -> None:
    job = simulated(tmp_path / "jobs", 3)
    assert doctor(tmp_path, job).code == 0
    beside = job.parent / "acl.json"
    beside.write_text('{"profiler": {"switch": "on", "aac_metrics": "ArithmeticUtilization"}}')
    document = looked_at(tmp_path, job)
    (found,) = (each for each in document["sections"] if each["about"] == str(beside))
    assert {each["check"] for each in found["findings"] if each["mark"] == "bad"} == {"acl-items", "acl-output"}


def test_what_a_file_says_breaks_neither_terminal_nor_json(tmp_path: Path) -> None:
    job = simulated(tmp_path / "jobs", 1)
    (job.parent / "acl.json").write_text('{"profiler": {"switch": "\\u001b[2J", "output": "/\\ud800\\u001b[2J"}}')
    document = looked_at(tmp_path, job)
    assert "\x1b" not in json.dumps(document, ensure_ascii=False)
    shown = doctor(tmp_path, job)
    assert shown.code == 1
    assert "\x1b" not in shown.out

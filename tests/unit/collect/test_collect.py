"""`collect`: what is asked of acl.json, how a program is run for it, and what its end means."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profagent.aclconfig.edit import DEFAULTS, ProfilerSettings, edited_acl_json, has_dump
from profagent.collect.cli import login, plain_name, read_ini
from profagent.collect.collecting import Collected
from profagent.collect.explain import Aftermath, causes, failure
from profagent.collect.look import MainProgram, Place, read_main
from profagent.collect.project import ProjectEntry, difference, is_plain_name, project_labels
from profagent.doctor.acl_json import acl_json_section
from profagent.errors import UsageError
from profagent.limits import LARGEST_PROGRAM_BYTES
from profagent.ssh.connection import SshTarget
from profagent.store.sessions import labels_of

INI = "[ssh_config]\nip = 192.0.2.2\nusername = root\npwd = pass%w=rd; #1\nport = 2222\n"


@pytest.mark.parametrize("text", [INI, "\ufeff" + INI, INI.replace("\n", "\r\n"), INI.replace(" = ", "=", 2)])
def test_a_file_tells_who_logs_in_where(text: str) -> None:
    target, password = read_ini(text, "ssh.ini")
    assert SshTarget.parse(target) == SshTarget("192.0.2.2", "root", 2222)
    assert password == "pass%w=rd; #1"


def test_port_and_password_may_be_missing() -> None:
    target, password = read_ini("[ssh_config]\nip=fe80::1\nusername=root\n", "ssh.ini")
    assert SshTarget.parse(target) == SshTarget("fe80::1", "root", 22)
    assert password == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no section"),
        ("[other]\nip=1\n", "no section"),
        ("[ssh_config]\nusername=root\n", "no ip"),
        ("[ssh_config]\nip=1\n", "no username"),
        ("secret without a key", "not an ini file"),
    ],
)
def test_what_is_missing_is_told_without_the_files_words(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        read_ini(text, "ssh.ini")
    assert "secret" not in str(refused.value)


OUTPUT = ProfilerSettings(output="/opt/app/profiling")


@pytest.mark.parametrize(("more", "is_told"), [("", False), ("pwd=secret\n", True)])
def test_others_who_may_read_the_file_are_told_of_where_it_holds_a_password(
    more: str, is_told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ssh.ini"
    file.write_text(f"[ssh_config]\nip=10.0.0.2\nusername=root\n{more}")
    for mode, is_open in ((0o644, True), (0o600, False)):
        file.chmod(mode)
        assert login(file, None)[0] == "ssh://root@10.0.0.2:22"
        assert ("holds a password" in capsys.readouterr().err) is (is_told and is_open)


BOTH_ON = {"aicpu": "on", "aacpu": "on", "aic_metrics": "ArithmeticUtilization", "aac_metrics": "ArithmeticUtilization"}
VENDORS = {"switch": "on", "output": "/opt/app/profiling", "interval": "0", "acl_api": "on", **BOTH_ON}


def edited(text: str, settings: ProfilerSettings = OUTPUT, **how: bool) -> dict[str, object]:
    document: dict[str, object] = json.loads(edited_acl_json(text.encode(), settings, "acl.json", **how))
    return document


def test_what_is_not_asked_for_stays() -> None:
    text = '{"a": {"b": "c"}, "profiler": {"switch": "off", "mine": "1", "aacpu": "off", "interval": "7"}, "z": "y",}'
    document = edited(text)
    assert list(document) == ["a", "profiler", "z"]
    assert (document["a"], document["z"]) == ({"b": "c"}, "y")
    changed = {"switch": "off", "mine": "1", "aicpu": "off", "aacpu": "off", "interval": "7"}
    assert document["profiler"] == {**VENDORS, **changed}


def test_the_spelling_that_libraries_read_comes_first() -> None:
    profiler = edited('{"profiler": {"aicpu": "off", "aacpu": "on"}}')["profiler"]
    assert profiler == {**VENDORS, "aicpu": "off", "aacpu": "off"}


def test_what_is_asked_for_replaces_what_is_there() -> None:
    text = json.dumps({"profiler": {**VENDORS, "output": "/elsewhere", "switch": "off"}})
    settings = replace(OUTPUT, switch="on", interval=3, acl_api="off", aacpu="off", aac_metrics="none")
    off = {"acl_api": "off", "aicpu": "off", "aacpu": "off", "aic_metrics": "none", "aac_metrics": "none"}
    assert edited(text, settings)["profiler"] == {**VENDORS, "interval": "3", **off}


def test_a_dump_is_left_out_where_that_is_asked_for() -> None:
    text = '{"dump": {"dump_path": "/d"}, "other": "x"}'
    assert has_dump(text.encode())
    assert "dump" in edited(text)
    assert list(edited(text, without_dump=True)) == ["other", "profiler"]
    assert not has_dump(b"{")


def test_the_runtime_records_with_what_is_written() -> None:
    text = edited_acl_json(b'{"dump": {"a": 1}}', replace(DEFAULTS, output="/o", interval=1), "f", without_dump=True)
    assert acl_json_section("f", text.encode(), output="directory").is_good


def test_without_an_output_nothing_is_written() -> None:
    with pytest.raises(UsageError, match="names no output"):
        edited_acl_json(b"{}", ProfilerSettings(), "acl.json")


# What came of a run, or did not, is told with its likely cause and what to do

JOB = "JOB" + "A" * 29
ALL = MainProgram(has_own_profiling=False, acl_paths=("../acl.json",))
AFTER = Aftermath(
    Place("/app", "out/main"), "/app/acl.json", replace(DEFAULTS, interval=1), ALL, status=0, why="", complaint=""
)
INFO = {"info.json.0": 42, "data/m.0.net.info": 9, "data/m.0.layer.info": 9}
LAYERS = {"data/aicore.0.m.1.0.1.1.0": 256, "data/aicore.0.m.1.0.1.1.0.done": 50}
CALLS_MADE = {"data/acl_api.0.m.0": 64, "data/acl_api.0.m.0.done": 50}
WHOLE = {**INFO, **LAYERS, **CALLS_MADE, "data/aicore.0.m.1.0.1.1.1": 256}


def told(after: Aftermath) -> str:
    return "\n".join(f"{cause.text} -> {cause.remedy}" for cause in causes(after))


def ended(status: int, complaint: str = "", **more: object) -> str:
    cause = failure(replace(AFTER, status=status, complaint=complaint, **more))  # type: ignore[arg-type]
    return "" if cause is None else f"{cause.text} -> {cause.remedy}"


@pytest.mark.parametrize(
    ("status", "complaint", "wanted"),
    [
        (0, "Permission denied", ""),
        (126, "sh: 3: exec: ./main: Permission denied", "chmod +x"),
        (127, "main: error while loading shared libraries: libsvp_acl.so: cannot open", "LD_LIBRARY_PATH"),
        (127, "main.sh: 2: exec: /app/out/main: not found", "C library (glibc or musl)"),
        (127, "main: symbol lookup error: undefined symbol: f", "ended with 127"),
        (126, "/app/out/main: 2: ./tool: Exec format error", "starts: /app/out/main: 2: ./tool: Exec format error"),
        (1, "write: No space left on device", "disk is full"),
        (3, "", "ended with 3"),
        (139, "", "signal SIGSEGV"),
        (255, "", "ended with 255"),
    ],
)
def test_how_a_program_ended(status: int, complaint: str, wanted: str) -> None:
    assert wanted in ended(status, complaint)
    assert bool(ended(status, complaint)) is bool(wanted)


def test_a_program_that_was_not_started_or_was_ended() -> None:
    assert "acl.json cannot be written: cp: denied" in ended(125, why="cp: denied")
    assert told(replace(AFTER, status=125, why="cp: denied")) == ""
    assert "away for too long" in ended(143, why="abandoned")
    assert "the board was restarted, or the keeper" in ended(1, why="lost")
    assert "disk is full" in ended(1, free_kib=3)
    assert "disk is full" in told(replace(AFTER, jobs={JOB: WHOLE}, free_kib=3))


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"info.json.0": 42}, "no model that is built for profiling"),
        ({"info.json.0": 42, "data/acl_api.0.m.0": 0}, "--online_model_type=2"),
        ({**INFO, **CALLS_MADE}, "calls were recorded, and no layers"),
        ({**WHOLE, "data/acl_api.0.other.1": 64}, "was not finished"),
    ],
)
def test_what_a_job_lacks(files: dict[str, int], wanted: str) -> None:
    assert wanted in told(replace(AFTER, jobs={JOB: files}))


def test_an_interval_of_0_is_named_where_one_inference_came() -> None:
    files = {path: size for path, size in WHOLE.items() if not path.endswith(".1.1")}
    settings = replace(AFTER.settings, interval=0)
    assert "--interval 1" in told(replace(AFTER, settings=settings, jobs={JOB: files}))
    assert told(replace(AFTER, jobs={JOB: files})) == ""


def test_of_several_jobs_it_is_not_guessed_which_is_the_programs() -> None:
    other = JOB[:-1] + "B"
    after = replace(AFTER, jobs={JOB: WHOLE, other: WHOLE}, growing=(other,))
    assert f"{JOB}, {other} were made in /app/profiling while the program ran" in told(after)
    assert f"{other} was written to after the program had ended" in told(after)


@pytest.mark.parametrize(
    ("main", "wanted"),
    [
        (replace(ALL, has_own_profiling=True), "148047"),
        (replace(ALL, acl_paths=()), "called that without a path"),
        (replace(ALL, acl_paths=("../src/acl.json",)), "which is /app/src/acl.json, not /app/acl.json"),
        (ALL, "did not come as far as svp_acl_init"),
    ],
)
def test_why_there_is_no_job(main: MainProgram, wanted: str) -> None:
    assert wanted in told(replace(AFTER, main=main))


def test_a_job_elsewhere_and_a_board_without_the_npu() -> None:
    assert f"made elsewhere: /app/out/{JOB}" in told(replace(AFTER, elsewhere=(f"/app/out/{JOB}",)))
    assert "other NPU stack" in told(replace(AFTER, has_npu=False))
    assert "other NPU stack" not in told(AFTER)


# What of a project is sent to a board, and what may be removed there

FILE = ProjectEntry("file", "d1")
NAMES = st.sampled_from(["a", "a/b", "a/c", "d", "e"])
PROGRAM = ProjectEntry("file", "d1", is_executable=True)
ENTRIES = st.sampled_from(
    [FILE, ProjectEntry("file", "d2"), PROGRAM, ProjectEntry("directory"), ProjectEntry("link", "x")]
)


def test_what_is_there_is_not_sent() -> None:
    tree = {"dir": ProjectEntry("directory"), "dir/file": FILE, "link": ProjectEntry("link", "dir/file")}
    assert difference(tree, tree, tree) == ((), ())


@pytest.mark.parametrize(
    "found", [None, ProjectEntry("file", "d2"), PROGRAM, ProjectEntry("link", "d1"), ProjectEntry("directory")]
)
def test_what_is_another_is_sent(found: ProjectEntry | None) -> None:
    assert difference({"a": FILE}, {} if found is None else {"a": found}, ())[0] == ("a",)


def test_what_is_in_a_directory_goes_before_it() -> None:
    found = {"old": ProjectEntry("directory"), "old/x": FILE, "theirs": FILE}
    assert difference({"new": FILE}, found, ["old", "old/x", "away"]) == (("new",), ("old/x", "old"))


@given(st.dictionaries(NAMES, ENTRIES), st.dictionaries(NAMES, ENTRIES), st.lists(NAMES))
def test_nothing_that_others_put_there_is_removed(
    wanted: dict[str, ProjectEntry], found: dict[str, ProjectEntry], put: list[str]
) -> None:
    send, remove = difference(wanted, found, put)
    assert {*remove} <= {*put} & {*found}
    left = {**{name: entry for name, entry in found.items() if name not in remove}}
    left |= {name: wanted[name] for name in send}
    assert {name: left[name] for name in wanted} == wanted


@pytest.mark.parametrize("name", ["", "/a", "a/../b", "..", "a\nb", "a\\b", "a//b", "\udcff"])
def test_names_that_lead_elsewhere_or_take_more_than_a_line(name: str) -> None:
    assert not is_plain_name(name)


# A session is labelled with what its project was


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


async def test_revision_and_digests_are_kept(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "main").write_bytes(b"program")
    (tmp_path / "my model.om").write_bytes(b"model")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "x")
    revision = git(tmp_path, "rev-parse", "HEAD")[:12]
    labels = await project_labels(tmp_path, "out/main")
    assert labels == {
        "git": revision,
        "main": hashlib.sha256(b"program").hexdigest()[:16],
        "model.my_model": hashlib.sha256(b"model").hexdigest()[:16],
    }
    assert labels_of(f"{key}={value}" for key, value in labels.items()) == labels
    (tmp_path / "out" / "main").write_bytes(b"another")
    assert (await project_labels(tmp_path, "out/main"))["git"] == f"{revision}-dirty"


async def test_a_program_of_the_board_is_labelled_with_what_was_read_there() -> None:
    assert await project_labels(None, "/opt/main", "0123456789abcdef" * 4) == {"main": "0123456789abcdef"}
    assert await project_labels(None, "/opt/main") == {}


# What a program's file tells of it


def test_a_program_is_named_relative_to_the_project_or_absolutely() -> None:
    assert Place("/home/a/app", "out/./main").main == "/home/a/app/out/main"
    assert Place("/home/a/app", "/opt/main").main == "/opt/main"
    with pytest.raises(UsageError, match="leads to a place outside"):
        Place("/home/a/app", "../main")


def test_an_acl_json_is_looked_for_where_the_sdks_programs_have_it() -> None:
    place = Place("/app", "out/main")
    folders = ("/app/out", "/app/out/src", "/app", "/app/src")
    assert place.acl_candidates == tuple(f"{folder}/acl.json" for folder in folders)
    assert place.acl_json("src/acl.json") == "/app/src/acl.json"
    assert place.acl_json("/etc/acl.json") == "/etc/acl.json"


@pytest.mark.parametrize(("text", "name"), [("my-app 2.0", "my_app_2_0"), ("app", "app"), ("...", "project")])
def test_names_have_what_the_manual_allows(text: str, name: str) -> None:
    assert plain_name(text) == name


def test_calls_and_paths_stand_in_the_file() -> None:
    data = b"\x7fELF\0svp_acl_prof_init\0x\0svp_acl_prof_init_late\0../src/acl.json\0 other.json \0acl.jsonx\0"
    main = read_main(data)
    assert main == MainProgram(True, ("../src/acl.json", "other.json"), hashlib.sha256(data).hexdigest())
    assert read_main(b"#!/bin/sh\n".ljust(LARGEST_PROGRAM_BYTES)) == MainProgram(False, ())


# What a script is told of a collect

JOBS = (Path("JOBA"),)


@pytest.mark.parametrize(
    ("status", "summary", "code"),
    [(0, {"exit_code": 0}, 0), (0, {"exit_code": 4}, 4), (0, None, 0), (139, {"exit_code": 4}, 139)],
)
def test_the_exit_code_is_the_program_s_or_that_of_its_capture(
    status: int, summary: dict[str, Any] | None, code: int
) -> None:
    assert Collected(status, JOBS, (), summary).exit_code == code

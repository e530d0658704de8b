"""An acl.json is given the `profiler` object that was asked for, and keeps all else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from profagent.aclconfig.edit import DEFAULTS, Profiler, edited_acl_json, has_dump
from profagent.collect.cli import read_ini
from profagent.doctor.acl_json import acl_json_section
from profagent.errors import UsageError
from profagent.ssh.connection import Target

INI = "[ssh_config]\nip = 192.0.2.2\nusername = root\npwd = pass%w=rd; #1\nport = 2222\n"


@pytest.mark.parametrize("text", [INI, "\ufeff" + INI, INI.replace("\n", "\r\n"), INI.replace(" = ", "=", 2)])
def test_a_file_tells_who_logs_in_where(text: str) -> None:
    target, password = read_ini(text, "ssh.ini")
    assert Target.parse(target) == Target("192.0.2.2", "root", 2222)
    assert password == "pass%w=rd; #1"


def test_port_and_password_may_be_missing() -> None:
    target, password = read_ini("[ssh_config]\nip=fe80::1\nusername=root\n", "ssh.ini")
    assert Target.parse(target) == Target("fe80::1", "root", 22)
    assert password == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no section"),
        ("[other]\nip=1\n", "no section"),
        ("[ssh_config]\nusername=root\n", "no ip"),
        ("[ssh_config]\nip=1\n", "no username"),
        ("secret without a key", "no ini file"),
    ],
)
def test_what_is_missing_is_told_without_the_files_words(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        read_ini(text, "ssh.ini")
    assert "secret" not in str(refused.value)


OUTPUT = Profiler(output="/opt/app/profiling")
BOTH_ON = {"aicpu": "on", "aacpu": "on", "aic_metrics": "ArithmeticUtilization", "aac_metrics": "ArithmeticUtilization"}
VENDORS = {"switch": "on", "output": "/opt/app/profiling", "interval": "0", "acl_api": "on", **BOTH_ON}


def edited(text: str, asked: Profiler = OUTPUT, **how: bool) -> dict[str, object]:
    document: dict[str, object] = json.loads(edited_acl_json(text.encode(), asked, "acl.json", **how))
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
    asked = replace(OUTPUT, switch="on", interval=3, acl_api="off", aacpu="off", aac_metrics="none")
    off = {"acl_api": "off", "aicpu": "off", "aacpu": "off", "aic_metrics": "none", "aac_metrics": "none"}
    assert edited(text, asked)["profiler"] == {**VENDORS, "interval": "3", **off}


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
        edited_acl_json(b"{}", Profiler(), "acl.json")

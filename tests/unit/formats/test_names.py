"""File names of JOB directories, of both generations and of neither."""

from __future__ import annotations

import os

import pytest

from profagent.formats.names import LogKind, LogName, display_text, parse_log_name

U64_MAX = 2**64 - 1


def parsed(path: str) -> LogName:
    """The name of a path that is not foreign."""
    name = parse_log_name(path)
    assert name is not None
    return name


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("data/aicore.0.m.3.1.4.6.0", LogKind.AICORE),
        ("data/AAcore.0.m.3.1.4.6.0", LogKind.AICORE),
        ("data/aicpu.0.m.3.1.4.6.0", LogKind.AICPU),
        ("data/aacpu.0.m.3.1.4.6.0", LogKind.AICPU),
        ("data/AICPU.0.m.3.1.4.6.0", LogKind.AICPU),
        ("data/acl_api.0.m.1", LogKind.ACL_API),
        ("data/AclModule.0.m.1", LogKind.ACL_API),
        ("data/ACL_API.0.m.1", LogKind.ACL_API),
        ("data/cont.0.m.1.4.6.0", LogKind.CONT),
        ("data/m.1.net.info", LogKind.NET_INFO),
        ("data/m.1.layer.info", LogKind.LAYER_INFO),
        ("info.json.0", LogKind.INFO_JSON),
    ],
)
def test_both_generations_of_prefixes_are_read_in_any_case(path: str, kind: LogKind) -> None:
    name = parsed(path)
    assert name.kind is kind
    assert name.model_id == (None if kind is LogKind.INFO_JSON else 1)
    assert name.model == (None if kind is LogKind.INFO_JSON else "m")


@pytest.mark.parametrize(
    ("path", "model", "model_id"),
    [
        ("data/acl_api.0..1", "", 1),
        ("data/acl_api.0.plain.name.0", "plain.name", 0),
        ("data/acl_api.0.v1.2.3", "v1.2", 3),
        ("data/aicore.0..3.1.4.6.0", "", 1),
        ("data/.1.net.info", "", 1),
        ("data/a.b.1.layer.info", "a.b", 1),
        ('data/aicore.0.人脸_a:b*c?<d>"|&.3.1.1.1.0', '人脸_a:b*c?<d>"|&', 1),
        ("data/aicore.0.line\nbreak.3.1.1.1.0", "line\nbreak", 1),
        ("data/acl_api.0." + "q" * 200 + ".1", "q" * 200, 1),
    ],
)
def test_empty_dotted_and_odd_model_names_are_legal(path: str, model: str, model_id: int) -> None:
    name = parsed(path)
    assert (name.model, name.model_id) == (model, model_id)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "data",
        "data/",
        "data/readme.txt",
        "info.json",
        "info.json.x",
        "data/info.json.0",
        "aicore.0.m.3.1.4.6.0",
        "data/sub/aicore.0.m.3.1.4.6.0",
        "data/../m.1.net.info",
        "data/a/b.1.net.info",
        "/data/aicore.0.m.3.1.4.6.0",
        "other/aicore.0.m.3.1.4.6.0",
        "data/aicore.0.m.3.1.4.6.0.tmp",
        "data/aicore.0.m.3.1.4.6.0.done.done",
        "data/aicore.0.m.3.1.4.6.-1",
        "data/aicore.0.m.3.1.4.6.٣",
        "data/aicore.0.m.3.1.4.6.0\n",
        "data/aicore.0.m\0.3.1.4.6.0",
        "data/aicore.00.m.3.1.4.6.0",
        "data/aicore.0.m.3.1.4.6.007",
        "data/aicore.0.1.4.6",
        "data/acl_api.0.1",
        "data/m.1.net.info.done",
        "data/cont.0.m.1.4.6.0.done",
        "data/aıcore.0.m.3.1.4.6.0",
        "DATA/aicore.0.m.3.1.4.6.0",
        "data/m.1.NET.info",
    ],
)
def test_any_other_file_is_foreign(path: str) -> None:
    assert parse_log_name(path) is None


@pytest.mark.parametrize(
    ("path", "fits"),
    [
        (f"data/aicore.0.m.65535.1.1.1.{U64_MAX}", True),
        (f"data/aicore.0.m.65535.1.1.1.{U64_MAX + 1}", False),
        ("data/aicore.0.m.65536.1.1.1.0", False),
        (f"data/aicore.0.m.3.{2**32 - 1}.1.1.0", True),
        (f"data/aicore.0.m.3.{2**32}.1.1.0", False),
        (f"data/aicore.{2**32}.m.3.1.1.1.0", False),
        (f"data/aicore.0.m.3.1.{2**32}.1.0", False),
        (f"data/acl_api.0.m.{2**32}", False),
        ("data/acl_api.0.m." + "9" * 5000, False),
        ("info.json." + "1" * 30, False),
    ],
)
def test_a_number_beyond_the_runtimes_own_field_is_foreign(path: str, fits: bool) -> None:
    assert (parse_log_name(path) is not None) == fits


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("yolo v5", "yolo v5"),
        ("人脸", "人脸"),
        (os.fsdecode(b"a\xffb"), r"a\xffb"),
        (os.fsdecode(b"\x80"), r"\x80"),
        ("\ud800", r"\ud800"),
        ("red\x1b[31m", r"red\x1b[31m"),
        ("two\nlines", r"two\nlines"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
    ],
)
def test_display_text_can_be_printed_and_steers_no_terminal(name: str, shown: str) -> None:
    assert display_text(name) == shown
    shown.encode("utf-8")

"""What a program's file tells of it."""

from __future__ import annotations

import hashlib
import struct

import pytest

from profagent.collect.cli import plain_name
from profagent.collect.look import Main, Place, read_main
from profagent.errors import UsageError


def test_a_program_is_named_relative_to_the_project_or_absolutely() -> None:
    assert Place("/home/a/app", "out/./main").main == "/home/a/app/out/main"
    assert Place("/home/a/app", "/opt/main").main == "/opt/main"
    with pytest.raises(UsageError, match="leads out"):
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


def elf(machine: int = 183, text: bytes = b"", *, order: str = "<") -> bytes:
    head = b"\x7fELF\x02" + (b"\1" if order == "<" else b"\2")
    return head.ljust(18, b"\0") + struct.pack(f"{order}H", machine) + bytes(44) + text


def test_calls_and_paths_stand_in_the_file() -> None:
    main = read_main(elf(text=b"\0svp_acl_init\0x\0svp_acl_finalize_late\0../src/acl.json\0 other.json \0acl.jsonx\0"))
    assert main.calls == {"svp_acl_init"}
    assert main.acl_paths == ("../src/acl.json", "other.json")
    assert main.lacks("svp_acl_finalize")
    assert not main.lacks("svp_acl_init")


@pytest.mark.parametrize(
    ("number", "machine", "runs"),
    [
        (183, "aarch64", True),
        (62, "aarch64", False),
        (183, "x86_64", False),
        (40, "aarch64", True),
        (3, "x86_64", True),
        (999, "aarch64", True),
        (62, "loongarch64", True),
    ],
)
def test_what_runs_on_which_machine(number: int, machine: str, runs: bool) -> None:
    assert read_main(elf(number)).runs_on(machine) is runs


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"#!/bin/sh\n", b"\0" * 64])
def test_what_is_no_program_of_elf_tells_nothing(data: bytes) -> None:
    digest = hashlib.sha256(data).hexdigest()
    assert read_main(data) == Main(False, "", frozenset(), (), is_whole=True, digest=digest)
    assert read_main(data, is_whole=False).digest == ""

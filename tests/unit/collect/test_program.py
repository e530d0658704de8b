"""What a program's file tells of it."""

from __future__ import annotations

import hashlib

import pytest

from profagent.collect.cli import plain_name
from profagent.collect.look import LARGEST_BYTES, Main, Place, read_main
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


def test_calls_and_paths_stand_in_the_file() -> None:
    data = b"\x7fELF\0svp_acl_prof_init\0x\0svp_acl_prof_init_late\0../src/acl.json\0 other.json \0acl.jsonx\0"
    main = read_main(data)
    assert main == Main(True, ("../src/acl.json", "other.json"), hashlib.sha256(data).hexdigest())
    assert read_main(b"#!/bin/sh\n".ljust(LARGEST_BYTES)) == Main(False, ())

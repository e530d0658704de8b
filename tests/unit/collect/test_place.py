"""Where things of a run stand on a board."""

from __future__ import annotations

import pytest

from profagent.collect.cli import plain_name
from profagent.collect.look import Place
from profagent.errors import UsageError


def test_a_program_is_named_relative_to_the_project_or_absolutely() -> None:
    assert Place.of("/home/a/app", "out/./main").main == "/home/a/app/out/main"
    assert Place.of("/home/a/app", "/opt/main").main == "/opt/main"
    with pytest.raises(UsageError, match="leads out"):
        Place.of("/home/a/app", "../main")


def test_an_acl_json_is_looked_for_where_the_sdks_programs_have_it() -> None:
    place = Place.of("/app", "out/main")
    folders = ("/app/out", "/app/out/src", "/app", "/app/src")
    assert place.acl_candidates == tuple(f"{folder}/acl.json" for folder in folders)
    assert place.acl_json("src/acl.json") == "/app/src/acl.json"
    assert place.acl_json("/etc/acl.json") == "/etc/acl.json"


@pytest.mark.parametrize(("text", "name"), [("my-app 2.0", "my_app_2_0"), ("app", "app"), ("...", "project")])
def test_names_have_what_the_manual_allows(text: str, name: str) -> None:
    assert plain_name(text) == name

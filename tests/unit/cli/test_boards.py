"""`profagent boards`: the list, and what changes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profagent.cli.main import run
from profagent.cli.options import boards_of
from profagent.importing.cli import identity_of
from profagent.store.sessions import NO_BOARD


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_boards_are_added_listed_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["boards"]) == 0
    assert "no boards in" in capsys.readouterr().out
    colons = ":".join(["AB"] * 32)
    added = ["boards", "add", "euler", "192.0.2.2", "--uuid", "u-1", "--fingerprint", colons, "--ssh", "root@euler"]
    assert run(added) == 0
    assert capsys.readouterr().out.startswith("added euler in ")
    assert run(["boards", "--json"]) == 0
    euler = {"name": "euler", "address": "192.0.2.2", "uuid": "u-1", "fingerprint": "ab" * 32, "ssh": "root@euler"}
    assert json.loads(capsys.readouterr().out) == [{**euler, "machine": "", "prefix": "", "groups": [], "labels": {}}]
    assert run(["boards"]) == 0
    assert "euler" in capsys.readouterr().out
    assert run(["boards", "remove", "euler"]) == 0
    assert run(["boards", "remove", "euler"]) == 2


def test_boards_join_and_leave_groups_and_are_labelled(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("euler", "orange"):
        run(["boards", "add", name, "192.0.2.2"])
    assert run(["boards", "set", "euler", "orange", "--group", "rack3", "--label", "rack=3", "--label", "shelf=b"]) == 0
    assert run(["boards", "set", "orange", "--leave", "rack3", "--group", "loan", "--drop", "shelf"]) == 0
    capsys.readouterr()
    run(["boards"])
    euler, orange = capsys.readouterr().out.splitlines()[-2:]
    assert euler.split()[:5] == ["euler", "192.0.2.2", "rack3", "rack=3", "shelf=b"]
    assert orange.split() == ["orange", "192.0.2.2", "loan", "rack=3"]
    assert boards_of(["loan", "rack3", "loan"]) == ("orange", "euler")
    for refused in (["set", "euler"], ["set", "euler", "--label", "rack"], ["set", "nobody", "--group", "rack3"]):
        assert run(["boards", *refused]) == 2
    assert run(["record", "--group", "rack4"]) == 2
    assert "the groups are loan, rack3" in capsys.readouterr().err


def test_an_import_takes_a_boards_name_for_its_identity() -> None:
    run(["boards", "add", "euler", "192.0.2.2", "--uuid", "u-1"])
    run(["boards", "add", "blank", "192.0.2.3"])
    assert identity_of("euler") == "u-1"
    assert identity_of("blank") == "blank"
    assert identity_of("u-9") == "u-9"
    assert identity_of(None) == NO_BOARD

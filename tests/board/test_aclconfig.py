"""`profagent aclconfig --board` through a real OpenSSH server, whose board has GNU's programs or BusyBox's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.host import Ended, profagent

if TYPE_CHECKING:
    from tests.board.sshd import Sshd

pytestmark = pytest.mark.parametrize("sshd", [pytest.param("gnu", marks=pytest.mark.long), "busybox"], indirect=True)


def aclconfig(verb: str, friend: Sshd, *arguments: str | Path) -> Ended:
    return profagent("aclconfig", verb, "--board", friend.target, "--json", *arguments, HOME=str(Path.home()))


def test_a_boards_file_is_made_changed_and_checked(friend: Sshd, tmp_path: Path) -> None:
    file = tmp_path / "app dir" / "acl.json"
    file.parent.mkdir()
    output = tmp_path / "profiling"
    assert aclconfig("get", friend, file).code == 2
    made = aclconfig("set", friend, "--output", output, "--interval", "1", file)
    assert made.code == 1, made.err
    assert made.document["changed"]
    checks = {each["check"]: each for each in made.document["findings"] if each["mark"] == "bad"}
    assert "does not exist" in checks["acl-output"]["evidence"]
    output.mkdir()
    checked = aclconfig("check", friend, file)
    marks = {each["check"]: each["mark"] for each in checked.document["findings"] if each["check"] != "path"}
    assert set(marks.values()) == {"good"}, checked.out
    assert aclconfig("get", friend, file).document["profiler"]["interval"] == "1"


def test_what_cannot_be_written_is_told(friend: Sshd, tmp_path: Path) -> None:
    ended = aclconfig("set", friend, "--output", tmp_path, tmp_path / "none" / "acl.json")
    assert ended.code == 1
    assert "none/acl.json on 127.0.0.1" in ended.err
    ended = aclconfig("get", friend, tmp_path)
    assert ended.code == 2
    assert "cannot read" in ended.err

"""`profagent aclconfig` on files of this host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profagent.cli.main import run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "acl.json"


def test_a_file_is_made_asked_and_checked(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["aclconfig", "set", "--interval", "1", "--output", "/opt/app/profiling", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: written\n"
    assert run(["aclconfig", "get", str(file)]) == 0
    assert "interval     1\n" in capsys.readouterr().out
    assert run(["aclconfig", "check", str(file)]) == 0
    assert "every inference is recorded" in capsys.readouterr().out
    assert run(["aclconfig", "set", "--interval", "1", "--json", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] is False


def test_what_the_runtime_would_not_record_is_exit_code_1(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text('{"dump": {"dump_path": "/d"}}')
    assert run(["aclconfig", "set", "--output", "/o", str(file)]) == 1
    assert "dump stands beside profiler" in capsys.readouterr().err
    assert run(["aclconfig", "check", str(file)]) == 1
    file.unlink()
    assert run(["aclconfig", "set", "--switch", "off", "--output", "/o", str(file)]) == 0
    assert run(["aclconfig", "check", "--json", str(file)]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["get"], 2, "aclconfig set --output DIR"),
        (["check"], 2, "is not there"),
        (["set"], 2, "names no output"),
        (["set", "--output", "/o", "--interval", "10000"], 2, "10000"),
    ],
)
def test_what_cannot_be_right_is_told(
    arguments: list[str], code: int, told: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["aclconfig", *arguments, str(file)]) == code
    assert told in capsys.readouterr().err
    assert not file.exists()


def test_a_file_that_is_no_json_stays_as_it_is(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("{")
    assert run(["aclconfig", "set", "--output", "/o", str(file)]) == 1
    assert "aclconfig check" in capsys.readouterr().err
    assert file.read_text() == "{"
    assert run(["aclconfig", "get", str(file)]) == 1

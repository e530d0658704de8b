"""`profagent diff`: its exit codes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.cli.main import run
from tests.unit.store.database import START_US, DatabaseBuilder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Three sessions without noise: the second is slower, the third has a loss."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    for name, ticks in (("JOBA", 70), ("JOBB", 77), ("JOBC", 70)):
        session = builder.session()
        model = builder.model(builder.job(session, name=name), layers=("conv",))
        for pic in range(6):
            inference = builder.inference(session, model, pic, start_us=START_US + pic)
            builder.aicore(inference, builder.new_part(session, model, "aicore"), [ticks])
    builder.ledger(3, "loss", "torn-record", 2)
    builder.close()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["1", "2"], 0),
        (["1", "2", "--fail-if", "layer.median>+5%"], 1),
        (["1", "2", "--fail-if", "layer.median>+15%", "--fail-if", "total.median>=+1us"], 1),
        (["1", "2", "--fail-if", "layer.median>+15%"], 0),
        (["1", "2", "--fail-if", "layer.median>+5%", "--floor", "20%"], 0),
        (["1", "3", "--fail-if", "layer.median>+5%"], 4),
        (["3", "2", "--fail-if", "layer.median>+5%"], 1),
        (["1", "2", "--skip", "3"], 0),
        (["1", "2", "--skip", "3", "--fail-if", "layer.median>+5%"], 4),
        (["1", "2", "--fail-if", "layer[cnov].median>+5%"], 4),
        (["1", "2", "--fail-if", "api.median>+5%"], 4),
    ],
    ids=str,
)
def test_exit_codes(workspace: Path, arguments: list[str], code: int) -> None:
    assert run(["diff", *arguments, "--workspace", str(workspace)]) == code


@pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"]])
def test_junit_is_written_beside_any_form(workspace: Path, form: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    file = workspace / "diff.xml"
    assert run(["diff", "1", "2", "--workspace", str(workspace), "--junit", str(file), *form]) == 0
    assert file.read_bytes().startswith(b"<?xml")
    assert "1 slower" in capsys.readouterr().out


def test_a_condition_that_cannot_be_is_a_usage_error(workspace: Path) -> None:
    assert run(["diff", "1", "2", "--workspace", str(workspace), "--fail-if", "layer.median>+5"]) == 2


def test_two_forms_at_once_are_a_usage_error(workspace: Path) -> None:
    assert run(["diff", "1", "2", "--workspace", str(workspace), "--json", "--markdown"]) == 2


def test_a_workspace_that_neither_run_is_in_is_a_usage_error(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace)
    (workspace / "1").mkdir()
    assert run(["diff", "1", "1", "--workspace", str(workspace)]) == 2
    shown = capsys.readouterr().err
    assert "--workspace goes with a session or a baseline" in shown
    assert "leave it out" in shown


@pytest.mark.parametrize("new", ["nowhere", "9", "baseline:none"])
def test_what_names_no_run_is_a_usage_error(workspace: Path, new: str) -> None:
    assert run(["diff", "1", new, "--workspace", str(workspace)]) == 2

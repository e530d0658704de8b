"""JOBs without layers, or without anything: each command says why, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.cli.main import run
from tests.fakes.dumps import write_files
from tests.fakes.job_copy import JOB
from tests.fakes.small_job import CALLS, ON_CPU, PLAIN, SMALL_JOB

INFO = {"info.json.0": SMALL_JOB["info.json.0"]}
TABLES = {**INFO, **{path: data for path, data in SMALL_JOB.items() if path.endswith(".info")}}
EMPTY = {
    "no file": ({}, "a JOB without data"),
    "info.json alone": (INFO, "a JOB without data"),
    "a model that is not built for profiling": ({**INFO, CALLS: b""}, "model 'm' (id 0) left an empty log of calls"),
    "tables": (TABLES, "a model was loaded that profiles, and nothing was recorded"),
    "tables and empty logs": ({**TABLES, PLAIN: b"", CALLS: b""}, "a model was loaded that profiles"),
}
PARTS = {
    "calls": ({**TABLES, CALLS: SMALL_JOB[CALLS][:160]}, "calls were recorded, and no layers"),
    "layers on the CPU": (
        {**TABLES, ON_CPU: SMALL_JOB[ON_CPU], f"{ON_CPU}.done": SMALL_JOB[f"{ON_CPU}.done"]},
        "layers on the CPU were recorded, and none on the NPU",
    ),
}


def _made(tmp_path: Path, files: dict[str, bytes]) -> str:
    (tmp_path / JOB / "data").mkdir(parents=True)
    return str(write_files(tmp_path / JOB, files))


@pytest.mark.parametrize("case", EMPTY)
def test_of_an_empty_job_every_command_says_what_is_missing(
    tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files, why = EMPTY[case]
    job, workspace = _made(tmp_path, files), ["--workspace", str(tmp_path / "ws")]
    for words in (
        ["import", "-dir", job],
        ["export", "summary", "-dir", job],
        ["export", "timeline", "-dir", job, "--json"],
        ["show", "-dir", job],
        ["stats", job],
        ["stats", job, "--by", "api", "--json"],
        ["import", "-dir", job, *workspace],
        ["export", "summary", "--session", "1", *workspace],
    ):
        assert run(words) == 1, words
        told = capsys.readouterr().err
        assert f"{JOB}: {why}" in told, words
        assert "--online_model_type=2" in told or "`profagent aclconfig check FILE`" in told
    assert run(["doctor", job]) == 1
    assert why in capsys.readouterr().out


@pytest.mark.parametrize("case", PARTS)
def test_of_a_job_without_layers_it_is_told_why_and_what_it_has_is_exported(
    tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files, why = PARTS[case]
    job = _made(tmp_path, files)
    for words in (
        ["import", "-dir", job],
        ["import", "-dir", job, "--workspace", str(tmp_path / "ws")],
        ["stats", job],
    ):
        assert run(words) == 0
        told = capsys.readouterr().err
        assert f"{JOB}: {why}" in told
        assert '"aic_metrics": "ArithmeticUtilization"' in told
    assert run(["export", "timeline", "-dir", job]) == 0
    assert "recorded" not in capsys.readouterr().err
    assert any(file.name != "metadata.json" for file in Path(job, "timeline").iterdir())


def test_what_is_lost_of_an_empty_job_comes_first(tmp_path: Path) -> None:
    files = {**TABLES, PLAIN: b"", f"{PLAIN}.done": SMALL_JOB[f"{PLAIN}.done"]}
    assert run(["import", "-dir", _made(tmp_path, files)]) == 4


def test_of_a_job_with_layers_nothing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = _made(tmp_path, {path: data for path, data in SMALL_JOB.items() if "acl_api" not in path})
    run(["import", "-dir", job])
    assert run(["stats", job, "--by", "api"]) == 0
    told = capsys.readouterr()
    assert "acl.json" not in told.err
    assert '"acl_api" of acl.json must be exactly "on"' in told.out

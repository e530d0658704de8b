"""`profagent diff` of simulated boards, through every way to name a run."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from profagent.cli.main import run
from tests.integration.board import simulated

SLOWER = "layer4.0.conv2.conv+layer4.0.conv2.relu"
INFERENCES = 40
GATE = ("--fail-if", "layer.median>+5%")


def _model(folder: Path, *changes: tuple[str, str]) -> str:
    """The built-in ResNet-50 with other words for some of its own."""
    text = resources.files("profagentd.simulate").joinpath("models/resnet50.toml").read_text("utf-8")
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    file = folder / "resnet50.toml"
    file.write_text(text, "utf-8")
    return str(file)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of one network: two without a change, one with a slower layer, one that was compiled otherwise."""
    root = tmp_path_factory.mktemp("jobs")
    (slow, other) = (root / "slow", root / "other")
    slow.mkdir()
    other.mkdir()
    slower = _model(slow, ("time_us = 66.6", "time_us = 74.6"))
    fused = '{ time_us = 19.1, layers = ["avgpool:Pooling", "flatten:Reshape"] },'
    otherwise = _model(
        other,
        ("layer1.", "stage1."),
        ('{ time_us = 3.8, layers = ["avgpool:Pooling"] },\n', ""),
        ('{ time_us = 0.0, layers = ["flatten:Reshape"] },', fused),
        ('{ time_us = 55.1, layers = ["fc:InnerProduct"] },', ""),
    )
    models = {"base": (1, "resnet50"), "same": (2, "resnet50"), "slow": (3, slower), "other": (4, otherwise)}
    return {name: simulated(root / name, INFERENCES, seed=seed, model=model) for name, (seed, model) in models.items()}


def _document(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict]:
    capsys.readouterr()
    code = run(["diff", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_without_a_change_none_is_told(jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, document = _document(capsys, jobs["base"], jobs["same"], *GATE)
    assert code == 0
    assert document["verdict"] == "no layer is slower or faster by more than the noise"
    assert document["base"]["simulated"]
    assert document["can_tell"]


def test_the_slower_layer_is_named_and_nothing_else(
    jobs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = tmp_path / "diff.xml"
    code, document = _document(capsys, jobs["base"], jobs["slow"], *GATE, "--junit", junit)
    assert code == 1
    assert [change["name"] for change in document["conditions"][0]["changes"]] == [SLOWER]
    changed = [each["change"]["name"] for each in document["models"][0]["layers"] if each["change"]["significant"]]
    assert changed == [SLOWER]
    failures = [failure.get("message") or "" for failure in ET.parse(junit).iter("failure")]
    assert len(failures) == 1
    assert SLOWER in failures[0]


def test_tables_of_either_format_stand_for_their_inferences(
    jobs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, sheet_format in (("base", "csv"), ("slow", "json")):
        assert run(["export", "summary", "-dir", str(jobs[name]), "--format", sheet_format]) == 0
    code, document = _document(capsys, jobs["base"] / "summary", jobs["slow"] / "summary", *GATE)
    assert code == 1
    assert [change["name"] for change in document["conditions"][0]["changes"]] == [SLOWER]
    assert document["models"][0]["base_inferences"] == INFERENCES
    assert document["base"]["simulated"]
    # A single table is a single inference, and has no layers on the CPU.
    (table, *_) = sorted((jobs["base"] / "summary").glob("op_summary_*"))
    code, document = _document(capsys, table, jobs["slow"], *GATE)
    assert (code, document["can_tell"]) == (4, False)
    assert not [layer for layer in document["models"][0]["layers"] if layer["new"][0]["unit"] == "AA_CPU"]


def test_sessions_and_baselines_are_compared(
    jobs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = ("--workspace", str(tmp_path))
    for name in ("base", "slow"):
        assert run(["import", "-dir", str(jobs[name]), *workspace]) == 0
    assert run(["baseline", "set", "good", "1", *workspace]) == 0
    code, document = _document(capsys, "baseline=good", "2", *workspace, *GATE)
    assert code == 1
    assert document["base"]["called"] == "baseline=good"
    assert [change["name"] for change in document["conditions"][0]["changes"]] == [SLOWER]
    assert _document(capsys, "1", "baseline=good", *workspace, *GATE)[0] == 0


def test_calls_are_compared_where_a_condition_is_about_them(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _document(capsys, jobs["base"], jobs["slow"])[1]["calls"] == []
    _, document = _document(capsys, jobs["base"], jobs["slow"], "--fail-if", "api[svp_acl_mdl_execute].median>+50%")
    assert "svp_acl_mdl_execute" in [change["name"] for change in document["calls"]]

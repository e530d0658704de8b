"""Formats of continuous benchmarking: as their readers publish them, with the figures of `--json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from profagent.cli.main import run
from profagent.tables.provenance import SIMULATED
from tests.unit.store.database import START_US, DatabaseBuilder

if TYPE_CHECKING:
    from pathlib import Path

# The example of a benchmark in Bencher's page on its metric format, and the entry that github-action-benchmark's
# README gives of a custom one.
BMF = {"benchmark_name": {"latency": {"value": 88.0, "lower_value": 87.42, "upper_value": 88.88}}}
GITHUB = {"name": "My Custom Smaller Is Better Benchmark - CPU Load", "unit": "Percent", "value": 50}
GITHUB_OPTIONAL = {"range", "extra"}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Two sessions, the second slower and simulated."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    for name, ticks in (("JOBA", 70), ("JOBB", 77)):
        session = builder.session(ended_us=START_US, simulated=1)
        model = builder.model(builder.job(session, name=name), layers=('co"nv', "pool"))
        for pic in range(7):
            start_us = START_US + 100 * pic
            inference = builder.inference(session, model, pic, start_us=start_us, end_us=start_us + 30 + pic % 3)
            builder.aicore(inference, builder.new_part(session, model, "aicore"), [ticks + pic % 3, 70])
    builder.close()
    return tmp_path


def _printed(workspace: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run([*words, "--workspace", str(workspace)]) == 0
    return capsys.readouterr().out


def _medians(workspace: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    document = json.loads(_printed(workspace, capsys, "stats", "2", "--json"))
    return {f"{row['model']} / {row['layer']}": row["median"] for row in document["rows"] if row["median"]}


def test_bmf_has_medians_in_ns(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stats", "2", "--format", "bmf", "--workspace", str(workspace)]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    # The format has no place for a caveat.
    assert printed.err.splitlines() == [SIMULATED]
    medians = _medians(workspace, capsys)
    assert {name: each["latency"]["value"] for name, each in found.items()} == pytest.approx(
        {name: 1000 * median for name, median in medians.items()}
    )
    for each in found.values():
        assert each["latency"].keys() == BMF["benchmark_name"]["latency"].keys()
        assert each["latency"]["lower_value"] <= each["latency"]["value"] <= each["latency"]["upper_value"]


def test_github_benchmark_names_what_is_invented(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(_printed(workspace, capsys, "stats", "2", "--format", "github-benchmark"))
    assert {each["name"]: each["value"] for each in found} == _medians(workspace, capsys)
    for each in found:
        assert GITHUB.keys() <= each.keys() <= GITHUB.keys() | GITHUB_OPTIONAL
        assert each["extra"] == SIMULATED


def test_openmetrics_are_read_by_a_reader_of_openmetrics(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _printed(workspace, capsys, "diff", "1", "2", "--format", "openmetrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    measured = {f"profagent_{name}_seconds" for name in ("median", "mad", "base_median")}
    assert families.keys() == measured | {"profagent_about"}
    new, base = (
        {sample.labels.get("layer") or sample.labels["time"]: sample.value for sample in families[name].samples}
        for name in ("profagent_median_seconds", "profagent_base_median_seconds")
    )
    assert new.keys() == base.keys() == {'co"nv', "pool", "latency", "sum of layers"}
    assert new['co"nv'] / base['co"nv'] == pytest.approx(78 / 71)
    # A remark changes from build to build: it is no part of a series' identity.
    assert not [each for name in measured for each in families[name].samples if "about" in each.labels]
    about = [(each.labels.get("layer"), each.labels["about"]) for each in families["profagent_about"].samples]
    assert ("pool", f"comparable; {SIMULATED}") in about
    assert len(about) == len(new)


def test_the_latency_of_models_is_their_median(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = json.loads(_printed(workspace, capsys, "stats", "2", "--by", "model", "--format", "github-benchmark"))
    assert (found["name"], found["value"]) == ("yolo", 31.0)


def test_a_difference_that_must_not_be_formed_is_in_no_format(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profagent.diff.diff.facts_of", lambda jobs: {"npu-clock": [str(jobs[0]["session"])]})
    answers: dict[str, Any] = {}
    for each in ("bmf", "openmetrics", "github-benchmark"):
        assert run(["diff", "1", "2", "--format", each, "--workspace", str(workspace)]) == 4
        answers[each], told = capsys.readouterr()
        assert told == "not comparable: npu-clock (--allow npu-clock compares anyway)\n"
    assert json.loads(answers["bmf"]) == {}
    assert json.loads(answers["github-benchmark"]) == []
    assert answers["openmetrics"] == "# EOF\n"


def test_one_form_at_a_time(workspace: Path) -> None:
    assert run(["stats", "2", "--json", "--format", "bmf", "--workspace", str(workspace)]) == 2
    assert run(["diff", "1", "2", "--markdown", "--format", "bmf", "--workspace", str(workspace)]) == 2

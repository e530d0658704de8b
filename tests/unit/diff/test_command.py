"""`profagent diff`: its exit codes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from profagent.cli.main import run
from profagent.diff.runs import LayerName, ModelRun, exported_files, joined_runs, model_runs, read_exported
from profagent.errors import UsageError
from tests.unit.diff.noisy_runs import (
    Noise,
    alike,
    drifting,
    independent,
    repeating,
    share_found,
    share_of_alarms,
    spiking,
    wandering,
)
from tests.unit.stats.job_records import Rows, inferences, job
from tests.unit.store.database import START_US, DatabaseBuilder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Three sessions without noise: the second is slower, the third has a loss."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    for name, ticks in (("JOBA", 70), ("JOBB", 77), ("JOBC", 70)):
        session = builder.session(ended_us=START_US)
        model = builder.model(builder.job(session, name=name), layers=("conv",))
        for pic in range(6):
            start_us = START_US + 100 * pic
            inference = builder.inference(session, model, pic, start_us=start_us, end_us=start_us + ticks // 7 + 1)
            builder.aicore(inference, builder.new_part(session, model, "aicore"), [ticks])
    builder.ledger(3, "loss", "torn-record", 2)
    builder.close()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["1", "2"], 0),
        (["1", "2", "--fail-if", "layer.median>+5%"], 1),
        (["1", "2", "--fail-if", "layer.median>+15%", "--fail-if", "latency.median>=+1us"], 1),
        (["1", "2", "--fail-if", "layer.median>+15%"], 0),
        (["1", "2", "--fail-if", "layer.median>+5%", "--floor", "20%"], 0),
        (["1", "3", "--fail-if", "layer.median>+5%"], 4),
        (["3", "2", "--fail-if", "layer.median>+5%"], 1),
        (["1", "2", "--skip", "3"], 0),
        (["1", "2", "--skip", "3", "--fail-if", "layer.median>+5%"], 4),
        (["1", "2", "--fail-if", "layer[cnov].median>+5%"], 4),
        (["1", "2", "--fail-if", "api.median>+5%"], 4),
        (["1", "2", "--fail-if", "total.median>+5%"], 2),
        (["1", "2", "--slo", "layer[conv].max < 10.5us"], 1),
        (["2", "1", "--slo", "layer[conv].max < 10.5us"], 0),
        (["1", "2", "--slo", "layer[conv].mean < 10.5us"], 4),
    ],
    ids=str,
)
def test_exit_codes(workspace: Path, arguments: list[str], code: int) -> None:
    assert run(["diff", *arguments, "--workspace", str(workspace)]) == code


def test_both_runs_are_judged(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slo = ["--slo", "latency.max < 11.5us"]
    assert run(["diff", "1", "2", "--workspace", str(workspace), *slo]) == 1
    out = capsys.readouterr().out
    assert "BASE holds latency.max < 11.5us: yolo: max is 11.000 us; 0 of 6 inferences (0.00 %) miss it" in out
    assert "NEW EXCEEDED latency.max < 11.5us: yolo: max is 12.000 us; 6 of 6 inferences (100.00 %) miss it" in out
    assert run(["diff", "1", "2", "--workspace", str(workspace), *slo, "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["slo"]
    assert [found[side]["verdict"] for side in ("base", "new")] == ["holds", "exceeded"]


def test_tables_have_no_latency_to_ask_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run_name in ("one", "other"):
        (tmp_path / run_name).mkdir()
        for count in range(6):
            _table(tmp_path / run_name, NAME.format(count), TABLE.format(f"{count + 2}.000"))
    words = ["diff", str(tmp_path / "one"), str(tmp_path / "other")]
    assert run([*words, "--fail-if", "latency.median>+5%"]) == 4
    assert "cannot tell latency.median>+5%: both runs do not know the latency" in capsys.readouterr().out
    assert run([*words, "--fail-if", "layers.median>+5%"]) == 0


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
    assert "--workspace goes with a session" in shown
    assert "leave it out" in shown


@pytest.mark.parametrize("new", ["nowhere", "9", "baseline=none"])
def test_what_names_no_run_is_a_usage_error(workspace: Path, new: str) -> None:
    assert run(["diff", "1", new, "--workspace", str(workspace)]) == 2


# Tables op_summary as runs

NAME = "op_summary_0.my.net.3.2.4.{}.0.0267.700.csv"
TABLE = """\
Layer Id,Ori Layer Name,Layer Name,Layer Type,Time(us),Time Ratio
1,N/A,conv,Convolution,{},50.00
2,N/A,"a,b",Pooling,3.500,10.00
1,N/A,conv,Convolution,1.000,50.00
-,-,total,-,9.000,100.00
"""


def _table(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, "utf-8")
    return file


def test_a_table_is_an_inference_whose_layers_are_added_up(tmp_path: Path) -> None:
    _table(tmp_path, NAME.format(0), TABLE.format("2.000"))
    # Spreadsheets put a mark before the text.
    _table(tmp_path, NAME.format(4), "\ufeff" + TABLE.format("5.000"))
    models, provenance = read_exported(exported_files(tmp_path), None)
    assert [model.name for model in models] == ["my.net", "my.net"]
    assert [(layer.name, layer.type, layer.unit) for layer in models[0].layers] == [
        ("conv", "Convolution", "AA_CORE"),
        ("a,b", "Pooling", "AA_CORE"),
    ]
    np.testing.assert_array_equal([model.times[0] for model in models], [[3.0, 3.5], [6.0, 3.5]])
    assert models[0].pictures == {(2, 4)}
    assert provenance == []


@pytest.mark.parametrize(("skip", "left_out"), [(None, 2), (1, 1), (0, 0), (20, 0)])
def test_inferences_come_as_they_ran_without_the_warm_up_of_each_load(
    tmp_path: Path, skip: int | None, left_out: int
) -> None:
    for load, end in enumerate(("csv", "reload1.csv")):
        for count in range(12):
            time = 900 if count < 2 else 100 * load + count
            _table(tmp_path, NAME.format(count).replace("csv", end), TABLE.format(float(time)))
    models, _ = read_exported(exported_files(tmp_path), skip)
    times = [float(model.times[0, 0]) - 1 for model in models]
    first = 2 if skip is None else skip
    assert times == [900 if count < 2 else 100 * load + count for load in range(2) for count in range(first, 12)]
    assert sum(model.left_out for model in models) == 2 * left_out


def test_tables_that_lack_different_layers_are_inferences_of_one_run(tmp_path: Path) -> None:
    lines = TABLE.splitlines()
    for count, lacking in enumerate(("2,", "1,", "none")):
        text = "\n".join(line for line in lines if not line.startswith(lacking)).format("2.000")
        _table(tmp_path, NAME.format(count), text)
    models, _ = read_exported(exported_files(tmp_path), 0)
    (run,) = joined_runs(models)
    assert [layer.name for layer in run.layers] == ["conv", "a,b"]
    np.testing.assert_array_equal(run.times, [[3.0, np.nan], [np.nan, 3.5], [3.0, 3.5]])
    assert run.lacking() == (2, {0: 1, 1: 1})


def test_a_table_of_json_and_what_stands_beside_it(tmp_path: Path) -> None:
    rows = [{"Layer Id": 1, "Layer Name": "conv", "Layer Type": "Convolution", "Time(us)": 2.5}]
    file = _table(tmp_path, "some.json", json.dumps(rows))
    _table(tmp_path, "metadata.json", json.dumps({"simulated": True, "ledger": {}, "sampling": {}}))
    ((model,), (provenance,)) = read_exported(exported_files(file), None)
    assert (model.name, model.times.tolist(), model.pictures) == ("some", [[2.5]], frozenset())
    assert provenance["simulated"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.csv", ""),
        ("x.csv", "a,b\n1,2\n"),
        ("x.csv", TABLE.format("N/A")),
        ("x.json", "{}"),
        ("x.json", "[1]"),
        ("x.json", "{"),
        ("x.xlsx", "PK"),
    ],
)
def test_what_is_no_such_table_is_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(UsageError, match=name.replace(".", r"\.")):
        read_exported([_table(tmp_path, name, text)], None)


# A JOB as runs of its models

TWO: Rows = [(0, 0, 0, 10), (0, 1, 0, 20), (0, 0, 1, 5), (1, 1, 0, 21), (1, -1, 0, 2)]
CPU: Rows = [(0, 2, 2, 3), (1, 2, 2, 5)]


def _run(times: list[list[float]], *names: str, model: str = "m") -> ModelRun:
    layers = tuple(LayerName(name, "T", "AA_CORE") for name in names)
    records = np.ones((len(times), len(names)), np.int64)
    return ModelRun(model, layers, np.array(times), records, counters={len(names) - 1: np.full((1, 10), 0.5)})


def test_records_of_a_layer_are_added_up_and_missing_ones_are_not_known() -> None:
    (run,) = model_runs(job(inferences(2), TWO, CPU, us_per_tick=2.0), 0)
    names = [(layer.name, layer.unit) for layer in run.layers]
    assert names == [("conv0", "AA_CORE"), ("conv1", "AA_CORE"), ("nms", "AA_CPU"), ("N/A", "AA_CORE")]
    np.testing.assert_array_equal(run.times, [[30, 40, 3, np.nan], [np.nan, 42, 5, 4]])
    assert run.pictures == {(1, 1)}


def test_runs_of_one_model_are_joined_also_where_one_lacks_a_layer() -> None:
    (run,) = joined_runs([_run([[1, 3]], "a", "c"), _run([[4, 5, 6]], "a", "b", "c"), _run([[7, 8, 9]], "a", "b", "c")])
    assert [layer.name for layer in run.layers] == ["a", "b", "c"]
    np.testing.assert_array_equal(run.times, [[4, 5, 6], [7, 8, 9], [1, np.nan, 3]])
    assert run.counters[2].shape == (3, 10)


@pytest.mark.parametrize("other", [_run([[1]], "x"), _run([[1, 2]], "b", "a"), _run([[1, 2]], "a", "b", model="n")])
def test_runs_of_other_layers_or_models_stay_apart(other: ModelRun) -> None:
    assert len(joined_runs([_run([[1, 2, 3]], "a", "b", "c"), other])) == 2


# The method of `diff` as a whole, by a few pairs of seeded runs; the benchmark has more

PAIRS = 20
SIZES = {"inferences": 30, "layers": 20}


@pytest.mark.parametrize("noise", [independent, repeating, alike, drifting, wandering, spiking])
def test_runs_without_a_change_hardly_ever_alarm(noise: Noise) -> None:
    assert share_of_alarms(noise, PAIRS, **SIZES) <= 2 / PAIRS


@pytest.mark.parametrize("noise", [independent, repeating, spiking])
def test_a_layer_that_is_five_percent_slower_is_found(noise: Noise) -> None:
    assert share_found(noise, PAIRS, **SIZES) >= 0.8

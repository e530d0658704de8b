"""Questions to sessions of other devices: beside those of a board, and what is not comparable."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from profagent.cli.main import group
from profagent.importing.importing import import_into
from profagent.store.workspace import Workspace
from profagent.watch.layers import LayerQuery
from profagent.watch.model import BoardModel, LinkState
from profagent.watch.replay import Pace, Replayed
from profagent.watch.screen.run import play_into
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job
from tests.unit.ascend.files import KERNEL_DETAILS, OP_SUMMARY, SUMMARIES, database, kernel, rows, summary, taken

BOARD, OTHER = "1", "2"
EXECUTIONS = 6
# What other devices call a pipe is not quite what SS928 counts.
LIKELY = ["dstr", "dtrans", "dld"]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated board's session, and the same layers on another device."""
    folder = tmp_path_factory.mktemp("questions")
    job = write_job(folder, SimulationOptions(layers=3), EXECUTIONS)
    workspace = folder / "workspace"
    asyncio.run(import_into(job, Workspace(workspace), asyncio.Event()))
    layers = rows(workspace, "SELECT DISTINCT name, type FROM layer ORDER BY layer_index")
    kernels = [
        kernel(name, kind, model="5", start=f"{run * 1000 + place * 100}", duration=f"{20 + place + run / 100}")
        for run in range(EXECUTIONS)
        for place, (name, kind) in enumerate(layers)
    ]
    taken(workspace, summary(folder / "op_summary.csv", OP_SUMMARY, *kernels))
    return workspace


# The board is a simulated one, and the other results are another device's.
ANYWAY = ("--allow", "device", "--allow", "simulated")


def _asked(workspace: Path, *words: str) -> Any:
    answer = CliRunner().invoke(group, [*words, "--workspace", str(workspace), "--json"], standalone_mode=False)
    assert answer.exception is None, answer.output
    return json.loads(answer.stdout)


def test_the_place_of_results_tells_sessions_apart(workspace: Path) -> None:
    answer = CliRunner().invoke(group, ["sessions", "--workspace", str(workspace), "--wide"], standalone_mode=False)
    addresses = [Path(session["address"]) for session in _asked(workspace, "sessions")]
    assert addresses[1] == workspace.parent / "op_summary.csv"
    for address, line in zip(addresses, answer.stdout.splitlines()[2:4], strict=True):
        assert f"  import {address.parent.name}/{address.name}  " in line.replace(" [simulated]", "")


def test_layers_of_two_devices_stand_side_by_side_with_what_bounds_them(workspace: Path) -> None:
    found = _asked(workspace, "diff", BOARD, OTHER, *ANYWAY)
    (model,) = found["models"]
    assert [layer["what"] for layer in model["layers"]] == ["same"] * 3
    assert [layer["change"]["new"]["median"] for layer in model["layers"]] == pytest.approx([20.025, 21.025, 22.025])
    assert [layer["bounds"][1] for layer in model["layers"]] == ["mac"] * 3
    differences = {each["code"]: each for each in found["comparability"]["differences"]}
    assert differences["device"]["text"] == "SS928 in BASE, another Ascend device in NEW"
    assert differences["device"]["allowed"]
    assert any(line.startswith("NEW has no sampling") for line in found["remarks"])


def test_layers_that_are_called_otherwise_there_are_told_so(workspace: Path, tmp_path: Path) -> None:
    one, two, three = rows(workspace, "SELECT DISTINCT name, type FROM layer ORDER BY model, layer_index LIMIT 3")
    layers = [(one[0], "Conv2D"), ("other", two[1]), three]
    lines = [kernel(*layer, model="7", duration=f"2.{run}") for run in range(EXECUTIONS) for layer in layers]
    taken(workspace, summary(tmp_path / "op_summary.csv", OP_SUMMARY, *lines))
    ((other,),) = rows(workspace, "SELECT max(session) FROM session")
    answer = CliRunner().invoke(group, ["diff", BOARD, str(other), "--workspace", str(workspace), *ANYWAY])
    lines = answer.stdout.splitlines()
    assert "; 1 retyped, 1 renamed" in lines[1]
    assert "renamed layers are paired by their order, where their types or parts of their names are alike" in lines
    table = lines[next(place for place, line in enumerate(lines) if line.startswith("---")) + 1 :]
    assert [name in line for name, line in zip(("retyped", "renamed", three[0]), table, strict=True)] == [True] * 3
    assert [line.endswith("mac?") for line in table] == [True] * 3


def test_a_layer_on_the_ai_cpu_there_is_on_the_other_unit(workspace: Path, tmp_path: Path) -> None:
    layers = rows(workspace, "SELECT DISTINCT name, type FROM layer ORDER BY model, layer_index LIMIT 3")
    lines = [kernel(*layer, model="8") for layer in layers]
    taken(workspace, summary(tmp_path / "x.csv", OP_SUMMARY, lines[0], lines[1].replace("AI_CORE", "AI_CPU"), lines[2]))
    ((other,),) = rows(workspace, "SELECT max(session) FROM session")
    (model,) = _asked(workspace, "diff", BOARD, str(other), *ANYWAY)["models"]
    assert [layer["what"] for layer in model["layers"]] == ["same", "moved", "same"]


def test_a_question_without_an_answer_names_what_its_own_tools_need(tmp_path: Path) -> None:
    taken(tmp_path / "workspace", summary(tmp_path / "op_summary.csv", OP_SUMMARY, kernel()))
    for by, need in (("aicpu", "--aicpu=on of msprof"), ("api", "--runtime-api of msprof"), ("step", "training_trace")):
        words = ["stats", "1", "--by", by, "--workspace", str(tmp_path / "workspace")]
        said = CliRunner().invoke(group, words).stdout
        assert need in said
        assert "acl.json" not in said


def test_without_shares_of_pipes_no_mirror_and_no_counter_map_is_spoken_of(tmp_path: Path) -> None:
    taken(tmp_path / "workspace", summary(tmp_path / "x.csv", KERNEL_DETAILS, "1,a,b,AI_CORE,1.0,2.0,0,8"))
    words = ["show", "1", "--workspace", str(tmp_path / "workspace")]
    said = CliRunner().invoke(group, words).output
    assert "PipeUtilization" in said
    assert "mirror" not in said


def test_a_trend_of_single_operators_is_of_one_program(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    runs = [("softmax", "gelu", "conv_1"), ("conv_1", "relu_1"), ("conv_2", "relu_7", "add", "pool", "pad")]
    for number, names in enumerate(runs):
        taken(workspace, summary(tmp_path / str(number) / "op_summary.csv", OP_SUMMARY, *map(kernel, names)))
    words = ("trend", "--model", "single-op", "--workspace", str(workspace))
    answer = CliRunner().invoke(group, [*words, "--json"])
    (board,) = json.loads(answer.stdout)
    assert [night["session"] for night in board["nights"]] == [2, 3]
    assert "left out, for their operators are others than those of session 3: 1" in answer.stderr
    (board,) = json.loads(CliRunner().invoke(group, [*words, "--layer", "softmax", "--json"]).stdout)
    assert [night["session"] for night in board["nights"]] == [1]


def test_what_is_not_known_of_it_is_not_told(workspace: Path) -> None:
    found = _asked(workspace, "stats", OTHER, "--by", "type")
    assert {row["bound by"] for row in found["rows"] if row["type"] != "not in any layer"} == {"mac"}
    (job,) = found["jobs"]
    assert (job["frequency_mhz"], job["imported_from"]) == (None, "another tool")


@pytest.mark.parametrize("words", [("trend", "--model", "model 5"), ("sessions",), ("show", OTHER)])
def test_other_questions_are_answered(words: tuple[str, ...], workspace: Path) -> None:
    assert _asked(workspace, *words)


@pytest.mark.parametrize("what", ["summary", "timeline"])
def test_it_is_exported_as_a_boards(what: str, workspace: Path) -> None:
    (written,) = _asked(workspace, "export", what, OTHER)
    assert len(written["files"]) >= 1
    assert not any("100000" in name for name in written["files"])


def test_it_is_replayed_from_the_rows_of_the_database(workspace: Path) -> None:
    words = ("watch", OTHER, "--speed", "1000", "--workspace", str(workspace))
    answer = CliRunner().invoke(group, [*words, "--json"], standalone_mode=False)
    events = [json.loads(line) for line in answer.stdout.splitlines()]
    inferences = [event for event in events if event["event"] == "inference"]
    assert [event["current_pic_count"] for event in inferences] == [*range(EXECUTIONS)]
    whole = "SELECT sum(duration_us) FROM op_records WHERE session = 2 GROUP BY current_pic_count ORDER BY 1"
    assert [event["layers_us"] for event in inferences] == pytest.approx([us for (us,) in rows(workspace, whole)])
    slowest = inferences[0]["slowest"][0]
    assert (slowest["duration_us"], slowest["bound_by"], inferences[0]["likely"]) == (22, "mac", LIKELY)
    assert (events[-1]["inferences"], events[-1]["records"]["aicore"]) == (EXECUTIONS, 3 * EXECUTIONS)
    assert "no counter map" not in answer.stderr
    answer = CliRunner().invoke(group, [*words, "--records"], standalone_mode=False)
    assert sum("mac 50.0%" in line for line in answer.stdout.splitlines()) == 3 * EXECUTIONS


def test_the_screen_has_its_layers_and_what_bounds_them(workspace: Path) -> None:
    async def shown() -> BoardModel:
        stop = asyncio.Event()
        model = BoardModel("replay", lambda: 0, LinkState.REPLAYED)
        replayed = Replayed(Workspace(workspace), int(OTHER), float("inf"))
        await play_into(model, replayed, Pace(float("inf"), stop), stop)
        return model

    model = asyncio.run(shown())
    assert model.models() == ["model 5.5"]
    view = model.layers("model 5.5").view(LayerQuery())
    assert (view.inferences, view.layers, view.has_counters) == (EXECUTIONS, 3, True)
    rest, *layers = view.lines
    assert [line.median_us for line in layers] == pytest.approx([22.025, 21.025, 20.025])
    assert {line.bound for line in layers} == {"mac"}
    assert (rest.name, rest.bound) == ("not in any layer", None)


def test_exports_tell_what_ran_on_the_ai_cpu(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    lines = [kernel(), kernel(start="1787504007005873.000", duration="1.5").replace("AI_CORE", "AI_CPU")]
    taken(workspace, summary(tmp_path / "op_summary.csv", OP_SUMMARY, *lines))
    for what in ("summary", "timeline"):
        assert _asked(workspace, "export", what, "1")
    (statistic,) = workspace.rglob("op_statistic_*.csv")
    assert [line.split(",")[2:4] for line in statistic.read_text("utf-8").splitlines()[1:]] == [
        ["conv1", "AA_CORE"],
        ["conv1", "AA_CPU"],
    ]
    (timeline,) = workspace.rglob("task_time*.json")
    events = json.loads(timeline.read_text("utf-8"))["traceEvents"]
    tasks = {each["args"]["Task Type"]: each["dur"] for each in events if each["ph"] == "X"}
    assert tasks == {"AA CORE": 4.38, "AA CPU": 1.5}


def test_results_without_kernels_say_so_and_a_database_has_them(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    taken(workspace, summary(tmp_path / "op_statistic.csv", *SUMMARIES["op_statistic"]))
    taken(workspace, database(tmp_path / "msprof_1.db"))
    said = [
        CliRunner().invoke(group, ["advise", session, "--workspace", str(workspace)], standalone_mode=False).stderr
        for session in ("1", "2")
    ]
    assert "op_statistic.csv: no file of it tells kernels" in said[0]
    assert said[1] == ""


def test_advice_on_what_an_ss928_computes_is_not_given(tmp_path: Path) -> None:
    kinds = ["Conv2D", "Sigmoid", "Mul"] * 4
    lines = [kernel(f"{place}", kind, start=f"{place}.0") for place, kind in enumerate(kinds)]
    taken(tmp_path / "workspace", summary(tmp_path / "op_summary.csv", OP_SUMMARY, *lines))
    found = _asked(tmp_path / "workspace", "advise", "1")
    assert not found["findings"]
    assert "split-activation" in {each["rule"] for each in found["cannot_tell"]}


def test_advice_tells_what_steps_wait_for(tmp_path: Path) -> None:
    header = "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Preparing"
    steps = ("0,1,100,300,50,350,100,60", "0,2,100,300,50,350,100,60")
    taken(tmp_path / "workspace", summary(tmp_path / "step_trace_time.csv", header, *steps))
    found = _asked(tmp_path / "workspace", "advise", "1")
    gains = [(each["rule"], each["gain_us"], each["share"], each["per"]) for each in found["findings"]]
    assert gains == [
        ("step-communication", 300.0, 60.0, "step"),
        ("step-free", 100.0, 20.0, "step"),
        ("step-data", 60.0, 12.0, "step"),
    ]
    assert "acl" not in json.dumps(found["cannot_tell"])
    said = CliRunner().invoke(
        group, ["advise", "1", "--lang", "zh", "--workspace", str(tmp_path / "workspace")], standalone_mode=False
    )
    assert "每步最多可省 0.300 ms (60.0 %)" in said.stdout


def test_no_counter_map_is_about_it(workspace: Path) -> None:
    answer = CliRunner().invoke(group, ["redecode", OTHER, "--workspace", str(workspace)], standalone_mode=False)
    assert "another tool" in str(answer.exception)


_SHARES = "aicore_time(us),aic_mac_ratio,aic_scalar_ratio,aic_mte2_ratio,aiv_time(us),aiv_vec_ratio,aiv_scalar_ratio"
# The kernel's unit, the shares of its cores, and what bounds it.
_BOUNDS = [
    ("AI_VECTOR_CORE", "0,0,0,0,990,0.01,0.99", "scalar?"),
    ("AI_VECTOR_CORE", "N/A,N/A,N/A,N/A,990,0.7,0.2", "vec?"),
    ("MIX_AIC", "12.7,0.01,0.157,0.9,79900,0.001,0.999", "scalar?"),
    ("MIX_AIC", "79900,0.01,0.157,0.9,12.7,0.001,0.999", "DLD?"),
    ("MIX_AIV", "0,0.9,0,0,0,0.1,0", "mac?"),
    ("AI_CORE", "90,0.2,0.1,0.4,0,0,0", "unexplained?"),
]


@pytest.mark.parametrize(("unit", "shares", "bound"), _BOUNDS)
def test_a_kernel_is_bound_by_the_unit_that_took_its_time(unit: str, shares: str, bound: str, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    row = f"1,k,Op,{unit},1760000000000000.5,80000,0,8,{shares}"
    taken(workspace, summary(tmp_path / "x.csv", f"{KERNEL_DETAILS},{_SHARES}", row))
    words = ["stats", "1", "--workspace", str(workspace), "--csv"]
    answer = CliRunner().invoke(group, words, standalone_mode=False)
    assert answer.stdout.splitlines()[1].endswith(f",{bound}")
    rules = {each["rule"] for each in _asked(workspace, "advise", "1")["findings"]}
    assert ("scalar-bound" in rules) is (bound == "scalar?")
    assert "unexplained" not in rules or bound == "unexplained?"


def test_a_start_without_a_unit_is_in_us_and_none_has_no_trace(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    header = "Model Name,Model ID,Task ID,Stream ID,Infer ID,Op Name,OP Type,Task Type,{}Task Duration(us)"
    row = "resnet50,1,3,5,1,conv1,Conv2D,AI_CORE,{}120.5"
    for name, start, time in (("a.csv", "Task Start Time,", "56635864660.49,"), ("b.csv", "", "")):
        taken(workspace, summary(tmp_path / name, header.format(start), row.format(time)))
    assert rows(workspace, "SELECT start_us, duration_us FROM op_records ORDER BY session") == [
        (pytest.approx(56635864660.49, abs=1e-3), 120.5),
        (None, 120.5),
    ]
    assert rows(workspace, "SELECT reason, count FROM ledger") == [("not-counted", 1)]
    assert _asked(workspace, "export", "trace", "1")["events"] > 0
    answer = CliRunner().invoke(group, ["export", "trace", "2", "--workspace", str(workspace)], standalone_mode=False)
    assert "nothing in it has a known start" in str(answer.exception)


_CORES = "block_id,sub_block_id,aic_time(us),aic_cube_ratio,aic_mte2_ratio,aiv_time(us),aiv_vec_ratio,aiv_scalar_ratio,"


def test_results_of_msprof_op_are_a_kernel_with_the_means_of_its_cores(tmp_path: Path) -> None:
    workspace, folder = tmp_path / "workspace", tmp_path / "OPPROF_20260101000000_ABCDEFGHIJKLMNOP"
    summary(folder / "OpBasicInfo.csv", *SUMMARIES["OpBasicInfo"])
    cores = ["0,cube0,2,0.8,0.5,NA,NA,NA,", "0,vector0,NA,NA,NA,3,0.25,0.9,", "0,vector1,NA,NA,NA,5,0.5,0.7,"]
    summary(folder / "PipeUtilization.csv", _CORES, *cores)
    (one,) = taken(workspace, folder)
    assert (one.error, one.rows, one.kernels, one.losses) == (None, 4, 1, 0)
    (row,) = rows(workspace, "SELECT duration_us, mac_busy, vec_busy, dld, scalar, dstr, device_id FROM op_records")
    # The vector cores took 4 us in the mean, the cube core 2.
    assert row == pytest.approx((7.12, 0.8 / 2, 3.25 / 8, 0.5 / 2, 6.2 / 8, None, 3), abs=1e-3)
    (layer,) = _asked(workspace, "stats", "1")["rows"]
    assert (layer["layer"], layer["type"], layer["bound by"]) == ("my_kernel", "vector", "scalar")


def test_shares_of_one_of_several_kernels_are_told(tmp_path: Path) -> None:
    workspace, folder = tmp_path / "workspace", tmp_path / "OPPROF_1"
    header, row = SUMMARIES["OpBasicInfo"]
    summary(folder / "OpBasicInfo.csv", header, row, row)
    summary(folder / "PipeUtilization.csv", *SUMMARIES["PipeUtilization"])
    taken(workspace, folder)
    assert rows(workspace, "SELECT count(*), count(scalar) FROM op_records") == [(2, 0)]
    assert ("not-counted", 1) in rows(workspace, "SELECT reason, count FROM ledger")

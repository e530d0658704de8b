"""`profagent options`: what it finds in the vendor's own samples, in slips of people, and what it makes."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from profagent.ascend_options.checking import check_options
from profagent.ascend_options.documents import DOCUMENT
from profagent.ascend_options.rules import HANDLER, all_rules
from profagent.ascend_options.script import BESIDE, POSITIONAL, SECOND_START, START_TWICE
from profagent.cli.main import run
from tests.unit.ascend_options.checking import OPTIONS, Checking, evidence, options, told

# The vendor's TensorFlow page, Estimator mode: a quote is missing before task_trace.
ESTIMATOR = """\
from npu_bridge.estimator.npu.npu_config import NPURunConfig
from npu_bridge.estimator.npu.npu_config import ProfilingConfig
profiling_options = '{"output":"/tmp/profiling","training_trace":"on",task_trace":"on","fp_point":"","bp_point":"",\
"aic_metrics":"PipeUtilization"}'
profiling_config = ProfilingConfig(enable_profiling=True, profiling_options = profiling_options)
session_config=tf.ConfigProto()
config = NPURunConfig(profiling_config=profiling_config, session_config=session_config)
"""
# The same page, sess.run mode.
SESSION = f"""\
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["use_off_line"].b = True
custom_op.parameter_map["profiling_mode"].b = True
custom_op.parameter_map["profiling_options"].s = tf.compat.as_bytes('{OPTIONS}')
config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
with tf.Session(config=config) as sess:
    sess.run()
"""
# The same page, TensorFlow 2.
TENSORFLOW_2 = """\
import npu_device
...
npu_device.global_options().profiling_config.enable_profiling = True
profiling_options = '{"output":"/home/profiling", \\
                      "training_trace":"on", \\
                      "task_trace":"on", \\
                      "fp_point":"", \\
                      "bp_point":""}'
npu_device.global_options().profiling_config.profiling_options = profiling_options
...
npu_device.open().as_default()
"""
# MindSpore's page, Examples.
MINDSPORE = """\
from mindspore import Profiler
from mindspore.profiler import ProfilerLevel, ProfilerActivity, AicoreMetrics
profiler = Profiler(profiler_level=ProfilerLevel.Level0,
                    activities=[ProfilerActivity.CPU, ProfilerActivity.NPU],
                    aicore_metrics=AicoreMetrics.AiCoreNone)
profiler.analyse()
"""
# The SS928's manual, 'collecting by acl.json'; and CANN's page of it.
SS928 = (
    '{ "profiler":{ "output":"/root/AscendProjects/MyAppTest/profiling", "aacpu":"on",'
    ' "aac_metrics":"ArithmeticUtilization", "interval":"0", "acl_api":"on", "switch":"on" } }'
)
ATLAS = '{ "profiler": { "switch": "on", "output": "output", "aicpu": "on", "hccl": "on" } }'


def test_the_vendors_sample_lacks_a_quote(check: Checking) -> None:
    results = check(ESTIMATOR)
    assert check.code == 1
    assert told(results) == ["json"]
    line = ESTIMATOR.splitlines()[2]
    assert f"line 3, column {line.index('task_trace') + 1}: Expecting property name" in evidence(results)
    assert "nothing is recorded" in evidence(results)
    assert results[0]["corrected"] is None


@pytest.mark.parametrize("sample", [SESSION, TENSORFLOW_2, MINDSPORE, ATLAS, OPTIONS, "profiler = Profiler()"])
def test_right_samples_have_nothing_wrong_and_say_what_the_runtime_takes(sample: str, check: Checking) -> None:
    results = check(sample)
    assert check.code == 0
    assert told(results) == []
    assert told(results, "unknown") == []
    assert told(results, "good") == ["runtime"]
    assert [each["corrected"] for each in results] == [None]


def test_the_place_of_a_slip_is_found_behind_continued_lines(check: Checking) -> None:
    results = check(TENSORFLOW_2.replace('"fp_point', "fp_point"))
    assert "line 7, column 23: Expecting property name" in evidence(results)


def test_the_manuals_acl_json_records_calls_alone(check: Checking) -> None:
    results = check(SS928)
    assert check.code == 1
    assert told(results) == ["acl-items"]
    mended = results[0]["corrected"]
    assert check(mended)
    assert check.code == 0
    assert json.loads(mended)["profiler"]["aic_metrics"] == "ArithmeticUtilization"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (OPTIONS.replace('"on","task', '"on" "task'), "column 50: Expecting ',' delimiter"),
        (OPTIONS.replace('"', "'"), "column 2: Expecting property name"),
        (OPTIONS.replace("/tmp", "/t\nmp"), "line 1, column 14: Invalid control character"),
        (OPTIONS[:-1], "Expecting ',' delimiter"),
        ('{"profiler": {"switch": "on",\n"output" "/o"}}', "line 2, column 10: Expecting ':' delimiter"),
        (f"// by hand\n{ATLAS}", "line 1, column 1: Expecting value"),
        ('{"profile": {"with_stack": true, "experimental_config": {"sys_io": 1}', "Expecting ',' delimiter"),
    ],
)
def test_broken_json_is_told_with_its_place_and_nothing_is_guessed(text: str, place: str, check: Checking) -> None:
    results = check(text)
    assert (told(results), check.code) == (["json"], 1)
    assert place in evidence(results)
    assert "nothing is recorded" in evidence(results)
    assert [each["corrected"] for each in results] == [None]


@pytest.mark.parametrize(
    ("key", "value", "right"),
    [
        ("aic_metrics", "PipeUtilisation", "PipeUtilization"),
        ("aic_metrics", "Custom:0x49,0x6f", None),
        ("training_trace", True, "on"),
        ("task_time", "L1", "l1"),
        ("storage_limit", "500", "500MB"),
        ("storage_limit", "100MB", "200MB"),
        ("dvpp_freq", 101, 100),
        ("sys_io_sampling_freq", "0", 1),
        ("host_sys", "cpu, mem", "cpu,mem"),
        ("output", "/tmp/a\tb", "/tmp/ab"),
        ("output", 1, None),
        ("l2", None, None),
    ],
)
def test_a_value_out_of_range_is_told_and_put_right(key: str, value: object, right: object, check: Checking) -> None:
    results = check(options(OPTIONS, **{key: value}))
    assert told(results) == ["values"]
    assert json.loads(results[0]["corrected"]).get(key) == right


@pytest.mark.parametrize("value", ["Custom:0x49,8,21", "", "MemoryL0"])
def test_metrics_may_be_registers_or_empty(value: str, check: Checking) -> None:
    assert told(check(options(OPTIONS, aic_metrics=value))) == []


def test_an_unknown_key_is_told_with_what_was_meant(check: Checking) -> None:
    results = check(options(OPTIONS, aicpu_trace="on", trainig_trace="on", zzz="1"))
    assert told(results) == ["keys"] * 3
    remedies = [each["remedy"] for each in results[0]["findings"] if each["check"] == "keys"]
    assert remedies[1] == "did you mean 'training_trace'?"
    assert "zzz" not in results[0]["corrected"]


@pytest.mark.parametrize(
    ("more", "bad", "unknown"),
    [
        ({"instr_profiling_freq": 1000}, ["excludes"], []),
        ({"training_trace": "off"}, [], ["training"]),
        ({"task_time": "on"}, [], ["tasks"]),
        ({"llc_profiling": "read"}, [], ["llc"]),
    ],
)
def test_options_that_exclude_or_need_each_other(
    more: dict[str, object], bad: list[str], unknown: list[str], check: Checking
) -> None:
    results = check(options(OPTIONS, **more))
    assert (told(results), told(results, "unknown")) == (bad, unknown)


def test_half_of_a_character_is_shown_as_what_it_is_not(check: Checking, capsys: pytest.CaptureFixture[str]) -> None:
    assert check('{"output": "\\ud800", "l2": "ON"}')[0]["corrected"] == '{"output":"\\ud800","l2":"on"}'
    assert run(["options", "make", "tf2", "output=/\udcff"]) == 0
    assert "/\\udcff" in capsys.readouterr().out


def test_a_key_that_stands_twice_is_told(check: Checking) -> None:
    assert told(check('{"output": "/a", "output": "/b"}'), "unknown") == ["json"]


def test_an_atlas_acl_json_is_told_from_an_ss928s(check: Checking) -> None:
    results = check('{"profiler": {"output": "o", "storage_limit": "100MB", "task_tiem": "on"}}')
    assert told(results) == ["values", "keys", "switch"]
    assert json.loads(results[0]["corrected"])["profiler"]["switch"] == "on"
    assert told(check(SS928, device="atlas")) == ["keys"] * 4
    assert told(check('{"dump": {}}', device="atlas")) == ["switch"]


def test_a_slip_of_profiler_is_mended_on_every_device(check: Checking) -> None:
    own = {"switch": "on", "output": "/opt/p", "aicpu": "on"}
    atlas = {**own, "sys_hardware_mem_freq": 100}
    for device in ("", "atlas"):
        results = check(json.dumps({"Profiler": atlas, "other": {}}), device=device)
        assert (told(results), "(Atlas)" in results[0]["about"]) == (["switch"], True)
        assert json.loads(results[0]["corrected"]) == {"profiler": atlas, "other": {}}
    results = check(json.dumps({"profiler": {**own, "output": "/opt/a-b"}, "Profiler": {**own, "output": "/wrong"}}))
    assert json.loads(results[0]["corrected"])["profiler"]["output"] == "/opt/a_b"


@pytest.mark.parametrize("value", [None, "disable", "Disabled", "none"])
def test_what_is_switched_off_in_other_words_stays_off(value: object, check: Checking) -> None:
    own = {"switch": "on", "output": "/opt/p", "interval": "1", "aic_metrics": "ArithmeticUtilization"}
    for key in ("acl_api", "aacpu"):
        mended = json.loads(check(json.dumps({"profiler": {**own, key: value, "switch": "ON"}}))[0]["corrected"])
        assert mended["profiler"][key] == "off"


def test_an_ss928s_runtime_takes_a_last_comma_and_an_atlas_does_not(check: Checking) -> None:
    text = (
        '{"profiler": {"switch": "on", "output": "/opt/p", "interval": "1", "aic_metrics": "ArithmeticUtilization",}}'
    )
    assert told(check(text)) == []
    assert told(check(text, device="atlas")) == ["json"]
    assert "both-ways" in told(check("acl.init('acl.json')\nacl.prof.init('/o')", text)[:1])


def test_an_ss928s_acl_json_with_a_key_or_value_that_is_none(check: Checking) -> None:
    right = {"switch": "on", "output": "/opt/p", "interval": "1", "aic_metrics": "ArithmeticUtilization"}
    results = check(json.dumps({"profiler": {**right, "foo": "1"}}))
    assert (told(results), "acl-keys" in told(results, "unknown"), results[0]["corrected"]) == ([], True, None)
    assert "ignores: 'foo'" in evidence(results)
    results = check(json.dumps({"profiler": {**right, "foo": "1", "acl_api": "yes", "aicpu": "no"}}))
    assert told(results) == ["acl-items"]
    mended = json.loads(results[0]["corrected"])["profiler"]
    assert (mended["acl_api"], mended["aicpu"], mended["aacpu"], mended["interval"]) == ("on", "off", "off", "1")
    assert "foo" not in mended


@pytest.mark.parametrize("device", ["ss928", "atlas"])
def test_a_newline_within_a_path_is_not_where_it_ends(device: str, check: Checking) -> None:
    text = '{"profiler": {"switch": "on", "output": "/opt/a\\nb", "aicpu": "on", "interval": "1"}}'
    results = check(text if device == "ss928" else text.replace(', "interval": "1"', ""), device=device)
    assert told(results)[-1] == ("path" if device == "ss928" else "values")
    assert json.loads(results[0]["corrected"])["profiler"]["output"] == "/opt/ab"
    results = check('{"output": "/opt/a\\nb", "l2": "on"}')
    assert json.loads(results[0]["corrected"]) == {"output": "/opt/ab", "l2": "on"}


def test_without_an_output_nobody_can_correct_an_ss928s_acl_json(check: Checking) -> None:
    results = check('{"profiler": {"switch": "on", "acl_api": "on"}}')
    assert told(results) == ["acl-output"]
    assert results[0]["corrected"] is None


@pytest.mark.parametrize(
    ("arguments", "bad", "corrected"),
    [
        (
            "aicore_metrics=AicoreMetrics.Memory",
            ["levels"],
            "aicore_metrics=AicoreMetrics.Memory, profiler_level=ProfilerLevel.Level1",
        ),
        ("profiler_level=ProfilerLevel.LevelNone", ["levels"], "profiler_level=ProfilerLevel.Level0"),
        ("profiler_level=ProfilerLevel.LevelNone, mstx=True", [], None),
        ("profiler_level='Level1'", ["values"], "profiler_level=ProfilerLevel.Level1"),
        ("profiler_level=ProfilerLevel.level2", ["values"], "profiler_level=ProfilerLevel.Level2"),
        (
            "aic_metric=AicoreMetrics.AiCoreNone, pcie=1",
            ["keys", "values"],
            "aicore_metrics=AicoreMetrics.AiCoreNone, pcie=True",
        ),
        ("activities=ProfilerActivity.NPU", ["values"], "activities=[ProfilerActivity.NPU]"),
        ("activities=(ProfilerActivity.CPU,)", ["values"], "activities=[ProfilerActivity.CPU]"),
        (
            "activities=[ProfilerActivity.NPU], profile_memory=True, with_stack=True",
            ["activities"] * 2,
            "activities=[ProfilerActivity.CPU, ProfilerActivity.NPU], profile_memory=True, with_stack=True",
        ),
        (
            "schedule=steps, on_trace_ready=ready, data_process=True",
            ["schedule"],
            "schedule=steps, on_trace_ready=ready",
        ),
        ("schedule=3, on_trace_ready='x'", ["values"] * 2, "on_trace_ready=tensorboard_trace_handler('x')"),
        ("'./data'", ["names"], None),
        ("output_path=arguments.directory, profiler_level=level, with_stack=None", [], None),
        ("output_path=-1", ["values"], ""),
    ],
)
def test_arguments_of_mindspores_profiler(
    arguments: str, bad: list[str], corrected: str | None, check: Checking
) -> None:
    results = check(f"Profiler({arguments})")
    assert told(results) == bad
    right = results[0]["corrected"]
    if corrected is None:
        assert right is None
    else:
        assert " ".join(right.split()).replace("( ", "(").replace(", )", ")") == f"Profiler({corrected})"


def test_a_call_in_a_call_has_a_correction_of_its_own(check: Checking) -> None:
    inner = "schedule(wait=-1, repeat=True, actve=2)"
    results = check(f"Profiler(pcie=1, on_trace_ready=ready, schedule={inner})")
    assert told(results) == ["values", "values", "values", "keys"]
    outer = f"Profiler(pcie=True, on_trace_ready=ready, schedule={inner})"
    assert [each["corrected"] for each in results] == [outer, "schedule(wait=0, repeat=0, active=2)"]
    assert told(check("schedule()")) == ["needed"] * 2
    assert told(check("schedule(1, 1, 2)")) == ["names"]


@pytest.mark.parametrize(
    ("imports", "call", "is_ours"),
    [
        ("import mindspore", "mindspore.profiler.profile", True),
        ("import mindspore as ms", "ms.Profiler", True),
        ("from mindspore.profiler import profile", "profile", True),
        ("from mindspore import profiler as p", "with_it(p._ExperimentalConfig", True),
        ("", "mindspore.profiler.profile", True),
        ("import mindspore, torch_npu as npu", "npu.profiler.profile", True),
        ("from torch_npu.profiler import *", "_ExperimentalConfig", True),
        ("", "torch_npu.profiler._ExperimentalConfig", True),
        ("import torch, torch_npu", "torch.profiler.profile", False),
        ("import mindspore\nfrom .own import profile", "profile", False),
        ("from mindspore.profiler import *", "profile", True),
        ("import mindspore", "self.profile", False),
        ("import mindspore\nmodel = f()", "model.schedule", False),
        ("import mindspore\ndef profile(foo): pass", "profile", False),
        ("class Profiler: pass", "Profiler", False),
        ("from mindspore import Profiler\nclass Mine:\n    def Profiler(self): pass", "Profiler", True),
    ],
)
def test_calls_are_seen_with_the_path_of_their_module(imports: str, call: str, is_ours: bool, check: Checking) -> None:
    called = f"{call}(foo=1)" + ")" * call.count("(")
    results = check(f"{imports}\nProfilingConfig(enable_profiling=True)\n{called}\n")
    assert told(results) == ["keys"] * is_ours


def test_levels_and_metrics_of_an_experimental_configuration(check: Checking) -> None:
    inner = "_ExperimentalConfig(aic_metric=AicoreMetrics.Memory, sys_io=1)"
    results = check(f"profile(with_stack=True, activities=[ProfilerActivity.NPU], experimental_config={inner})")
    assert told(results) == ["activities", "keys", "values", "levels"]
    right = results[1]["corrected"]
    assert right.split()[1:-1] == [
        "aic_metrics=AicoreMetrics.Memory,",
        "sys_io=True,",
        "profiler_level=ProfilerLevel.Level1,",
    ]
    assert inner in results[0]["corrected"]
    assert told(check("profile(experimental_config=3, output_path='/o')")) == ["values", "keys"]


def test_what_has_no_name_in_a_call_is_not_written_anew(check: Checking) -> None:
    results = check("Profiler(pcie=1, schedule=schedule(1, wait=-1, active=2, repeat=1), **arguments)")
    assert told(results) == ["values", "values", "names"]
    assert told(results, "unknown") == ["steps"]
    assert [each["corrected"] for each in results] == [None, None]
    assert told(check("Profiler(aicore_metrics=AicoreMetrics.Memory, **arguments)")) == []
    assert told(check("Profiler(profile_memory=True, **arguments)")) == []


def test_a_schedule_without_a_handler_is_not_analysed(check: Checking) -> None:
    results = check("Profiler(schedule=schedule(wait=0, warmup=1, active=1, repeat=1))")
    assert told(results, "unknown") == ["schedule"]
    assert "on_trace_ready=tensorboard_trace_handler()" in results[0]["corrected"]


ENVIRONMENT = "import os\nos.environ['PROFILING_MODE'] = 'true'\n"


@pytest.mark.parametrize(
    ("text", "bad", "unknown"),
    [
        (MINDSPORE.replace("profiler =", "os.putenv('PROFILING_MODE', 'true')\nprofiler ="), ["both-ways"], []),
        ("Profiler(output_path='a', on_trace_ready=tensorboard_trace_handler('b'))", [], ["both-ways"]),
        (ENVIRONMENT + SESSION, [], ["both-ways"]),
        (SESSION.replace(".b = True", ".b = False"), ["enabled"], []),
        (ESTIMATOR.replace("enable_profiling=True, ", "").replace(",task", ',"task'), ["enabled"], []),
        ("ProfilingConfig(enable_profiling=True)", [], ["enabled"]),
        ("acl.init('acl.json')\nacl.prof.init('/o')", [], ["both-ways"]),
        ("acl.init()\nacl.prof.init('/o')", [], ["script"]),
        ("acl.prof.init('/o')\nacl.prof.model_subscribe(1, config)", [], ["both-ways"]),
    ],
)
def test_both_ways_at_once_and_neither(text: str, bad: list[str], unknown: list[str], check: Checking) -> None:
    results = check(text)
    assert (told(results), told(results, "unknown")) == (bad, unknown)


@pytest.mark.parametrize(
    ("acl_json", "is_both"), [(SS928, True), (ATLAS, True), (ATLAS.replace("on", "off"), False), ('{"dump":{}}', False)]
)
def test_a_script_and_its_acl_json_may_both_enable(acl_json: str, is_both: bool, check: Checking) -> None:
    results = check("acl.init('acl.json')\nacl.prof.init('/o')", acl_json)
    assert (["both-ways"] if is_both else []) == told(results[:1])
    assert "check both" not in json.dumps(results)


def test_an_empty_object_is_an_acl_json_that_records_nothing(check: Checking) -> None:
    results = check("{}\n")
    assert (told(results), told(results, "unknown"), check.code) == ([], ["acl-switch"], 0)
    assert "no object 'profiler': nothing is recorded" in evidence(results)
    assert told(check("options = '{}'\nProfilingConfig(enable_profiling=True, profiling_options='{}')"), "unknown") == [
        "output"
    ]


@pytest.mark.parametrize(
    ("change", "bad", "unknown"),
    [
        (("remapping", "other"), [], ["session"]),
        (('["use_off_line"]', '["other"]'), [], ["session"]),
        (('["use_off_line"].b = True', '["use_off_line"].b = False'), ["session"], []),
        (("RewriterConfig.OFF", "RewriterConfig.ON"), ["session"], []),
        (("RewriterConfig.OFF", "2"), [], []),
    ],
)
def test_a_session_wants_two_settings_beside_profiling(
    change: tuple[str, str], bad: list[str], unknown: list[str], check: Checking
) -> None:
    results = check(SESSION.replace(*change))
    assert (told(results), told(results, "unknown")) == (bad, unknown)


@pytest.mark.parametrize(
    ("call", "bad", "corrected"),
    [
        (
            "p.analyse(step_list=[1, 3], mode='later')",
            ["values", "values"],
            "p.analyse(step_list=[1, 2, 3])",
        ),
        ("p.analyse(step_list=[2, 3, 4], mode='sync')", [], None),
        ("p.analyse(step_lst=[1])", ["keys"], "p.analyse(step_list=[1])"),
        ("q.analyse(step_list=[1, 3])", [], None),
        ("Profiler.offline_analyse(path='d', step_list=[3, 1])", ["values"], None),
    ],
)
def test_what_is_analysed(call: str, bad: list[str], corrected: str | None, check: Checking) -> None:
    results = check(f"from mindspore import Profiler\np = Profiler()\n{call}\n")
    assert told(results) == bad
    if corrected is not None:
        assert [each["corrected"] for each in results] == [None, corrected]


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("p = Profiler()\np.start()", True),
        ("p = Profiler(start_profile=False)\np.start()\np.stop()\np.start()", False),
        ("p = Profiler(start_profile=False)\np.start()\nstep()\np.start()", True),
        ("p = Profiler()\np.stop()\np.start()", False),
        ("p = Profiler(start_profile=mine)\np.start()", False),
        ("p = Profiler(**mine)\np.start()", False),
        ("with Profiler() as p:\n    p.start()", True),
        (
            "class A:\n    def __init__(self):\n        self.p = Profiler()\n    def a(self):\n        self.p.start()",
            True,
        ),
    ],
)
def test_a_second_start_is_told(text: str, is_told: bool, check: Checking) -> None:
    results = check(text)
    assert told(results) == ["both-ways"] * is_told
    # Nobody is told to take what he has.
    assert ("take start_profile=False" in json.dumps(results)) == (is_told and "start_profile=False" not in text)


def test_texts_that_are_put_together_are_checked_in_their_known_parts(check: Checking) -> None:
    text = """options = '{"output":"' + arguments.path + f'/{name}","aicpu":"On"' + '}'"""
    results = check(text)
    assert told(results) == ["values"]
    assert results[0]["corrected"] == '{"output":"⟨arguments.path⟩/⟨name⟩","aicpu":"on"}'
    slip = check(text.replace('"On"', "On"))
    assert "counted from its beginning" in slip[0]["about"]


def test_what_is_no_python_is_searched_for_options(check: Checking) -> None:
    results = check(f"PROFILING_OPTIONS = '{OPTIONS}'\nand so on")
    assert (told(results), told(results, "unknown")) == ([], ["python"])
    assert told(check("Profiler(profiler_level=")) == ["python"]


def test_standard_input_is_read_and_lines_are_for_people(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(options(OPTIONS, l2="onn").encode())))
    assert run(["options", "check", "-"]) == 1
    out = capsys.readouterr().out
    assert "  ✗ values        l2 is 'onn', and must be one of on, off" in out
    assert out.endswith('"l2":"on"}\n')
    assert "\ncorrected:\n" in out


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"\xff\xfe", b"[1]", b"x = 1\n", b"from pyinstrument import Profiler\nProfiler(interval=1)\n"],
)
def test_what_has_no_options_is_a_usage_error(data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_bytes(data)
    assert run(["options", "check", str(file)]) == 2
    assert run(["options", "check", str(tmp_path / "none")]) == 2
    assert "cannot read" in capsys.readouterr().err


@pytest.mark.parametrize("text", ['{"a":' * 100_000, "x = " + "(" * 100_000, '{"profiler": ' + "[" * 100_000])
def test_what_is_nested_too_deep_ends_in_a_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    assert run(["options", "check", str(file)]) in {1, 2}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tf1", "output=/o", "training_trace=on"], "custom_op.parameter_map"),
        (["tf1", "--estimator", "output=/o", "aic_metrics=Memory"], "ProfilingConfig(enable_profiling=True"),
        (["tf2", "output=/o", "task_time=l0", "dvpp_freq=50"], "npu_device.global_options()"),
        (["env", "output=/o", "task_time=l0"], "export PROFILING_MODE=true\nexport PROFILING_OPTIONS='{"),
        (["mindspore", "profiler_level=Level1", "activities=NPU", "l2_cache=on"], "Profiler(profiler_level="),
        (["mindspore", "profiler_level=Level1", "aic_metrics=Memory"], "AicoreMetrics.Memory"),
        (["mindspore", "on_trace_ready=tensorboard_trace_handler('d')"], "tensorboard_trace_handler('d'))"),
        (["mindspore", "schedule=wait=1,warmup=1,active=2,repeat=1"], "schedule=schedule(wait=1, warmup=1, active=2"),
        (["acl-json", "output=/opt/app/profiling", "interval=1"], '"aic_metrics": "ArithmeticUtilization"'),
        (["acl-json", "--device", "atlas", "output=/o", "storage_limit=500MB"], '"storage_limit": "500MB"'),
    ],
)
def test_what_is_made_is_right(
    arguments: list[str], expected: str, check: Checking, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["options", "make", *arguments]) == 0
    made = capsys.readouterr().out
    assert expected in made
    results = check(made, device="atlas" if "atlas" in arguments else "")
    assert check.code == 0
    assert [each["corrected"] for each in results if each["corrected"]] == []


@pytest.mark.parametrize("kind", [["tf1"], ["tf1", "--estimator"], ["tf2"], ["env"]])
def test_options_without_any_lack_an_output(
    kind: list[str], check: Checking, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["options", "make", *kind]) == 0
    results = check(capsys.readouterr().out)
    assert told(results, "unknown") == ["output"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["tf1", "output"], "of the form KEY=VALUE"),
        (["tf2", "outptu=/o"], "did you mean 'output'?"),
        (["tf2", "output=/o", "aic_metrics=Pipe"], "must be one of"),
        (["mindspore", "aicore_metrics=Memory"], "Level1 or Level2"),
        (["mindspore", "profile_memory=yes"], "True or False"),
        (["mindspore", "schedule=wait=1"], "active is missing"),
        (["mindspore", "on_trace_ready=./d"], "take tensorboard_trace_handler('./d')"),
        (["mindspore", "on_trace_ready=out/d"], "take tensorboard_trace_handler('out/d')"),
        (["acl-json", "interval=1"], "there is no output"),
        (["acl-json", "output=/o", "interval=x"], "from 0 to 9999"),
        (["acl-json", "output=/o", "aclapi=on"], "did you mean 'acl_api'?"),
        (["acl-json", "output=/a-b"], "letters, digits and _"),
        (["acl-json", "--device", "atlas", "output=/o", "interval=1"], "there is no 'interval'"),
    ],
)
def test_what_cannot_be_is_not_made(arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["options", "make", *arguments]) == 2
    ended = capsys.readouterr()
    assert hint in ended.err
    assert ended.out == ""


def test_the_rules_name_what_there_is() -> None:
    rules = all_rules()
    facts = {POSITIONAL, SECOND_START, START_TWICE, DOCUMENT, f"{HANDLER}(dir_name)"}
    facts |= {*BESIDE, "PROFILING_MODE", "PROFILING_OPTIONS", "profiling_options", "enable_profiling"}
    facts |= {"profiling_mode", "acl.json", "(acl.json)", "acl.init", "acl.prof.init", "acl.prof.model_subscribe"}
    cited = {key.source for key in rules.keys} | {rule.source for rule in rules.rules}
    assert cited == rules.sources.keys()
    for rule in rules.rules:
        for family in rule.of:
            named = {*rule.given, *rule.absent, *rule.with_, *rule.is_, *rule.is_not, *rule.put, *rule.drop}
            assert named <= rules.keys_of(family).keys() | facts
    for family in rules.families:
        keys = rules.keys_of(family)
        assert len(keys) == sum(family in key.of for key in rules.keys)
        defaults = {name: key.value(key.default) for name, key in keys.items() if key.default is not None}
        assert not [each for each in check_options(family, defaults).findings if each.check in {"values", "keys"}]

"""`options check` on torch_npu's arguments in scripts, JSON and TOML, and on environment variables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profagent.cli.main import run
from tests.unit.ascend_options.checking import OPTIONS, Checking, evidence, options, told

TORCH = """\
import torch_npu
config = torch_npu.profiler._ExperimentalConfig(
    profiler_level=torch_npu.profiler.ProfilerLevel.Level1, aic_metrics=torch_npu.profiler.AiCMetrics.PipeUtilization,
    export_type=torch_npu.profiler.ExportType.Text, gc_detect_threshold=None)
with torch_npu.profiler.profile(
    schedule=torch_npu.profiler.schedule(wait=0, warmup=1, active=1, repeat=1),
    on_trace_ready=torch_npu.profiler.tensorboard_trace_handler("./result"), experimental_config=config) as prof:
    prof.step()
"""


@pytest.mark.parametrize(
    ("change", "bad", "unknown"),
    [
        (("", ""), [], []),
        (("ProfilerLevel.Level1", "ProfilerLevel.Level0"), ["levels"], []),
        (("AiCMetrics.PipeUtilization", "AiCMetrics.AiCoreNone"), [], ["levels"]),
        (("gc_detect_threshold=None", "op_attr=True"), ["export"], []),
        (("gc_detect_threshold=None", "gc_detect_threshold=-1"), ["values"], []),
        (("gc_detect_threshold=None", "msprof_tx=1"), ["values"], []),
        (("gc_detect_threshold=None", "host_sys=[torch_npu.profiler.HostSystem.CPU]"), [], []),
        (("on_trace_ready=", "on_trace_redy="), ["keys"], []),
        (("on_trace_ready=", "on_exit="), ["keys"], ["schedule"]),
        (("wait=0, warmup=1, active=1, repeat=1", "1, 1, 1"), [], []),
        (
            ("schedule=", "activities=[torch_npu.profiler.ProfilerActivity.NPU], with_stack=True, schedule="),
            ["activities"],
            [],
        ),
    ],
)
def test_torch_npus_profiler_in_a_script(
    change: tuple[str, str], bad: list[str], unknown: list[str], check: Checking
) -> None:
    results = check(TORCH.replace(*change, 1))
    assert told(results) == bad
    assert told(results, "unknown") == unknown


EXPERIMENTAL = {"profiler_level": "Level1", "aic_metrics": "PipeUtilization", "export_type": ["text"], "mstx": False}
PROFILE = {"activities": ["CPU", "NPU"], "with_stack": True, "experimental_config": EXPERIMENTAL}


@pytest.mark.parametrize(
    ("document", "bad", "unknown"),
    [
        (EXPERIMENTAL, [], []),
        (PROFILE, [], []),
        ({"prof_dir": "./out", "start_step": 5, "is_valid": True, **PROFILE}, [], []),
        ({**EXPERIMENTAL, "profiler_level": "level0"}, ["values", "levels"], []),
        ({**EXPERIMENTAL, "profiler_levle": "Level2"}, ["keys"], []),
        ({**EXPERIMENTAL, "mstx_domain_include": ["a"], "mstx_domain_exclude": ["b"]}, ["marks"], ["marks"]),
        ({**EXPERIMENTAL, "gc_detect_threshold": None, "l2_cache": "true"}, ["values"], []),
        ({**PROFILE, "activities": ["npu"]}, ["activities"], []),
        ({**PROFILE, "experimental_config": {**EXPERIMENTAL, "sys_io": 1}}, ["values"], []),
        ({**PROFILE, "schedule": {"wait": 0, "warmup": 1, "activ": 1, "repeat": 1}}, ["keys"], []),
        ({"runs": [{"profile": PROFILE}]}, [], []),
        ({"prof_dir": "./out", "is_rank": True, **PROFILE}, ["ranks"], []),
    ],
)
def test_torch_npus_arguments_in_a_file(
    document: dict[str, Any], bad: list[str], unknown: list[str], check: Checking
) -> None:
    results = check(json.dumps(document))
    assert (told(results), told(results, "unknown")) == (bad, unknown)
    assert all("torch_npu" in each["about"] for each in results)
    assert any(each["corrected"] for each in results) == bool(bad or unknown)


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ({**PROFILE, "activities": ["CPU"]}, "activities has no NPU"),
        ({**EXPERIMENTAL, "profiler_level": "Level_none", "aic_metrics": "AiCoreNone"}, "Level_none"),
    ],
)
def test_what_records_no_device_is_told_with_what_will_be_missing(
    document: dict[str, Any], what: str, check: Checking
) -> None:
    results = check(json.dumps(document))
    assert len(told(results, "unknown")) == 1
    assert what in evidence(results)
    assert "kernel_details" in evidence(results)
    # It may be meant so.
    assert not any(each["corrected"] for each in results)


def test_another_device_s_word_is_corrected_to_the_one_of_this(check: Checking) -> None:
    (whole, *_) = check(json.dumps({**PROFILE, "activities": ["CPU", "GPU", "NPU"]}))
    assert json.loads(whole["corrected"])["activities"] == ["CPU", "NPU"]


def test_a_file_is_corrected_with_the_tables_in_it(check: Checking) -> None:
    whole, inner = check(json.dumps({**PROFILE, "experimental_config": {**EXPERIMENTAL, "sys_io": 1}}))
    assert json.loads(inner["corrected"]) == {**EXPERIMENTAL, "export_type": ["Text"], "sys_io": True}
    assert json.loads(whole["corrected"]) == {**PROFILE, "experimental_config": json.loads(inner["corrected"])}
    assert told(check(json.dumps(PROFILE)[:-2])) == ["json"]


def test_toml_has_the_same_arguments(check: Checking) -> None:
    text = '[profile]\nwith_stack = true\n[profile.experimental_config]\nprofiler_level = "Level1"\nl2_cache = 1\n'
    whole, inner = check(text)
    assert told([whole, inner]) == ["values"]
    assert inner["corrected"] == 'profiler_level = "Level1"\nl2_cache = true'
    assert whole["corrected"] == f"with_stack = true\n\n[experimental_config]\n{inner['corrected']}"
    assert "torch_npu" not in json.dumps(check('{"profiler": {"switch": "on", "output": "/o", "l2_cache": "on"}}'))


def test_a_broken_toml_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "profile.toml").write_text("profiler_level = Level1\n")
    assert run(["options", "check", str(tmp_path / "profile.toml")]) == 1
    assert "it is no TOML" in capsys.readouterr().out
    (tmp_path / "other.toml").write_text('[project]\nname = "x"\n')
    assert run(["options", "check", str(tmp_path / "other.toml")]) == 2
    assert "has no options of profiling" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "bad", "unknown"),
    [
        (f"export PROFILING_MODE=true\nexport PROFILING_OPTIONS='{OPTIONS}'\npython train.py\n", [], []),
        (f"PROFILING_MODE=true\nPROFILING_OPTIONS={OPTIONS}\n", [], []),
        (f"export PROFILING_MODE=true\nexport PROFILING_OPTIONS={OPTIONS}\n", ["json"], []),
        (f'export PROFILING_MODE=true\nexport PROFILING_OPTIONS="{OPTIONS}"\n', ["json"], []),
        (f"#!/bin/sh\nexport PROFILING_OPTIONS='{OPTIONS}'\n", ["enabled"], []),
        (f"PROFILING_MODE=false\nPROFILING_OPTIONS={OPTIONS}\n", ["enabled"], []),
        ("export PROFILING_MODE=on\n", ["values", "enabled"], []),
        ("export PROFILING_MODE=True\n", ["values"], ["enabled"]),
        ("export PROFILING_MODE=true", [], ["enabled"]),
        (f"export PROFILING_MODE=dynamic\nexport PROFILING_OPTIONS='{OPTIONS}'\n", [], ["enabled"]),
        (f"export PROFILING_MODE=true\nexport PROFILING_OPTIONS='{options(OPTIONS, l2='ON')}'\n", ["values"], []),
        ('export PROFILING_MODE=true\nexport PROFILING_OPTIONS="$OPTIONS"\n', [], []),
        (f"export PROFILING_MODE=true\nexport PROFILING_OPTIONS='{OPTIONS[:27]}\n{OPTIONS[27:]}'\n", [], []),
    ],
)
def test_environment_variables_are_checked_together(
    text: str, bad: list[str], unknown: list[str], check: Checking
) -> None:
    results = check(text)
    assert (told(results), told(results, "unknown")) == (bad, unknown)


def test_variables_and_a_script_may_both_enable(check: Checking) -> None:
    script = "ProfilingConfig(enable_profiling=True, profiling_options='{}')"
    assert "both-ways" in told(check(script, "PROFILING_MODE=true"), "unknown")
    assert "both-ways" not in told(check(script, "PROFILING_MODE=false"), "unknown")
    assert told(check(f"os.environ['PROFILING_OPTIONS'] = '{OPTIONS}'"), "unknown") == ["enabled"]

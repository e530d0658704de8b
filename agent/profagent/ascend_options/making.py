"""Text that switches profiling on, from options named `KEY=VALUE`. Pure."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.aclconfig.edit import DEFAULTS, edited_acl_json
from profagent.ascend_options.checking import check_options, key_of, problems
from profagent.ascend_options.documents import call_text
from profagent.ascend_options.environment import MODE, OPTIONS, environment_text
from profagent.ascend_options.json_text import one_line_json
from profagent.ascend_options.rules import Expression, Member, all_rules
from profagent.doctor.acl_json import acl_json_section, meant_key
from profagent.doctor.finding import FindingMark
from profagent.errors import UsageError
from profagent.formats.sampling import INTERVAL_MAX, interval_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from profagent.ascend_options.rules import Key
    from profagent.doctor.finding import Finding

SESSION = """\
import tensorflow as tf
from npu_bridge.npu_init import *
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

config = tf.ConfigProto()
custom_op = config.graph_options.rewrite_options.custom_optimizers.add()
custom_op.name = "NpuOptimizer"
custom_op.parameter_map["use_off_line"].b = True
custom_op.parameter_map["profiling_mode"].b = True
custom_op.parameter_map["profiling_options"].s = tf.compat.as_bytes({options!r})
config.graph_options.rewrite_options.remapping = RewriterConfig.OFF
# with tf.Session(config=config) as session: …"""
ESTIMATOR = """\
import tensorflow as tf
from npu_bridge.estimator.npu.npu_config import NPURunConfig, ProfilingConfig

profiling_config = ProfilingConfig(enable_profiling=True, profiling_options={options!r})
config = NPURunConfig(profiling_config=profiling_config, session_config=tf.ConfigProto())"""
TF2 = """\
import npu_device

npu_device.global_options().profiling_config.enable_profiling = True
npu_device.global_options().profiling_config.profiling_options = {options!r}
npu_device.open().as_default()"""
_ALL = "docs/reference/options.md has all of them"
# Names that the command which edits an SS928's acl.json gives to keys.
_SS928 = {"aicpu": "aacpu", "aic_metrics": "aac_metrics"}


class MadeOptions(NamedTuple):
    """Text of options, and remarks about what may be wrong with it."""

    text: str
    remarks: tuple[Finding, ...]


def tensorflow(template: str, named: Mapping[str, str]) -> MadeOptions:
    """Return a piece of a TensorFlow script. Raises UsageError for options that are not possible."""
    options, remarks = _completed("profiling_options", named)
    return MadeOptions(template.format(options=one_line_json(options)), remarks)


def environment(named: Mapping[str, str]) -> MadeOptions:
    """Return the lines of a shell that set the environment variables. Raises UsageError."""
    options, remarks = _completed("profiling_options", named)
    values: dict[str, object] = {MODE: "true", OPTIONS: one_line_json(options)}
    return MadeOptions(environment_text(values, is_shell=True), remarks)


def mindspore(named: Mapping[str, str]) -> MadeOptions:
    """Return a call of MindSpore's Profiler with its imports. Raises UsageError."""
    options, remarks = _completed("mindspore", named)
    text = call_text("Profiler", options)
    names = [
        "ProfilerLevel",
        "ProfilerActivity",
        "AicoreMetrics",
        "ExportType",
        "schedule",
        "tensorboard_trace_handler",
    ]
    used = ", ".join(name for name in names if f"{name}." in text or f"{name}(" in text)
    imports = ["from mindspore import Profiler", *([f"from mindspore.profiler import {used}"] if used else [])]
    after = "profiler.step()  # after each step" if "schedule" in options else "profiler.analyse()  # at the end"
    return MadeOptions("\n".join([*imports, "", f"profiler = {text}", f"# … {after}"]), remarks)


def atlas_acl_json(named: Mapping[str, str]) -> MadeOptions:
    """Return an acl.json for an Atlas device. Raises UsageError."""
    options, remarks = _completed("acl_json", {"switch": "on", **named})
    inner = ",\n".join(
        f"        {one_line_json({name: value})[1:-1].replace(':', ': ', 1)}" for name, value in options.items()
    )
    return MadeOptions(f'{{\n    "profiler": {{\n{inner}\n    }}\n}}', remarks)


def ss928_acl_json(named: Mapping[str, str]) -> MadeOptions:
    """Return an acl.json for an SS928. Raises UsageError."""
    settings: dict[str, Any] = {}
    for name, value in named.items():
        field = _SS928.get(name, name)
        if field not in DEFAULTS.__dataclass_fields__:
            meant = meant_key(name)
            raise UsageError(f"there is no {name!r}", hint=f"did you mean {meant!r}?" if meant else _ALL)
        settings[field] = value
    if not settings.get("output"):
        raise UsageError("there is no output", hint="name a directory of the board: output=/opt/app/profiling")
    interval = interval_of(settings.get("interval", "0"))
    if interval is None or interval > INTERVAL_MAX:
        raise UsageError(f"interval is {settings['interval']!r}", hint=f"name a number from 0 to {INTERVAL_MAX}")
    text = edited_acl_json(b"", replace(DEFAULTS, **{**settings, "interval": interval}), "acl.json").rstrip()
    return MadeOptions(text, _remarks(acl_json_section("acl.json", text.encode()).findings))


def _completed(family: str, named: Mapping[str, str]) -> tuple[dict[str, object], tuple[Finding, ...]]:
    """Return the completed options with remarks about them. Raises UsageError for wrong options."""
    keys = all_rules().keys_of(family)
    found = check_options(family, {name: _value_of(key_of(keys, name), value) for name, value in named.items()})
    # Wrong options are refused first; the completed ones can only have remarks.
    _remarks(found.findings)
    return found.corrected, _remarks(check_options(family, found.corrected).findings)


def _remarks(findings: Collection[Finding]) -> tuple[Finding, ...]:
    for finding in findings:
        if finding.mark is FindingMark.BAD:
            raise UsageError(finding.evidence, hint=finding.remedy or _ALL)
    return tuple(problems(findings))


def _value_of(key: Key | None, text: str) -> object:
    # A text that its key cannot have stays a text, which the check then refuses.
    if key is None or key.type not in _TYPED:
        return text
    return _TYPED[key.type](key, text)


def _schedule(text: str) -> Expression:
    steps: dict[str, object] = {}
    for pair in text.split(","):
        name, _, number = pair.partition("=")
        steps[name] = int(number) if number.isdecimal() else number
    found = check_options("schedule", steps)
    _remarks(found.findings)
    return Expression(call_text("schedule", found.corrected))


def _function(text: str) -> Expression | str:
    try:
        body = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return text
    return Expression(text) if isinstance(body, (ast.Name, ast.Attribute, ast.Call, ast.Lambda)) else text


_TYPED: dict[str, Callable[[Key, str], object]] = {
    "bool": lambda _, text: {"true": True, "on": True, "false": False, "off": False}.get(text.casefold(), text),
    "member": lambda key, text: Member(key.enum, text),
    "members": lambda key, text: [Member(key.enum, name) for name in text.split(",")],
    "list": lambda _, text: text.split(","),
    "made": lambda _, text: _schedule(text),
    "callable": lambda _, text: _function(text),
}

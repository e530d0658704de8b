"""The arguments of `Profiler`: what they may be, and what has no meaning on an SS928."""

from __future__ import annotations

import enum
import logging
import os
from typing import Any

from profagent_app.runtime import DataType
from profagent_app.schedule import Schedule

_log = logging.getLogger("profagent_app")


class ProfilerLevel(enum.Enum):
    """How much is collected."""

    LevelNone = "LevelNone"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class ProfilerActivity(enum.Enum):
    """Whose activities are collected."""

    CPU = "CPU"
    NPU = "NPU"
    GPU = "GPU"


class AicoreMetrics(enum.Enum):
    """Groups of counters; the SS928 has one."""

    AiCoreNone = "AiCoreNone"
    ArithmeticUtilization = "ArithmeticUtilization"
    PipeUtilization = "PipeUtilization"
    Memory = "Memory"
    MemoryL0 = "MemoryL0"
    ResourceConflictRatio = "ResourceConflictRatio"
    MemoryUB = "MemoryUB"
    L2Cache = "L2Cache"


DEFAULTS: dict[str, Any] = {
    "start_profile": True,
    "output_path": "./data",
    "profiler_level": ProfilerLevel.Level0,
    "activities": [ProfilerActivity.CPU, ProfilerActivity.NPU],
    "schedule": None,
    "on_trace_ready": None,
    "profile_memory": False,
    "aicore_metrics": AicoreMetrics.AiCoreNone,
    "with_stack": False,
    "data_simplification": True,
    "l2_cache": False,
    "hbm_ddr": False,
    "pcie": False,
    "data_process": False,
    "parallel_strategy": False,
    "sync_enable": True,
}
# What has no meaning on an SS928 when it is not the default.
_NOT_HERE = (
    "profile_memory", "with_stack", "data_simplification", "l2_cache", "hbm_ddr", "pcie", "data_process",
    "parallel_strategy", "sync_enable",
)  # fmt: skip
_said: set[str] = set()


def checked(arguments: dict[str, Any]) -> dict[str, Any]:
    """All arguments, with defaults for what was not given; TypeError for one that there is not."""
    unknown = set(arguments) - set(DEFAULTS)
    if unknown:
        raise TypeError(f"Profiler has no argument {', '.join(sorted(unknown))}")
    parameters = {**DEFAULTS, **arguments}
    _put_right(parameters)
    for name in _NOT_HERE:
        if parameters[name] != DEFAULTS[name]:
            say_once(f"{name} has no meaning on an SS928: it is left out")
            parameters[name] = DEFAULTS[name]
    handler = parameters["on_trace_ready"]
    if getattr(handler, "dir_name", None) and "output_path" in arguments:
        _log.warning("Both on_trace_ready path and output_path are given: that of on_trace_ready is taken")
    if handler is not None and parameters["schedule"] is None:
        _log.warning("on_trace_ready is called with a schedule only: call analyse() at the end")
    _leave_what_is_recorded(parameters)
    return parameters


def _leave_what_is_recorded(parameters: dict[str, Any]) -> None:
    """Name the activities and metrics that the runtime records: profiler_info is read by others."""
    if ProfilerActivity.GPU in parameters["activities"]:
        say_once("an SS928 has no GPU: the activity is left out")
        parameters["activities"] = [each for each in parameters["activities"] if each is not ProfilerActivity.GPU]
    if parameters["profiler_level"] is ProfilerLevel.LevelNone:
        say_once("an SS928 has no LevelNone: Level0 is taken")
        parameters["profiler_level"] = ProfilerLevel.Level0
    asked, recorded = parameters["aicore_metrics"], AicoreMetrics.AiCoreNone
    if ProfilerActivity.NPU in parameters["activities"]:
        recorded = AicoreMetrics.ArithmeticUtilization
    if asked not in {AicoreMetrics.AiCoreNone, recorded}:
        say_once(
            "an SS928 has the metrics ArithmeticUtilization only: they are taken"
            if recorded is not AicoreMetrics.AiCoreNone
            else "aicore_metrics needs ProfilerActivity.NPU: none are recorded"
        )
    parameters["aicore_metrics"] = recorded


def _put_right(parameters: dict[str, Any]) -> None:
    """Replace what cannot be used by its default, with a warning."""
    if isinstance(parameters["on_trace_ready"], type):
        parameters["on_trace_ready"] = parameters["on_trace_ready"]()  # the class, as the page names its handler
    for name in ("schedule", "on_trace_ready"):
        if parameters[name] is not None and not callable(parameters[name]):
            _log.warning("%s must be callable; it is left out", name)
            parameters[name] = None
    for name, default in DEFAULTS.items():
        if isinstance(default, (bool, enum.Enum)) and not isinstance(parameters[name], type(default)):
            _log.warning("%s must be of type %s: it is %s now", name, type(default).__name__, default)
            parameters[name] = default
    if parameters["data_process"] and parameters["schedule"] is not None:
        _log.warning("data_process is not collected with a schedule: it is False now")
        parameters["data_process"] = False
    activities, path = parameters["activities"], parameters["output_path"]
    if not (isinstance(activities, list) and activities and all(isinstance(it, ProfilerActivity) for it in activities)):
        _log.warning("activities must be a list of ProfilerActivity: it is [CPU, NPU] now")
        parameters["activities"] = DEFAULTS["activities"]
    if isinstance(path, os.PathLike):
        parameters["output_path"] = os.fspath(path)
    elif not isinstance(path, str) or not path or "\0" in path:
        _log.warning("output_path must be a path: it is %s now", DEFAULTS["output_path"])
        parameters["output_path"] = DEFAULTS["output_path"]


def data_types(parameters: dict[str, Any]) -> DataType:
    """What the runtime is to record; ValueError where that is nothing."""
    if not parameters["activities"]:
        raise ValueError("activities has nothing that an SS928 records: name ProfilerActivity.NPU or CPU")
    types = DataType(0)
    if ProfilerActivity.NPU in parameters["activities"]:
        types |= DataType.TASK_TIME | DataType.AICORE_METRICS
    if ProfilerActivity.CPU in parameters["activities"]:
        types |= DataType.AICPU_TRACE
    if parameters["profiler_level"] in {ProfilerLevel.Level1, ProfilerLevel.Level2}:
        types |= DataType.ACL_API
    return types


def written(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters as JSON takes them."""
    plain: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, enum.Enum):
            plain[name] = value.value
        elif isinstance(value, list):
            plain[name] = [getattr(each, "value", each) for each in value]
        elif isinstance(value, Schedule):
            plain[name] = value.to_dict()
        else:
            plain[name] = value if isinstance(value, (bool, int, str, type(None))) else repr(value)
    plain["is_set_schedule"] = parameters["schedule"] is not None
    return plain


def say_once(text: str) -> None:
    """Warn of what is the same however often it is asked for."""
    if text not in _said:
        _said.add(text)
        _log.warning(text)

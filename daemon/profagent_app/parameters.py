"""The arguments of `Profiler`: their checks, and those that have no meaning on an SS928."""

from __future__ import annotations

import enum
import logging
import os
from typing import Any

from profagent_app.runtime import DataType
from profagent_app.schedule import StepSchedule

_log = logging.getLogger("profagent_app")


class ProfilerLevel(enum.Enum):
    """Amount of data that is collected."""

    LevelNone = "LevelNone"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class ProfilerActivity(enum.Enum):
    """Unit whose activities are collected."""

    CPU = "CPU"
    NPU = "NPU"
    GPU = "GPU"


class AicoreMetrics(enum.Enum):
    """Groups of counters, of which the SS928 has one."""

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
# Arguments that have no meaning on an SS928; another value than the default gives a warning.
_UNSUPPORTED = (
    "profile_memory", "with_stack", "data_simplification", "l2_cache", "hbm_ddr", "pcie", "data_process",
    "parallel_strategy", "sync_enable",
)  # fmt: skip
_warned: set[str] = set()  # texts that `warn_once` has logged


def check_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments, with defaults for absent ones. Raises TypeError for an unknown one."""
    unknown = set(arguments) - set(DEFAULTS)
    if unknown:
        raise TypeError(f"Profiler has no argument {', '.join(sorted(unknown))}")
    # Invalid values are replaced before the rest is looked at, so that later checks need not doubt any type.
    parameters = {**DEFAULTS, **arguments}
    _replace_invalid(parameters)
    for name in _UNSUPPORTED:
        if parameters[name] != DEFAULTS[name]:
            warn_once(f"{name} has no meaning on an SS928 and is ignored")
            parameters[name] = DEFAULTS[name]
    handler = parameters["on_trace_ready"]
    if getattr(handler, "dir_name", None) and "output_path" in arguments:
        _log.warning("on_trace_ready and output_path both name a path: the path of on_trace_ready is used")
    if handler is not None and parameters["schedule"] is None:
        _log.warning("on_trace_ready is called with a schedule only: call analyse() at the end")
    _restrict_to_recorded(parameters)
    return parameters


def _restrict_to_recorded(parameters: dict[str, Any]) -> None:
    if ProfilerActivity.GPU in parameters["activities"]:
        warn_once("an SS928 has no GPU: the activity is ignored")
        parameters["activities"] = [each for each in parameters["activities"] if each is not ProfilerActivity.GPU]
    if parameters["profiler_level"] is ProfilerLevel.LevelNone:
        warn_once("an SS928 has no LevelNone: Level0 is used instead")
        parameters["profiler_level"] = ProfilerLevel.Level0
    requested, recorded = parameters["aicore_metrics"], AicoreMetrics.AiCoreNone
    if ProfilerActivity.NPU in parameters["activities"]:
        recorded = AicoreMetrics.ArithmeticUtilization
    if requested not in {AicoreMetrics.AiCoreNone, recorded}:
        warn_once(
            "an SS928 has the metrics ArithmeticUtilization only: they are taken"
            if recorded is not AicoreMetrics.AiCoreNone
            else "aicore_metrics needs ProfilerActivity.NPU: none are recorded"
        )
    parameters["aicore_metrics"] = recorded


def _replace_invalid(parameters: dict[str, Any]) -> None:
    if isinstance(parameters["on_trace_ready"], type):
        parameters["on_trace_ready"] = parameters["on_trace_ready"]()  # the page also passes the class itself
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
    """Return the data types that the runtime has to record. Raises ValueError where there are none."""
    if not parameters["activities"]:
        raise ValueError("an SS928 records none of these activities: name ProfilerActivity.NPU or CPU")
    types = DataType(0)
    if ProfilerActivity.NPU in parameters["activities"]:
        types |= DataType.TASK_TIME | DataType.AICORE_METRICS
    if ProfilerActivity.CPU in parameters["activities"]:
        types |= DataType.AICPU_TRACE
    if parameters["profiler_level"] in {ProfilerLevel.Level1, ProfilerLevel.Level2}:
        types |= DataType.ACL_API
    return types


def to_json(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters as values that JSON can hold."""
    plain: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, enum.Enum):
            plain[name] = value.value
        elif isinstance(value, list):
            plain[name] = [getattr(each, "value", each) for each in value]
        elif isinstance(value, StepSchedule):
            plain[name] = value.to_dict()
        else:
            plain[name] = value if isinstance(value, (bool, int, str, type(None))) else repr(value)
    plain["is_set_schedule"] = parameters["schedule"] is not None
    return plain


def warn_once(text: str) -> None:
    """Log a warning, unless the same text was logged before."""
    if text not in _warned:
        _warned.add(text)
        _log.warning(text)

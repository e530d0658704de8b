"""Findings from the names and sizes of a JOB's files: which logs have records, and why there may be no layers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.formats.names import LogKind, display_text, parse_log_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from profagent.formats.names import LogName

BUILD = (
    "build the model with atc … --online_model_type=2 (0, 1, 4 and 5 lack the bit 2; 3, 6 and 7 have it),"
    " and load it after profiling is on"
)
_NO_METRICS = '"aic_metrics" of acl.json is missing or not exactly "ArithmeticUtilization"'
_SETTINGS = (
    'write in acl.json: "aic_metrics": "ArithmeticUtilization", "aicpu": "on", "acl_api": "on";'
    " `profagent aclconfig check FILE` looks at it"
)


def why_no_layers(files: Mapping[str, int]) -> tuple[str, str]:
    """Return the likely reason why a JOB has no layers, by its other files, and what to do; `files` as of `job_data`.

    The existence of a JOB shows that profiling was on: with another switch than "on" the runtime creates none.
    """
    names = names_of(files)
    kinds = recorded(names, files)
    # From the most to the least that was recorded: each step rules out one cause.
    if LogKind.AICPU in kinds:
        why = f"the copy lacks the aicore files, or {_NO_METRICS}"
        return f"layers on the CPU were recorded, and none on the NPU: {why}", _SETTINGS
    if LogKind.ACL_API in kinds:
        return f"calls were recorded, and no layers: no inference has ended, or {_NO_METRICS}", _SETTINGS
    if has_tables(names):
        why = f'{_NO_METRICS}, and "acl_api" is missing or not exactly "on"'
        return (
            f"a model was loaded that profiles, and nothing was recorded: no inference has ended, or {why}",
            f"run an inference to its end; {_SETTINGS}",
        )
    if models := unprofiled(names, files):
        return "; ".join(map(empty_log, models)), BUILD
    return (
        "a JOB without data: no model that is built for profiling was loaded after it was on, or AIISP is enabled",
        BUILD,
    )


def names_of(files: Mapping[str, int]) -> dict[str, LogName]:
    """Return the parsed names of a JOB's logs, by path."""
    return {path: name for path in files if (name := parse_log_name(path)) is not None}


def recorded(names: Mapping[str, LogName], files: Mapping[str, int]) -> set[LogKind]:
    """Return the kinds of logs that have records."""
    return {name.kind for path, name in names.items() if name.is_data and files[path]}


def has_tables(names: Mapping[str, LogName]) -> bool:
    """Return True if a model was loaded that profiles."""
    return any(name.kind is LogKind.LAYER_INFO for name in names.values())


def unprofiled(names: Mapping[str, LogName], files: Mapping[str, int]) -> list[LogName]:
    """Return the models that are not built for profiling: with an empty acl_api, no `.done`, no tables of layers."""
    tables = {(name.model, name.model_id) for name in names.values() if name.kind is LogKind.LAYER_INFO}
    return [
        name
        for path, name in names.items()
        if name.kind is LogKind.ACL_API
        and not (name.is_done or files[path] or f"{path}.done" in names)
        and (name.model, name.model_id) not in tables
    ]


def empty_log(name: LogName) -> str:
    """Return the line about a model that is not built for profiling."""
    return f"model {shown_model(name)} left an empty log of calls: it is not built for profiling"


def shown_model(name: LogName) -> str:
    """Return a model's name and id for people."""
    return f"{display_text(name.model or '')!r} (id {name.model_id})"

"""Checks of a JOB directory: whether it holds what was to be recorded, and whether its times fit each other."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.doctor.finding import bad, good, unknown
from profagent.formats.names import LogKind, display_text, parse_log_name
from profagent.formats.records import AICORE_DTYPE, ticks_to_us, view_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from profagent.doctor.finding import Finding
    from profagent.formats.done import Done
    from profagent.formats.names import LogName

# How far the sum of an inference's layers may be over the time that its `.done` gives it.
MOST_RATIO, SLACK_US = 1.02, 2.0
# Below that share the NPU idled, or ticks are longer than is believed.
LEAST_RATIO = 0.25
_BUILD = "build the model with atc … --online_model_type=2, and load it after profiling is on"
_NO_METRICS = '"aic_metrics" of acl.json is missing or not exactly "ArithmeticUtilization"'
_SETTINGS = (
    'write in acl.json: "aic_metrics": "ArithmeticUtilization", "aicpu": "on", "acl_api": "on";'
    " `profagent doctor --acl-json FILE` looks at it"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One inference: the sum of its layers by their ticks, and the time between start and end of its `.done`.

    `may_have_cpu_part`: some of that time may be the CPU's.
    """

    path: str
    layers_us: float
    window_us: int
    may_have_cpu_part: bool


def measure(path: str, data: bytes, done: Done, frequency_mhz: int, *, has_cpu_part: bool) -> Measured | None:
    """An aicore log against its `.done`; None where that announces more than there is, or nothing.

    Of a model that was loaded again the `.done` is about the last part of the file alone (format page 2.2). Between
    several nets the CPU may have been at work, recorded or not.
    """
    if not 0 < done.file_len <= len(data):
        return None
    records = view_records(data[-done.file_len :], AICORE_DTYPE)
    layers_us = ticks_to_us(int(records["ticks"].sum(dtype="u8")), frequency_mhz)
    may_have_cpu_part = has_cpu_part or bool((records["net"] != records["net"][:1]).any())
    return Measured(path, layers_us, done.end_us - done.start_us, may_have_cpu_part)


def job_data(files: Mapping[str, int]) -> Iterator[Finding]:
    """There are layers; `files` are sizes by paths inside the JOB. Else the likely reason (format page 9)."""
    check = "job-data"
    names = _names(files)
    unprofiled = _unprofiled(names, files)
    for model in unprofiled:
        yield bad(check, _empty_log(model), _BUILD)
    layers = [name for path, name in names.items() if name.kind is LogKind.AICORE and name.is_data and files[path]]
    if layers:
        models = {(name.model, name.model_id) for name in layers}
        yield good(check, f"{len(layers)} inferences of {len(models)} models have layers")
        yield from _sampled(layers)
    elif not unprofiled or _recorded(names, files) or _has_tables(names):
        yield bad(check, *why_no_layers(files))


def why_no_layers(files: Mapping[str, int]) -> tuple[str, str]:
    """Why a JOB is likely to have none, by what else it has, and what to do; `files` as of `job_data`.

    That there is a JOB says that profiling was on: with another switch than "on" the runtime makes none.
    """
    names = _names(files)
    recorded = _recorded(names, files)
    if LogKind.AICPU in recorded:
        why = f"the copy lacks the aicore files, or {_NO_METRICS}"
        return f"layers on the CPU were recorded, and none on the NPU: {why}", _SETTINGS
    if LogKind.ACL_API in recorded:
        return f"calls were recorded, and no layers: no inference has ended, or {_NO_METRICS}", _SETTINGS
    if _has_tables(names):
        why = f'{_NO_METRICS}, and "acl_api" is missing or not exactly "on"'
        return (
            f"a model was loaded that profiles, and nothing was recorded: no inference has ended, or {why}",
            f"run an inference to its end; {_SETTINGS}",
        )
    if unprofiled := _unprofiled(names, files):
        return "; ".join(map(_empty_log, unprofiled)), _BUILD
    return (
        "a JOB without data: no model that is built for profiling was loaded after it was on, or AIISP is enabled",
        _BUILD,
    )


def job_clock(frequency_mhz: int | None, error: str) -> Finding:
    """The NPU's clock, without which ticks are no times."""
    if frequency_mhz is None:
        return bad(
            "job-clock", error or "there is no info.json.0", "copy the JOB directory whole: info.json.0 is in it"
        )
    return good("job-clock", f"{frequency_mhz} MHz, from info.json.0")


def job_ticks(measured: Sequence[Measured], logs: int) -> Finding:
    """The layers of an inference take no longer than it did, and most of it; `logs` is how many there are to look at.

    Where they take little of it nothing is told: the NPU may have idled. That a tick is 100 cycles of the NPU's clock
    was never tried on a board (format page 3.1).
    """
    check = "job-ticks"
    if not measured:
        return unknown(check, "no layers with a .done that can be compared")
    looked = f"{len(measured)} of {logs} inferences looked at"
    odd = [(each, why) for each in measured if (why := _misfit(each))]
    if odd:
        return bad(
            check,
            f"{_compared(*odd[0])}; {len(odd)} are so, {looked}",
            "do not trust times of layers from this board, and report this line with the SDK's version; a tick of 100"
            " cycles is unverified",
        )
    if short := [each for each in measured if _is_short(each)]:
        why = "the NPU idled, or a tick is longer than 100 cycles"
        return unknown(check, f"{_compared(short[0], why)}; {len(short)} are so, {looked}")
    ratios = [each.layers_us / each.window_us for each in measured if each.window_us]
    if not ratios:
        return unknown(check, f"no inference that took a microsecond; {looked}")
    return good(check, f"layers take {min(ratios):.0%} to {max(ratios):.0%} of their inference; {looked}")


def _compared(each: Measured, why: str) -> str:
    return (
        f"{display_text(each.path)}: layers take {each.layers_us:,.1f} us by their ticks, the inference took"
        f" {each.window_us:,} us by its .done: {why}"
    )


def _misfit(each: Measured) -> str:
    if each.window_us < 0:
        return "it ended before it began"
    return "the layers are too long" if each.layers_us > each.window_us * MOST_RATIO + SLACK_US else ""


def _is_short(each: Measured) -> bool:
    return each.layers_us < each.window_us * LEAST_RATIO and not each.may_have_cpu_part


def _names(files: Mapping[str, int]) -> dict[str, LogName]:
    return {path: name for path in files if (name := parse_log_name(path)) is not None}


def _recorded(names: Mapping[str, LogName], files: Mapping[str, int]) -> set[LogKind]:
    """Of which kinds there are records."""
    return {name.kind for path, name in names.items() if name.is_data and files[path]}


def _has_tables(names: Mapping[str, LogName]) -> bool:
    return any(name.kind is LogKind.LAYER_INFO for name in names.values())


def _unprofiled(names: Mapping[str, LogName], files: Mapping[str, int]) -> list[LogName]:
    """Models that were loaded and are not built for profiling: an empty acl_api, no `.done`, no tables of layers."""
    tables = {(name.model, name.model_id) for name in names.values() if name.kind is LogKind.LAYER_INFO}
    return [
        name
        for path, name in names.items()
        if name.kind is LogKind.ACL_API
        and not (name.is_done or files[path] or f"{path}.done" in names)
        and (name.model, name.model_id) not in tables
    ]


def _empty_log(name: LogName) -> str:
    return f"model {_shown(name)} left an empty log of calls: it is not built for profiling"


def _sampled(layers: Sequence[LogName]) -> Iterator[Finding]:
    counts: dict[tuple[str | None, int | None], set[int]] = defaultdict(set)
    for name in layers:
        counts[name.model, name.model_id].add(name.current_pic_count or 0)
    if all(pictures == {0} for pictures in counts.values()):
        yield unknown(
            "job-sampling",
            "only the first inference of each model is there: one ran, or the interval is 0",
            'for every inference, in acl.json: "interval": "1"',
        )


def _shown(name: LogName) -> str:
    return f"{display_text(name.model or '')!r} (id {name.model_id})"

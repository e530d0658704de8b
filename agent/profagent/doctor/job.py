"""Checks of a JOB directory: whether it holds what was to be recorded, and whether its times fit each other."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.doctor.finding import bad, good, unknown
from profagent.errors import FormatError
from profagent.formats.done import parse_done
from profagent.formats.names import DONE_SUFFIX, LogKind, display_text, parse_log_name
from profagent.formats.records import AICORE_DTYPE, AICPU_DTYPE, ticks_to_us, view_records
from profagent.ingest.decoder import small_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from profagent.doctor.finding import Finding
    from profagent.formats.done import Done
    from profagent.formats.names import LogName
    from profagent.formats.records import Records
    from profagent.ingest.local import JobRecords

# How far the sum of an inference's layers may be over the time that its `.done` gives it.
MOST_SHARE, SLACK_US = 1.02, 2.0
# Below that share the NPU idled, or ticks are longer than is believed.
LEAST_SHARE = 0.25
# Inferences that are looked at, evenly spread, and the largest log of one.
INFERENCES = 200
LARGEST_LOG_BYTES = 16 << 20
# Of one inference whose numbering is looked at.
MOST_NETS, MOST_RECORDS = 8, 10_000
_BUILD = "build the model with atc … --online_model_type=2, and load it after profiling is on"
_NO_METRICS = '"aic_metrics" of acl.json is missing or not exactly "ArithmeticUtilization"'
_SETTINGS = (
    'write in acl.json: "aic_metrics": "ArithmeticUtilization", "aicpu": "on", "acl_api": "on";'
    " `profagent doctor --acl-json FILE` looks at it"
)


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


def job_checks(job: JobRecords, files: Mapping[str, int]) -> Iterator[Finding]:
    """All checks of a JOB: what is there, the NPU's clock, and ticks beside times."""
    yield from job_data(files)
    frequency_mhz = job.frequency_mhz
    if frequency_mhz is None:
        why = "there is no info.json.0 that tells the NPU's clock"
        yield bad("job-clock", why, "copy the JOB directory whole: info.json.0 is in it")
        return
    yield good("job-clock", f"{frequency_mhz} MHz, from info.json.0")
    yield job_ticks(list(inferences_of(job)), frequency_mhz)


def job_ticks(inferences: Sequence[Inference], frequency_mhz: int) -> Finding:
    """The layers of an inference take no longer than it did, and most of it.

    Where they take little of it nothing is told: the NPU may have idled. That a tick is 100 cycles of the NPU's clock
    was never tried on a board (format page 3.1).
    """
    check = "job-ticks"
    times = [(ticks_to_us(each.ticks, frequency_mhz), each) for each in inferences]
    odd = [_compared(us, each) for us, each in times if us > each.window_us * MOST_SHARE + SLACK_US]
    if odd:
        return bad(
            check,
            f"{odd[0]}: the layers are too long; {len(odd)} of {len(times)} inferences are so",
            "do not trust times of layers from this board, and report this line with the SDK's version; a tick of 100"
            " cycles is unverified",
        )
    short = [(us, each) for us, each in times if us < each.window_us * LEAST_SHARE and not each.may_have_cpu_part]
    if short:
        why = "the NPU idled, or a tick is longer than 100 cycles"
        return unknown(check, f"{_compared(*short[0])}: {why}; {len(short)} of {len(times)} inferences are so")
    ratios = [us / each.window_us for us, each in times if each.window_us > 0]
    if not ratios:
        return unknown(check, "no layers with a .done that can be compared")
    return good(check, f"layers take {min(ratios):.0%} to {max(ratios):.0%} of their inference; {len(times)} looked at")


def _compared(layers_us: float, each: Inference) -> str:
    return (
        f"{display_text(each.path)}: layers take {layers_us:,.1f} us by their ticks, the inference took"
        f" {each.window_us:,} us by its .done"
    )


class Net(NamedTuple):
    """A net in one inference: its sequence numbers in the order of the file, and its runs of layers.

    `sizes` has the pictures of each batch run; the net may be gone through `max_loop` times.
    """

    sequence: tuple[int, ...]
    is_batch: tuple[bool, ...]
    sizes: tuple[int, ...]
    max_loop: int = 1


@dataclass(frozen=True, slots=True)
class Inference:
    """Its ticks in all, and its time on the NPU by its `.done` and CPU records; of some a CPU part may be missing."""

    path: str
    ticks: int
    window_us: int
    may_have_cpu_part: bool = False
    nets: tuple[Net, ...] = ()


def inferences_of(job: JobRecords) -> Iterator[Inference]:
    """Those that have a `.done`: of a model that was loaded again the part that it is about, the last."""
    logs = job.inferences
    for path, name in logs[:: max(1, -(-len(logs) // INFERENCES))]:
        try:
            done = parse_done(small_file(job, path + DONE_SUFFIX) or b"", LogKind.AICORE, path)
        except FormatError:
            continue
        data = job.read(path, LARGEST_LOG_BYTES + 1) or b""
        if 0 < done.file_len <= len(data) <= LARGEST_LOG_BYTES:
            records = view_records(data[-done.file_len :], AICORE_DTYPE)
            cpu_us = _cpu_us(job, path, done)
            # Between several nets the CPU may have been at work, recorded or not.
            is_unsure = not cpu_us and len(np.unique(records["net"])) > 1
            ticks = int(records["ticks"].sum(dtype="u8"))
            window_us = done.end_us - done.start_us - cpu_us
            yield Inference(path, ticks, window_us, is_unsure, tuple(_nets(job, name, done, records)))


def _nets(job: JobRecords, name: LogName, done: Done, records: Records) -> Iterator[Net]:
    """Those whose layers are known."""
    join, sizes = job.join(name), _batch_sizes(name, done)
    for net in np.unique(records["net"])[:MOST_NETS].tolist():
        shape = None if join is None else join.shape(net)
        if shape is not None and sizes and len(shape.is_batch) * sum(sizes) <= MOST_RECORDS:
            sequence = records["sequence"][records["net"] == net].tolist()
            yield Net(tuple(sequence), shape.is_batch, sizes, shape.max_loop)


def _batch_sizes(name: LogName, done: Done) -> tuple[int, ...]:
    """Pictures in each batch run; empty where they are not known, or too many."""
    batch, pictures = name.batch_num or 0, name.input_pic_num or 0
    if done.online_batch_num:
        return done.online_batch_num
    if not 0 < batch <= MOST_RECORDS or pictures > MOST_RECORDS:
        return ()
    full, rest = divmod(pictures, batch)
    return (batch,) * full + ((rest,) if rest else ())


def _cpu_us(job: JobRecords, path: str, done: Done) -> int:
    cpu_log = job.cpu_log(path)
    if cpu_log is None:
        return 0
    records = view_records(job.read(cpu_log, LARGEST_LOG_BYTES) or b"", AICPU_DTYPE)
    spans = set(zip(records["segment_start_us"].tolist(), records["segment_end_us"].tolist(), strict=True))
    return sum(end - start for start, end in spans if done.start_us <= start <= end <= done.end_us)


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

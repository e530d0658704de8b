"""Checks of a JOB directory: that it holds what was to be recorded, and that its times agree."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.doctor.finding import Section, bad, good, unknown
from profagent.errors import FormatError
from profagent.formats.board_files import parse_done
from profagent.formats.countermap import LAYERS_SHARE, SLACK_US
from profagent.formats.job_files import BUILD, empty_log, has_tables, names_of, recorded, unprofiled, why_no_layers
from profagent.formats.names import LogKind
from profagent.formats.records import AICORE_DTYPE, AICPU_DTYPE, view_records
from profagent.limits import (
    EXAMINED_INFERENCES,
    LARGEST_DONE_BYTES,
    LARGEST_EXAMINED_LOG_BYTES,
    MOST_NETS,
    MOST_NUMBERED_RECORDS,
)
from profagent.tables.table import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from profagent.doctor.finding import Finding
    from profagent.formats.board_files import Done
    from profagent.formats.names import LogName
    from profagent.formats.records import Records
    from profagent.ingest.local import LocalJobFiles


# Share of an inference's time that layers take at least; below it the NPU idled, or a tick is longer than assumed.
LEAST_SHARE = 0.25


def job_data(files: Mapping[str, int]) -> Iterator[Finding]:
    """Yield good if the JOB has layers, else the likely reason why not (the-format.md 9).

    `files` are sizes in bytes by path inside the JOB.
    """
    check = "job-data"
    names = names_of(files)
    models = unprofiled(names, files)
    for model in models:
        yield bad(check, empty_log(model), BUILD)
    layers = [name for path, name in names.items() if name.kind is LogKind.AICORE and name.is_data and files[path]]
    if layers:
        ran = {(name.model, name.model_id) for name in layers}
        yield good(check, f"layers of {counted(len(layers), 'inference')} of {counted(len(ran), 'model')}")
        yield from _sampled(layers)
    elif not models or recorded(names, files) or has_tables(names):
        yield bad(check, *why_no_layers(files))


def job_checks(job: LocalJobFiles, files: Mapping[str, int]) -> Iterator[Finding]:
    """Yield the findings about the JOB's data and about the NPU's clock."""
    yield from job_data(files)
    frequency_mhz = job.frequency_mhz
    if frequency_mhz is None:
        why = "info.json.0, which has the NPU's clock, is missing or unreadable"
        yield bad("job-clock", why)
        return
    yield good("job-clock", f"{frequency_mhz} MHz, from info.json.0")


class JobNet(NamedTuple):
    """Records of one net in one inference.

    `sequence` holds their numbers in the order of the file, `is_batch` one flag for each layer of the net, `sizes` the
    pictures of each batch run.
    """

    sequence: tuple[int, ...]
    is_batch: tuple[bool, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JobInference:
    """Ticks of one inference, and its time on the NPU: from its `.done`, less its CPU segments.

    `may_have_cpu_part` says that a CPU segment may have left no record.
    """

    path: str
    ticks: int
    window_us: int
    may_have_cpu_part: bool = False
    nets: tuple[JobNet, ...] = ()


def inferences_of(job: LocalJobFiles) -> Iterator[JobInference]:
    """Yield inferences that have a `.done`, at most about EXAMINED_INFERENCES of them, spread over the JOB.

    If a model was loaded again, its log has several parts, of which the `.done` describes the last.
    """
    logs = job.inferences
    for path, name in logs[:: max(1, -(-len(logs) // EXAMINED_INFERENCES))]:
        try:
            done = parse_done(job.read(f"{path}.done", LARGEST_DONE_BYTES) or b"", LogKind.AICORE, path)
        except FormatError:
            continue
        data = job.read(path, LARGEST_EXAMINED_LOG_BYTES + 1) or b""
        if 0 < done.file_len <= len(data) <= LARGEST_EXAMINED_LOG_BYTES:
            records = view_records(data[-done.file_len :], AICORE_DTYPE)
            cpu_us = _cpu_us(job, path, done)
            # Several nets mean that the CPU may have worked between them, and its records may be missing.
            is_unsure = not cpu_us and len(np.unique(records["net"])) > 1
            ticks = int(records["ticks"].sum(dtype="u8"))
            window_us = done.end_us - done.start_us - cpu_us
            yield JobInference(path, ticks, window_us, is_unsure, tuple(_nets(job, name, done, records)))


def _nets(job: LocalJobFiles, name: LogName, done: Done, records: Records) -> Iterator[JobNet]:
    join, sizes = job.join(name), _batch_sizes(name, done)
    for net in np.unique(records["net"])[:MOST_NETS].tolist():
        is_batch = None if join is None else join.batch_layers(net)
        if is_batch is not None and sizes and len(is_batch) * sum(sizes) <= MOST_NUMBERED_RECORDS:
            sequence = records["sequence"][records["net"] == net].tolist()
            yield JobNet(tuple(sequence), is_batch, sizes)


def _batch_sizes(name: LogName, done: Done) -> tuple[int, ...]:
    """Return the pictures in each batch run; empty if they are not known, or too many to examine."""
    batch, pictures = name.batch_num or 0, name.input_pic_num or 0
    if done.online_batch_num:
        return done.online_batch_num
    if not 0 < batch <= MOST_NUMBERED_RECORDS or pictures > MOST_NUMBERED_RECORDS:
        return ()
    full, rest = divmod(pictures, batch)
    return (batch,) * full + ((rest,) if rest else ())


def _cpu_us(job: LocalJobFiles, path: str, done: Done) -> int:
    cpu_log = job.cpu_log(path)
    if cpu_log is None:
        return 0
    records = view_records(job.read(cpu_log, LARGEST_EXAMINED_LOG_BYTES) or b"", AICPU_DTYPE)
    spans = set(zip(records["segment_start_us"].tolist(), records["segment_end_us"].tolist(), strict=True))
    return sum(end - start for start, end in spans if done.start_us <= start <= end <= done.end_us)


def _sampled(layers: Sequence[LogName]) -> Iterator[Finding]:
    counts: dict[tuple[str | None, int | None], set[int]] = defaultdict(set)
    for name in layers:
        counts[name.model, name.model_id].add(name.current_pic_count or 0)
    if all(pictures == {0} for pictures in counts.values()):
        yield unknown(
            "job-sampling",
            "only the first inference of each model was recorded: only one ran, or the interval is 0",
        )


# The alternatives of each fact. The readers assume the first one, and misread a JOB for which another is true.
FACTS: Mapping[str, Mapping[str, str]] = {
    "tick-unit": {
        "100-cycles": "a tick is 100 cycles of the NPU's clock",
        "cycle": "a tick is one cycle of the NPU's clock",
        "10-ns": "a tick is 10 ns",
        "us": "a tick is a microsecond",
    },
    "batch-number": {
        "on": "numbers run on over all pictures of a segment",
        "each-batch": "numbers begin again with each batch run",
        "each-picture": "a layer has the same number in each picture",
        "once": "a layer leaves one record for all pictures of a batch run",
    },
}

# An alternative is refuted if more than this share of the votes, and more than one vote, is against it: a single
# inference may have a disturbed record.
REFUTING_SHARE = 0.2
# Shorter inferences are not used: times are whole microseconds, which is too coarse for them.
LEAST_US = 50


class Votes(NamedTuple):
    """Alternatives that each inference allows; `seen` is the evidence in words."""

    seen: str
    votes: Sequence[Collection[str]] = ()


def job_facts(job: LocalJobFiles, about: str) -> Section:
    """Return a finding for each undecided fact that the JOB may confirm or refute."""
    inferences = list(inferences_of(job))
    nets = [each.nets for each in inferences]
    found = {
        "tick-unit": tick_votes(inferences, job.frequency_mhz),
        "batch-number": batch_votes(nets),
    }
    mark = " [simulated: it proves nothing about hardware]" if job.is_simulated else ""
    return Section(f"{about}: facts that nobody knows{mark}", tuple(fact_finding(name, found[name]) for name in FACTS))


def fact_finding(fact: str, found: Votes) -> Finding:
    """Return the finding that the votes give for a fact."""
    alternatives, most_against = FACTS[fact], max(1, REFUTING_SHARE * len(found.votes))
    possible = [name for name in alternatives if sum(name not in vote for vote in found.votes) <= most_against]
    if len(possible) == len(alternatives):
        return unknown(fact, f"cannot tell: {found.seen}")
    refuted = f"refutes {', '.join(name for name in alternatives if name not in possible)}"
    if len(possible) == 1:
        evidence = f"confirms {possible[0]}: {alternatives[possible[0]]}; {refuted}: {found.seen}"
    else:
        evidence = f"{refuted}; left is {' or '.join(possible) or 'none that is known'}: {found.seen}"
    if next(iter(alternatives)) not in possible:
        return bad(fact, evidence)
    return good(fact, evidence) if len(possible) == 1 else unknown(fact, evidence)


def tick_votes(inferences: Sequence[JobInference], frequency_mhz: int | None) -> Votes:
    """Return the tick units that each inference allows: layers take no longer than their inference.

    An NPU that idles looks like one with a longer tick, so a unit that leaves it mostly idle is excluded only where
    another unit fits and some unit is impossible.
    """
    usable = [each for each in inferences if each.window_us >= LEAST_US and each.ticks]
    if not usable or not frequency_mhz:
        return Votes(f"no inference of {LEAST_US} us or more with a .done and the NPU's clock")
    unit_us = {"100-cycles": 100 / frequency_mhz, "cycle": 1 / frequency_mhz, "10-ns": 0.01, "us": 1.0}
    votes = []
    for each in usable:
        took = {name: each.ticks * us for name, us in unit_us.items()}
        allowed = {name for name, us in took.items() if us <= each.window_us * LAYERS_SHARE + SLACK_US}
        likely = {name for name in allowed if took[name] >= LEAST_SHARE * each.window_us}
        is_sure = likely and len(allowed) < len(took) and not each.may_have_cpu_part
        votes.append(likely if is_sure else allowed)
    ratio = median(each.ticks / each.window_us for each in usable)
    shares = ", ".join(f"{ratio * us:.1%} by {name}" for name, us in unit_us.items())
    return Votes(f"layers take of {len(usable)} inferences, at the median, {shares}", votes)


def batch_votes(inferences: Sequence[Sequence[JobNet]]) -> Votes:
    """Return the numberings that each inference with nets of several pictures allows."""
    several = [[net for net in nets if sum(net.sizes) > 1] for nets in inferences]
    first = next((net for nets in several for net in nets), None)
    if first is None:
        return Votes("no inference of several pictures whose layers are known")
    expected = ", ".join(f"{max(numbers)} by {name}" for name, numbers in _numberings(first).items())
    seen = (
        f"{sum(map(len, several))} segments; in the first, of {len(first.is_batch)} layers and {sum(first.sizes)}"
        f" pictures, the highest number is {max(first.sequence)}; expected {expected}"
    )
    votes = [frozenset.intersection(*map(_batch_vote, nets)) for nets in several if nets]
    return Votes(seen, votes)


def _batch_vote(net: JobNet) -> frozenset[str]:
    last, ways = max(net.sequence), _numberings(net)
    allowed = frozenset(name for name, numbers in ways.items() if _may_be(numbers, net.sequence))
    # The last layers may take no time and leave no record, but a whole round of layers does not.
    likely = frozenset(name for name in allowed if max(ways[name]) - last < len(net.is_batch))
    return likely or allowed


def _numberings(net: JobNet) -> Mapping[str, list[int]]:
    batches = [_one_batch(net.is_batch, size) for size in net.sizes]
    return {
        "on": list(range(sum(map(len, batches)))),
        "each-batch": [number for batch in batches for number in range(len(batch))],
        "each-picture": [index for batch in batches for index in batch],
        "once": list(range(len(net.is_batch) * len(batches))),
    }


def _one_batch(is_batch: Sequence[bool], size: int) -> list[int]:
    """Return the layer indices of one batch run in the order of execution.

    Layers between batch layers run once for each picture.
    """
    order: list[int] = []
    for batch, group in groupby(range(len(is_batch)), key=is_batch.__getitem__):
        order += [*group] * (1 if batch else size)
    return order


def _may_be(numbers: Sequence[int], sequence: Sequence[int]) -> bool:
    """Return True if the runtime's filter, and layers that take no time, could reduce `numbers` to `sequence`.

    The filter keeps every record of the highest number that it passes. One number at the end that is too high may be a
    disturbed record.
    """
    is_cut = max(sequence) > max(numbers)
    rest = sequence[:-1] if is_cut else sequence
    left = iter(numbers)
    if not rest or not all(number in left for number in rest):
        return False
    last = max(rest)
    seen, expected = rest.count(last), Counter(numbers)[last]
    return seen <= expected if is_cut else seen == expected

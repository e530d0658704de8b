"""`stats`: what takes the time, over all inferences of a session or of a JOB.

Durations of JOBs are gathered by what an answer is about, without warm-up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from profagent.cli.provenance import provenance_of
from profagent.errors import UsageError
from profagent.formats.countermap import bound_by, largest_pipe, mean_ratios
from profagent.formats.records import NANOSECOND_CLOCK_MHZ, ticks_to_us
from profagent.stats.figures import UNITS, UNKNOWN, Figures, JobRecords, LeftOut, figures_of, left_out, loads_of, sums
from profagent.store.database import pages, readings
from profagent.store.queries import Scope, find_session, jobs_of, layers_of
from profagent.store.series import READERS, call_series, read_series
from profagent.store.sessions import figures_of_session, is_cleared, left_out_of, require_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.store.queries import SessionRow
    from profagent.store.series import RecordSeries

By = Literal["layer", "type", "model", "segment", "aicpu"]
Key = tuple[str, ...]
# What a row is named by.
KEYS: dict[str, tuple[str, ...]] = {
    "layer": ("model", "layer", "type"),
    "type": ("type",),
    "model": ("model",),
    "segment": ("model", "segment", "unit"),
    "aicpu": ("model", "layer", "type"),
    "api": ("function", "type"),
    "step": ("step", "range"),
}
SMALL_CODES = 1 << 16
# The first counters are ratios, those behind are bytes.
RATIOS = 8


def durations_by(job: JobRecords, by: By, keeps: NDArray[np.bool_]) -> Iterator[tuple[Key, NDArray[np.float64]]]:
    """Durations of kept inferences by what they are of, in µs or ticks; a key may come several times.

    `layer` and `type`: of aicore records; `aicpu`: of aicpu records; `model`: of inferences; `segment`: sums over the
    records that a segment has on one unit in one inference.
    """
    series, us = job.series, job.us_per_tick or 1.0
    if by == "model":
        times = job.times()
        for place in loads_of(series):
            kept = times[place][keeps[place] & (times[place] > 0)]
            yield (series.inferences[place[0]].model_name,), kept
    elif by == "segment":
        yield from _segments(job, keeps, series.aicore, UNITS[0], us)
        if job.us_per_tick is not None:
            yield from _segments(job, keeps, series.aicpu, UNITS[1], 1.0)
    elif by == "aicpu":
        yield from _layers(job, "layer", keeps, series.aicpu, 1.0)
    else:
        yield from _layers(job, by, keeps, series.aicore, us)


def ratios_by(
    job: JobRecords, by: By, keeps: NDArray[np.bool_]
) -> Iterator[tuple[Key, NDArray[np.float64], NDArray[np.float64]]]:
    """Ratios, shape (records, ratios), and ticks of some of the kept inferences' records, by keys as above."""
    counters = job.series.counters
    if counters is None or by == "aicpu":
        return
    coded = _Coded(job, counters.records, "net" if by == "segment" else "layer")
    (places,) = keeps[counters.records.inference].nonzero()
    for code, found in split(coded.codes[places], places):
        yield coded.key(by, code, UNITS[0]), counters.values[found, :RATIOS], counters.records.duration[found]


def split(codes: NDArray[np.int64], values: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """The values of each code, codes rising, values in their order; codes are not negative."""
    if not len(codes):
        return
    # numpy sorts 16 bits by counting, which takes a tenth of the time.
    order = np.argsort(codes.astype(np.uint16) if codes.max() < SMALL_CODES else codes, kind="stable")
    ordered = codes[order]
    starts = np.append(0, (ordered[1:] != ordered[:-1]).nonzero()[0] + 1)
    yield from zip(ordered[starts].tolist(), np.split(values[order], starts[1:]), strict=True)


class _Coded:
    """A number for each record that says of which model it is, and of which of its layers or segments."""

    def __init__(self, job: JobRecords, records: RecordSeries, what: Literal["layer", "net"]) -> None:
        self._job = job
        self._models = sorted({inference.model: inference.model_name for inference in job.series.inferences}.items())
        numbers = records.layer if what == "layer" else records.net
        self._width = int(numbers.max(initial=-1)) + 2
        places = {model: place for place, (model, _) in enumerate(self._models)}
        models = np.array([places[inference.model] for inference in job.series.inferences], np.int64)
        self.codes: NDArray[np.int64] = models[records.inference] * self._width + numbers + 1

    def key(self, by: By, code: int, unit: str) -> Key:
        place, number = divmod(code, self._width)
        model, name = self._models[place]
        layer = self._job.layers[model].get(number - 1)
        match by:
            case "model":
                return (name,)
            case "segment":
                return (name, str(number - 1), unit)
            case "type":
                return (UNKNOWN if layer is None else layer.type,)
        return (name, UNKNOWN, UNKNOWN) if layer is None else (name, layer.name, layer.type)


def _layers(
    job: JobRecords, by: By, keeps: NDArray[np.bool_], records: RecordSeries, us: float
) -> Iterator[tuple[Key, NDArray[np.float64]]]:
    kept, coded = keeps[records.inference], _Coded(job, records, "layer")
    for code, durations in split(coded.codes[kept], records.duration[kept]):
        yield coded.key(by, code, ""), durations * us


def _segments(
    job: JobRecords, keeps: NDArray[np.bool_], records: RecordSeries, unit: str, us: float
) -> Iterator[tuple[Key, NDArray[np.float64]]]:
    kept, coded = keeps[records.inference], _Coded(job, records, "net")
    inference, codes = records.inference[kept], coded.codes[kept]
    width = int(codes.max(initial=0)) + 1
    runs, places = np.unique(inference * width + codes, return_inverse=True)
    durations_of = sums(places, records.duration[kept], len(runs))
    for code, durations in split(runs % width, durations_of):
        yield coded.key("segment", code, unit), durations * us


class Row(NamedTuple):
    """The figures of one thing; `share` is of the time of all rows, in %."""

    key: Key
    figures: Figures
    share: float | None
    bound: str | None


class JobRows:
    """What JOBs have together: a JOB's records are let go of before the next ones are read."""

    def __init__(self, by: By, skip: int | None) -> None:
        self._by = by
        self._skip = skip
        self._times: dict[Key, list[NDArray[np.float64]]] = defaultdict(list)
        self._counters: dict[Key, list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = defaultdict(list)
        self._left_out: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        # All JOBs of a session are of one device.
        self._bound: Callable[[NDArray[np.float64]], str | None] = bound_by

    def add(self, job: JobRecords) -> None:
        """Take a JOB in."""
        self._bound = job.bound
        keeps, found = left_out(job, self._skip)
        for model, inferences, number in found:
            self._left_out[model][0] += inferences
            self._left_out[model][1] += number
        for key, durations in durations_by(job, self._by, keeps):
            self._times[key].append(durations)
        for key, ratios, ticks in ratios_by(job, self._by, keeps):
            self._counters[key].append((ratios, ticks))

    def rows(self) -> list[Row]:
        """A row for each key that the JOBs have, by falling total."""
        bounds = {}
        for key, parts in self._counters.items():
            ratios, ticks = (np.concatenate(column) for column in zip(*parts, strict=True))
            bounds[key] = self._bound(mean_ratios(ratios, ticks))
        return _with_shares({key: figures_of(np.concatenate(parts)) for key, parts in self._times.items()}, bounds)

    def left_out(self) -> list[LeftOut]:
        """What is left out of each model over all JOBs."""
        return [LeftOut(model, *sums) for model, sums in self._left_out.items()]


def call_rows(calls: Iterable[tuple[Key, NDArray[np.float64], int]]) -> list[Row]:
    """A row for each function from its calls' known durations and how many calls there are; keys may be repeated."""
    parts: dict[Key, list[NDArray[np.float64]]] = defaultdict(list)
    counts: Counter[Key] = Counter()
    for key, durations, count in calls:
        parts[key].append(durations)
        counts[key] += count
    return _with_shares({key: figures_of(np.concatenate(found), counts[key]) for key, found in parts.items()}, {})


def _with_shares(figures: Mapping[Key, Figures], bounds: Mapping[Key, str | None]) -> list[Row]:
    all_time = sum(row.total or 0.0 for row in figures.values())
    rows = [
        Row(key, row, row.total / all_time * 100 if row.total is not None and all_time else None, bounds.get(key))
        for key, row in figures.items()
    ]
    return sorted(rows, key=lambda row: (-(row.figures.total or 0.0), row.key))


# A step of a program is what a Profiler calls one; beside these, a span or range that no other of its thread holds.
_RANGES = (
    "SELECT process, thread, lane, kind = 'step', name, start_us, end_us, duration_us FROM ranges"
    " WHERE session = ? AND kind <> 'mark' AND duration_us IS NOT NULL"
    " ORDER BY process, start_us, end_us DESC, kind <> 'step'"
)


class _Range(NamedTuple):
    process: int
    thread: int
    lane: int
    is_step: int
    name: str
    start_us: float
    end_us: float
    duration_us: float


class _Steps:
    """Durations by step and range; ranges come by process and start, those that hold others first."""

    def __init__(self) -> None:
        self.durations: dict[Key, list[float]] = defaultdict(list)
        self._process = 0
        # Of a process, the last step of its Profiler; of a thread and lane, the last outermost range.
        self._open: dict[tuple[int, int] | None, _Range] = {}

    def take(self, found: _Range) -> None:
        """A range is a step, or is in one."""
        if found.process != self._process:
            self._process = found.process
            self._open.clear()
        own = None if found.is_step else (found.thread, found.lane)
        for key in (None, own, (found.thread, 0)):
            holder = self._open.get(key)
            if holder is not None and found.end_us <= holder.end_us and not found.is_step:
                self.durations[holder.name, found.name].append(found.duration_us)
                return
        self._open[own] = found
        # What has ended holds no other.
        self._open = {key: each for key, each in self._open.items() if each.end_us > found.start_us}
        self.durations[found.name, ""].append(found.duration_us)


async def _step_rows(connection: aiosqlite.Connection, session: int) -> list[Row]:
    """For each step's name, then its ranges; the share is of all steps, or of that step."""
    steps = _Steps()
    async for page in pages(connection, _RANGES, (session,)):
        for row in page:
            steps.take(_Range._make(row))
    figures = {key: figures_of(np.array(found)) for key, found in steps.durations.items()}
    totals = {step: row.total or 0.0 for (step, name), row in figures.items() if not name}
    all_time = sum(totals.values())
    rows = []
    for (step, name), row in figures.items():
        whole = totals[step] if name else all_time
        rows.append(Row((step, name), row, (row.total or 0.0) / whole * 100 if whole else None, None))
    return sorted(
        rows, key=lambda row: (-totals[row.key[0]], row.key[0], row.key[1] != "", -(row.figures.total or 0.0))
    )


StatsBy = By | Literal["api", "step"]
BYS: tuple[StatsBy, ...] = (*get_args(By), "api", "step")
# What is not of inferences.
NOT_OF_INFERENCES = ("api", "step")
Unit = Literal["us", "ticks"]
# What is asked of each aicore record; all else of sums over these.
_OF_AICORE_LAYERS = ("layer", "type")


@dataclass(frozen=True, slots=True)
class Stats:
    """Rows by falling total, in `unit`; what was left out, and where each JOB's figures come from.

    `is_simulated`: the figures are invented.
    """

    by: StatsBy
    unit: Unit
    rows: list[Row]
    left_out: list[LeftOut]
    provenance: list[dict[str, Any]]
    is_simulated: bool


async def stats(
    database: Path,
    *,
    session: int | None = None,
    job: str | None = None,
    by: StatsBy = "layer",
    skip: int | None = None,
) -> Stats:
    """The figures of the session's JOBs together, or of one, by what `by` says; `session` None is the newest.

    Of each load so many inferences are left out, None: its warm-up.

    Raises UsageError where there is no such session or JOB, or `skip` goes with API calls, and StoreError.
    """
    if by in NOT_OF_INFERENCES and skip is not None:
        raise UsageError(f"--skip does not go with --by {by}", hint="it is not told apart by inference: leave it out")
    async with readings(database, READERS) as readers:
        connection = readers[0]
        found = await find_session(connection, session)
        if await is_cleared(connection, found.session):
            return await _kept(connection, found, by, job=job, skip=skip)
        is_simulated = found.simulated
        scopes = [Scope(found, row) for row in await jobs_of(connection, found.session, job)]
        provenance = [await provenance_of(connection, scope) for scope in scopes]
        # Beside what was recorded stands what another tool told.
        if by == "step":
            steps = await _step_rows(connection, found.session)
            return Stats(by, "us", steps + await _told(connection, found.session, by), [], provenance, is_simulated)
        if by == "api":
            calls = [call for scope in scopes for call in await call_series(connection, scope)]
            return Stats(
                by, "us", call_rows(calls) + await _told(connection, found.session, by), [], provenance, is_simulated
            )
        unit: Unit = "ticks" if by != "aicpu" and _is_unknown(scopes) else "us"
        in_us, has_layers = not _is_unknown(scopes), by in _OF_AICORE_LAYERS
        rows = JobRows(by, skip)
        for scope in scopes:
            rows.add(await records_of(readers, scope, in_us=in_us, has_layers=has_layers))
        return Stats(by, unit, rows.rows(), rows.left_out(), provenance, is_simulated)


async def _kept(
    connection: aiosqlite.Connection, session: SessionRow, by: StatsBy, *, job: str | None, skip: int | None
) -> Stats:
    if job is not None or skip is not None:
        raise UsageError(
            f"session {session.session} has its figures only: `profagent gc` deleted its records",
            hint="leave --job and --skip out",
        )
    kept = await figures_of_session(connection, session.session, by)
    rows = await _told(connection, session.session, by)
    unit: Unit = "ticks" if kept and kept[0][0] == "ticks" else "us"
    left_out = (
        [LeftOut(*row) for row in await left_out_of(connection, session.session)] if by not in NOT_OF_INFERENCES else []
    )
    jobs = await jobs_of(connection, session.session)
    provenance = [await provenance_of(connection, Scope(session, row)) for row in jobs]
    return Stats(by, unit, rows, left_out, provenance, session.simulated)


async def _told(connection: aiosqlite.Connection, session: int, by: StatsBy) -> list[Row]:
    """Figures that are kept as they are."""
    kept = await figures_of_session(connection, session, by)
    return [Row(key, Figures(*figures), share, bound) for _, key, *figures, share, bound in kept]


async def records_of(
    readers: Sequence[aiosqlite.Connection], scope: Scope, *, in_us: bool, has_layers: bool = True
) -> JobRecords:
    """A JOB's records with the layers of its models; durations on the NPU are in µs where they can be, else ticks.

    Without layers those of the NPU are one for each segment.
    """
    await require_records(readers[0], scope.session.session)
    series = await read_series(readers, scope, has_layers=has_layers)
    layers = {model: await layers_of(readers[0], model) for model in {row.model for row in series.inferences}}
    frequency_mhz = scope.job.frequency_mhz
    us_per_tick = ticks_to_us(1, frequency_mhz) if in_us and frequency_mhz else None
    bound = largest_pipe if frequency_mhz == NANOSECOND_CLOCK_MHZ else bound_by
    return JobRecords(series, layers, us_per_tick, bound)


def _is_unknown(scopes: Sequence[Scope]) -> bool:
    """Whether a JOB's frequency is, and so how long a tick takes."""
    return any(not scope.job.frequency_mhz for scope in scopes)

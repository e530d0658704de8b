"""`stats`: what takes the time, over all inferences of a session or of a JOB.

Durations of JOBs are gathered by what an answer is about, without warm-up.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from profagent.cli.provenance import provenance_of
from profagent.errors import UsageError
from profagent.formats.countermap import RATIOS, bound_by, largest_pipe, mean_ratios
from profagent.formats.inference_times import (
    NOT_IN_ANY_LAYER,
    LatencyFrom,
    Parts,
    joined_spans,
    latency_of,
    pace_of,
    share_within,
)
from profagent.formats.records import NANOSECOND_CLOCK_MHZ, is_on_ai_cpu, ticks_to_us
from profagent.limits import READERS
from profagent.stats.figures import UNITS, UNKNOWN, Column, Figures, JobRecords, LeftOut, figures_of, left_out
from profagent.store.database import pages, readings
from profagent.store.queries import Scope, find_session, jobs_of, layers_of
from profagent.store.series import CallSeries, call_series, read_series
from profagent.store.sessions import figures_of_session, is_cleared, left_out_of, require_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.formats.inference_times import Latency, Spans
    from profagent.stats.figures import ModelTimes
    from profagent.store.queries import LayerRow, SessionRow
    from profagent.store.series import RecordSeries

By = Literal["layer", "type", "model", "device", "segment", "aicpu"]
Key = tuple[str, ...]
Unit = Literal["us", "ticks"]
# What a row that is of no layer has for a layer's type or unit.
NONE = "-"
# What a row is named by.
KEYS: dict[str, tuple[str, ...]] = {
    "layer": ("model", "layer", "type", "unit"),
    "type": ("model", "type", "unit"),
    "model": ("model",),
    "device": ("model", "device"),
    "segment": ("model", "segment", "unit"),
    "aicpu": ("model", "layer", "type"),
    "api": ("function", "type"),
    "step": ("step", "range"),
}
# Rows are inferences, whose figures are of their latency.
OF_WHOLE_INFERENCES = ("model", "device")
SMALL_CODES = 1 << 16


def durations_by(job: JobRecords, by: By, keeps: NDArray[np.bool_]) -> Iterator[tuple[Key, NDArray[np.float64]]]:
    """Durations of kept inferences' records by what they are of, in µs or ticks; a key may come several times.

    `layer`, `type`: of both units, in ticks of the NPU alone; `aicpu`: of the CPU, in µs. By `segment` a duration is
    the sum of a segment's layers in an inference. By `model` and `device` there are none: an inference has two times.
    """
    if by == "segment":
        for model in job.models(keeps):
            for key, places in _grouped(model, by).items():
                yield key, model.completed[:, places].sum(axis=1)[~np.isnan(model.times[:, places]).all(axis=1)]
    elif by == "aicpu":
        yield from _layers(job, by, keeps, (UNITS[1], job.series.aicpu, 1.0))
    elif by not in OF_WHOLE_INFERENCES:
        for unit in job.units():
            yield from _layers(job, by, keeps, unit)


def ratios_by(
    job: JobRecords, by: By, keeps: NDArray[np.bool_]
) -> Iterator[tuple[Key, NDArray[np.float64], NDArray[np.float64]]]:
    """Ratios, shape (records, ratios), and ticks of some of the kept inferences' records, by keys as above."""
    counters = job.series.counters
    if counters is None or by == "aicpu":
        return
    coded = _Coded(job, counters.records, "net" if by == "segment" else "layer")
    (places,) = keeps[counters.records.inference].nonzero()
    inferences = counters.records.inference
    for device, of_device in _of_devices(job, by, inferences[places]):
        for code, found in split(coded.codes[places[of_device]], places[of_device]):
            key = (*coded.key(by, code, UNITS[0]), *device)
            yield key, counters.values[found, : len(RATIOS)], counters.records.duration[found]


def _of_devices(job: JobRecords, by: By, inferences: NDArray[np.int64]) -> Iterator[tuple[Key, NDArray[np.int64]]]:
    """The places of inferences by device, which their key ends with; of other rows than `device` all at once."""
    if by != "device":
        yield (), np.arange(len(inferences))
        return
    devices = np.array([each.device_id for each in job.series.inferences], np.int64)[inferences]
    for device in np.unique(devices).tolist():
        yield (str(device),), (devices == device).nonzero()[0]


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
        # By segment the number is a net's, of which no layer is asked.
        return _key(by, name, self._job.layers[model].get(number - 1), Column(unit, number - 1, -1))


def _key(by: By, model: str, layer: LayerRow | None, column: Column) -> Key:
    """Return the key of a layer's row; `layer` is None where the model's table has none."""
    name, kind = (UNKNOWN, UNKNOWN) if layer is None else (layer.name, layer.type)
    # Another tool tells by the type that a layer ran on the CPU.
    unit = UNITS[1] if is_on_ai_cpu(kind) else column.unit
    match by:
        case "model" | "device":
            return (model,)
        case "segment":
            return (model, str(column.net), column.unit)
        case "type":
            return (model, kind, unit)
        case "aicpu":
            return (model, name, kind)
    return (model, name, kind, unit)


def _grouped(model: ModelTimes, by: By) -> dict[Key, list[int]]:
    """The places of a model's columns by what rows are of."""
    found: dict[Key, list[int]] = defaultdict(list)
    for place, column in enumerate(model.columns):
        if by != "aicpu" or column.unit == UNITS[1]:
            found[_key(by, model.name, model.table.get(column.layer), column)].append(place)
    return found


def _layers(
    job: JobRecords, by: By, keeps: NDArray[np.bool_], of: tuple[str, RecordSeries, float]
) -> Iterator[tuple[Key, NDArray[np.float64]]]:
    unit, records, us = of
    kept, coded = keeps[records.inference], _Coded(job, records, "layer")
    for code, durations in split(coded.codes[kept], records.duration[kept]):
        yield coded.key(by, code, unit), durations * us


class ModelFigures(NamedTuple):
    """The two times of a model's inferences, and their pace.

    `latency` is in µs, of the inferences whose latency is known; `layers`, the sum of an inference's layers, of all of
    them, in µs or in ticks of the NPU. `recorded` of the layers in the model's table (`of_layers`; both None without
    one) have a record in any of the inferences; `lacking` is how many inferences lack the record of a layer that most
    have. `gap_us` lies between an inference and the next. `device`: they are of that one alone, else of all `devices`.
    """

    model: str
    inferences: int
    latency: Figures
    latency_from: LatencyFrom | None
    per_second: float | None
    gap_us: float | None
    layers: Figures
    layers_unit: Unit
    recorded: int | None
    of_layers: int | None
    lacking: int
    device: str | None = None
    devices: int = 1

    @property
    def key(self) -> Key:
        """The row that has these figures, where rows are inferences."""
        return (self.model,) if self.device is None else (self.model, self.device)

    @property
    def name(self) -> str:
        """The model, with its device where they are of one."""
        return self.model if self.device is None else f"{self.model}, device {self.device}"

    @property
    def parts(self) -> Parts:
        """The parts of the mean inference."""
        latency_us = self.latency.mean if self.layers_unit == "us" else None
        return Parts(self.layers.mean or 0.0, latency_us)


class _Ran(NamedTuple):
    """When a model's inferences of a JOB ran, as of `ModelTimes`."""

    whole: Spans
    calls: Spans
    loads: NDArray[np.int64]
    ran_before: NDArray[np.float64]


class _Model:
    """A model's inferences of several JOBs, without the records."""

    def __init__(self, key: Key, by: By) -> None:
        self._key, self._by = key, by
        self._jobs: list[_Ran] = []
        self._layers: list[NDArray[np.float64]] = []
        self._recorded, self._of_layers, self._lacking = 0, 0, 0
        self._devices: set[Key] = set()
        # The time of each row's columns over all inferences.
        self._sums: dict[Key, float] = defaultdict(float)

    def add(self, model: ModelTimes, devices: Iterable[Key]) -> None:
        """Take the inferences of a JOB in, which are of these devices."""
        self._devices.update(devices)
        self._jobs.append(_Ran(model.whole, model.calls, model.loads, model.ran_before))
        self._layers.append(model.completed.sum(axis=1))
        self._recorded = max(self._recorded, len({column.layer for column in model.columns if column.layer >= 0}))
        self._of_layers = max(self._of_layers, len(model.table))
        self._lacking += int((np.isnan(model.times) & (model.completed > 0)).any(axis=1).sum())
        for key, places in _grouped(model, self._by).items():
            self._sums[key] += float(model.completed[:, places].sum())

    def _latency(self) -> Latency:
        return latency_of(
            joined_spans([job.whole for job in self._jobs]), joined_spans([job.calls for job in self._jobs])
        )

    def figures(self, unit: Unit) -> ModelFigures:
        """Return the figures of all inferences that were taken in; `unit` is that of the layers."""
        latency, layers = self._latency(), np.concatenate(self._layers)
        known = latency.us[~np.isnan(latency.us)]
        pace = pace_of(
            ((job.calls if latency.origin is LatencyFrom.CALL else job.whole).at(found), job.ran_before[found])
            for job in self._jobs
            for _, found in split(job.loads, np.arange(len(job.loads)))
        )
        return ModelFigures(
            self._key[0],
            len(layers),
            figures_of(known),
            latency.origin,
            *pace,
            figures_of(layers),
            unit,
            self._recorded if self._of_layers else None,
            self._of_layers or None,
            self._lacking,
            self._key[1] if len(self._key) > 1 else None,
            len(self._devices),
        )

    def times(self) -> NDArray[np.float64]:
        """Latency, begin to end of the records, and layers of each inference, NaN where one is not known."""
        whole = joined_spans([job.whole for job in self._jobs])
        return np.stack([self._latency().us, whole.us, np.concatenate(self._layers)], axis=1)

    def times_in_inference(self) -> dict[Key, float]:
        """Return the time that the mean inference spends on each row's layers."""
        inferences = sum(map(len, self._layers))
        return {key: total / inferences for key, total in self._sums.items()}

    def rest(self) -> Figures:
        """Return the figures of the time that no layer explains, in inferences whose latency is known."""
        rest = self._latency().us - np.concatenate(self._layers)
        return figures_of(rest[~np.isnan(rest)])


class Row(NamedTuple):
    """The figures of one thing.

    `in_inference` is what it takes in the mean inference of its model, `share` that in % of the inference. Where it is
    None the row is of no inference: the share is of the total of all rows. `own`, of the runtime's functions alone, is
    the total without calls inside their calls, and the share is of that of all rows.
    """

    key: Key
    figures: Figures
    share: float | None
    bound: str | None
    in_inference: float | None = None
    own: float | None = None


class JobRows:
    """Rows of several JOBs together: a JOB's records are freed before the next are read. Durations are in `unit`."""

    def __init__(self, by: By, skip: int | None, unit: Unit) -> None:
        self._by, self._skip, self._unit = by, skip, unit
        self._times: dict[Key, list[NDArray[np.float64]]] = defaultdict(list)
        self._counters: dict[Key, list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = defaultdict(list)
        self._models: dict[Key, _Model] = {}
        self._left_out: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        # All JOBs of a session are of one device.
        self._bound: Callable[[NDArray[np.float64]], str | None] = bound_by

    def add(self, job: JobRecords) -> list[ModelTimes]:
        """Take a JOB in; gives its models' inferences without warm-up."""
        self._bound = job.bound
        keeps, found = left_out(job, self._skip)
        for model, inferences, number in found:
            self._left_out[model][0] += inferences
            self._left_out[model][1] += number
        models = job.models(keeps, is_of_cpu=self._by == "aicpu")
        for times in models:
            for device, found_places in _of_devices(job, self._by, times.places):
                key = (times.name, *device)
                ours = times.at(found_places)
                devices = (device for device, _ in _of_devices(job, "device", ours.places))
                self._models.setdefault(key, _Model(key, self._by)).add(ours, devices)
        for key, durations in durations_by(job, self._by, keeps):
            self._times[key].append(durations)
        for key, ratios, ticks in ratios_by(job, self._by, keeps):
            self._counters[key].append((ratios, ticks))
        return models

    def inference_times(self) -> Iterator[tuple[str, NDArray[np.float64]]]:
        """Give of each model's inferences latency, begin to end of the records, and layers, shape (inferences, 3)."""
        for key, model in self._models.items():
            yield key[0], model.times()

    def durations(self) -> dict[Key, NDArray[np.float64]]:
        """Return the durations of the records that each row is of."""
        return {key: np.concatenate(parts) for key, parts in self._times.items()}

    def models(self) -> list[ModelFigures]:
        """The figures of each model, what takes most time first."""
        found = [model.figures(self._unit) for model in self._models.values()]
        return sorted(found, key=lambda each: (-(each.latency.total or 0.0), -(each.layers.total or 0.0), each.key))

    def rows(self) -> list[Row]:
        """A row for each key that the JOBs have, by falling time in an inference; the rest of each model in the end."""
        bounds = self._bounds()
        if self._by in OF_WHOLE_INFERENCES:
            return [Row(each.key, each.latency, None, bounds.get(each.key)) for each in self.models()]
        rows, rests = [], []
        for each in self.models():
            parts = each.parts
            for key, time in self._models[each.key].times_in_inference().items():
                figures = figures_of(np.concatenate(self._times[key]))
                rows.append(Row(key, figures, parts.share(time), bounds.get(key), time))
            if parts.rest_us is not None and self._by != "aicpu":
                key = (each.model, NOT_IN_ANY_LAYER, *[NONE] * (len(KEYS[self._by]) - 2))
                rest = self._models[each.key].rest()
                rests.append(Row(key, rest, parts.share(parts.rest_us), None, parts.rest_us))
        return [*sorted(rows, key=lambda row: (-(row.in_inference or 0.0), row.key)), *rests]

    def left_out(self) -> list[LeftOut]:
        """What is left out of each model over all JOBs."""
        return [LeftOut(model, *sums) for model, sums in self._left_out.items()]

    def _bounds(self) -> dict[Key, str | None]:
        bounds = {}
        for key, parts in self._counters.items():
            ratios, ticks = (np.concatenate(column) for column in zip(*parts, strict=True))
            bounds[key] = self._bound(mean_ratios(ratios, ticks))
        return bounds


def call_rows(calls: Iterable[CallSeries]) -> list[Row]:
    """A row for each function; keys may be repeated. Shares are of the time that is no other call's."""
    parts: dict[Key, list[CallSeries]] = defaultdict(list)
    for each in calls:
        parts[each.key].append(each)
    own = {key: sum(float(each.own.sum()) for each in found) for key, found in parts.items()}
    all_time = sum(own.values())
    rows = []
    for key, found in parts.items():
        figures = figures_of(np.concatenate([each.duration for each in found]), sum(each.number for each in found))
        is_known = figures.total is not None
        share = own[key] / all_time * 100 if is_known and all_time else None
        rows.append(Row(key, figures, share, None, own=own[key] if is_known else None))
    return sorted(rows, key=lambda row: (-(row.own or 0.0), row.key))


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
    """For each step's name, then its ranges; the share is of all steps, or of that step.

    Ranges of several threads at once may take longer together than their step, of which they are no share then.
    """
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
        rows.append(Row((step, name), row, share_within(row.total or 0.0, whole), None))
    return sorted(
        rows, key=lambda row: (-totals[row.key[0]], row.key[0], row.key[1] != "", -(row.figures.total or 0.0))
    )


StatsBy = By | Literal["api", "step"]
BYS: tuple[StatsBy, ...] = (*get_args(By), "api", "step")
# Latencies, and what is of the CPU, are in µs whatever a tick of the NPU is.
_IN_US = (*OF_WHOLE_INFERENCES, "aicpu")
# What is not of inferences.
NOT_OF_INFERENCES = ("api", "step")


@dataclass(frozen=True, slots=True)
class Stats:
    """Rows in `unit`, the largest first; what was left out, and where each JOB's figures come from.

    `models` has what shares are of; none where rows are of no inferences. `is_simulated`: the figures are invented.
    """

    by: StatsBy
    unit: Unit
    rows: list[Row]
    left_out: list[LeftOut]
    provenance: list[dict[str, Any]]
    is_simulated: bool
    models: list[ModelFigures] = field(default_factory=list)

    def abouts(self) -> list[str | None]:
        """Return what else is kept of each row, as JSON: of a model all but its latency, of a function its own time."""
        if self.by == "api":
            return [None if row.own is None else json.dumps({"own": row.own}) for row in self.rows]
        if self.by not in OF_WHOLE_INFERENCES:
            return [None] * len(self.rows)
        return [
            json.dumps({name: value for name, value in each._asdict().items() if name != "latency"})
            for each in self.models
        ]


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
        in_us = not _is_unknown(scopes)
        rows = JobRows(by, skip, "us" if in_us or by == "aicpu" else "ticks")
        for scope in scopes:
            rows.add(await records_of(readers, scope, in_us=in_us))
        unit: Unit = "us" if in_us or by in _IN_US else "ticks"
        # Of the CPU's layers alone nobody can tell what no layer explains.
        models = rows.models() if in_us or by != "aicpu" else []
        return Stats(by, unit, rows.rows(), rows.left_out(), provenance, is_simulated, models)


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
    is_of_inferences = by not in NOT_OF_INFERENCES
    left_out = [LeftOut(*row) for row in await left_out_of(connection, session.session)] if is_of_inferences else []
    of_models: By = "device" if by == "device" else "model"
    models = await _kept_models(connection, session.session, of_models) if is_of_inferences else []
    jobs = await jobs_of(connection, session.session)
    provenance = [await provenance_of(connection, Scope(session, row)) for row in jobs]
    return Stats(by, unit, rows, left_out, provenance, session.simulated, models)


async def _told(connection: aiosqlite.Connection, session: int, by: StatsBy) -> list[Row]:
    """Figures that are kept as they are."""
    kept = await figures_of_session(connection, session, by)
    return [
        Row(key, Figures(*figures), share, bound, time, json.loads(about)["own"] if by == "api" and about else None)
        for _, key, *figures, share, bound, time, about in kept
    ]


async def _kept_models(connection: aiosqlite.Connection, session: int, by: By) -> list[ModelFigures]:
    """The figures of each model, or of each on each device, with what `Stats.abouts` tells."""
    found = []
    for _, _, *figures, _, _, _, about in await figures_of_session(connection, session, by):
        known = json.loads(about)
        origin = known["latency_from"] and LatencyFrom(known["latency_from"])
        known |= {"latency": Figures(*figures), "latency_from": origin, "layers": Figures(*known["layers"])}
        found.append(ModelFigures(**known))
    return found


async def records_of(readers: Sequence[aiosqlite.Connection], scope: Scope, *, in_us: bool) -> JobRecords:
    """A JOB's records with the layers of its models; durations on the NPU are in µs where they can be, else ticks."""
    await require_records(readers[0], scope.session.session)
    series = await read_series(readers, scope)
    layers = {model: await layers_of(readers[0], model) for model in {row.model for row in series.inferences}}
    frequency_mhz = scope.job.frequency_mhz
    us_per_tick = ticks_to_us(1, frequency_mhz) if in_us and frequency_mhz else None
    bound = largest_pipe if frequency_mhz == NANOSECOND_CLOCK_MHZ else bound_by
    return JobRecords(series, layers, us_per_tick, bound)


def _is_unknown(scopes: Sequence[Scope]) -> bool:
    """Whether a JOB's frequency is, and so how long a tick takes."""
    return any(not scope.job.frequency_mhz for scope in scopes)

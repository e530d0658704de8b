"""`stats`: where the time goes, over all inferences of a session or of a JOB, without warm-up."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np

from profagent.errors import UsageError
from profagent.formats.inference_times import LatencyFrom, share_within
from profagent.ingest.marks import TIMED_RANGES
from profagent.limits import READERS
from profagent.stats.figures import DurationFigures, LeftOut, figures_of
from profagent.stats.frames import FrameFigures, frame_figures, frame_rows, frame_times
from profagent.stats.records import ApiCalls, calls_by_function, read_jobs
from profagent.stats.session_figures import OF_WHOLE_INFERENCES, By, ModelFigures, Row, SessionFigures
from profagent.stats.thinned import refuse_skip, thinned_of
from profagent.store.database import pages, readings
from profagent.store.queries import Scope, find_session, jobs_of
from profagent.store.sessions import figures_of_session, is_cleared, left_out_of
from profagent.tables.provenance import provenance_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from pathlib import Path

    import aiosqlite

    from profagent.stats.figures import JobRecords
    from profagent.stats.session_figures import Key, StatsBy, Unit
    from profagent.store.database import Running
    from profagent.store.queries import SessionRow


def call_rows(calls: Iterable[ApiCalls]) -> list[Row]:
    """Return a row for each function; a key may stand in several of the calls that are passed.

    Shares are of the time that calls take without the calls inside them.
    """
    parts: dict[Key, list[ApiCalls]] = defaultdict(list)
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
    """Durations by step and range; ranges must come by process and start, an enclosing range before the enclosed."""

    def __init__(self) -> None:
        # In µs, by the names of a step and of a range in it; the range is empty for the step itself.
        self.durations: dict[Key, list[float]] = defaultdict(list)
        # The process whose ranges come now.
        self._process = 0
        # The enclosing ranges that are open: the process's last step under None, others by thread and lane.
        # They are of one process only, as its ranges come in one piece.
        self._open: dict[tuple[int, int] | None, _Range] = {}

    def take(self, found: _Range) -> None:
        """Add a range, as a step or to the step that encloses it."""
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
        # A range that has ended encloses no later one, so it is dropped: the table stays as small as the nesting.
        self._open = {key: each for key, each in self._open.items() if each.end_us > found.start_us}
        self.durations[found.name, ""].append(found.duration_us)


async def _step_rows(connection: aiosqlite.Connection, session: int) -> list[Row]:
    """Return the rows of each step's name, each followed by its ranges.

    The share of a step is of all steps, that of a range of its step. Ranges of parallel threads may together take
    longer than their step: these have no share.
    """
    steps = _Steps()
    async for page in pages(connection, TIMED_RANGES, (session,)):
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


BYS: tuple[StatsBy, ...] = (*get_args(By), "api", "step", "frame")
# Latencies and times of the CPU are in µs, whether or not the tick of the NPU is known.
_IN_US = (*OF_WHOLE_INFERENCES, "aicpu")
# Rows that do not come from inferences.
NOT_OF_INFERENCES = ("api", "step", "frame")


@dataclass(frozen=True, slots=True)
class Stats:
    """The answer to one question: rows in `unit`, largest first, what was left out, and the provenance of each JOB.

    `models` has the figures that shares refer to; it is empty where rows are not of inferences. `frames` has those of
    whole frames, where rows are of their parts.
    """

    by: StatsBy
    unit: Unit
    rows: list[Row]
    left_out: list[LeftOut]
    provenance: list[dict[str, Any]]
    is_simulated: bool
    models: list[ModelFigures] = field(default_factory=list)
    frames: list[FrameFigures] = field(default_factory=list)

    def abouts(self) -> list[str | None]:
        """Return the further values of each row as JSON, for rows that are stored.

        Of a model these are all values but its latency, of a function its own time; the first part of frames has the
        figures of the frames.
        """
        if self.by == "frame":
            whole = json.dumps([each.document() for each in self.frames])
            return [None if place else whole for place in range(len(self.rows))]
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
    """Return the figures of a session (None: the newest), or of one of its JOBs, grouped by `by`.

    `skip` inferences of each load are left out; with None its warm-up.

    Raises UsageError if there is no such session or JOB, or if `skip` goes with API calls, and StoreError.
    """
    if by in NOT_OF_INFERENCES and skip is not None:
        raise UsageError(f"--skip does not go with --by {by}", hint="it is not grouped by inference: leave it out")
    async with readings(database, READERS) as readers:
        connection = readers[0]
        found = await find_session(connection, session)
        if await is_cleared(connection, found.session):
            return await stats_of_cleared(connection, found, by, job=job, skip=skip)
        scopes = [Scope(found, row) for row in await jobs_of(connection, found.session, job)]
        provenance = [await provenance_of(connection, scope) for scope in scopes]
        figures = await gathered(readers, scopes, (by,), skip)
        return await answered(connection, found, scopes, provenance, figures, by)


async def gathered(
    readers: Sequence[Running],
    scopes: Sequence[Scope],
    bys: Iterable[StatsBy],
    skip: int | None = None,
    seen: Callable[[Scope, JobRecords], Awaitable[None]] | None = None,
) -> SessionFigures:
    """Read the records of JOBs once for answers by all of `bys`; `seen` is awaited with each JOB before it is freed."""
    bys = frozenset(bys)
    thinned = [each for scope in scopes for each in await thinned_of(readers[0], scope)]
    refuse_skip(skip, thinned)
    # What a flight recorder has thinned includes the warm-up, so that nothing is left out of the rest either.
    skip = 0 if thinned else skip
    figures = SessionFigures(bys, skip, in_us=all(scope.job.frequency_mhz for scope in scopes))
    for each in thinned:
        figures.add_thinned(each)
    asked = [] if bys.issubset(NOT_OF_INFERENCES) else scopes
    async with aclosing(read_jobs(readers, asked, in_us=figures.in_us)) as jobs:
        async for scope, job in jobs:
            await asyncio.to_thread(figures.add, job)
            if seen is not None:
                await seen(scope, job)
    return figures


async def answered(
    connection: Running,
    session: SessionRow,
    scopes: Sequence[Scope],
    provenance: list[dict[str, Any]],
    figures: SessionFigures,
    by: StatsBy,
) -> Stats:
    """Return the figures grouped by `by`; figures that do not come from inferences are read here.

    API calls and steps that another tool's results contain are added to those that were recorded.
    """
    if by == "frame":
        times, joined_by = await frame_times(connection, session.session)
        found, rows = frame_figures(times, joined_by), frame_rows(times)
        return Stats(by, "us", rows, [], provenance, session.simulated, frames=found)
    if by == "step":
        rows = await _step_rows(connection, session.session)
    elif by == "api":
        rows = call_rows([call for scope in scopes for call in await calls_by_function(connection, scope)])
    else:
        unit: Unit = "us" if by in _IN_US else figures.unit(by)
        # The CPU's layers alone do not show how much of an inference no layer explains.
        models = figures.models(by) if figures.in_us or by != "aicpu" else []
        return Stats(by, unit, figures.rows(by), figures.left_out(), provenance, session.simulated, models)
    return Stats(
        by, "us", rows + await _stored_rows(connection, session.session, by), [], provenance, session.simulated
    )


async def stats_of_cleared(
    connection: Running, session: SessionRow, by: StatsBy, *, job: str | None, skip: int | None
) -> Stats:
    """Return the figures that remain of a session whose records were deleted; raise UsageError for a part of it."""
    if job is not None or skip is not None:
        raise UsageError(
            f"session {session.session} has only its figures: `profagent gc` deleted its records",
            hint="leave --job and --skip out",
        )
    found = await figures_of_session(connection, session.session, by)
    rows = await _stored_rows(connection, session.session, by)
    unit: Unit = "ticks" if found and found[0][0] == "ticks" else "us"
    is_of_inferences = by not in NOT_OF_INFERENCES
    left_out = [LeftOut(*row) for row in await left_out_of(connection, session.session)] if is_of_inferences else []
    of_models: By = "device" if by == "device" else "model"
    models = await _stored_models(connection, session.session, of_models) if is_of_inferences else []
    jobs = await jobs_of(connection, session.session)
    provenance = [await provenance_of(connection, Scope(session, row)) for row in jobs]
    frames = await _stored_frames(connection, session.session) if by == "frame" else []
    return Stats(by, unit, rows, left_out, provenance, session.simulated, models, frames)


async def _stored_frames(connection: aiosqlite.Connection, session: int) -> list[FrameFigures]:
    abouts = [about for *_, about in await figures_of_session(connection, session, "frame") if about]
    return [FrameFigures.of_document(each) for about in abouts for each in json.loads(about)]


async def _stored_rows(connection: aiosqlite.Connection, session: int, by: StatsBy) -> list[Row]:
    stored = await figures_of_session(connection, session, by)
    return [
        Row(
            key,
            DurationFigures(*figures),
            share,
            bound,
            time,
            json.loads(about)["own"] if by == "api" and about else None,
        )
        for _, key, *figures, share, bound, time, about in stored
    ]


async def _stored_models(connection: aiosqlite.Connection, session: int, by: By) -> list[ModelFigures]:
    found = []
    for _, _, *figures, _, _, _, about in await figures_of_session(connection, session, by):
        known = json.loads(about)
        origin = known["latency_from"] and LatencyFrom(known["latency_from"])
        known |= {
            "latency": DurationFigures(*figures),
            "latency_from": origin,
            "layers": DurationFigures(*known["layers"]),
        }
        found.append(ModelFigures(**known))
    return found

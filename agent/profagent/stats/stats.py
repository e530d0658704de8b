"""`stats`: what takes the time, over all inferences of a session or of a JOB.

Durations of JOBs are gathered by what an answer is about, without warm-up.
"""

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
from profagent.stats.records import ApiCalls, calls_by_function, read_jobs
from profagent.stats.session_figures import OF_WHOLE_INFERENCES, By, ModelFigures, Row, SessionFigures
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
    """A row for each function; keys may be repeated. Shares are of the time that is no other call's."""
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
            return await kept(connection, found, by, job=job, skip=skip)
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
    """Read the records of JOBs of a session, for answers by all of `bys`; `seen` is given each JOB while it is here."""
    bys = frozenset(bys)
    figures = SessionFigures(bys, skip, in_us=all(scope.job.frequency_mhz for scope in scopes))
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
    """Return the figures by what `by` says; those that are not of inferences are read here.

    Beside what was recorded stands what another tool told.
    """
    if by == "step":
        rows = await _step_rows(connection, session.session)
    elif by == "api":
        rows = call_rows([call for scope in scopes for call in await calls_by_function(connection, scope)])
    else:
        unit: Unit = "us" if by in _IN_US else figures.unit(by)
        # Of the CPU's layers alone nobody can tell what no layer explains.
        models = figures.models(by) if figures.in_us or by != "aicpu" else []
        return Stats(by, unit, figures.rows(by), figures.left_out(), provenance, session.simulated, models)
    return Stats(by, "us", rows + await _told(connection, session.session, by), [], provenance, session.simulated)


async def kept(connection: Running, session: SessionRow, by: StatsBy, *, job: str | None, skip: int | None) -> Stats:
    """Return what figures are left of a session whose records were deleted. Raises UsageError for a part of them."""
    if job is not None or skip is not None:
        raise UsageError(
            f"session {session.session} has its figures only: `profagent gc` deleted its records",
            hint="leave --job and --skip out",
        )
    found = await figures_of_session(connection, session.session, by)
    rows = await _told(connection, session.session, by)
    unit: Unit = "ticks" if found and found[0][0] == "ticks" else "us"
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
        Row(
            key,
            DurationFigures(*figures),
            share,
            bound,
            time,
            json.loads(about)["own"] if by == "api" and about else None,
        )
        for _, key, *figures, share, bound, time, about in kept
    ]


async def _kept_models(connection: aiosqlite.Connection, session: int, by: By) -> list[ModelFigures]:
    """The figures of each model, or of each on each device, with what `Stats.abouts` tells."""
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

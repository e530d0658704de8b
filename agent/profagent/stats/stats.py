"""`stats`: what takes the time, over all inferences of a session or of a JOB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from profagent.cli.provenance import provenance_of
from profagent.errors import UsageError
from profagent.formats.records import ticks_to_us
from profagent.stats.gathering import By, Figures, JobRecords, JobRows, LeftOut, Row, call_rows
from profagent.stats.steps import step_rows
from profagent.store.database import readings
from profagent.store.queries import (
    Scope,
    find_session,
    jobs_of,
    layers_of,
)
from profagent.store.series import READERS, call_series, read_series
from profagent.store.sessions import figures_of_session, is_cleared, left_out_of, require_records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import aiosqlite

    from profagent.store.queries import SessionRow

StatsBy = By | Literal["api", "step"]
Unit = Literal["us", "ticks"]
# What is asked of each aicore record; all else of sums over these.
_OF_AICORE_LAYERS = ("layer", "type")


class StatsOptions(NamedTuple):
    """What the rows are of; how many inferences of each load to leave out, None for its warm-up."""

    by: StatsBy = "layer"
    skip: int | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """Rows by falling total, in `unit`; what was left out, and where each JOB's figures come from."""

    by: StatsBy
    unit: Unit
    rows: list[Row]
    left_out: list[LeftOut]
    provenance: list[dict[str, Any]]

    @property
    def is_simulated(self) -> bool:
        """Whether any of the figures are invented."""
        return any(each["simulated"] for each in self.provenance)


async def stats(
    database: Path, *, session: int | None = None, job: str | None = None, options: StatsOptions | None = None
) -> Stats:
    """The figures of the session's JOBs together, or of one; `session` None is the newest.

    Raises UsageError where there is no such session or JOB, or `skip` goes with API calls, and StoreError.
    """
    by, skip = options or StatsOptions()
    if by in {"api", "step"} and skip is not None:
        raise UsageError(f"--skip does not go with --by {by}", hint="it is not told apart by inference: leave it out")
    async with readings(database, READERS) as readers:
        connection = readers[0]
        found = await find_session(connection, session)
        if await is_cleared(connection, found.session):
            return await _kept(connection, found, by, job=job, skip=skip)
        scopes = [Scope(found, row) for row in await jobs_of(connection, found.session, job)]
        provenance = [await provenance_of(connection, scope) for scope in scopes]
        if by == "step":
            return Stats(by, "us", await step_rows(connection, found.session), [], provenance)
        if by == "api":
            calls = [call for scope in scopes for call in await call_series(connection, scope)]
            return Stats(by, "us", call_rows(calls), [], provenance)
        unit: Unit = "ticks" if by != "aicpu" and _is_unknown(scopes) else "us"
        in_us, has_layers = not _is_unknown(scopes), by in _OF_AICORE_LAYERS
        rows = JobRows(by, skip)
        for scope in scopes:
            rows.add(await records_of(readers, scope, in_us=in_us, has_layers=has_layers))
        return Stats(by, unit, rows.rows(), rows.left_out(), provenance)


async def _kept(
    connection: aiosqlite.Connection, session: SessionRow, by: StatsBy, *, job: str | None, skip: int | None
) -> Stats:
    """The figures that stayed of a session."""
    if job is not None or skip is not None:
        raise UsageError(
            f"session {session.session} has its figures only: `profagent gc` deleted its records",
            hint="leave --job and --skip out",
        )
    kept = await figures_of_session(connection, session.session, by)
    rows = [] if kept is None else [Row(row.key, Figures(*row[1:8]), row.share, row.bound) for row in kept.rows]
    unit: Unit = "ticks" if kept is not None and kept.unit == "ticks" else "us"
    left_out = (
        [LeftOut(*row) for row in await left_out_of(connection, session.session)] if by not in {"api", "step"} else []
    )
    jobs = await jobs_of(connection, session.session)
    return Stats(by, unit, rows, left_out, [await provenance_of(connection, Scope(session, row)) for row in jobs])


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
    return JobRecords(series, layers, ticks_to_us(1, frequency_mhz) if in_us and frequency_mhz else None)


def _is_unknown(scopes: Sequence[Scope]) -> bool:
    """Whether a JOB's frequency is, and so how long a tick takes."""
    return any(not scope.job.frequency_mhz for scope in scopes)

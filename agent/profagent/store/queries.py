"""Queries of readers: rows as named tuples.

A scope is one JOB as one session captured it. What may be long comes in pages: nothing here holds a whole JOB.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent import ledger
from profagent.errors import UsageError
from profagent.formats.names import parse_log_name
from profagent.ingest.source import is_job
from profagent.limits import LARGEST_INTEGER, ROWS_PER_PAGE
from profagent.store.calls import CallNames, call_tables
from profagent.store.database import fetched, fetched_named, fetched_one

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiosqlite

    from profagent.store.calls import CallTable
    from profagent.store.database import Running


class SessionRow(NamedTuple):
    """Session and its board; times are host microseconds."""

    session: int
    board: str
    hostname: str
    source: str
    started_us: int
    simulated: bool
    daemon_version: str
    sdk_version: str
    counter_map: str | None
    counter_map_digest: str | None = None
    counter_map_likely: str | None = None
    board_model: str = ""


class JobRow(NamedTuple):
    """JOB. `frequency_mhz` converts its ticks, None where its info.json is missing.

    `family` is the device family of another tool's results; None for a JOB of an SS928.
    """

    job: int
    name: str
    state: str
    frequency_mhz: int | None
    family: str | None

    @property
    def clock_mhz(self) -> int | None:
        """NPU clock in MHz; None where it is unknown, as where another tool gave durations."""
        return self.frequency_mhz if self.family is None else None


class Scope(NamedTuple):
    """One JOB as one session captured it."""

    session: SessionRow
    job: JobRow


class LayerRow(NamedTuple):
    """Layers of one profiling record, as one."""

    layer_id: int
    name: str
    type: str


class CallLog(NamedTuple):
    """acl_api log; `batch_num` is the smallest of its model's inferences, 0 without any."""

    log: int
    device_id: int
    model_name: str
    model_id: int
    batch_num: int


class CallRow(NamedTuple):
    """API call; `begin_us` is None for one that began before profiling was started."""

    name: str
    type: str
    begin_us: int | None
    end_us: int
    pid: int
    tid: int


async def find_session(connection: aiosqlite.Connection, session: int | None = None) -> SessionRow:
    """Return the session with this number, or the newest one. Raises UsageError if there is none."""
    rows = []
    if session is None or session <= LARGEST_INTEGER:
        rows = await fetched(
            connection,
            "SELECT s.session, b.identity, b.hostname, s.source, s.started_us, s.simulated, s.daemon_version,"
            " s.sdk_version, s.counter_map, s.counter_map_digest, s.counter_map_likely, b.model"
            " FROM session s JOIN board b USING (board)"
            " WHERE ?1 IS NULL OR s.session = ?1 ORDER BY s.session DESC LIMIT 1",
            (session,),
        )
    if not rows:
        what = "no session" if session is None else f"no session {session}"
        raise UsageError(f"the database has {what}", hint="`profagent sessions` lists those it has")
    session_row = SessionRow._make(rows[0])
    return session_row._replace(simulated=bool(session_row.simulated))


async def jobs_of(connection: aiosqlite.Connection, session: int, name: str | None = None) -> list[JobRow]:
    """Return the session's JOBs by name, or the one of this name. Raises UsageError if it has none of this name.

    A collection of another source is no JOB.
    """
    rows = await fetched(
        connection,
        "SELECT j.job, j.name, j.state, j.frequency_mhz, j.family FROM session_job s JOIN job j USING (job)"
        " WHERE s.session = ?1 AND (?2 IS NULL OR j.name = ?2) ORDER BY j.name",
        (session, name),
    )
    # A collection of another source has a row as well, so `rows` decides if the name is known.
    jobs = [row for row in map(JobRow._make, rows) if is_job(row.name)]
    if name is not None and not rows:
        raise UsageError(f"session {session} has no {name}", hint="leave the JOB out to take all of the session's")
    return jobs


async def has_records(connection: aiosqlite.Connection, job: int, *kinds: str) -> bool:
    """Return True if a JOB has bytes of logs of these kinds, whichever session fetched them."""
    # One variable for each kind; their texts never enter the statement.
    marks = ", ".join("?" * len(kinds))
    query = f"SELECT 1 FROM log WHERE job = ? AND kind IN ({marks}) AND offset > 0 LIMIT 1"  # noqa: S608 - marks
    return bool(await fetched(connection, query, (job, *kinds)))


async def log_sizes(connection: aiosqlite.Connection, job: int) -> dict[str, int]:
    """Return the sizes of a JOB's logs in bytes, by path."""
    rows = await fetched(connection, "SELECT path, offset FROM log WHERE job = ?", (job,))
    return {os.fsdecode(path): offset for path, offset in rows}


async def count_inferences(connection: aiosqlite.Connection, job: int, session: int | None = None) -> int:
    """Return the number of a JOB's sampled inferences that have rows, of one session or of all."""
    (count,) = await fetched_one(
        connection,
        "SELECT count(*) FROM inference i JOIN model m USING (model)"
        " WHERE m.job = ?1 AND (?2 IS NULL OR i.session = ?2)",
        (job, session),
    )
    return int(count)


async def not_final(connection: aiosqlite.Connection, session: int, job: int | None = None) -> list[dict[str, Any]]:
    """Return by state and reason how many of the session's inferences have no figures, in one JOB or all."""
    return await fetched_named(
        connection,
        "SELECT i.figures, i.why, count(*) AS inferences FROM inference i JOIN model m USING (model)"
        " WHERE i.session = ?1 AND (?2 IS NULL OR m.job = ?2) AND i.figures <> 'final'"
        " GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2",
        (session, job),
    )


async def layers_of(connection: aiosqlite.Connection, model: int) -> dict[int, LayerRow]:
    """Return the layers of a model by index; empty where its layer table is missing."""
    rows = await fetched(connection, "SELECT layer_index, layer_id, name, type FROM layer WHERE model = ?", (model,))
    return {index: LayerRow(*row) for index, *row in rows}


async def kinds_of_records(connection: aiosqlite.Connection, job: int) -> list[str]:
    """Return the kinds of records of which a JOB has logs: acl_api, aicore, aicpu."""
    kinds = "SELECT DISTINCT kind FROM log WHERE job = ? AND kind IN ('acl_api', 'aicore', 'aicpu') ORDER BY kind"
    return [kind for (kind,) in await fetched(connection, kinds, (job,))]


async def call_logs(connection: aiosqlite.Connection, scope: Scope) -> list[CallLog]:
    """Return the acl_api logs of which the session has records."""
    rows = await fetched(
        connection,
        "SELECT l.log, l.path, m.name, m.model_id,"
        " (SELECT ifnull(min(i.batch_num), 0) FROM inference i WHERE i.model = m.model AND i.session = ?1)"
        " FROM log l JOIN model m USING (model) WHERE l.job = ?2 AND l.kind = 'acl_api'"
        " AND EXISTS (SELECT 1 FROM part p WHERE p.log = l.log AND p.session = ?1) ORDER BY m.name, m.model_id, l.log",
        (scope.session.session, scope.job.job),
    )
    names = [parse_log_name(os.fsdecode(path)) for _, path, *_ in rows]
    return [CallLog(log, (name and name.device) or 0, *row) for name, (log, _, *row) in zip(names, rows, strict=True)]


async def calls(connection: Running, scope: Scope, log: int) -> AsyncIterator[list[CallRow]]:
    """Yield the session's records of an acl_api log, in the order of the file, a page at a time."""
    names = await connection.run(CallNames.of)
    async for table in _call_tables(connection, session=scope.session.session, log=log):
        for begin in range(0, len(table), ROWS_PER_PAGE):
            page = table.at(slice(begin, begin + ROWS_PER_PAGE))
            columns = (each.tolist() for each in (page.api, page.begin_us, page.end_us, page.pid, page.tid))
            yield [CallRow(*names[api], begin or None, *rest) for api, begin, *rest in zip(*columns, strict=True)]


async def earliest_call_us(connection: Running, scope: Scope) -> int | None:
    """Return the earliest known begin among the session's API calls of the JOB; None without any."""
    known = [
        int(begins.min())
        async for table in _call_tables(connection, session=scope.session.session, job=scope.job.job)
        if len(begins := table.begin_us[table.begin_us > 0])
    ]
    return min(known, default=None)


async def _call_tables(connection: Running, **chosen: int) -> AsyncIterator[CallTable]:
    # The generator runs on the connection's thread, a chunk at a time, so that the loop stays free.
    tables = await connection.run(lambda found: call_tables(found, **chosen))
    while (table := await connection.run(lambda _: next(tables, None))) is not None:
        yield table


async def ledger_of(
    connection: aiosqlite.Connection, session: int, job: int | None = None
) -> dict[str, dict[str, int]]:
    """Return the sums of the ledger's counts by grade and reason: of a session, or of a JOB and the session itself.

    Both grades are always there: an empty `loss` says that nothing is missing.
    """
    # Both grades from the start, so that readers need not ask if a key is there.
    by_grade: dict[str, dict[str, int]] = {"loss": {}, "note": {}}
    for grade, reason, count in await fetched(
        connection,
        "SELECT grade, reason, sum(count) FROM ledger_entry WHERE session = ?1 AND (?2 IS NULL OR ifnull(job, ?2) = ?2)"
        " GROUP BY grade, reason ORDER BY grade, reason",
        (session, job),
    ):
        by_grade[grade][reason] = count
    return by_grade


async def ledger_entries(
    connection: aiosqlite.Connection, session: int | None, job: str | None = None
) -> list[dict[str, Any]]:
    """Return the rows of the view `ledger` of a session (None: the newest), by column name.

    Raises UsageError for an unknown session or JOB.
    """
    number = (await find_session(connection, session)).session
    if job is not None:
        await jobs_of(connection, number, job)
    return await fetched_named(
        connection,
        "SELECT * FROM ledger WHERE session = ?1 AND (?2 IS NULL OR ifnull(job, ?2) = ?2)"
        " ORDER BY grade, reason, job, log, first",
        (number, job),
    )


async def implausible_of(connection: aiosqlite.Connection, session: int, job: int | None = None) -> list[str]:
    """Return a line for each check that failed for the counters of a session, or of one of its JOBs."""
    rows = await fetched(
        connection,
        "SELECT j.name, detail FROM ledger_entry JOIN job j USING (job)"
        " WHERE session = ?1 AND reason = ?2 AND (?3 IS NULL OR job = ?3) ORDER BY entry",
        (session, ledger.IMPLAUSIBLE_COUNTER, job),
    )
    return [f"implausible: {name}: {detail}" for name, detail in rows]


async def recorded_losses_of(connection: aiosqlite.Connection, session: int) -> list[dict[str, Any]]:
    """Return the kept losses that a session heard first, by column name, in the order of time."""
    return await fetched_named(
        connection,
        "SELECT job, reason, detail, lost_logs, lost_bytes, from_us, to_us FROM kept_losses WHERE session = ?"
        " ORDER BY from_us, id",
        (session,),
    )

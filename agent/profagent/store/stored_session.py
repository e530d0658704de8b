"""One session while it is written: its rows, and what is stored of its board."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.formats.durations import ticks_to_us
from profagent.formats.names import display_text
from profagent.formats.plausible import MOST_SHARE, PEAK_MEMORY_RATE, SLACK_US, TICKS, Place, Tally, merged
from profagent.ingest.datalog import RING_CALLS, ring_entry
from profagent.store.counter_checks import LARGEST_INTEGER, write_check
from profagent.store.logs import path_from_sql, path_to_sql
from profagent.store.parts import RECORDS_PER_PART
from profagent.store.sampling import note_samples, sampling_of
from profagent.store.sessions import remove_job
from profagent.store.summaries import final_inferences, session_summary
from profagent.store.transaction import transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from profagent.ingest.changes import JobChanges
    from profagent.store.store import Store
    from profagent.store.writer import Writer


def most_calls_between(call_ends: NDArray[np.float64], flushes: NDArray[np.float64]) -> int:
    """The most calls between two neighbouring flushes; both are sorted times in microseconds.

    The runtime flushes at each sampled inference and at the unload; a call belongs to the first flush after it.
    """
    if not len(call_ends):
        return 0
    return int(np.bincount(np.searchsorted(flushes, call_ends)).max())


def note_full_rings(connection: sqlite3.Connection, session: int, board: int, job: str) -> None:
    """Write a note for each acl_api log that has as many calls between known flushes as the ring holds."""
    logs = connection.execute(
        "SELECT log, model, job.job FROM log JOIN job USING (job)"
        " WHERE board = ? AND job.name = ? AND kind = 'acl_api'",
        (board, job),
    ).fetchall()
    for log, model, job_number in logs:
        flushes = _flushes(connection, model)
        calls = 0 if flushes is None else most_calls_between(_call_ends(connection, log), flushes)
        told = connection.execute("SELECT count FROM ledger_entry WHERE log = ? AND origin = 'ring'", (log,)).fetchone()
        if told is not None and told[0] == calls:
            continue
        with transaction(connection):
            connection.execute("DELETE FROM ledger_entry WHERE log = ? AND origin = 'ring'", (log,))
            if calls >= RING_CALLS:
                entry = ring_entry(calls)
                connection.execute(
                    "INSERT INTO ledger_entry (session, job, log, origin, grade, reason, detail, count)"
                    " VALUES (?, ?, ?, 'ring', ?, ?, ?, ?)",
                    (session, job_number, log, entry.grade, entry.reason, entry.detail, entry.count),
                )


def _call_ends(connection: sqlite3.Connection, log: int) -> NDArray[np.float64]:
    rows = connection.execute(
        f"SELECT end_us FROM part CROSS JOIN api ON record BETWEEN part * {RECORDS_PER_PART}"  # noqa: S608 - a constant
        f" AND part * {RECORDS_PER_PART} + {RECORDS_PER_PART - 1} WHERE log = ?",
        (log,),
    )
    return np.sort(np.fromiter((row[0] for row in rows), np.float64))


def _flushes(connection: sqlite3.Connection, model: int) -> NDArray[np.float64] | None:
    """When the runtime flushed; None where some samples were passed over, whose times nobody knows."""
    passed = connection.execute("SELECT 1 FROM sample WHERE model = ? AND NOT kept LIMIT 1", (model,)).fetchone()
    if passed is not None:
        return None
    rows = connection.execute("SELECT end_us FROM inference WHERE model = ? AND end_us IS NOT NULL", (model,))
    return np.sort(np.fromiter((row[0] for row in rows), np.float64))


_INFERENCES = (
    "SELECT i.session, min(i.current_pic_count, ?2), path, i.end_us - i.start_us, sum(g.ticks), j.frequency_mhz"
    " FROM job j JOIN model m USING (job) JOIN inference i USING (model) JOIN segment g USING (inference)"
    " JOIN log USING (log) WHERE j.job = ?1 AND g.kind = 'aicore' AND i.end_us > i.start_us AND j.frequency_mhz > 0"
    " GROUP BY i.inference"
)
_KNOWN = "SELECT session, entry FROM counter_check WHERE job = ? AND name = ?"


def note_ticks(connection: sqlite3.Connection, board: int, job: str) -> None:
    """Count the inferences of a JOB, session by session, and those whose layers take too long."""
    found = connection.execute("SELECT job FROM job WHERE board = ? AND name = ?", (board, job)).fetchone()
    if found is None:
        return
    number = int(found[0])
    tallies: dict[int, Tally] = {}
    for session, pictures, path, window_us, ticks, frequency_mhz in connection.execute(
        _INFERENCES, (number, LARGEST_INTEGER)
    ):
        share = ticks_to_us(ticks, frequency_mhz) / window_us
        is_odd = share > MOST_SHARE + SLACK_US / window_us
        first = Place(pictures, display_text(path_from_sql(path)), 0)
        one = Tally(1, 1, first, share) if is_odd else Tally(1)
        tallies[session] = merged(tallies.get(session, Tally()), one)
    known = dict(connection.execute(_KNOWN, (number, TICKS)).fetchall())
    with transaction(connection):
        for session in sorted({*tallies, *known}):
            tally, entry = tallies.get(session, Tally()), known.get(session)
            write_check(connection, (session, number, TICKS), tally, PEAK_MEMORY_RATE, entry)


# SQLite's own limit of variables in a statement is far above.
PATHS_PER_QUERY = 500
# A log that is gone from the board keeps the digest that the board vouched for.
_UNSETTLED = (
    "SELECT path FROM log JOIN job USING (job) WHERE board = ? AND job.name = ? AND complete <> 1 AND digest IS NULL"
    " AND generation > 0 AND kind IN ('aicore', 'aicpu', 'acl_api')"
)
_UNJUDGED = (
    "SELECT DISTINCT l.path FROM job JOIN model m USING (job) JOIN inference i USING (model) JOIN segment g"
    " USING (inference) JOIN log l USING (log) WHERE board = ? AND job.name = ? AND i.figures = 'pending'"
)
_ORPHANS = (
    "SELECT d.path FROM log d JOIN job USING (job) WHERE board = ? AND job.name = ? AND d.kind = 'done'"
    " AND d.generation > 0 AND NOT EXISTS (SELECT 1 FROM log x"
    " WHERE x.job = d.job AND x.path = substr(d.path, 1, length(d.path) - 5) AND x.generation > 0)"
)
_BEGUN = (
    "SELECT path, offset FROM log JOIN job USING (job) WHERE board = ? AND job.name = ? AND complete = 0 AND kept"
    " AND kind IN ('aicore', 'aicpu', 'acl_api')"
)
# What was removed may have been made anew for a while, and need not come again.
_UNFINISHED = (
    "SELECT j.name, l.path, l.generation, l.offset FROM log l JOIN job j USING (job)"
    " WHERE j.board = ? AND (l.complete = 0 OR l.complete = 2 AND l.digest IS NULL)"
    " AND l.kind IN ('aicore', 'aicpu', 'acl_api')"
)
_AT_PATH = (
    "SELECT j.name, l.path, l.generation, l.offset FROM log l JOIN job j USING (job)"
    " WHERE j.board = ? AND j.name = ? AND l.path = ? AND l.kind IN ('aicore', 'aicpu', 'acl_api')"
)
# As the board's daemon sees it (format page 1): calls that are complete tell an unloading, empty logs are no matter.
_FINISHED = (
    "WITH l AS (SELECT kind, model, offset, complete = 1 AS is_complete FROM log JOIN job USING (job)"
    " WHERE board = ? AND job.name = ? AND generation > 0 AND kind IN ('aicore', 'aicpu', 'acl_api', 'net_info'))"
    " SELECT EXISTS (SELECT 1 FROM l WHERE kind = 'acl_api' AND is_complete)"
    " AND NOT EXISTS (SELECT 1 FROM l WHERE kind <> 'net_info' AND NOT is_complete AND (offset > 0 OR"
    " kind = 'acl_api' AND model IN (SELECT model FROM l WHERE kind = 'net_info')))"
)
_STANDING = "SELECT name, directory, state, caught_up FROM job WHERE board = ? AND state <> 'removed'"


@dataclass(frozen=True, slots=True)
class HeldLog:
    """What the database says of a log: its bytes up to `offset` are in the mirror; a complete one has a digest."""

    generation: int
    offset: int
    complete: bool
    digest: bytes | None = None


@dataclass(frozen=True, slots=True)
class HeldJob:
    """What the database says of a JOB that was on its board when it was last told of."""

    name: str
    directory: str
    state: str
    caught_up: bool


class CommittedLog(NamedTuple):
    """What is committed of a data log."""

    job: str
    path: str
    generation: int
    offset: int


class StoredSession:
    """A session of a store; `number` is its own, `board` its board's."""

    def __init__(self, store: Store, writer: Writer) -> None:
        self.number = writer.session
        self.board = writer.board
        self._store = store
        self._writer = writer

    async def apply(self, changes: Sequence[JobChanges]) -> None:
        """Write changes in one durable transaction, which other sessions that wait may share."""
        await self._store.run(self._store.group.write, self._store.group.add(self._writer, changes))

    async def end(self, ended_us: int) -> None:
        """Mark the session as finished: no later record goes on with it."""
        await self._store.run(lambda _: self._writer.end(ended_us))

    async def held(self, job: str, paths: Sequence[str]) -> dict[str, HeldLog]:
        """What is stored of these logs; those that are not known are left out."""
        return await self._store.run(_held, self.board, job, paths)

    async def unsettled_logs(self, job: str) -> list[str]:
        """Data logs of a JOB that the board never vouched for."""
        return await self._paths(_UNSETTLED, job)

    async def unjudged_logs(self, job: str) -> list[str]:
        """Logs of a JOB's inferences of which it is not known whether they are whole."""
        return await self._paths(_UNJUDGED, job)

    async def begun_logs(self, job: str) -> dict[str, int]:
        """Data logs of a JOB of which more was to come, with their committed bytes."""
        rows = await self._store.query(_BEGUN, (self.board, job))
        return {path_from_sql(path): offset for path, offset in rows}

    async def orphan_dones(self, job: str) -> list[str]:
        """`.done` files of a JOB that have no data beside them."""
        return await self._paths(_ORPHANS, job)

    async def has_finished(self, job: str) -> bool:
        """Whether everything that the JOB is expected to hold is complete."""
        ((has_finished,),) = await self._store.query(_FINISHED, (self.board, job))
        return bool(has_finished)

    async def unfinished_logs(self) -> list[CommittedLog]:
        """The board's data logs that it never vouched for."""
        rows = await self._store.query(_UNFINISHED, (self.board,))
        return [CommittedLog(job, path_from_sql(path), *committed) for job, path, *committed in rows]

    async def committed_logs(self, logs: Iterable[tuple[str, str]]) -> list[CommittedLog]:
        """Of data logs, given by JOB and path, what is committed; those that are not known are left out."""
        found: list[CommittedLog] = []
        for job, path in logs:
            rows = await self._store.query(_AT_PATH, (self.board, job, path_to_sql(path)))
            found += [CommittedLog(job, path, *committed) for _, _, *committed in rows]
        return found

    async def final_inferences(self, job: str) -> int:
        """How many inferences of a JOB have come whole, whoever fetched them."""
        return await self._store.run(final_inferences, self.board, job)

    async def copied_bytes(self, job: str) -> int:
        """How many bytes of a JOB's logs are here."""
        sql = "SELECT ifnull(sum(offset), 0) FROM log JOIN job USING (job) WHERE board = ? AND job.name = ?"
        ((size,),) = await self._store.query(sql, (self.board, job))
        return int(size)

    async def begun_jobs(self) -> set[str]:
        """JOBs of which this session holds a part."""
        sql = "SELECT name FROM job JOIN session_job USING (job) WHERE session = ?"
        return {name for (name,) in await self._store.query(sql, (self.number,))}

    async def standing_jobs(self) -> list[HeldJob]:
        """The board's JOBs that are not known to be removed from it."""
        rows = await self._store.query(_STANDING, (self.board,))
        return [HeldJob(name, directory, state, bool(caught_up)) for name, directory, state, caught_up in rows]

    async def forget_standing(self, job: str) -> None:
        """Note that the board has the JOB no longer, which does not make it one of the session's."""
        await self._store.run(remove_job, self.board, job)

    async def state_of(self, job: str) -> str | None:
        """The JOB's state as it was last told; None of one that is not known."""
        rows = await self._store.query("SELECT state FROM job WHERE board = ? AND name = ?", (self.board, job))
        return rows[0][0] if rows else None

    async def note_full_rings(self, job: str) -> None:
        """Note where the runtime's ring of calls may have overflowed."""
        await self._store.run(note_full_rings, self.number, self.board, job)

    async def note_samples(self, job: str) -> None:
        """Note which samples came late or never, as far as that is known."""
        await self._store.run(note_samples, self.number, self.board, job)

    async def note_ticks(self, job: str) -> None:
        """Note whether the layers of a JOB's inferences take longer than these did."""
        await self._store.run(note_ticks, self.board, job)

    async def sampling(self) -> dict[str, Any]:
        """How well its JOBs were sampled, as of now."""
        return await self._store.run(sampling_of, self.number)

    async def told_interval(self, job: str) -> int | None:
        """The interval of the JOB's acl.json, as it was told first; None where it is not known."""
        sql = "SELECT interval FROM job WHERE board = ? AND name = ?"
        rows = await self._store.query(sql, (self.board, job))
        return rows[0][0] if rows else None

    async def add_clock_sample(self, host_us: int, offset_us: int, round_trip_us: int) -> None:
        """Store the difference of the clocks."""
        row = (self.number, host_us, offset_us, round_trip_us)
        await self._store.execute("INSERT INTO clock_sample VALUES (?, ?, ?, ?)", row)

    async def summary(self) -> dict[str, Any]:
        """The session in figures, as of now."""
        return await self._store.run(session_summary, self.number)

    async def _paths(self, sql: str, job: str) -> list[str]:
        return [path_from_sql(path) for (path,) in await self._store.query(sql, (self.board, job))]


def _held(connection: sqlite3.Connection, board: int, job: str, paths: Iterable[str]) -> dict[str, HeldLog]:
    found: dict[str, HeldLog] = {}
    by_stored = {path_to_sql(path): path for path in paths}
    stored = list(by_stored)
    for start in range(0, len(stored), PATHS_PER_QUERY):
        page = stored[start : start + PATHS_PER_QUERY]
        marks = ",".join("?" * len(page))
        rows = connection.execute(
            "SELECT path, generation, offset, complete = 1, digest FROM log"  # noqa: S608 - question marks only
            f" WHERE job = (SELECT job FROM job WHERE board = ? AND name = ?) AND path IN ({marks})",
            (board, job, *page),
        )
        for stored_path, generation, offset, complete, digest in rows:
            path = by_stored[stored_path]
            found[path] = HeldLog(generation, offset, bool(complete), digest)
    return found

"""Sessions of a workspace: their labels, how one begins or is continued, and how its records are deleted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.errors import UsageError
from profagent.formats.countermap import PEAK_MEMORY_RATE
from profagent.limits import LONGEST_LABEL
from profagent.link.boards_file import LABEL_KEY, BoardNames, is_label
from profagent.store.coverage import take_up_again
from profagent.store.database import fetched, join_job, transaction
from profagent.store.subset import delete_below

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    import aiosqlite

    from profagent.formats.countermap import CounterMap


_ROW = "key, number, total, mean, median, mad, p95, p99, max, share, bound, in_inference, about"
_AS_NEW = "generation = 0, offset = 0, complete = 2, digest = NULL, kept = 1"
# Statements that follow the deletion of a JOB's records. Logs that the ledger names stay, as if nothing of them had
# come yet, and so does the list of samples. Entries of the ledger stay as they are, whatever comes of the JOB later.
_CLEAR_JOB = (
    "UPDATE sample SET session = NULL WHERE model IN (SELECT model FROM model WHERE job = ?)",
    "DELETE FROM log WHERE job = ? AND log NOT IN (SELECT log FROM ledger_entry WHERE log IS NOT NULL)",
    f"UPDATE log SET {_AS_NEW} WHERE job = ?",  # noqa: S608 - a constant
    "UPDATE ledger_entry SET origin = 'cleared' WHERE job = ? AND origin <> 'board'",
)
# JOBs by session. A JOB that came again after it was cleared belongs to the next session, even without a complete
# record.
_FETCHED = (
    "SELECT session, job FROM fetched_jobs UNION SELECT min(session), job FROM session_job"
    " WHERE session NOT IN (SELECT session FROM cleared_session) GROUP BY job"
)


# Identity of the board of an imported JOB, where nobody named one.
NO_BOARD = "import"


class HeldSession(NamedTuple):
    """Session whose records are in the database; `jobs` are those it fetched, `bytes` the size of their mirrors."""

    session: int
    board: str
    started_us: int
    is_over: bool
    jobs: frozenset[int]
    bytes: int


async def held_sessions(connection: aiosqlite.Connection) -> list[HeldSession]:
    """Return the sessions that have not been cleared, oldest first."""
    sizes: dict[int, int] = dict(await fetched(connection, "SELECT job, sum(offset) FROM log GROUP BY job"))
    jobs: dict[int, set[int]] = {}
    for session, job in await fetched(connection, _FETCHED):
        jobs.setdefault(session, set()).add(job)
    rows = await fetched(
        connection,
        "SELECT session, identity, started_us, ended_us IS NOT NULL FROM session JOIN board USING (board)"
        " WHERE session NOT IN (SELECT session FROM cleared_session) ORDER BY started_us, session",
    )
    return [
        HeldSession(session, board, started_us, bool(is_over), frozenset(held), sum(sizes.get(job, 0) for job in held))
        for session, board, started_us, is_over in rows
        for held in [jobs.get(session, set())]
    ]


def clear_sessions(
    connection: sqlite3.Connection, sessions: Sequence[HeldSession], cleared_us: int, lake: str | None
) -> None:
    """Delete the records of sessions that share their JOBs with no other, in the caller's transaction.

    `lake` is the address of the lake that has these records, None where none has.
    """
    connection.executemany(
        "INSERT INTO cleared_session SELECT ?1, ?2, count(*), ?3, ?4 FROM inference WHERE session = ?1",
        [(held.session, cleared_us, held.bytes, lake) for held in sessions],
    )
    for job in sorted({job for held in sessions for job in held.jobs}):
        _clear_job(connection, job)


async def cleared_jobs(connection: aiosqlite.Connection) -> list[tuple[Any, ...]]:
    """Return board and name of each cleared JOB that has not come again: the mirror keeps none of its files."""
    return await fetched(
        connection,
        "SELECT b.identity, j.name FROM job j JOIN board b USING (board)"
        " WHERE EXISTS (SELECT 1 FROM session_job JOIN cleared_session USING (session) WHERE session_job.job = j.job)"
        " AND NOT EXISTS (SELECT 1 FROM log WHERE log.job = j.job AND generation > 0)",
    )


async def is_cleared(connection: aiosqlite.Connection, session: int) -> bool:
    """Return True if the session's records were deleted."""
    return bool(await fetched(connection, "SELECT 1 FROM cleared_session WHERE session = ?", (session,)))


async def require_records(connection: aiosqlite.Connection, session: int) -> None:
    """Raise UsageError if the session's records were deleted."""
    if await is_cleared(connection, session):
        lake = await lake_of(connection, session)
        raise UsageError(
            f"session {session} has only its figures: `profagent gc` deleted its records"
            + (f", which are in {lake}" if lake else ""),
            hint=f"`profagent stats {session}` and `report {session}` show them; for everything else name"
            " another session",
        )


async def lake_of(connection: aiosqlite.Connection, session: int) -> str | None:
    """Return the address of the lake that alone has the records of a session; None if there is no such lake."""
    rows = await fetched(connection, "SELECT lake FROM cleared_session WHERE session = ?", (session,))
    return rows[0][0] if rows else None


def _clear_job(connection: sqlite3.Connection, job: int) -> None:
    of_job = f"model IN (SELECT model FROM model WHERE job = {job})"  # noqa: S608 - a number
    delete_below(connection, "log", f"job = {job}")
    delete_below(connection, "inference", of_job)
    connection.execute(f"DELETE FROM inference WHERE {of_job}")  # noqa: S608 - as above
    for statement in _CLEAR_JOB:
        connection.execute(statement, (job,))


def write_figures(
    connection: sqlite3.Connection,
    session: int,
    rows: Iterable[tuple[Any, ...]],
    left_out: Sequence[tuple[str, int, int]],
) -> None:
    """Store a session's figures in place of earlier ones.

    A row is the kind (`by`), place, unit, key, and the columns of the table behind them; `left_out` has rows of model,
    inferences, and how many of these were left out.
    """
    for table in ("figure", "figure_left_out"):
        connection.execute(f"DELETE FROM {table} WHERE session = ?", (session,))  # noqa: S608 - one of two names
    connection.executemany(
        f"INSERT INTO figure (session, by, place, unit, {_ROW}) VALUES ({', '.join('?' * 17)})",  # noqa: S608 - constants
        [(session, by, place, unit, json.dumps(key), *figures) for by, place, unit, key, *figures in rows],
    )
    connection.executemany("INSERT INTO figure_left_out VALUES (?, ?, ?, ?)", [(session, *row) for row in left_out])


async def figures_of_session(connection: aiosqlite.Connection, session: int, by: str) -> list[tuple[Any, ...]]:
    """Return the stored figures of a session: unit, key, number to max, share, bound, time in an inference, about."""
    rows = await fetched(
        connection,
        f"SELECT unit, {_ROW} FROM figure WHERE session = ? AND by = ? ORDER BY place",  # noqa: S608 - constants
        (session, by),
    )
    return [(unit, tuple(json.loads(key)), *figures) for unit, key, *figures in rows]


async def left_out_of(connection: aiosqlite.Connection, session: int) -> list[tuple[str, int, int]]:
    """Return by model the number of inferences, and how many of them the figures leave out."""
    rows = await fetched(
        connection,
        "SELECT model, inferences, left_out FROM figure_left_out WHERE session = ? ORDER BY model",
        (session,),
    )
    return [tuple(row) for row in rows]


FORMS = "label=KEY, label=KEY=VALUE, board=NAME, sdk=VERSION, frequency=MHZ or source=record|watch|import|collect"
# Predicate on a row of `all_sessions`.
Condition = Callable[[Mapping[str, Any]], bool]
_VALUES: dict[str, Callable[[Mapping[str, Any]], Iterable[str]]] = {
    "source": lambda session: (session["source"],),
    "sdk": lambda session: (session["sdk_version"],),
    "frequency": lambda session: map(str, session["frequencies_mhz"]),
}
# The newest session that a capture may continue. A session that ended incomplete is continued only if none came after
# it: what it lacks may have come since. A simulated one may have got its counter map from another session's marker.
_UNFINISHED = (
    "SELECT max(session) FROM session s WHERE board = ?1 AND source = ?2 AND (ended_us IS NULL OR session ="
    " (SELECT max(session) FROM session WHERE board = ?1 AND source = ?2) AND EXISTS (SELECT 1 FROM ledger_entry e"
    " WHERE e.session = s.session AND e.reason IN ('stopped-early', 'not-covered', 'nothing-recorded')))"
    " AND (counter_map IS ?3 AND ifnull(counter_map_digest, ?4) IS ?4 OR simulated AND ?3 IS NULL) AND keeping IS ?5"
)
_OF_JOB = (
    "SELECT s.session, s.counter_map, s.counter_map_digest"
    " FROM session s JOIN session_job USING (session) JOIN job j USING (job)"
    " WHERE s.board = ? AND s.source = ? AND j.name = ?"
    " AND s.session NOT IN (SELECT session FROM cleared_session) ORDER BY s.session DESC LIMIT 1"
)


def labels_of(texts: Iterable[str]) -> dict[str, str]:
    """Return labels from texts `key=value`; of a repeated key the last wins. Raises UsageError."""
    return dict(_label(text) for text in texts)


def condition_of(text: str) -> Condition:
    """Return the condition that a text in one of FORMS states. Raises UsageError."""
    name, _, rest = text.partition("=")
    if name == "label" and LABEL_KEY.fullmatch(rest.partition("=")[0]):
        key, separator, value = rest.partition("=")
        if separator:
            return lambda session: session["labels_by_key"].get(key) == value
        return lambda session: key in session["labels_by_key"]
    if name == "board" and rest:
        names = BoardNames.known()
        return lambda session: (
            rest in (session["board"], session["hostname"], names.of(session["board"], session["hostname"]))
        )
    if name in _VALUES and rest:
        return lambda session: rest in _VALUES[name](session)
    raise UsageError(f"{text!r} is not a condition on sessions", hint=f"write {FORMS}")


def fits(session: Mapping[str, Any], conditions: Iterable[Condition]) -> bool:
    """Return True if a session of `all_sessions` meets all conditions.

    A board is named by its name, its host's name or its identity.
    """
    return all(holds(session) for holds in conditions)


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    require_labels({key if separator else "": value})
    return key, value


def require_labels(labels: Mapping[str, str]) -> None:
    """Raise UsageError if a pair of key and value is no label."""
    for key, value in labels.items():
        if not is_label(key, value):
            raise UsageError(
                f"{f'{key}={value}'!r} is not a label",
                hint="write it as KEY=VALUE; a key is 1 to 64 of A-Z a-z 0-9 . _ -,"
                f" a value up to {LONGEST_LABEL} printable characters",
            )


class MapUsed(NamedTuple):
    """Counter map with which a session's records are decoded, by name and digest; None and None without one.

    `likely` names its uncertain counters with commas between; None where there is none.
    """

    name: str | None = None
    digest: str | None = None
    likely: str | None = None

    @staticmethod
    def of(counter_map: CounterMap | None) -> MapUsed:
        """Return the reference to a map that sessions store."""
        if counter_map is None:
            return NO_MAP
        return MapUsed(counter_map.name, counter_map.fingerprint, ",".join(counter_map.likely) or None)


NO_MAP = MapUsed()


@dataclass(frozen=True, slots=True)
class SessionStart:
    """Facts at the beginning of a capture. Times are host wall-clock microseconds.

    An import sets `job`, to continue the session that has this JOB of the board. `peak_bytes_per_s` is the largest
    transfer rate of the board's memory.
    """

    identity: str
    hostname: str
    board_model: str
    source: str
    address: str
    started_us: int
    simulated: bool
    daemon_version: str = ""
    sdk_version: str = ""
    decoded_with: MapUsed = NO_MAP
    labels: Mapping[str, str] = field(default_factory=dict)
    always_new: bool = False
    job: str = ""
    keeping: str | None = None
    peak_bytes_per_s: float = PEAK_MEMORY_RATE


def begin_session(connection: sqlite3.Connection, start: SessionStart) -> tuple[int, int]:
    """Begin a session or continue one; return its number and its board's.

    A session of the same board and source is continued if it did not end, or is the newest and incomplete, unless it
    has another counter map, keeps other inferences, or has another value of a label.
    """
    with transaction(connection):
        board = _board_of(connection, start)
        session = _to_go_on_with(connection, board, start) or _add(connection, board, start)
        if start.job:
            # Joined at once, so that an import that is interrupted finds its session again by the JOB.
            join_job(connection, session, board, start.job, start.address)
            connection.execute("UPDATE session SET ended_us = NULL WHERE session = ?", (session,))
        _label_session(connection, session, start.labels)
    return session, board


def add_ended_session(connection: sqlite3.Connection, start: SessionStart, ended_us: int) -> tuple[int, int]:
    """Add a session that is over, in the open transaction; return its number and its board's."""
    board = _board_of(connection, start)
    session = _add(connection, board, start)
    connection.execute("UPDATE session SET ended_us = ? WHERE session = ?", (ended_us, session))
    _label_session(connection, session, start.labels)
    return session, board


def _board_of(connection: sqlite3.Connection, start: SessionStart) -> int:
    ((board,),) = connection.execute(
        "INSERT INTO board (identity, hostname, model) VALUES (?, ?, ?)"
        " ON CONFLICT (identity) DO UPDATE SET hostname = ifnull(nullif(excluded.hostname, ''), hostname),"
        " model = ifnull(nullif(excluded.model, ''), model) RETURNING board",
        (start.identity, start.hostname, start.board_model),
    ).fetchall()
    return int(board)


def _label_session(connection: sqlite3.Connection, session: int, labels: Mapping[str, str]) -> None:
    connection.executemany(
        "INSERT OR REPLACE INTO session_label VALUES (?, ?, ?)",
        [(session, key, value) for key, value in labels.items()],
    )


def _to_go_on_with(connection: sqlite3.Connection, board: int, start: SessionStart) -> int | None:
    if start.always_new:
        return None
    used = start.decoded_with
    if not start.job:
        about = (board, start.source, used.name, used.digest, start.keeping)
        ((session,),) = connection.execute(_UNFINISHED, about).fetchall()
        if session is None or _has_other_labels(connection, session, start.labels):
            return None
        take_up_again(connection, session)
        return int(session)
    found = connection.execute(_OF_JOB, (board, start.source, start.job)).fetchall()
    if not found:
        return None
    session, before = found[0][0], MapUsed(*found[0][1:])
    if before[:2] != used[:2]:
        raise UsageError(
            f"session {session} has {start.job} with counter map {_shown(before)}, not {_shown(used)}",
            hint=f"take the same map or another workspace, or have `profagent redecode {session}` exchange the map",
        )
    return int(session)


def _has_other_labels(connection: sqlite3.Connection, session: int, labels: Mapping[str, str]) -> bool:
    """Return True if a label of the session has another value now: it is another build, or another night."""
    rows = connection.execute("SELECT key, value FROM session_label WHERE session = ?", (session,)).fetchall()
    return any(labels.get(key, value) != value for key, value in rows)


def _shown(used: MapUsed) -> str:
    return "none" if used.name is None else f"{used.name} ({used.digest})"


def _add(connection: sqlite3.Connection, board: int, start: SessionStart) -> int:
    cursor = connection.execute(
        "INSERT INTO session (board, source, address, started_us, simulated, daemon_version, sdk_version, counter_map,"
        " counter_map_digest, counter_map_likely, keeping) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            board,
            start.source,
            start.address,
            start.started_us,
            int(start.simulated),
            start.daemon_version,
            start.sdk_version,
            *start.decoded_with,
            start.keeping,
        ),
    )
    return int(cursor.lastrowid or 0)

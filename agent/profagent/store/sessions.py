"""Sessions of a workspace: beginning one, going on with one, ending it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from profagent.errors import UsageError
from profagent.formats.plausible import PEAK_MEMORY_RATE
from profagent.store.transaction import transaction

if TYPE_CHECKING:
    import sqlite3

    from profagent.formats.countermap import CounterMap

# The marker may have come with another session, which named the JOB's counter map.
_SIMULATED_BEFORE = (
    "UPDATE session SET simulated = 1, (counter_map, counter_map_digest, counter_map_likely) ="
    " (SELECT s.counter_map, s.counter_map_digest, s.counter_map_likely"
    " FROM session s LEFT JOIN session_job j ON j.session = s.session AND job = ?2"
    " WHERE s.session = ?1 AND s.counter_map IS NOT NULL OR j.job IS NOT NULL AND s.simulated"
    " ORDER BY s.counter_map IS NULL, s.session <> ?1, s.counter_map DESC LIMIT 1) WHERE session = ?1"
    " AND EXISTS (SELECT 1 FROM log WHERE job = ?2 AND path = 'simulated' AND complete > 0)"
)


class MapUsed(NamedTuple):
    """The counter map that a session's records are decoded with, by name and by digest; None and None without one.

    `likely` names the counters that it is not certain of, with commas between; None where there is none.
    """

    name: str | None = None
    digest: str | None = None
    likely: str | None = None

    @staticmethod
    def of(counter_map: CounterMap | None) -> MapUsed:
        """A map as sessions name it."""
        if counter_map is None:
            return NO_MAP
        return MapUsed(counter_map.name, counter_map.fingerprint, ",".join(counter_map.likely) or None)


NO_MAP = MapUsed()


@dataclass(frozen=True, slots=True)
class SessionStart:
    """What is known when a capture begins. Times are host wall-clock microseconds.

    `job` is an import's: it goes on with the session that has this JOB of the board. `peak_bytes_per_s` is what the
    board's memory can move at most.
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
    """The numbers of the session and of its board.

    An unfinished session of the same board and source goes on, unless it has another counter map or keeps others.
    """
    with transaction(connection):
        board = _board(connection, start)
        session = _to_go_on_with(connection, board, start) or _add(connection, board, start)
        if start.job:
            _begin_job(connection, board, session, start)
        connection.executemany(
            "INSERT OR REPLACE INTO session_label VALUES (?, ?, ?)",
            [(session, key, value) for key, value in start.labels.items()],
        )
    return session, board


def join_job(connection: sqlite3.Connection, session: int, job: int) -> None:
    """A JOB is one of the session's, which is simulated where the JOB is."""
    connection.execute("INSERT OR IGNORE INTO session_job VALUES (?, ?)", (session, job))
    connection.execute(_SIMULATED_BEFORE, (session, job))


def remove_job(connection: sqlite3.Connection, board: int, name: str) -> None:
    """The board has a JOB no longer."""
    connection.execute("UPDATE job SET state = 'removed' WHERE board = ? AND name = ?", (board, name))


def end_session(connection: sqlite3.Connection, session: int, ended_us: int) -> None:
    """Mark a session as finished."""
    connection.execute("UPDATE session SET ended_us = ? WHERE session = ?", (ended_us, session))


def _board(connection: sqlite3.Connection, start: SessionStart) -> int:
    connection.execute(
        "INSERT INTO board (identity, hostname, model) VALUES (?, ?, ?)"
        " ON CONFLICT (identity) DO UPDATE SET hostname = ifnull(nullif(excluded.hostname, ''), hostname),"
        " model = ifnull(nullif(excluded.model, ''), model)",
        (start.identity, start.hostname, start.board_model),
    )
    return int(connection.execute("SELECT board FROM board WHERE identity = ?", (start.identity,)).fetchone()[0])


def _to_go_on_with(connection: sqlite3.Connection, board: int, start: SessionStart) -> int | None:
    if start.always_new:
        return None
    return _of_job(connection, board, start) if start.job else _unfinished(connection, board, start)


def _of_job(connection: sqlite3.Connection, board: int, start: SessionStart) -> int | None:
    row = connection.execute(
        "SELECT s.session, s.counter_map, s.counter_map_digest"
        " FROM session s JOIN session_job USING (session) JOIN job j USING (job)"
        " WHERE s.board = ? AND s.source = ? AND j.name = ?"
        " AND s.session NOT IN (SELECT session FROM cleared_session) ORDER BY s.session DESC LIMIT 1",
        (board, start.source, start.job),
    ).fetchone()
    if row is None:
        return None
    session, before = row[0], MapUsed(*row[1:])
    if before[:2] != start.decoded_with[:2]:
        raise UsageError(
            f"session {session} has {start.job} with counter map {_shown(before)}, not {_shown(start.decoded_with)}",
            hint=f"take the same map or another workspace, or have `profagent redecode {session}` exchange the map",
        )
    return int(session)


def _shown(used: MapUsed) -> str:
    return "none" if used.name is None else f"{used.name} ({used.digest})"


def _begin_job(connection: sqlite3.Connection, board: int, session: int, start: SessionStart) -> None:
    """An import that is interrupted is found again by its JOB."""
    connection.execute(
        "INSERT OR IGNORE INTO job (board, name, directory, state) VALUES (?, ?, ?, 'open')",
        (board, start.job, start.address),
    )
    connection.execute(
        "INSERT OR IGNORE INTO session_job SELECT ?, job FROM job WHERE board = ? AND name = ?",
        (session, board, start.job),
    )
    connection.execute("UPDATE session SET ended_us = NULL WHERE session = ?", (session,))


def _unfinished(connection: sqlite3.Connection, board: int, start: SessionStart) -> int | None:
    row = connection.execute(
        "SELECT max(session) FROM session WHERE board = ? AND source = ? AND ended_us IS NULL"
        " AND (counter_map IS ?3 AND ifnull(counter_map_digest, ?4) IS ?4 OR simulated AND ?3 IS NULL)"
        " AND keeping IS ?5",
        (board, start.source, *start.decoded_with[:2], start.keeping),
    ).fetchone()
    return None if row[0] is None else int(row[0])


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

"""Reading the database: a read-only connection of one's own, and rows as named tuples.

A scope is one JOB as one session captured it. Streams are read while they are used: nothing here holds a whole JOB.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.errors import StoreError, UsageError
from profagent.formats.names import parse_log_name
from profagent.store.database import check_version, connect_reading, version_of
from profagent.store.rows import LARGEST_INTEGER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

# Of `inference i`, for `:clockless` JOBs as well: without a clock, figures in ticks are known of whole inferences.
KNOWN = "(i.figures = 'final' OR (i.whole AND :clockless))"
# A writer commits a few times a second; readers begin within a millisecond.
MOST_BEGINNINGS = 100


class SessionRow(NamedTuple):
    """A session and its board; times are host microseconds."""

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


class JobRow(NamedTuple):
    """A JOB; `frequency_mhz` is None where its info.json is missing."""

    job: int
    name: str
    state: str
    frequency_mhz: int | None


class Scope(NamedTuple):
    """What an export is about."""

    session: SessionRow
    job: JobRow


class LayerRow(NamedTuple):
    """The layers of one profiling record, as one."""

    layer_id: int
    name: str
    type: str


class CallLog(NamedTuple):
    """An acl_api log; `batch_num` is the smallest of its model's inferences, 0 without any."""

    log: int
    device_id: int
    model_name: str
    model_id: int
    batch_num: int


class CallRow(NamedTuple):
    """An API call; `begin_us` is None for one that began before profiling was started."""

    name: str
    type: str
    begin_us: int | None
    end_us: int
    pid: int
    tid: int


class UnknownFigures(NamedTuple):
    """How many inferences have figures that are not final, and why."""

    figures: str
    why: str
    inferences: int


class LedgerRow(NamedTuple):
    """How often one thing was not as it should be."""

    grade: str
    reason: str
    occurrences: int


@contextmanager
def open_reader(file: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection that sees one state of the database all along.

    Raises StoreError when the file cannot be opened or read, or has another schema version.
    """
    with open_readers(file, 1) as (connection,):
        yield connection


@contextmanager
def open_readers(file: Path, count: int) -> Iterator[list[sqlite3.Connection]]:
    """Read-only connections that see one and the same state of the database, each for any one thread at a time.

    Raises StoreError as `open_reader`.
    """
    connections: list[sqlite3.Connection] = []
    try:
        connections = _begun(file, count)
        check_version(version_of(connections[0]), file)
        yield connections
    except sqlite3.Error as error:
        raise _unreadable(file, error) from error
    finally:
        _close(connections)


def find_session(connection: sqlite3.Connection, session: int | None = None) -> SessionRow:
    """The session of that number, or the newest; UsageError when there is none."""
    row = None
    if session is None or session <= LARGEST_INTEGER:
        row = connection.execute(
            "SELECT s.session, b.identity, b.hostname, s.source, s.started_us, s.simulated, s.daemon_version,"
            " s.sdk_version, s.counter_map, s.counter_map_digest, s.counter_map_likely"
            " FROM session s JOIN board b USING (board)"
            " WHERE ?1 IS NULL OR s.session = ?1 ORDER BY s.session DESC LIMIT 1",
            (session,),
        ).fetchone()
    if row is None:
        what = "no session" if session is None else f"no session {session}"
        raise UsageError(f"the database has {what}", hint="`profagent sessions` lists those it has")
    return SessionRow._make((*row[:5], bool(row[5]), *row[6:]))


def jobs_of(connection: sqlite3.Connection, session: int, name: str | None = None) -> list[JobRow]:
    """The session's JOBs by name, or the one of that name; UsageError when it has not that one."""
    rows = connection.execute(
        "SELECT j.job, j.name, j.state, j.frequency_mhz FROM session_job s JOIN job j USING (job)"
        " WHERE s.session = ?1 AND (?2 IS NULL OR j.name = ?2) ORDER BY j.name",
        (session, name),
    )
    jobs = list(map(JobRow._make, rows))
    if name is not None and not jobs:
        raise UsageError(f"session {session} has no {name}", hint="leave the JOB out to take all of the session's")
    return jobs


def has_records(connection: sqlite3.Connection, job: int, *kinds: str) -> bool:
    """Whether a JOB has bytes of logs of these kinds, whoever fetched them."""
    marks = ", ".join("?" * len(kinds))
    query = f"SELECT 1 FROM log WHERE job = ? AND kind IN ({marks}) AND offset > 0 LIMIT 1"  # noqa: S608 - marks
    return connection.execute(query, (job, *kinds)).fetchone() is not None


def log_sizes(connection: sqlite3.Connection, job: int) -> dict[str, int]:
    """The sizes of a JOB's logs by path."""
    rows = connection.execute("SELECT path, offset FROM log WHERE job = ?", (job,))
    return {os.fsdecode(path): offset for path, offset in rows}


def count_inferences(connection: sqlite3.Connection, scope: Scope) -> int:
    """How many sampled inferences of the JOB the session has."""
    (count,) = connection.execute(
        "SELECT count(*) FROM inference i JOIN model m USING (model) WHERE i.session = ? AND m.job = ?",
        (scope.session.session, scope.job.job),
    ).fetchone()
    return int(count)


def unknown_figures(connection: sqlite3.Connection, scope: Scope) -> list[UnknownFigures]:
    """Inferences of the JOB that the session has and whose figures are not final, by their state and reason."""
    rows = connection.execute(
        "SELECT i.figures, i.why, count(*) FROM inference i JOIN model m USING (model)"
        " WHERE i.session = ? AND m.job = ? AND i.figures <> 'final' GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2",
        (scope.session.session, scope.job.job),
    )
    return list(map(UnknownFigures._make, rows))


def layers_of(connection: sqlite3.Connection, model: int) -> dict[int, LayerRow]:
    """The layers of a model by their index; empty where its layer table is missing."""
    rows = connection.execute("SELECT layer_index, layer_id, name, type FROM layer WHERE model = ?", (model,))
    return {index: LayerRow(*row) for index, *row in rows}


def call_logs(connection: sqlite3.Connection, scope: Scope) -> list[CallLog]:
    """The acl_api logs of which the session has records."""
    rows = connection.execute(
        "SELECT l.log, l.path, m.name, m.model_id,"
        " (SELECT ifnull(min(i.batch_num), 0) FROM inference i WHERE i.model = m.model AND i.session = ?1)"
        " FROM log l JOIN model m USING (model) WHERE l.job = ?2 AND l.kind = 'acl_api'"
        " AND EXISTS (SELECT 1 FROM part p WHERE p.log = l.log AND p.session = ?1) ORDER BY m.name, m.model_id, l.log",
        (scope.session.session, scope.job.job),
    )
    return [CallLog(log, _device_of(path), *row) for log, path, *row in rows]


def calls(connection: sqlite3.Connection, scope: Scope, log: int) -> Iterator[CallRow]:
    """The session's records of an acl_api log, in the order of the file."""
    rows = connection.execute(
        "SELECT ifnull(n.name, 'unknown(' || r.api || ')'), ifnull(n.type, 'N/A'), nullif(r.begin_us, 0), r.end_us,"
        " r.pid, r.tid FROM part p JOIN api r ON r.record BETWEEN p.part << 24 AND (p.part << 24) + 0xFFFFFF"
        " LEFT JOIN api_name n USING (api) WHERE p.log = ? AND p.session = ? ORDER BY r.record",
        (log, scope.session.session),
    )
    return map(CallRow._make, rows)


def earliest_call_us(connection: sqlite3.Connection, scope: Scope) -> int | None:
    """The first known begin among the session's API calls of the JOB."""
    row = connection.execute(
        "SELECT min(nullif(r.begin_us, 0)) FROM log l JOIN part p USING (log)"
        " JOIN api r ON r.record BETWEEN p.part << 24 AND (p.part << 24) + 0xFFFFFF"
        " WHERE l.job = ? AND l.kind = 'acl_api' AND p.session = ?",
        (scope.job.job, scope.session.session),
    ).fetchone()
    return None if row[0] is None else int(row[0])


def ledger_of(connection: sqlite3.Connection, scope: Scope) -> list[LedgerRow]:
    """What is not as it should be in the JOB or in the whole session, by grade (losses first) and reason."""
    rows = connection.execute(
        "SELECT grade, reason, sum(count) FROM ledger_entry WHERE session = ? AND ifnull(job, ?2) = ?2"
        " GROUP BY grade, reason ORDER BY grade, reason",
        (scope.session.session, scope.job.job),
    )
    return list(map(LedgerRow._make, rows))


def ledger_entries(connection: sqlite3.Connection, session: int | None, job: str | None = None) -> list[dict[str, Any]]:
    """The rows of the view `ledger` of a session (None: the newest), by column name; UsageError without such a one."""
    number = find_session(connection, session).session
    if job is not None:
        jobs_of(connection, number, job)
    cursor = connection.execute(
        "SELECT * FROM ledger WHERE session = ?1 AND (?2 IS NULL OR ifnull(job, ?2) = ?2)"
        " ORDER BY grade, reason, job, log, first",
        (number, job),
    )
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _begun(file: Path, count: int) -> list[sqlite3.Connection]:
    """Connections that have begun a transaction on one and the same state.

    They are opened anew where another process wrote, or put another file there, between the first and the last.
    """
    for _ in range(MOST_BEGINNINGS):
        connections: list[sqlite3.Connection] = []
        try:
            inode = _inode(file)
            for _ in range(count):
                connections.append(connect_reading(file))  # noqa: PERF401 - to close those that opened
            before = [_data_version(connection) for connection in connections]
            for connection in connections:
                connection.execute("BEGIN")
            if before == [_data_version(each) for each in connections] and _inode(file) == inode:
                return connections
        except BaseException:
            _close(connections)
            raise
        _close(connections)
    raise sqlite3.OperationalError("it never stays the same for two readers")


def _inode(file: Path) -> int | None:
    try:
        return file.stat().st_ino
    except OSError:
        return None


def _close(connections: Iterable[sqlite3.Connection]) -> None:
    for connection in connections:
        connection.close()


def _data_version(connection: sqlite3.Connection) -> int:
    """It changes for a connection when another one writes."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def _unreadable(file: Path, error: Exception) -> StoreError:
    hint = (
        "check the path and its permissions, or import the JOB again; `profagent doctor --workspace DIR` says how a"
        " workspace's is made anew"
    )
    if file.exists() and not os.access(file.parent, os.W_OK, effective_ids=True):
        hint = (
            f"SQLite writes beside a database that it reads: copy {file.parent} to where you may write, name the copy"
        )
    return StoreError(f"cannot read the database {file}: {error}", hint=hint)


def _device_of(path: str | bytes) -> int:
    name = parse_log_name(os.fsdecode(path))
    return 0 if name is None or name.device is None else name.device

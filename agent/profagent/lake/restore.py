"""Restoring sessions whose records only a lake has: their database is rebuilt in a file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from profagent.errors import LakeError, ProfagentError
from profagent.files import to_the_end
from profagent.lake.push import DATABASES, RECORDS, VIEWS, name_of
from profagent.store.columns import TABLES, UNITS
from profagent.store.database import fetched_one, read_only, reading
from profagent.store.subset import digests_of, sharing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from profagent.lake.lake import Lake
    from profagent.store.workspace import Workspace

_NAME = "SELECT session, identity, started_us FROM session JOIN board USING (board) WHERE session"
_COUNTERS = "mac_busy, mac_ppen, vec_busy, vec_ppen, dstr, dtrans, dld, wld, scalar, ddr_read_bytes, ddr_write_bytes"
_EXPIRED = "`profagent fleet expire` deletes old ones; `profagent stats` and `report` show the session's figures"
# Expressions over a lake's columns, in the order of the columns of the units' tables.
_COLUMNS = {
    "aicore": f"record, segment_key, sequence, layer_index, ticks, ticks_before, {_COUNTERS}",
    "aicpu": "record, segment_key, sequence, layer_index, start_us, start_us + CAST(duration_us AS BIGINT)",
}


async def restored(workspace: Workspace, session: int, lake: Lake, file: Path) -> None:
    """Write the database of a session to a file, as it was when it was pushed. Raises LakeError, StoreError.

    Sessions that share a JOB with it are included.
    """
    async with reading(workspace.readable_database()) as connection:
        found = await fetched_one(connection, f"{_NAME} = ?", (session,))
    await to_the_end(_restore, workspace, tuple(found), lake, file)


async def why_not_restorable(workspace: Workspace, session: int, lake: Lake) -> str | None:
    """Return the reason why a lake cannot restore a session as it is here, None if it can. Raises StoreError.

    The restored database is compared with the local one, table by table, by numbers of rows and by digests.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "session.db"
        try:
            await restored(workspace, session, lake, file)
        except ProfagentError as error:
            return f"cannot be restored: {error}"
        here = await to_the_end(_digests, workspace.readable_database(), session)
        there = await to_the_end(_digests, file, session)
    other = [table for table in here if here[table] != there[table]]
    return f"has other rows in {lake.address}: {', '.join(other)}" if other else None


def _digests(database: Path, session: int) -> dict[str, tuple[int, str]]:
    with closing(sqlite3.connect(read_only(database), uri=True)) as connection:
        return digests_of(connection, sharing(connection, "main", session), "log", "inference")


def _restore(workspace: Workspace, session: tuple[Any, ...], lake: Lake, file: Path) -> None:
    row = _required(workspace, session, lake)
    with file.open("wb") as out:
        for batch in lake.rows(DATABASES, row, "SELECT data FROM rows ORDER BY place"):
            for piece in batch.column(0):
                out.write(piece.as_buffer())
    if not file.stat().st_size:
        raise LakeError(f"{lake.address} has no records of session {session[0]} any more", hint=_EXPIRED)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        # The file is temporary and can be restored again: neither a journal nor durability is needed.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        for other in connection.execute(f"{_NAME} IN (SELECT session FROM part)").fetchall():  # noqa: S608
            _insert_records(connection, lake, _required(workspace, other, lake))
        connection.execute("COMMIT")


def _insert_records(connection: sqlite3.Connection, lake: Lake, row: Mapping[str, Any]) -> None:
    count = 0
    for unit, view in zip(UNITS, VIEWS[RECORDS], strict=True):
        query = f"SELECT {_COLUMNS[unit]} FROM rows WHERE source_view = '{view}'"  # noqa: S608 - names of ours
        for batch in lake.rows(RECORDS, row, query):
            marks = ", ".join("?" * batch.num_columns)
            columns = [column.to_pylist() for column in batch.columns]
            connection.executemany(f"INSERT INTO {TABLES[unit]} VALUES ({marks})", zip(*columns, strict=True))  # noqa: S608
            count += batch.num_rows
    if count != row[RECORDS]:
        number, pushed = row["number"], row[RECORDS]
        raise LakeError(f"{lake.address} has {count} of {pushed} records of session {number}", hint=_EXPIRED)


def _required(workspace: Workspace, session: tuple[Any, ...], lake: Lake) -> dict[str, Any]:
    row = lake.pushed(name_of(workspace, *session))
    if row is None:
        hint = f"`profagent push {session[0]}` brings it there, while its records are here"
        raise LakeError(f"there is no session {session[0]} of {workspace.root} in {lake.address}", hint=hint)
    return row

"""`redecode`: the counter columns of what is stored already, from the bytes that are kept, with another map."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from profagent.errors import StoreError, UsageError
from profagent.files import content, disk_full, is_full_database
from profagent.importing.job_folder import alone_in_job, job_database, new_database
from profagent.store.clearing import require_records
from profagent.store.counters import Filled, exchange_counters
from profagent.store.database import open_for_writing
from profagent.store.queries import find_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from profagent.formats.countermap import CounterMap
    from profagent.store.counter_maps import CounterMaps
    from profagent.store.counters import JobBytes
    from profagent.store.workspace import Workspace

__all__ = ["Redecoded", "redecode_job", "redecode_session"]

HINT = "nothing was changed; check the permissions and the free space, and call it again"


class Redecoded(NamedTuple):
    """What was done to a session; `before` is the map that it had, None without one."""

    session: int
    before: str | None
    counter_map: CounterMap
    filled: Filled


def redecode_session(
    workspace: Workspace, session: int, maps: CounterMaps, progress: Callable[[int], None] = lambda _: None
) -> Redecoded:
    """Fill a session's counter columns from the mirror. Raises UsageError, WorkspaceBusyError, StoreError."""

    def bytes_of(board: str, job: str, path: str, start: int, size: int) -> bytes:
        return content(f"{workspace.board_mirror(board) / job}/{path}", size, start) or b""

    workspace.readable_database()
    with workspace.locked():
        return _redecoded(workspace.database, session, maps, bytes_of, progress, durable=True)


async def redecode_job(directory: Path, maps: CounterMaps, tell: Callable[[str], None] = lambda _: None) -> Redecoded:
    """Fill the counter columns of a JOB directory's own database, which is there, from the directory's files.

    The database is replaced when all is done; an import of the JOB is waited for. Raises UsageError, StoreError.
    """

    def bytes_of(board: str, job: str, path: str, start: int, size: int) -> bytes:  # noqa: ARG001 - there is one JOB
        return content(f"{directory}/{path}", size, start) or b""

    async with alone_in_job(directory, tell):
        database = job_database(directory)
        # It is of the files as they were imported.
        async with new_database(directory, made_ns=database.stat().st_mtime_ns) as draft:
            await asyncio.to_thread(shutil.copyfile, database, draft)
            return await asyncio.to_thread(_redecoded, draft, None, maps, bytes_of, durable=False)


def _redecoded(
    database: Path,
    session: int | None,
    maps: CounterMaps,
    bytes_of: JobBytes,
    progress: Callable[[int], None] = lambda _: None,
    *,
    durable: bool,
) -> Redecoded:
    try:
        with closing(open_for_writing(database, durable=durable)) as connection:
            found = find_session(connection, session)
            require_records(connection, found.session)
            counter_map = maps.of(simulated=found.simulated, sdk=found.sdk_version)
            if counter_map is None:
                raise UsageError("no counter map alone fits the session", hint="name one with --counter-map FILE")
            filled = exchange_counters(
                connection, found.session, counter_map, bytes_of, progress, peak_bytes_per_s=maps.peak_bytes_per_s
            )
    except sqlite3.Error as error:
        if is_full_database(error, database.parent):
            raise disk_full(database.parent) from error
        raise StoreError(f"cannot write {database}: {error}", hint=HINT) from error
    except OSError as error:
        raise StoreError(f"cannot read the records' bytes: {error}", hint=HINT) from error
    return Redecoded(found.session, found.counter_map, counter_map, filled)

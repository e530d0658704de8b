"""`profagent redecode`."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from profagent.cli import options
from profagent.cli.running import asynchronous, tell
from profagent.cli.table import printable
from profagent.errors import IncompleteError, StoreError, UsageError
from profagent.files import content
from profagent.importing.job_folder import alone_in_job, job_database, named_target, new_database
from profagent.store.counter_maps import BUILT_IN
from profagent.store.counters import Filled, exchange_counters
from profagent.store.database import reading
from profagent.store.queries import find_session
from profagent.store.sessions import require_records
from profagent.store.store import Store
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from profagent.formats.countermap import CounterMap
    from profagent.store.counter_maps import CounterMaps

HINT = "nothing was changed; check the permissions and the free space, and call it again"


class Redecoded(NamedTuple):
    """What was done to a session; `before` is the map that it had, None without one."""

    session: int
    before: str | None
    counter_map: CounterMap
    filled: Filled


async def redecode_session(
    workspace: Workspace, session: int, maps: CounterMaps, progress: Callable[[int], None] = lambda _: None
) -> Redecoded:
    """Fill a session's counter columns from the mirror. Raises UsageError, WorkspaceBusyError, StoreError."""
    workspace.readable_database()
    with workspace.locked():
        return await _redecoded(
            workspace.database,
            session,
            maps,
            lambda board, job: workspace.board_mirror(board) / job,
            progress,
            durable=True,
        )


async def redecode_job(directory: Path, maps: CounterMaps, tell: Callable[[str], None] = lambda _: None) -> Redecoded:
    """Fill the counter columns of a JOB directory's own database, which is there, from the directory's files.

    The database is replaced when all is done; an import of the JOB is waited for. Raises UsageError, StoreError.
    """
    async with alone_in_job(directory, tell):
        database = job_database(directory)
        # It is of the files as they were imported.
        async with new_database(directory, made_ns=database.stat().st_mtime_ns) as draft:
            await asyncio.to_thread(shutil.copyfile, database, draft)
            return await _redecoded(draft, None, maps, lambda *_: directory, durable=False)


async def _redecoded(
    database: Path,
    session: int | None,
    maps: CounterMaps,
    folder_of: Callable[[str, str], Path],
    progress: Callable[[int], None] = lambda _: None,
    *,
    durable: bool,
) -> Redecoded:
    def bytes_of(board: str, job: str, path: str, start: int, size: int) -> bytes:
        return content(f"{folder_of(board, job)}/{path}", size, start) or b""

    async with reading(database) as connection:
        found = await find_session(connection, session)
        await require_records(connection, found.session)
    counter_map = maps.of(simulated=found.simulated, sdk=found.sdk_version)
    if counter_map is None:
        raise UsageError("no counter map alone fits the session", hint="name one with --counter-map FILE")
    try:
        async with Store(database, durable=durable) as store:
            filled = await store.run(
                lambda connection: exchange_counters(connection, found.session, counter_map, bytes_of, progress)
            )
            await store.note_counters(found.session, maps.peak_bytes_per_s)
    except OSError as error:
        raise StoreError(f"cannot read the records' bytes: {error}", hint=HINT) from error
    return Redecoded(found.session, found.counter_map, counter_map, filled)


@click.command("redecode")
@click.argument("target", metavar="SESSION|JOB")
@options.workspace
@options.counter_map
@options.as_json
@asynchronous
async def command(*, target: str, workspace: Path | None, maps: CounterMaps, as_json: bool) -> int:
    """Fill the counter columns of a session or JOB with another counter map.

    A number is a session of the workspace; a JOB directory is imported first when needed. When it fails or is
    killed, all columns are as before. Exit code 4: bytes of some records are not kept any more; these have no counters.

    Example: profagent redecode 3 --counter-map ss928.toml
    """
    found = await named_target(target, None, workspace, BUILT_IN)
    if found.session is None:
        done = await redecode_job(found.folder, maps, tell)
    else:
        done = await redecode_session(Workspace.at(workspace), found.session, maps)
    known, filled = done.counter_map, done.filled
    if as_json:
        document = {
            "session": done.session,
            "counter_map_before": done.before,
            "counter_map": known.name,
            "counter_map_digest": known.fingerprint,
            "rows": filled.rows,
            "rows_without_bytes": filled.without_bytes,
        }
        click.echo(msgspec.json.encode(document))
    else:
        has = f"{filled.rows:,} rows have the {len(known.counters)} counters of {known.name}"
        told = f"session {done.session}: {has}, digest {known.fingerprint}; before: {done.before or 'none'}"
        click.echo(printable(told))
        if filled.without_bytes:
            click.echo(f"{filled.without_bytes:,} rows have none: their bytes are not kept any more")
    return IncompleteError.exit_code if filled.without_bytes else 0

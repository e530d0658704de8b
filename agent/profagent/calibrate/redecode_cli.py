"""The command `profagent redecode`."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

import click

from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.progress import progress
from profagent.cli.running import asynchronous, tell
from profagent.cli.target import named_target
from profagent.errors import IncompleteError, StoreError, UsageError
from profagent.files import content
from profagent.formats.counter_maps import BUILT_IN
from profagent.store.counters import exchange_counters
from profagent.store.database import reading
from profagent.store.job_folder import alone_in_job, job_database, new_database
from profagent.store.queries import find_session, jobs_of
from profagent.store.sessions import require_records
from profagent.store.store import Store
from profagent.store.workspace import Workspace
from profagent.tables.table import counted, printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from profagent.formats.counter_maps import CounterMaps


async def redecode_session(workspace: Workspace, session: int, maps: CounterMaps) -> dict[str, Any]:
    """Fill the counter columns of a session from the mirror.

    Raises UsageError, WorkspaceBusyError, StoreError.
    """
    workspace.readable_database()
    # The lock excludes recordings and imports, which write to the same database.
    with workspace.locked():
        return await _redecoded(
            workspace.database,
            session,
            maps,
            lambda board, job: workspace.board_mirror(board) / job,
            durable=True,
        )


async def redecode_job(
    directory: Path, maps: CounterMaps, tell: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Fill the counter columns of a JOB directory's own database, which must exist, from the directory's files.

    The database is replaced at the end; an import of the JOB is waited for. Raises UsageError, StoreError.
    """
    async with alone_in_job(directory, tell):
        database = job_database(directory)
        # The new database keeps the time of the old one, because it has the files as they were at that import.
        async with new_database(directory, made_ns=database.stat().st_mtime_ns) as draft:
            await asyncio.to_thread(shutil.copyfile, database, draft)
            return await _redecoded(draft, None, maps, lambda *_: directory, durable=False)


async def _redecoded(
    database: Path,
    session: int | None,
    maps: CounterMaps,
    folder_of: Callable[[str, str], Path],
    *,
    durable: bool,
) -> dict[str, Any]:
    def bytes_of(board: str, job: str, path: str, start: int, size: int) -> bytes:
        return content(f"{folder_of(board, job)}/{path}", size, start) or b""

    async with reading(database) as connection:
        found = await find_session(connection, session)
        await require_records(connection, found.session)
        if any(job.family is not None for job in await jobs_of(connection, found.session)):
            raise UsageError(
                f"session {found.session} has results of another tool; counter maps apply to SS928 records only",
                hint="use its counters as the other tool wrote them",
            )
    counter_map = maps.of(simulated=found.simulated, sdk=found.sdk_version)
    if counter_map is None:
        raise UsageError(
            "there is not exactly one counter map that fits the session", hint="name one with --counter-map FILE"
        )
    try:
        async with Store(database, durable=durable) as store:
            with progress("redecode", "records") as shown:
                # All rows change in one transaction: after a failure every column is as before.
                rows, without_bytes = await store.run(
                    lambda connection: exchange_counters(connection, found.session, counter_map, bytes_of, shown)
                )
            await store.note_counters(found.session, maps.peak_bytes_per_s)
    except OSError as error:
        hint = "nothing was changed; check the permissions and the free space, and call it again"
        raise StoreError(f"cannot read the records' bytes: {error}", hint=hint) from error
    return {
        "session": found.session,
        "counter_map_before": found.counter_map,
        "counter_map": counter_map.name,
        "counter_map_digest": counter_map.fingerprint,
        "rows": rows,
        "rows_without_bytes": without_bytes,
    }


@click.command("redecode", cls=options.SessionCommand)
@options.target
@options.workspace
@options.counter_map
@options.as_json
@options.quiet
@asynchronous
async def command(*, target: str, workspace: Path | None, maps: CounterMaps, as_json: bool) -> int:
    """Fill the counter columns of a session or JOB with another counter map.

    A JOB directory is imported first if necessary. If the command fails or is killed, all columns stay as they were.
    Exit code 4: the bytes of some records are no longer in the mirror, so these records have no counters.

    Example: profagent redecode 3 --counter-map ss928.toml
    Example: profagent redecode JOB… --counter-map ss928.toml
    """
    found = await named_target(target, None, workspace, BUILT_IN)
    if found.session is None:
        done = await redecode_job(found.folder, maps, tell)
    else:
        done = await redecode_session(Workspace.at(workspace), found.session, maps)
    if as_json:
        print_document("redecode", done)
    else:
        has = f"{counted(done['rows'], 'row')} with the counters of {done['counter_map']}"
        has += f", digest {done['counter_map_digest']}"
        click.echo(printable(f"session {done['session']}: {has}; before: {done['counter_map_before'] or 'none'}"))
        if done["rows_without_bytes"]:
            click.echo(
                f"{counted(done['rows_without_bytes'], 'row')} without counters: the mirror no longer has their bytes"
            )
    return IncompleteError.exit_code if done["rows_without_bytes"] else 0

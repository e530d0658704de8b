"""`profagent redecode`."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from profagent.cli import options
from profagent.cli.running import run_to_the_end, tell
from profagent.cli.table import printable
from profagent.errors import IncompleteError, StoreError, UsageError
from profagent.files import content
from profagent.importing.job_folder import alone_in_job, job_database, new_database
from profagent.importing.targets import named_target
from profagent.store.clearing import require_records
from profagent.store.counter_maps import BUILT_IN
from profagent.store.counters import Filled, exchange_counters
from profagent.store.queries import find_session, open_reader
from profagent.store.store import Store
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from profagent.formats.countermap import CounterMap
    from profagent.store.counter_maps import CounterMaps
    from profagent.store.counters import JobBytes


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

    def bytes_of(board: str, job: str, path: str, start: int, size: int) -> bytes:
        return content(f"{workspace.board_mirror(board) / job}/{path}", size, start) or b""

    workspace.readable_database()
    with workspace.locked():
        return await _redecoded(workspace.database, session, maps, bytes_of, progress, durable=True)


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
            return await _redecoded(draft, None, maps, bytes_of, durable=False)


async def _redecoded(
    database: Path,
    session: int | None,
    maps: CounterMaps,
    bytes_of: JobBytes,
    progress: Callable[[int], None] = lambda _: None,
    *,
    durable: bool,
) -> Redecoded:
    with open_reader(database) as connection:
        found = find_session(connection, session)
        require_records(connection, found.session)
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
def command(*, target: str, workspace: Path | None, maps: CounterMaps, as_json: bool) -> int:
    """Fill the counter columns of a session or JOB with another counter map.

    A number is a session of the workspace; a JOB directory is imported first when needed. When it fails or is
    killed, all columns are as before. Exit code 4: bytes of some records are not kept any more; these have no counters.

    Example: profagent redecode 3 --counter-map ss928.toml
    """
    found = named_target(target, None, workspace, BUILT_IN)
    if found.session is None:
        done = run_to_the_end(lambda: redecode_job(found.folder, maps, tell))
    else:
        session = found.session
        done = run_to_the_end(lambda: redecode_session(Workspace.at(workspace), session, maps))
    if as_json:
        click.echo(msgspec.json.encode(_document(done)))
    else:
        for line in _lines(done):
            click.echo(printable(line))
    return IncompleteError.exit_code if done.filled.without_bytes else 0


def _document(done: Redecoded) -> dict[str, object]:
    return {
        "session": done.session,
        "counter_map_before": done.before,
        "counter_map": done.counter_map.name,
        "counter_map_digest": done.counter_map.fingerprint,
        "rows": done.filled.rows,
        "rows_without_bytes": done.filled.without_bytes,
    }


def _lines(done: Redecoded) -> Iterator[str]:
    known = done.counter_map
    yield (
        f"session {done.session}: {done.filled.rows:,} rows have the {len(known.counters)} counters of {known.name},"
        f" digest {known.fingerprint}; before: {done.before or 'none'}"
    )
    if done.filled.without_bytes:
        yield f"{done.filled.without_bytes:,} rows have none: their bytes are not kept any more"

"""Target of a command, a session or a JOB directory: the one place that interprets its words and options."""

from __future__ import annotations

import asyncio
import pkgutil
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from profagent.cli import options
from profagent.cli.running import tell
from profagent.errors import ProfagentError, UsageError
from profagent.formats.counter_maps import BUILT_IN
from profagent.formats.job_files import why_no_layers
from profagent.store.database import FILE_NAME, fetched_one, reading
from profagent.store.job_folder import alone_in_job, fresh_database, own_folder, write_log
from profagent.store.queries import find_session, has_records, jobs_of, log_sizes
from profagent.store.selection import Choice
from profagent.store.sessions import is_cleared, lake_of
from profagent.store.summary import event_counts
from profagent.store.workspace import SESSION_FORMS, Workspace, session_named, session_query
from profagent.tables.table import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.formats.counter_maps import CounterMaps


F = TypeVar("F", bound="Callable[..., Any]")
# Import of a JOB: loaded only when one has to be imported, so that commands that only read start faster.
_IMPORT = "profagent.importing.importing:import_alone"
# Restoring from a lake: loaded only for it, because it needs optional packages.
_RESTORE = "profagent.lake.cli:restored_from"
# Reason and remedy for results of another tool that have no layers.
NO_KERNELS = (
    "no file of it tells kernels",
    "its rows are in the view `ascend_values`; op_summary, kernel_details, timelines and databases have kernels",
)
_IS_OVER = "SELECT ended_us IS NOT NULL FROM session WHERE session = ?"


@dataclass(frozen=True, slots=True)
class Target:
    """Database, the session and JOB in it (None: the newest, all), and the folder for results.

    `maps` are the counter maps that the user chose, also for results beside the database.
    """

    database: Path
    folder: Path
    session: int | None = None
    job: str | None = None
    maps: CounterMaps = BUILT_IN

    def output(self, name: str) -> Path:
        """Return the folder for results of that name. Raises StoreError if a link in a JOB stands in its place."""
        return self.folder / name if self.session is not None else own_folder(self.folder, name)


def target_options(function: F) -> F:
    """Add the argument `SESSION|JOB` and its options, which the command receives as one `target`."""

    @wraps(function)
    async def with_target(
        *, target: str, job: str | None, workspace: Path | None, maps: CounterMaps, **others: Any
    ) -> Any:
        return await function(target=await named_target(target, job, workspace, maps), **others)

    return cast("F", options.target(options.workspace(options.job(options.counter_map(with_target)))))


def vendor_target_options(function: F) -> F:
    """Add `SESSION|JOB`, the vendor's `-dir JOB` and their options, which the command receives as one `target`."""

    @wraps(function)
    async def with_target(
        *,
        target: str | None,
        directory: Path | None,
        job: str | None,
        workspace: Path | None,
        maps: CounterMaps,
        **others: Any,
    ) -> Any:
        if (target is None) == (directory is None):
            raise UsageError(
                "name either a session or a JOB directory", hint=f"a session is {SESSION_FORMS}; or -dir JOB…"
            )
        found = await (
            job_target(directory, job, workspace, maps)
            if directory is not None
            else named_target(cast("str", target), job, workspace, maps)
        )
        return await function(target=found, **others)

    command = options.workspace(options.job(options.counter_map(with_target)))
    return cast("F", options.optional_target(options.job_directory(required=False)(command)))


def choice_options(function: F) -> F:
    """Add `--last N` and `--inference PIC`, which the command receives as one `choice`."""

    @click.option("--last", type=click.IntRange(min=1), metavar="N", help="Each model's last N inferences.")
    @click.option("--inference", type=click.IntRange(min=0), metavar="PIC", help="The one at this picture count.")
    @wraps(function)
    def with_choice(*, last: int | None, inference: int | None, **others: Any) -> Any:
        return function(choice=Choice(inference, last), **others)

    return cast("F", with_choice)


def directory_named(target: str) -> Path | None:
    """Return the JOB directory that a word names; None if it names a session. Raises UsageError for neither."""
    directory = Path(target)
    if directory.is_dir():
        return directory
    if session_query(target) is None and "/" in target:
        raise UsageError(f"the JOB directory {target} does not exist", hint=f"a session is {SESSION_FORMS}")
    return None


async def named_target(target: str, job: str | None, workspace: Path | None, maps: CounterMaps) -> Target:
    """Return the target that a word names: a session, or a JOB directory, which is imported first if necessary.

    Raises UsageError, StoreError.
    """
    directory = directory_named(target)
    if directory is not None:
        return await job_target(directory, job, workspace, maps)
    where = Workspace.at(workspace)
    session = await session_named(where, target)
    if maps.named is not None:
        raise UsageError(
            "--counter-map goes with a JOB directory",
            hint=f"`profagent redecode {session} --counter-map FILE` fills a session's columns",
        )
    database = await _with_records(where, session)
    return Target(database, where.root / "exports" / f"session-{session}", session, job, maps)


async def _with_records(workspace: Workspace, session: int) -> Path:
    database = workspace.readable_database()
    async with reading(database) as connection:
        address = await lake_of(connection, session)
    if address is None:
        return database
    # The temporary folder lives as long as the command, which may read the database until its end.
    restored = Path(click.get_current_context().with_resource(TemporaryDirectory(prefix="profagent-"))) / FILE_NAME
    try:
        await pkgutil.resolve_name(_RESTORE)(workspace, session, address, restored)
    except ProfagentError as error:
        # The local database still has the session's figures, so that the command can go on with these.
        tell(f"session {session} is not read from {address}: {error}")
        tell(f"  {error.hint}")
        return database
    return restored


async def job_target(directory: Path, job: str | None, workspace: Path | None, maps: CounterMaps) -> Target:
    """Return the target of a JOB directory, which is imported first if necessary. Raises UsageError, StoreError."""
    for option, value in (("--job", job), ("--workspace", workspace)):
        if value is not None:
            raise UsageError(f"{option} goes with a session", hint=f"leave it out: {directory} is a JOB directory")
    database = await imported_database(directory, maps, tell=tell)
    return Target(database, directory, job=(await asyncio.to_thread(directory.resolve)).name, maps=maps)


async def imported_database(directory: Path, maps: CounterMaps = BUILT_IN, *, tell: Callable[[str], None]) -> Path:
    """Return the database of a JOB directory, imported if there is no fresh one."""
    database = await fresh_database(directory, maps)
    if database is not None:
        return database
    import_alone = pkgutil.resolve_name(_IMPORT)
    async with alone_in_job(directory, tell):
        # The process that held the lock may have imported it meanwhile.
        database = await fresh_database(directory, maps)
        if database is None:
            tell(f"importing {directory}")
            imported = await import_alone(directory, maps)
            write_log(directory, [f"import: {counted(imported.files, 'file')} in {imported.elapsed_s:.1f} s"])
            database = imported.database
    return database


async def tell_unrecorded(database: Path, session: int | None = None, job: str | None = None) -> int:
    """Remark why JOBs without layers have none; return the exit code, 1 if there is no record of any kind.

    `session` None is the newest. There is no remark about a session that goes on, because its layers may still come,
    nor about one whose records `gc` deleted.
    """
    async with reading(database) as connection:
        number = (await find_session(connection, session)).session
        (is_over,) = await fetched_one(connection, _IS_OVER, (number,))
        jobs = [] if await is_cleared(connection, number) else await jobs_of(connection, number, job)
        is_empty = bool(jobs)
        for each in jobs:
            has_layers = await has_records(connection, each.job, "aicore")
            is_empty &= not has_layers and not await has_records(connection, each.job, "aicpu", "acl_api")
            if is_over and not has_layers:
                sizes = await log_sizes(connection, each.job)
                why, remedy = why_no_layers(sizes) if each.family is None else NO_KERNELS
                tell(f"{each.name}: {why}")
                tell(f"  {remedy}")
        return int(is_empty and not any((await event_counts(connection, number)).values()))

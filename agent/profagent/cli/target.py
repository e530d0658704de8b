"""Target of a command, a session or a JOB directory: its arguments and options."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from profagent.cli import options
from profagent.cli.running import tell
from profagent.errors import UsageError
from profagent.formats.job_files import why_no_layers
from profagent.store.database import fetched_one, reading
from profagent.store.queries import find_session, has_records, jobs_of, log_sizes
from profagent.store.selection import Choice
from profagent.store.sessions import is_cleared
from profagent.store.summary import event_counts
from profagent.store.target import directory_named, directory_target, session_target
from profagent.store.workspace import SESSION_FORMS, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.formats.counter_maps import CounterMaps
    from profagent.store.target import Target


F = TypeVar("F", bound="Callable[..., Any]")
# Reason and remedy for results of another tool that have no layers.
NO_KERNELS = (
    "no file of it tells kernels",
    "its rows are in the view `ascend_values`; op_summary, kernel_details, timelines and databases have kernels",
)
_IS_OVER = "SELECT ended_us IS NOT NULL FROM session WHERE session = ?"


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

    @click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N inferences of each model.")
    @click.option(
        "--inference", type=click.IntRange(min=0), metavar="PIC", help="Only the inference at this picture count."
    )
    @wraps(function)
    def with_choice(*, last: int | None, inference: int | None, **others: Any) -> Any:
        return function(choice=Choice(inference, last), **others)

    return cast("F", with_choice)


async def named_target(target: str, job: str | None, workspace: Path | None, maps: CounterMaps) -> Target:
    """Return the target that a word names: a session, or a JOB directory, which is imported first if necessary.

    Raises UsageError, StoreError.
    """
    directory = directory_named(target)
    if directory is not None:
        return await job_target(directory, job, workspace, maps)
    found = await session_target(target, job, Workspace.at(workspace), tell=tell, folder=_temporary_folder)
    if maps.named is not None:
        raise UsageError(
            "--counter-map goes with a JOB directory",
            hint=f"`profagent redecode {found.session} --counter-map FILE` fills a session's columns",
        )
    return found


def _temporary_folder() -> Path:
    """Return a folder that lives as long as the command, which may read a database there until its end."""
    return Path(click.get_current_context().with_resource(TemporaryDirectory(prefix="profagent-")))


async def job_target(directory: Path, job: str | None, workspace: Path | None, maps: CounterMaps) -> Target:
    """Return the target of a JOB directory, which is imported first if necessary. Raises UsageError, StoreError."""
    for option, value in (("--job", job), ("--workspace", workspace)):
        if value is not None:
            raise UsageError(f"{option} goes with a session", hint=f"leave it out: {directory} is a JOB directory")
    return await directory_target(directory, maps, tell=tell)


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

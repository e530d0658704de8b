"""What `export`, `show` and `stats` work on: a JOB directory, or a session of a workspace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from profagent.cli import options
from profagent.doctor.job import why_no_layers
from profagent.errors import UsageError
from profagent.importing.job_folder import fresh_database, imported_database, own_folder
from profagent.store.clearing import is_cleared
from profagent.store.queries import find_session, has_records, jobs_of, log_sizes, open_reader
from profagent.store.selection import Choice
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.store.counter_maps import CounterMaps


class Unrecorded(NamedTuple):
    """A JOB without layers; `is_empty`: nor has it any other record."""

    job: str
    why: str
    remedy: str
    is_empty: bool


def unrecorded_jobs(database: Path, session: int | None, job: str | None) -> tuple[list[Unrecorded], bool]:
    """The session's JOBs without layers, or the one that is named, and whether no JOB has any record. StoreError.

    `session` None is the newest. Of one whose records `gc` deleted nothing is told.
    """
    with open_reader(database) as connection:
        number = find_session(connection, session).session
        if is_cleared(connection, number):
            return [], False
        jobs = jobs_of(connection, number, job)
        found = [
            Unrecorded(
                each.name,
                *why_no_layers(log_sizes(connection, each.job)),
                is_empty=not has_records(connection, each.job, "aicpu", "acl_api"),
            )
            for each in jobs
            if not has_records(connection, each.job, "aicore")
        ]
    return found, len(found) == len(jobs) and all(each.is_empty for each in found)


F = TypeVar("F", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True)
class Target:
    """A database, the session and JOB in it (None: the newest, all), and the folder that results belong to."""

    database: Path
    folder: Path
    session: int | None = None
    job: str | None = None

    def output(self, name: str) -> Path:
        """The folder of results of that name. StoreError where a link stands in its place in a JOB."""
        return self.folder / name if self.session is not None else own_folder(self.folder, name)


def target_options(function: F) -> F:
    """`-dir JOB` or `--session N`, with what goes with them."""
    for add in (
        options.counter_map,
        options.workspace,
        click.option("--job", metavar="NAME", help="Only this JOB of the session."),
        click.option("--session", type=int, metavar="N", help="A session of the workspace, in place of -dir."),
        click.option(
            "-dir",
            "--collection-dir",
            "directory",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="JOB",
            help="The JOB… directory, which holds data/ and info.json.0.",
        ),
    ):
        function = add(function)
    return function


def choice_options(function: F) -> F:
    """`--last N` and `--inference PIC`."""
    for add in (
        click.option("--inference", type=click.IntRange(min=0), metavar="PIC", help="The one at this picture count."),
        click.option("--last", type=click.IntRange(min=1), metavar="N", help="Each model's last N inferences."),
    ):
        function = add(function)
    return function


def chosen_inferences(last: int | None, inference: int | None, default: Choice) -> Choice:
    """The choice that the options make."""
    return default if last is None and inference is None else Choice(last=last, inference=inference)


def find_target(
    directory: Path | None, session: int | None, job: str | None, workspace: Path | None, maps: CounterMaps
) -> Target:
    """What the options name; a JOB directory is imported first when needed. Raises UsageError, StoreError."""
    if (directory is None) == (session is None):
        raise UsageError("name either a JOB directory or a session", hint="-dir JOB… or --session N")
    if directory is None:
        return _session_target(Workspace.at(workspace), session, job, maps)
    if job is not None or workspace is not None:
        raise UsageError("--job and --workspace go with --session", hint="leave them out with -dir")
    return _job_target(directory, maps)


def named_target(target: str, job: str | None, workspace: Path | None, maps: CounterMaps) -> Target:
    """What one word names: a JOB directory, or a session by its number. Raises UsageError, StoreError."""
    if target.isdecimal() and not Path(target).is_dir():
        return find_target(None, int(target), job, workspace, maps)
    if not Path(target).is_dir():
        raise UsageError(
            f"{target} is neither a session nor a JOB directory", hint="`profagent sessions` lists sessions"
        )
    for option, value in (("--job", job), ("--workspace", workspace)):
        if value is not None:
            raise UsageError(f"{option} goes with a session", hint=f"leave it out: {target} is a JOB directory")
    return _job_target(Path(target), maps)


def tell_unrecorded(database: Path, session: int | None = None, job: str | None = None) -> int:
    """Say of JOBs without layers why they have none; the exit code, 1 where there is no record of any kind."""
    from profagent.cli.running import tell  # noqa: PLC0415 - verbs that only read start faster
    from profagent.importing.targets import unrecorded_jobs  # noqa: PLC0415 - as above

    found, is_empty = unrecorded_jobs(database, session, job)
    for each in found:
        tell(f"{each.job}: {each.why}")
        tell(f"  {each.remedy}")
    return int(is_empty)


def _job_target(directory: Path, maps: CounterMaps) -> Target:
    """A JOB directory's; it is imported first when needed."""
    database = fresh_database(directory, maps) or _imported(directory, maps)
    return Target(database, directory, job=directory.resolve().name)


def _imported(directory: Path, maps: CounterMaps) -> Path:
    from profagent.cli.running import run_to_the_end, tell  # noqa: PLC0415 - verbs that only read start faster

    return run_to_the_end(lambda: imported_database(directory, maps, tell=tell))


def _session_target(workspace: Workspace, session: int | None, job: str | None, maps: CounterMaps) -> Target:
    if maps.named is not None:
        raise UsageError(
            "--counter-map goes with a JOB directory",
            hint=f"`profagent redecode {session} --counter-map FILE` fills a session's columns",
        )
    return Target(workspace.readable_database(), workspace.root / "exports" / f"session-{session}", session, job)

"""Target of a question, a session or a JOB directory, and the database that has its records.

The one place that interprets the words for both: commands and the Python API resolve a target here.
"""

from __future__ import annotations

import asyncio
import pkgutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.errors import ProfagentError, UsageError
from profagent.formats.counter_maps import BUILT_IN
from profagent.store.database import FILE_NAME, reading
from profagent.store.job_folder import alone_in_job, fresh_database, own_folder, write_log
from profagent.store.sessions import lake_of
from profagent.store.workspace import SESSION_FORMS, Workspace, session_named, session_query

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.formats.counter_maps import CounterMaps

    Tell = Callable[[str], None]

# Import of a JOB: loaded only when one has to be imported, so that commands that only read start faster.
_IMPORT = "profagent.importing.importing:import_alone"
# Restoring from a lake: loaded only for it, because it needs optional packages.
_RESTORE = "profagent.lake.cli:restored_from"


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


def directory_named(target: str) -> Path | None:
    """Return the JOB directory that a word names; None if it names a session. Raises UsageError for neither."""
    directory = Path(target)
    # A word that no file system takes as a name, such as one that is too long, names no directory.
    with suppress(OSError):
        if directory.is_dir():
            return directory
    if session_query(target) is None and "/" in target:
        raise UsageError(f"the JOB directory {target} does not exist", hint=f"a session is {SESSION_FORMS}")
    return None


async def session_target(
    word: str, job: str | None, workspace: Workspace, *, tell: Tell, folder: Callable[[], Path]
) -> Target:
    """Return the target that a word names in a workspace: SESSION_FORMS. Raises UsageError, StoreError.

    Records that only a lake has are restored into a database in the temporary `folder`; where that fails, `tell` is
    called with the reason, and the target has the session's figures only.
    """
    session = await session_named(workspace, word)
    database = await _with_records(workspace, session, tell, folder)
    return Target(database, workspace.root / "exports" / f"session-{session}", session, job)


async def _with_records(workspace: Workspace, session: int, tell: Tell, folder: Callable[[], Path]) -> Path:
    database = workspace.readable_database()
    async with reading(database) as connection:
        address = await lake_of(connection, session)
    if address is None:
        return database
    restored = folder() / FILE_NAME
    try:
        await pkgutil.resolve_name(_RESTORE)(workspace, session, address, restored)
    except ProfagentError as error:
        # The local database still has the session's figures, so that the caller can go on with these.
        tell(f"session {session} is not read from {address}: {error}")
        tell(f"  {error.hint}")
        return database
    return restored


async def directory_target(directory: Path, maps: CounterMaps = BUILT_IN, *, tell: Tell) -> Target:
    """Return the target of a JOB directory, which is imported first if necessary. Raises UsageError, StoreError."""
    database = await imported_database(directory, maps, tell=tell)
    return Target(database, directory, job=(await asyncio.to_thread(directory.resolve)).name, maps=maps)


async def imported_database(directory: Path, maps: CounterMaps = BUILT_IN, *, tell: Tell) -> Path:
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
            write_log(directory, [f"import: {imported.files:,} files in {imported.elapsed_s:.1f} s"])
            database = imported.database
    return database

"""Workspaces of the Python API, and how one is opened."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.api.answers import table_of
from profagent.api.arguments import checked
from profagent.api.provenance import Provenance
from profagent.api.reading import TemporaryFolder, view_named
from profagent.api.session import Session
from profagent.api.waiting import wait_for
from profagent.export.view_batches import columns_of, field_of
from profagent.ingest.local import is_job_directory
from profagent.store.database import reading
from profagent.store.queries import find_session
from profagent.store.summary import all_sessions
from profagent.store.target import directory_named, directory_target, session_target
from profagent.store.workspace import LAST, default_workspace, is_workspace
from profagent.store.workspace import Workspace as StoredWorkspace

if TYPE_CHECKING:
    from profagent.api.table import Table
    from profagent.store.target import Target

# Remarks that commands print on standard error.
_LOG = logging.getLogger("profagent")


@checked
def open(path: Path | str | None = None) -> Workspace:  # noqa: A001 - its name in the API
    """Return the workspace in a folder, by default the one that the commands use; or a JOB directory as one.

    A JOB directory is imported first if necessary, as by the commands, and has one session. Raises UsageError if there
    is neither, and StoreError.

    >>> import profagent
    >>> profagent.open("lab").sessions()["session"]
    [1, 2]
    """
    folder = default_workspace() if path is None else Path(path).expanduser()
    if not is_workspace(folder) and is_job_directory(folder):
        target = wait_for(directory_target(folder, tell=_LOG.warning))
        return Workspace(target.database, target.job)
    return Workspace(StoredWorkspace.at(folder).readable_database())


@dataclass(frozen=True, slots=True)
class Workspace:
    """Workspace, or a JOB directory with its one session: `database` is the file that has them, `job` that JOB.

    >>> import profagent
    >>> profagent.open("lab").session("last").number
    2
    """

    database: Path
    job: str | None = None

    def sessions(self) -> Table:
        """Return the sessions, oldest first, as `profagent sessions`; times are µs of the host's clock.

        Columns `complete` and `simulated` are 1 or 0. Raises StoreError.

        >>> import profagent
        >>> table = profagent.open("lab").sessions()
        >>> table["session"], table["losses"]
        ([1, 2], [0, 0])
        """
        return wait_for(self._sessions())

    async def _sessions(self) -> Table:
        async with reading(self.database) as connection:
            rows = await all_sessions(connection)
            found = [await find_session(connection, row["session"]) for row in rows]
            provenance = Provenance.joined([await Provenance.of(connection, each) for each in found])
            view = view_named("sessions")
            names = await connection.run(partial(columns_of, view=view))
        return table_of(rows, [field_of(view, name) for name in names], provenance)

    @checked
    def session(self, which: int | str | Path = LAST) -> Session:
        """Return a session by its number, as `last`, `-2` or `LABEL=VALUE`; or that of a JOB directory.

        The records of a session that only a lake has are restored there first. Raises UsageError if there is none, and
        StoreError.

        >>> import profagent
        >>> profagent.open("lab").session("baseline=release").number
        1
        """
        return wait_for(self._session(str(which)))

    async def _session(self, word: str) -> Session:
        folders: list[TemporaryFolder] = []

        def temporary() -> Path:
            folders.append(TemporaryFolder())
            return folders[0].path

        directory = directory_named(word)
        if directory is not None:
            target = await directory_target(directory, tell=_LOG.warning)
        else:
            where = StoredWorkspace(self.database.parent)
            target = await session_target(word, self.job, where, tell=_LOG.warning, folder=temporary)
        return await _opened(target, folders[0] if folders else None)


async def _opened(target: Target, folder: TemporaryFolder | None) -> Session:
    async with reading(target.database) as connection:
        row = await find_session(connection, target.session)
        provenance = await Provenance.of(connection, row, target.job)
    return Session(row.session, target.database, provenance, target.job, folder)

"""What doctor looks at on this host: names, the workspace, its keys."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sqlite3
import tempfile
import time
from typing import TYPE_CHECKING

from profagent.doctor.network import Resolved
from profagent.doctor.workspace import WorkspaceFacts
from profagent.errors import StoreError
from profagent.link.credentials import CERT, Credentials, default_keys, host_of
from profagent.store.database import made_anew
from profagent.store.queries import open_reader

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.commands.workspace import Workspace
    from profagent.link.credentials import Access

RESOLVE_S = 10.0
# A large database is not looked at to its end.
LONGEST_CHECK_S = 10.0
STEPS_BETWEEN_LOOKS = 10_000
MOST_ERRORS = 10
DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


async def resolved(address: str) -> Resolved:
    """What the host of `HOST:PORT` leads to."""
    host = host_of(address)
    look_up = asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = await look_up
    except TimeoutError:
        return Resolved(host, error=f"no answer from the name server for {RESOLVE_S:.0f} s")
    except (OSError, UnicodeError) as error:
        return Resolved(host, error=getattr(error, "strerror", None) or str(error))
    return Resolved(host, tuple(dict.fromkeys(str(each[4][0]) for each in found)))


def workspace_facts(workspace: Workspace) -> WorkspaceFacts:
    """The workspace as it is; nothing in it is changed."""
    root = workspace.root.absolute()
    stands = next(above for above in (root, *root.parents) if above.exists())
    usage = shutil.disk_usage(stands)
    database_error, is_checked = _database_error(workspace.database)
    return WorkspaceFacts(
        root=str(root),
        exists=stands == root,
        error=_why_not_writable(stands),
        database=str(workspace.database) if workspace.database.exists() else "",
        database_error=str(database_error or ""),
        database_hint=database_error.hint if database_error else "",
        is_checked=is_checked,
        free_bytes=usage.free,
        total_bytes=usage.total,
    )


def host_credentials(access: Access) -> Credentials | None:
    """The keys of this host: those that are named, else the usual ones if they are there. Raises UsageError."""
    if access.keys is not None:
        return Credentials.read(access.keys)
    return Credentials.read(default_keys()) if (default_keys() / CERT).exists() else None


def _why_not_writable(directory: Path) -> str:
    """By making a file that has no name, which asks quotas and read-only file systems as well."""
    if not directory.is_dir():
        return f"{directory} is no directory"
    try:
        with tempfile.TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return f"{directory}: {os.strerror(error.errno or 0)}"


def _database_error(database: Path) -> tuple[StoreError | None, bool]:
    """What is wrong with a database, and whether all of it was looked at."""
    if not database.exists():
        return None, True
    until = time.monotonic() + LONGEST_CHECK_S
    try:
        with open_reader(database) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > until, STEPS_BETWEEN_LOOKS)
            found = connection.execute(f"PRAGMA quick_check({MOST_ERRORS})").fetchone()[0]
    except StoreError as error:
        code = getattr(error.__cause__, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_INTERRUPT:
            return None, False
        return (_damaged(database, str(error.__cause__)) if code in DAMAGED else error), True
    return (None if found == "ok" else _damaged(database, found.splitlines()[-1])), True


def _damaged(database: Path, why: str) -> StoreError:
    return StoreError(f"{database} is damaged: {why}", hint=made_anew(database))

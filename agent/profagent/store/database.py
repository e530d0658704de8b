"""Opening the SQLite file: its settings and its schema."""

from __future__ import annotations

import os
import shlex
import sqlite3
from contextlib import closing, suppress
from importlib import resources
from typing import TYPE_CHECKING

from profagent.errors import StoreError
from profagent.files import PRIVATE_FILE, make_private_folder

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION = 1
FILE_NAME = "profagent.db"
BUSY_TIMEOUT_MS = 10_000
CACHE_KIB = 32_768


def open_for_writing(file: Path, *, durable: bool = True) -> sqlite3.Connection:
    """The database at `file`, made if need be; where it is `durable`, every commit is when it returns.

    What is made is for its owner alone. Foreign keys are declared and not enforced: a deleted segment would be looked
    for in every record there is. Raises StoreError when it cannot be opened, is of another program, or has another
    schema.
    """
    try:
        make_private_folder(file.parent)
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
        connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise _unusable(file, error) from error
    try:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute(f"PRAGMA journal_mode = {'WAL' if durable else 'OFF'}")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        _prepare(connection, file)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise _unusable(file, error) from error
        raise
    return connection


def connect_reading(file: Path, *, immutable: bool = False) -> sqlite3.Connection:
    """A read-only connection; `immutable` where `is_still` says that nobody can write. Raises sqlite3.Error."""
    uri = f"{file.absolute().as_uri()}?mode=ro{'&immutable=1' if immutable else ''}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def is_still(file: Path) -> bool:
    """Whether the database is on a read-only file system, and nothing waits beside it to be written into it."""
    log = file.with_name(f"{file.name}-wal")
    try:
        is_read_only = bool(os.statvfs(file).f_flag & os.ST_RDONLY)
        return is_read_only and not (log.exists() and log.stat().st_size)
    except OSError:
        return False


def schema_version(file: Path) -> int | None:
    """The version of a database's schema; None where it cannot be read."""
    for immutable in (False, True):
        if immutable and not is_still(file):
            break
        try:
            with closing(connect_reading(file, immutable=immutable)) as connection:
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                return int(version)
        except sqlite3.Error:
            continue
    return None


def check_version(connection: sqlite3.Connection, file: Path) -> None:
    """Raises StoreError where the database has another schema than this profagent's."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{file} has schema version {version}, this profagent has {SCHEMA_VERSION}", hint=made_anew(file)
        )


def made_anew(file: Path) -> str:
    """What to type so that a workspace's database is made anew, in a workspace beside it."""
    root, new = shlex.quote(str(file.parent)), shlex.quote(f"{file.parent}.new")
    return (
        f'for job in {root}/mirror/*/JOB*; do profagent import -dir "$job" --workspace {new} --board "$(basename'
        ' "$(dirname "$job")")"; done  # makes it anew from the mirrors, without labels and baselines'
    )


def _prepare(connection: sqlite3.Connection, file: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version:
        check_version(connection, file)
        return
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables:
        raise StoreError(f"{file} is a database of another program", hint="name another workspace or file")
    script = resources.files("profagent.store").joinpath("schema.sql").read_text("utf-8")
    connection.executescript(f"BEGIN IMMEDIATE; {script}; COMMIT;")


def _unusable(file: Path, error: Exception) -> StoreError:
    return StoreError(
        f"cannot open the database {file}: {error}", hint="check the path, its permissions and the free space"
    )

"""A JOB directory as the vendor's commands use it: its database when it is there and fresh, its log."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from profagent import __version__
from profagent.commands.counter_maps import BUILT_IN, CounterMaps
from profagent.errors import StoreError
from profagent.store.database import FILE_NAME, SCHEMA_VERSION, schema_version
from profagent.store.queries import find_session, open_reader
from profagent.store.sessions import MapUsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

LOG_FILE = "log/profagent.log"


def job_database(directory: Path) -> Path:
    """The database of a JOB directory's own."""
    return directory / "sqlite" / FILE_NAME


def fresh_database(directory: Path, maps: CounterMaps = BUILT_IN) -> Path | None:
    """The JOB's database; None when it is missing, of another version, or older than a file of the JOB.

    A map that is named, or one that was found since it was made without, or has changed, is a reason as well.
    """
    database = job_database(directory)
    is_fresh = maps.named is None and _is_fresh(directory, database) and not _gained_map(database, maps)
    return database if is_fresh else None


async def imported_database(directory: Path, maps: CounterMaps = BUILT_IN, *, tell: Callable[[str], None]) -> Path:
    """The JOB's database; imported first when none is fresh."""
    database = fresh_database(directory, maps)
    if database is None:
        from profagent.commands.importing import import_job  # noqa: PLC0415 - verbs that only read start faster

        tell(f"importing {directory}")
        imported = await import_job(directory, maps)
        write_log(directory, [f"import: {imported.files} files in {imported.elapsed_s:.1f} s"])
        database = imported.database
    return database


def write_log(directory: Path, lines: Iterable[str]) -> None:
    """Add lines to the JOB's log; StoreError when that cannot be written."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    file = directory / LOG_FILE
    try:
        file.parent.mkdir(exist_ok=True)
        with file.open("a", encoding="utf-8") as log:
            log.writelines(f"{now} profagent {__version__} {line}\n" for line in lines)
    except OSError as error:
        raise StoreError(
            f"cannot write {file}: {error.strerror}", hint="check the permissions and the free space of the JOB"
        ) from error


def _is_fresh(directory: Path, database: Path) -> bool:
    try:
        made_ns = database.stat().st_mtime_ns
    except FileNotFoundError:
        return False
    if schema_version(database) != SCHEMA_VERSION:
        return False
    return all(changed_ns <= made_ns for changed_ns in _changes_ns(directory))


def _gained_map(database: Path, maps: CounterMaps) -> bool:
    with open_reader(database) as connection:
        session = find_session(connection)
    found = MapUsed.of(maps.would_be(simulated=session.simulated, sdk=session.sdk_version))
    return session.counter_map in (None, found.name) and session.counter_map_digest != found.digest


def _changes_ns(directory: Path) -> Iterable[int]:
    for folder in (directory, directory / "data"):
        if not folder.is_dir():
            continue
        with os.scandir(folder) as entries:
            yield from (entry.stat().st_mtime_ns for entry in entries if entry.is_file())

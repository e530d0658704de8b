"""Letting go of the records of sessions: their figures, ledger and labels stay, the disk has the room."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, get_args

from profagent.errors import StoreError
from profagent.sessions.clearing_choice import Chosen, Rules, choose
from profagent.stats.stats import StatsBy, StatsOptions, stats
from profagent.store.clearing import (
    StoredFigures,
    StoredRow,
    clear_sessions,
    cleared_jobs,
    held_sessions,
    write_figures,
)
from profagent.store.database import fetched, transaction, writing
from profagent.store.queries import open_reader
from profagent.store.sessions import all_sessions, fits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import aiosqlite

    from profagent.store.clearing import HeldSession
    from profagent.store.sessions import Condition
    from profagent.store.workspace import Workspace

__all__ = ["chosen_sessions", "clear", "disk_bytes", "fitting_sessions"]

BYS: tuple[StatsBy, ...] = tuple(name for part in get_args(StatsBy) for name in (get_args(part) or (part,)))
# The database is written anew when so much of it is free.
WORTHWHILE_SHARE = 0.1
# Below the workspace: JOBs as a night's `collect` leaves them.
COLLECTED = PurePath("nightly", "jobs")


def fitting_sessions(workspace: Workspace, conditions: Sequence[Condition]) -> set[int]:
    """The sessions that fit all conditions. Raises StoreError."""
    with open_reader(workspace.readable_database()) as connection:
        return {each["session"] for each in all_sessions(connection) if fits(each, conditions)}


def chosen_sessions(
    workspace: Workspace, rules: Rules, *, baselines: Mapping[int, str], asked: Collection[int] | None = None
) -> Chosen:
    """What the rules delete, of the sessions that are asked for, or of all. Raises StoreError."""
    with open_reader(workspace.readable_database()) as connection:
        held = held_sessions(connection)
    those = {each.session for each in held} if asked is None else asked
    return choose(held, rules, asked=those, baselines=baselines, held_bytes=disk_bytes(workspace.root))


async def clear(workspace: Workspace, chosen: Chosen, *, now_us: int, tell: Callable[[str], None]) -> None:
    """Let go of the chosen sessions' records, mirrors and exports. Raises StoreError.

    The caller has the workspace's lock. Killed at any moment, a session has all its records or its figures; what is
    left on the disk by then goes the next time.
    """
    database = workspace.database
    try:
        async with writing(database) as connection:
            for group in chosen.groups:
                await _clear_group(connection, database, group, now_us, tell)
            await _remove_files(workspace, connection)
            await _shrink(connection, workspace.root, tell)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(
            f"cannot delete what {workspace.root} holds: {error}",
            hint="check the permissions and the free space; what was done so far is done, call it again for the rest",
        ) from error


def disk_bytes(root: Path) -> int:
    """What a folder takes on the disk, in bytes; what goes meanwhile is not counted."""
    total = 0
    for directory, _, files in os.walk(root):
        for name in files:
            try:
                total += (Path(directory) / name).lstat().st_blocks * 512
            except FileNotFoundError:
                continue
    return total


async def _clear_group(
    connection: aiosqlite.Connection,
    database: Path,
    group: Sequence[HeldSession],
    now_us: int,
    tell: Callable[[str], None],
) -> None:
    """In one transaction: figures in, records out."""
    async with transaction(connection):
        for held in group:
            tell(f"session {held.session}: its figures are worked out, its records go")
            await _keep_figures(connection, database, held.session)
        await clear_sessions(connection, group, now_us)


async def _keep_figures(connection: aiosqlite.Connection, database: Path, session: int) -> None:
    answers = [stats(database, session=session, options=StatsOptions(by)) for by in BYS]
    figures = [
        StoredFigures(each.by, each.unit, [StoredRow(row.key, *row.figures, row.share, row.bound) for row in each.rows])
        for each in answers
    ]
    await write_figures(connection, session, figures, answers[0].left_out)


async def _remove_files(workspace: Workspace, connection: aiosqlite.Connection) -> None:
    """Whatever the disk has of JOBs and sessions that were cleared."""
    for job in await cleared_jobs(connection):
        folder = workspace.board_mirror(job.board)
        for kind in ("mirror", "superseded", "incoming"):
            _remove(workspace.root / kind / folder.name / job.name)
        _remove(workspace.root / COLLECTED / job.name)
    for (session,) in await fetched(connection, "SELECT session FROM cleared_session"):
        _remove(workspace.root / "exports" / f"session-{session}")


def _remove(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)


async def _shrink(connection: aiosqlite.Connection, root: Path, tell: Callable[[str], None]) -> None:
    """Give the free pages of the database back to the disk, which takes room for what is left of it meanwhile."""
    query = "SELECT * FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()"
    ((pages, free, size),) = await fetched(connection, query)
    if free < WORTHWHILE_SHARE * pages:
        return
    if shutil.disk_usage(root).free < 2 * (pages - free) * size:
        tell(f"the database keeps {free * size / 2**20:.0f} MiB that are free: to write it anew the disk has no room")
        return
    await connection.execute("VACUUM")
    await connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

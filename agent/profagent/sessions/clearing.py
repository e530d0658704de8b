"""`gc`: deletes records of sessions, keeps their figures, ledger and labels, and frees the disk space."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from profagent.cli.progress import progress
from profagent.errors import StoreError
from profagent.stats.stats import BYS, stats
from profagent.store.database import fetched, reading, shrink, transaction, writing
from profagent.store.sessions import (
    clear_sessions,
    cleared_jobs,
    fits,
    held_sessions,
    write_figures,
)
from profagent.store.summary import all_sessions
from profagent.store.workspace import baselines

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Mapping, Sequence

    import aiosqlite

    from profagent.store.sessions import Condition, HeldSession
    from profagent.store.workspace import Workspace

# The database is rewritten only if this share of it is free: VACUUM copies all the rest.
WORTHWHILE_SHARE = 0.1
# The folder, below the workspace, of the JOBs that a night's `collect` fetched.
COLLECTED = PurePath("nightly", "jobs")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for deletion: sessions begun before `before_us`, of each board all but the last `keep_last`.

    With `most_bytes`, only as many sessions are deleted, the oldest first, as the workspace needs to fit. None: no such
    rule.
    """

    before_us: int | None = None
    keep_last: int | None = None
    most_bytes: int | None = None


@dataclass(slots=True)
class Chosen:
    """Sessions to delete, in groups that are deleted together; the reasons why others stay; estimated bytes freed."""

    groups: list[list[HeldSession]] = field(default_factory=list)
    staying: dict[int, str] = field(default_factory=dict)
    freed_bytes: int = 0


def choose(
    held: Sequence[HeldSession], rules: Rules, *, asked: Collection[int], staying: Mapping[int, str], held_bytes: int
) -> Chosen:
    """Return the sessions that the rules delete, of `held`, which must be the oldest first.

    `asked` are the sessions that other conditions select; `staying` are never deleted, and maps each to what it is.
    `held_bytes` is the disk space of all, with the database. Sessions that share a JOB are deleted together or stay.
    """
    wanted = _wanted(held, rules).intersection(asked)
    chosen = Chosen()
    whole = sum(each.bytes for each in held) or 1
    for group in _groups(held):
        reasons = {each.session: _why_it_stays(each, wanted, staying) for each in group}
        holder = next((session for session, reason in reasons.items() if reason is not None), None)
        if holder is not None:
            for session in reasons.keys() & {*wanted}:
                chosen.staying[session] = reasons[session] or f"shares a JOB with session {holder}, which stays"
        elif rules.most_bytes is None or held_bytes - chosen.freed_bytes > rules.most_bytes:
            chosen.groups.append(group)
            chosen.freed_bytes += held_bytes * sum(each.bytes for each in group) // whole
    return chosen


def _wanted(held: Sequence[HeldSession], rules: Rules) -> set[int]:
    last: set[int] = set()
    for board in {each.board for each in held}:
        of_board = [each.session for each in held if each.board == board]
        last.update(of_board[len(of_board) - min(rules.keep_last or 0, len(of_board)) :])
    old = {each.session for each in held if rules.before_us is None or each.started_us < rules.before_us}
    return old - last


def _why_it_stays(held: HeldSession, wanted: Collection[int], staying: Mapping[int, str]) -> str | None:
    if held.session not in wanted:
        return "is not to go"
    if held.session in staying:
        return f"is {staying[held.session]}"
    return None if held.is_over else "has not ended"


def _groups(held: Sequence[HeldSession]) -> list[list[HeldSession]]:
    """Return sessions grouped by shared JOBs; the group whose newest session is the oldest comes first."""
    groups: list[list[HeldSession]] = []
    for each in held:
        sharing = [group for group in groups if any(other.jobs & each.jobs for other in group)]
        groups = [group for group in groups if group not in sharing]
        groups.append([*(other for group in sharing for other in group), each])
    return sorted(groups, key=lambda group: group[-1].started_us)


async def chosen_sessions(
    workspace: Workspace, rules: Rules, conditions: Sequence[Condition], also_staying: Mapping[int, str] | None = None
) -> Chosen:
    """Return the sessions that rules and conditions delete; baselines stay. Raises StoreError."""
    staying = {
        **(also_staying or {}),
        **{session: f"the baseline {name}" for name, session in (await baselines(workspace)).items()},
    }
    async with reading(workspace.readable_database()) as connection:
        held = await held_sessions(connection)
        asked = {each["session"] for each in await all_sessions(connection) if fits(each, conditions)}
    return choose(held, rules, asked=asked, staying=staying, held_bytes=disk_bytes(workspace.root))


async def keep_what_is_not_in(address: str, workspace: Workspace, chosen: Chosen) -> str:
    """Remove from the chosen sessions those that the lake cannot restore unchanged; return its full address.

    Raises StoreError.
    """
    from profagent.lake.lake import Lake  # noqa: PLC0415 - needs packages that no other command has
    from profagent.lake.restore import why_not_restorable  # noqa: PLC0415 - as above

    lake = Lake(address)
    with progress("gc", "sessions") as shown:
        groups, chosen.groups = chosen.groups, []
        for done, group in enumerate(groups):
            shown(done, len(groups))
            reasons = {each.session: await why_not_restorable(workspace, each.session, lake) for each in group}
            if all(reason is None for reason in reasons.values()):
                chosen.groups.append(group)
            else:
                chosen.staying |= {session: why for session, why in reasons.items() if why}
    return lake.address


async def clear(
    workspace: Workspace, chosen: Chosen, *, now_us: int, tell: Callable[[str], None], lake: str | None = None
) -> None:
    """Delete the records, mirrors and exports of the chosen sessions; `lake` is the address that holds the records.

    The caller holds the workspace's lock. If the process is killed, each session has either all its records or its
    figures; files that are left on the disk are deleted by the next run. Raises StoreError.
    """
    database = workspace.database
    try:
        total = sum(map(len, chosen.groups))
        async with writing(database) as connection:
            with progress("gc", "sessions") as shown:
                done = 0
                for group in chosen.groups:
                    figures = []
                    for held in group:
                        shown(done, total)
                        tell(f"session {held.session}: computing its figures, then deleting its records")
                        figures.append(await _figures(database, held.session))
                        done += 1
                    await connection.run(partial(_clear, group=group, figures=figures, now_us=now_us, lake=lake))
            await _remove_files(workspace, connection)
            await shrink(connection, workspace.root, tell, WORTHWHILE_SHARE)
    except OSError as error:
        raise StoreError(
            f"cannot delete what {workspace.root} holds: {error}",
            hint="check the permissions and the free space; earlier deletions hold; run it again for the rest",
        ) from error


def disk_bytes(root: Path) -> int:
    """Return the disk space of a folder in bytes, without files that disappear meanwhile."""
    total = 0
    for directory, _, files in os.walk(root):
        for name in files:
            try:
                total += (Path(directory) / name).lstat().st_blocks * 512
            except FileNotFoundError:
                continue
    return total


async def _figures(database: Path, session: int) -> tuple[list[tuple[Any, ...]], Sequence[tuple[str, int, int]]]:
    """Return a session's rows for `write_figures`, and the numbers of inferences that they leave out."""
    answers = [await stats(database, session=session, by=by) for by in BYS]
    rows = [
        (each.by, place, each.unit, row.key, *row.figures, row.share, row.bound, row.in_inference, about)
        for each in answers
        for place, (row, about) in enumerate(zip(each.rows, each.abouts(), strict=True))
    ]
    return rows, answers[0].left_out


def _clear(
    connection: sqlite3.Connection,
    group: Sequence[HeldSession],
    figures: Sequence[tuple[list[tuple[Any, ...]], Sequence[tuple[str, int, int]]]],
    now_us: int,
    lake: str | None,
) -> None:
    with transaction(connection):
        for held, (rows, left_out) in zip(group, figures, strict=True):
            write_figures(connection, held.session, rows, left_out)
        clear_sessions(connection, group, now_us, lake)


async def _remove_files(workspace: Workspace, connection: aiosqlite.Connection) -> None:
    """Remove the files of JOBs and sessions that were cleared, also those that an earlier, killed run left."""
    for board, job in await cleared_jobs(connection):
        folder = workspace.board_mirror(board)
        for kind in ("mirror", "superseded", "incoming"):
            _remove(workspace.root / kind / folder.name / job)
        _remove(workspace.root / COLLECTED / job)
    for (session,) in await fetched(connection, "SELECT session FROM cleared_session"):
        _remove(workspace.root / "exports" / f"session-{session}")


def _remove(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)

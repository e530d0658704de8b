"""Exit codes and remarks about incomplete data: the one rule for all commands.

A command that writes data that others rely on exits with 4 if the data is incomplete. A command that only shows data
remarks it on standard error and exits with 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagent import ledger
from profagent.cli.running import tell
from profagent.errors import IncompleteError, UnsupportedBoardError
from profagent.limits import MOST_INCOMPLETE_LINES
from profagent.store.coverage import why_incomplete
from profagent.store.database import reading
from profagent.store.queries import find_session
from profagent.store.sampling import sampling_of
from profagent.tables.provenance import keeping_line
from profagent.tables.table import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def exit_code_of(summary: Mapping[str, Any], *, waits_for_records: bool = True) -> int:
    """Return the exit code of a command that recorded a session.

    `waits_for_records`: a session in which nothing was recorded counts as incomplete.
    """
    if ledger.UNSUPPORTED_SOC in summary["ledger"]["note"]:
        return UnsupportedBoardError.exit_code
    is_mere_wait = not waits_for_records and ledger.INCOMPLETE & summary["ledger"]["note"].keys() == {
        ledger.NOTHING_RECORDED
    }
    return 0 if summary["complete"] or (is_mere_wait and not summary["ledger"]["loss"]) else IncompleteError.exit_code


async def exit_code_of_written(database: Path, sessions: Iterable[int | None], code: int = 0) -> int:
    """Remark which sessions (None: the newest) lack inferences or are incomplete; return 4 if any is, else `code`."""
    sessions = [*sessions]
    await _tell_kept(database, sessions)
    is_complete = await tell_incomplete(database, sessions)
    return code if is_complete else IncompleteError.exit_code


async def _tell_kept(database: Path, sessions: Iterable[int | None]) -> None:
    """Remark which sessions have the rows of some inferences alone, because the others were passed over on purpose."""
    async with reading(database) as connection:
        for each in sessions:
            number = (await find_session(connection, each)).session
            sampling = await sampling_of(connection, number)
            if sampling["passed_over"]:
                tell(printable(f"session {number}: {keeping_line(sampling)}"))


async def tell_incomplete(database: Path, sessions: Iterable[int | None]) -> bool:
    """Remark on standard error which sessions (None: the newest) are incomplete, and why; return True if none is."""
    why: dict[int, list[str]] = {}
    async with reading(database) as connection:
        for each in sessions:
            number = (await find_session(connection, each)).session
            if found := await why_incomplete(connection, number):
                why[number] = found
    if len(why) > MOST_INCOMPLETE_LINES:
        tell(f"INCOMPLETE: sessions {', '.join(map(str, sorted(why)))}: `profagent sessions` says why")
    else:
        for number, found in why.items():
            tell(printable(f"INCOMPLETE: session {number}: {'; '.join(found)}"))
    return not why

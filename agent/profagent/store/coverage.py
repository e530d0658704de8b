"""Completeness of a session: the intervals in which it followed its board, and the reasons why it is incomplete."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from profagent import ledger
from profagent.codes import IssueCode, IssueFamily, Severity
from profagent.errors import IncompleteError
from profagent.limits import MOST_GAPS, MOST_REASONS
from profagent.link.coverage import Standing
from profagent.store.database import fetched, fetched_one

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    import aiosqlite

    from profagent.link.coverage import Interval

# Standing of the time between two runs of `record` that continued one session. It has no row: it follows from those of
# the runs.
NOT_RUN = "not-run"
NOT_ENDED = IssueCode(
    IssueFamily.EXIT,
    "not-ended",
    Severity.ERROR,
    "it has not ended: `record` runs, was killed, or could not write its end",
    "run `record` again: it continues the session",
    IncompleteError.exit_code,
)
_MARKS = ", ".join("?" * len(ledger.INCOMPLETE))


def write_coverage(connection: sqlite3.Connection, session: int, intervals: Iterable[Interval]) -> None:
    """Write the intervals of a session; a stored one with the same beginning is replaced."""
    connection.executemany(
        "INSERT OR REPLACE INTO coverage_interval VALUES (?, ?, ?, ?, ?, ?)",
        [
            (session, each.job, each.from_us, each.to_us, each.standing.value, each.detail)
            for each in intervals
            if each.to_us > each.from_us
        ],
    )


async def coverage_of(connection: aiosqlite.Connection, session: int) -> dict[str, Any] | None:
    """Return the time of a capture that it covered; None where none is stored, as of an import.

    `covered_us` of `total_us` were covered, in µs: the link was up, nothing was paused, and no JOB was behind. The
    total is from the session's begin to its end, with the time between its runs. `gaps` are the other intervals in the
    order of time: standing, JOB (None: all), from and to, and the reason.
    """
    rows = await fetched(
        connection,
        "SELECT job_name, from_us, to_us, standing, detail FROM coverage_interval WHERE session = ?"
        " ORDER BY from_us, job_name",
        (session,),
    )
    if not rows:
        return None
    board = [row for row in rows if not row[0]]
    good = [(from_us, to_us) for _, from_us, to_us, standing, _ in board if standing == Standing.COVERED.value]
    behind = [(from_us, to_us) for job, from_us, to_us, *_ in rows if job]
    others = [row for row in rows if row[3] != Standing.COVERED.value]
    others += [("", before[2], after[1], NOT_RUN, "") for before, after in pairwise(board) if after[1] > before[2]]
    # The longest first (begin minus end is negative), then shown in the order of time.
    longest = sorted(others, key=lambda row: row[1] - row[2])[:MOST_GAPS]
    return {
        "covered_us": _without_us(good, behind),
        "total_us": board[-1][2] - board[0][1],
        "gaps": [
            {"standing": standing, "job": job or None, "from_us": from_us, "to_us": to_us, "detail": detail}
            for job, from_us, to_us, standing, detail in sorted(longest, key=lambda row: row[1:3])
        ],
        "more_gaps": len(others) - len(longest),
    }


def _without_us(good: Iterable[tuple[int, int]], bad: Iterable[tuple[int, int]]) -> int:
    edges = [
        edge
        for is_bad, found in enumerate((good, bad))
        for from_us, to_us in found
        for edge in ((from_us, is_bad, 1), (to_us, is_bad, -1))
    ]
    # How many good and bad stretches are open between one edge and the next.
    counts, covered_us = [0, 0], 0
    for (at_us, is_bad, step), (next_us, *_) in pairwise(sorted(edges)):
        counts[is_bad] += step
        covered_us += next_us - at_us if counts[0] and not counts[1] else 0
    return covered_us


async def why_incomplete(connection: aiosqlite.Connection, session: int) -> list[str]:
    """Return the reasons why a session is not complete, a sentence each; none for a complete one.

    A session is complete if it has ended, nothing that existed is missing, and at its end everything that was asked for
    of the board's data had come.
    """
    (ended_us,) = await fetched_one(connection, "SELECT ended_us FROM session WHERE session = ?", (session,))
    why = [] if ended_us is not None else [NOT_ENDED.text]
    noted = await fetched(
        connection,
        f"SELECT detail FROM ledger_entry WHERE session = ? AND reason IN ({_MARKS})"  # noqa: S608 - marks
        " ORDER BY entry LIMIT ?",
        (session, *sorted(ledger.INCOMPLETE), MOST_REASONS),
    )
    losses = await fetched(
        connection,
        "SELECT reason, sum(count) FROM ledger_entry WHERE session = ? AND grade = 'loss' GROUP BY reason",
        (session,),
    )
    return [*why, *(detail for (detail,) in noted), *(f"loss: {reason} ({count})" for reason, count in losses)]


def take_up_again(connection: sqlite3.Connection, session: int) -> None:
    """Make a session open again for a capture that continues it.

    The reasons for its incompleteness are deleted: they no longer hold, or are found again at its end.
    """
    connection.execute("UPDATE session SET ended_us = NULL WHERE session = ?", (session,))
    connection.execute(
        f"DELETE FROM ledger_entry WHERE session = ? AND reason IN ({_MARKS})",  # noqa: S608 - marks
        (session, *sorted(ledger.INCOMPLETE)),
    )

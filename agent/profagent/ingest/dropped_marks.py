"""Missing marks, computed from the numbers of all marks of a board: segments may come in any order.

Each run of numbers stores how many are missing before it; the ledger has the sum for each segment, in the session that
fetched the mark after the gap. While an earlier segment is incomplete, a gap is unknown; it is decided when that
segment is complete, and at the end of the capture.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.ingest.mark_numbers import NumberRun, dropped_entry, gaps
from profagent.ingest.source import Reckoned

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

_OF_BOARD = "log l USING (log) JOIN job j USING (job) WHERE j.board = ?1"
_FIRST_UNFINISHED = (
    "SELECT j.name, l.path FROM log l JOIN job j USING (job) WHERE j.board = ? AND j.name GLOB 'MARKS-*'"
    " AND l.path NOT GLOB '*[^0-9]*' AND l.complete = 0 ORDER BY 1, 2 LIMIT 1"
)
# Runs of each writer in the order of the board's segments, for writers with a run that is not decided.
_RUNS = f"""
SELECT n.pid, n.writer, j.name, l.path, n.life, n.first, n.last, n.number, n.missing, n.log, n.dropped,
       EXISTS (SELECT 1 FROM range r WHERE r.log = n.log AND r.number = n.number)
FROM mark_run n JOIN {_OF_BOARD}
AND (n.pid, n.writer) IN (SELECT n.pid, n.writer FROM mark_run n JOIN {_OF_BOARD} AND n.dropped IS NULL)
ORDER BY n.pid, n.writer, j.name, l.path, n.life, n.first
"""  # noqa: S608 - constants
# `total`, because a sum of integers may overflow.
_OF_LOG = (
    "SELECT r.session, j.job, total(n.dropped) FROM mark_run n JOIN range r ON r.log = n.log AND r.number = n.number"
    " JOIN log l ON l.log = n.log JOIN job j USING (job) WHERE n.log = ? GROUP BY r.session HAVING total(n.dropped) > 0"
)


class _MarkSegment(NamedTuple):
    """Segment of the stream of a board's marks; segments compare in the board's order."""

    collection: str
    path: str


def reckon_dropped(connection: sqlite3.Connection, board: int, is_over: bool) -> Iterator[Reckoned]:
    """Yield the logs of a board whose missing marks have changed, in the open transaction.

    `is_over`: nothing more comes, so every gap is decided.
    """
    unfinished = None if is_over else _first_unfinished(connection, board)
    found = connection.execute(_RUNS, (board,)).fetchall()
    changed: set[int] = set()
    for _, rows in groupby(found, itemgetter(0, 1)):
        of_writer = list(rows)
        known = {(row[9], row[7]): row[10] for row in of_writer}
        for run, dropped in _reckoned(of_writer, unfinished):
            if known[run.log, run.place] != dropped:
                place = (run.log, run.place)
                connection.execute("UPDATE mark_run SET dropped = ? WHERE log = ? AND number = ?", (dropped, *place))
                changed.add(run.log)
    for log in changed:
        of_sessions = connection.execute(_OF_LOG, (log,)).fetchall()
        yield Reckoned(log, [(session, job, dropped_entry(int(count))) for session, job, count in of_sessions])


def _first_unfinished(connection: sqlite3.Connection, board: int) -> _MarkSegment | None:
    rows = connection.execute(_FIRST_UNFINISHED, (board,)).fetchall()
    return _MarkSegment(*rows[0]) if rows else None


def _reckoned(
    rows: Iterable[tuple[Any, ...]], unfinished: _MarkSegment | None
) -> Iterator[tuple[NumberRun, int | None]]:
    """Yield each run of a writer with the number of marks missing before and in it; None while undecided."""
    segments: dict[int, _MarkSegment] = {}
    captured: set[NumberRun] = set()
    lives: list[list[NumberRun]] = []
    for (collection, path, _), life in groupby(rows, itemgetter(2, 3, 4)):
        runs = []
        for *_, first, last, place, missing, log, _, is_captured in life:
            runs.append(NumberRun(first, last, place, missing, log))
            segments[log] = _MarkSegment(collection, path)
            captured.update(runs[-1:] if is_captured else ())
        lives.append(runs)
    for run, before, missing in gaps(lives):
        is_within = before is not None and before.log == run.log
        if run not in captured:  # what was missing before the capture is not its own
            yield run, 0
        elif missing and not is_within and unfinished is not None and unfinished < segments[run.log]:
            yield run, None
        else:
            yield run, missing

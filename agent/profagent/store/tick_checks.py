"""Whether an inference's layers take no longer by their ticks than it took by its `.done` (format page 3.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.formats.durations import ticks_to_us
from profagent.formats.names import display_text
from profagent.formats.plausible import MOST_SHARE, PEAK_MEMORY_RATE, SLACK_US, TICKS, Place, Tally, merged
from profagent.store.counter_checks import LARGEST_INTEGER, write_check
from profagent.store.logs import path_from_sql
from profagent.store.transaction import transaction

if TYPE_CHECKING:
    import sqlite3

__all__ = ["note_ticks"]

_INFERENCES = (
    "SELECT i.session, min(i.current_pic_count, ?2), path, i.end_us - i.start_us, sum(g.ticks), j.frequency_mhz"
    " FROM job j JOIN model m USING (job) JOIN inference i USING (model) JOIN segment g USING (inference)"
    " JOIN log USING (log) WHERE j.job = ?1 AND g.kind = 'aicore' AND i.end_us > i.start_us AND j.frequency_mhz > 0"
    " GROUP BY i.inference"
)
_KNOWN = "SELECT session, entry FROM counter_check WHERE job = ? AND name = ?"


def note_ticks(connection: sqlite3.Connection, board: int, job: str) -> None:
    """Count the inferences of a JOB, session by session, and those whose layers take too long."""
    found = connection.execute("SELECT job FROM job WHERE board = ? AND name = ?", (board, job)).fetchone()
    if found is None:
        return
    number = int(found[0])
    tallies: dict[int, Tally] = {}
    for session, pictures, path, window_us, ticks, frequency_mhz in connection.execute(
        _INFERENCES, (number, LARGEST_INTEGER)
    ):
        share = ticks_to_us(ticks, frequency_mhz) / window_us
        is_odd = share > MOST_SHARE + SLACK_US / window_us
        first = Place(pictures, display_text(path_from_sql(path)), 0)
        one = Tally(1, 1, first, share) if is_odd else Tally(1)
        tallies[session] = merged(tallies.get(session, Tally()), one)
    known = dict(connection.execute(_KNOWN, (number, TICKS)).fetchall())
    with transaction(connection):
        for session in sorted({*tallies, *known}):
            tally, entry = tallies.get(session, Tally()), known.get(session)
            write_check(connection, (session, number, TICKS), tally, PEAK_MEMORY_RATE, entry)

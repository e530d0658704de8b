"""Rows of what was checked of counters: how often each check failed, in a session's records of a JOB.

They are kept up to date with the rows of records, and are the same in whatever order those came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from profagent.formats.countermap import COUNTER_NAMES
from profagent.formats.names import display_text, parse_log_name
from profagent.formats.plausible import TICKS, CounterRows, Place, Tally, checked, merged, told, without
from profagent.ingest import reasons
from profagent.store.logs import path_from_sql
from profagent.store.parts import RECORDS_PER_PART

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.store.logs import Part

__all__ = ["CounterCheckRows", "first_place", "implausible_of", "write_check"]

ROWS_PER_PAGE = 20_000
LARGEST_INTEGER = 2**63 - 1

_LOAD = (
    "SELECT session, name, records, implausible, worst, first_pictures, first_path, first_record, peak_bytes_per_s,"
    " entry FROM counter_check WHERE job = ? AND name <> ?"
)
_PAGE = (
    f"SELECT record, ticks, {', '.join(COUNTER_NAMES)} FROM aicore WHERE record > ? AND record < ?"  # noqa: S608 - names of counters
    " ORDER BY record LIMIT ?"
)
_PARTS = (
    "SELECT p.session, g.path, p.part, p.first_record FROM log g JOIN part p USING (log)"
    " WHERE g.job = ? AND g.kind = 'aicore'"
)


class CounterCheckRows:
    """The checks of one JOB's records, of whatever session those are."""

    def __init__(self, connection: sqlite3.Connection, job: int, peak_bytes_per_s: float) -> None:
        self._connection = connection
        self._job = job
        self._peak = peak_bytes_per_s
        self._frequency_mhz: int | None = connection.execute(
            "SELECT frequency_mhz FROM job WHERE job = ?", (job,)
        ).fetchone()[0]
        self._tallies: dict[tuple[int, str], Tally] | None = None
        self._entries: dict[tuple[int, str], int] = {}
        self._changed: set[tuple[int, str]] = set()
        # By session and names of counters.
        self._waiting: dict[tuple[int, tuple[str, ...]], list[CounterRows]] = {}
        self._must_recount = False

    def add(self, sessions: Sequence[int], rows: CounterRows) -> None:
        """Records that became rows, and the session of each."""
        each = {*sessions}
        for session in each:
            chosen = None if len(each) == 1 else np.array(sessions) == session
            self._waiting.setdefault((session, tuple(rows.counters)), []).append(_part_of(rows, chosen))

    def take_back(self, path: str, parts: Sequence[Part], *, comes_again: bool) -> None:
        """The rows of a log's parts are about to go; where the same records come again, the first and worst stay."""
        if not self._known():
            return
        for part in parts:
            for rows in self._pages(path, part.number, part.first_record):
                for name, gone in checked([rows], self._frequency_mhz, self._peak).items():
                    self._take_back((part.session, name), gone, comes_again=comes_again)

    def drop(self, session: int) -> None:
        """The session's counters are read anew."""
        for key in self._known():
            if key[0] == session:
                self._set(key, Tally())

    def flush(self, frequency_mhz: int | None) -> None:
        """Write what has changed; with another frequency, rates are others."""
        if self._waiting:
            self._known()
        if frequency_mhz != self._frequency_mhz:
            self._frequency_mhz = frequency_mhz
            self._must_recount = bool(self._known())
        if self._must_recount:
            self._recount()
        else:
            for (session, _), pieces in self._waiting.items():
                self._count(session, pieces)
        self._waiting.clear()
        for key in sorted(self._changed):
            self._write(key)
        self._changed.clear()

    def _known(self) -> dict[tuple[int, str], Tally]:
        """The tallies, read when they are first needed."""
        if self._tallies is None:
            self._tallies = {}
            for session, name, records, implausible, worst, *first, peak, entry in self._connection.execute(
                _LOAD, (self._job, TICKS)
            ):
                place = None if first[1] is None else Place(*first)
                self._tallies[session, name] = Tally(records, implausible, place, worst)
                self._must_recount |= peak != self._peak
                if entry is not None:
                    self._entries[session, name] = entry
        return self._tallies

    def _set(self, key: tuple[int, str], tally: Tally) -> None:
        self._known()[key] = tally
        self._changed.add(key)

    def _count(self, session: int, pieces: Sequence[CounterRows]) -> None:
        for name, found in checked(pieces, self._frequency_mhz, self._peak).items():
            key = (session, name)
            self._set(key, merged(self._known().get(key, Tally()), found))

    def _take_back(self, key: tuple[int, str], gone: Tally, *, comes_again: bool) -> None:
        before = self._known().get(key, Tally())
        self._set(key, without(before, gone))
        if gone.implausible and not comes_again:
            self._must_recount |= gone.first == before.first or gone.worst == before.worst

    def _recount(self) -> None:
        """Count all rows of the JOB."""
        self._must_recount = False
        for key in self._known():
            self._set(key, Tally())
        for session, path, part, first_record in self._connection.execute(_PARTS, (self._job,)):
            for rows in self._pages(path_from_sql(path), part, first_record):
                self._count(session, [rows])

    def _pages(self, path: str, part: int, first_record: int) -> Iterator[CounterRows]:
        last, end = part * RECORDS_PER_PART - 1, (part + 1) * RECORDS_PER_PART
        while page := self._connection.execute(_PAGE, (last, end, ROWS_PER_PAGE)).fetchall():
            table = np.array(page, np.float64)
            number = page[0][0] - part * RECORDS_PER_PART + first_record
            counters = dict(zip(COUNTER_NAMES, table[:, 2:].T, strict=True))
            yield CounterRows(first_place(path, number), table[:, 1].astype(np.int64), counters)
            last = page[-1][0]

    def _write(self, key: tuple[int, str]) -> None:
        (session, name), tally = key, self._known()[key]
        about = (session, self._job, name)
        entry = write_check(self._connection, about, tally, self._peak, self._entries.pop(key, None))
        if entry is not None:
            self._entries[key] = entry
        if not tally.rows:
            del self._known()[key]


def write_check(
    connection: sqlite3.Connection,
    about: tuple[int, int, str],
    tally: Tally,
    peak_bytes_per_s: float,
    entry: int | None,
) -> int | None:
    """Write what a check has found; `about` is session, JOB and check. Takes the ledger's entry, and returns it."""
    session, job, name = about
    entry = _write_entry(
        connection, session, job, told(name, tally, peak_bytes_per_s) if tally.implausible else "", entry
    )
    if not tally.rows:
        connection.execute("DELETE FROM counter_check WHERE session = ? AND job = ? AND name = ?", about)
        return entry
    first = tally.first or (None, None, None)
    figures = (tally.rows, tally.implausible, tally.worst, *first, peak_bytes_per_s, entry)
    connection.execute(
        "INSERT OR REPLACE INTO counter_check VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*about, *figures)
    )
    return entry


def _write_entry(connection: sqlite3.Connection, session: int, job: int, detail: str, entry: int | None) -> int | None:
    """Have the ledger's entry say this; None where there is nothing to say."""
    if not detail:
        connection.execute("DELETE FROM ledger_entry WHERE entry = ?", (entry,))
        return None
    if entry is not None:
        connection.execute("UPDATE ledger_entry SET detail = ? WHERE entry = ?", (detail, entry))
        return entry
    cursor = connection.execute(
        "INSERT INTO ledger_entry (session, job, origin, grade, reason, detail, count)"
        " VALUES (?, ?, 'counters', 'note', ?, ?, 1)",
        (session, job, reasons.IMPLAUSIBLE_COUNTER, detail),
    )
    return int(cursor.lastrowid or 0)


def first_place(path: str, record: int) -> Place:
    """Where a log's record is."""
    name = parse_log_name(path)
    pictures = 0 if name is None or name.current_pic_count is None else name.current_pic_count
    return Place(min(pictures, LARGEST_INTEGER), display_text(path), record)


def implausible_of(connection: sqlite3.Connection, session: int, job: int | None = None) -> list[str]:
    """What cannot be of a session's counters, or of those of one of its JOBs: a line for each check that fails."""
    rows = connection.execute(
        "SELECT j.name, detail FROM ledger_entry JOIN job j USING (job)"
        " WHERE session = ?1 AND reason = ?2 AND (?3 IS NULL OR job = ?3) ORDER BY entry",
        (session, reasons.IMPLAUSIBLE_COUNTER, job),
    )
    return [f"implausible: {name}: {detail}" for name, detail in rows]


def _part_of(rows: CounterRows, chosen: NDArray[np.bool_] | None) -> CounterRows:
    """Those of a log's records that one session fetched."""
    if chosen is None:
        return rows
    counters: Mapping[str, NDArray[np.float64]] = {name: values[chosen] for name, values in rows.counters.items()}
    first = rows.first._replace(record=rows.first.record + int(chosen.argmax()))
    return CounterRows(first, rows.ticks[chosen], counters)

"""Counters of stored records: the check of their plausibility, and their exchange for those of another map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from profagent.formats.countermap import (
    LAYERS_SHARE,
    MAPPED_NAMES,
    PART_SLACK,
    RATES,
    SHARES,
    SLACK_US,
    TICKS,
    RecordPlace,
    Tally,
    implausible_text,
    merged,
)
from profagent.formats.names import LogKind
from profagent.formats.records import AICORE_DTYPE, CYCLES_PER_TICK
from profagent.limits import COUNTERS_PER_BATCH, LARGEST_RATIO
from profagent.store.columns import Segments, chunks
from profagent.store.database import OF_PART, RECORDS_PER_PART, fetched, fetched_one, transaction
from profagent.store.rows import path_from_sql

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.formats.countermap import CounterMap
    from profagent.formats.records import Records
    from profagent.store.columns import Ints

    # Of a board, a JOB and a log, so many bytes from a place on.
    _BytesOf = Callable[[str, str, str, int, int], bytes]

# Runs each time that a database is opened for writing, like the schemas of sources.
SCHEMA = """
-- How far the counters of a JOB's records go at most. Where that can be, no record is read to find one that cannot.
-- A JOB has no row when an earlier profagent began it, or when another counter map was used on it.
CREATE TABLE IF NOT EXISTS counter_bound (
    job            INTEGER PRIMARY KEY REFERENCES job,
    excess         REAL NOT NULL,       -- above what a counter can be, at least 0
    bytes_per_tick REAL NOT NULL
);
"""
# Allowance for a rate that the database rounds in another way.
ROUNDING = 1 + 1e-9
RECORD = AICORE_DTYPE.itemsize

_OF_SESSION = (
    f" FROM log l JOIN part p USING (log) CROSS JOIN aicore r ON r.record {OF_PART}"
    " WHERE l.job = ? AND l.kind = 'aicore' AND p.session = ?"
)
_WITH_INFERENCES = _OF_SESSION.replace(
    "WHERE", "JOIN segment g USING (segment) JOIN inference i USING (inference) WHERE"
)
_INFERENCES = (
    "SELECT i.session, i.current_pic_count, l.shown_path,"
    " sum(g.ticks) * 100.0 / j.frequency_mhz / (i.end_us - i.start_us) AS share, i.end_us - i.start_us"
    " FROM job j JOIN model m USING (job) JOIN inference i USING (model) JOIN segment g USING (inference)"
    " JOIN log l USING (log) WHERE j.job = ? AND g.kind = 'aicore' AND i.end_us > i.start_us AND j.frequency_mhz > 0"
    " GROUP BY i.inference"
)
_PARTS = (
    "SELECT part, b.identity, j.name, path, first_record FROM part JOIN log USING (log) JOIN job j USING (job)"
    " JOIN board b USING (board) WHERE session = ?"
)
_NUMBER = f"SELECT count(*) FROM part p CROSS JOIN aicore r ON r.record {OF_PART} WHERE p.session = ?"  # noqa: S608 - ours
_UPDATE = f"UPDATE aicore SET {', '.join(f'{name} = ?' for name in MAPPED_NAMES)} WHERE record = ?"  # noqa: S608 - names of counters


# Keys of records, the records' bytes, and a mask that is False where these bytes are missing.
_Page = tuple["Ints", "Records", "NDArray[np.bool_]"]


async def implausible_counters(
    connection: aiosqlite.Connection, job: int, peak_bytes_per_s: float
) -> dict[int, list[str]]:
    """Return by session the checks that fail for a JOB's counters, a line of text each.

    A session is in the result, perhaps with no line, if it has a part of the JOB.
    """
    about = "SELECT frequency_mhz, excess, bytes_per_tick FROM job LEFT JOIN counter_bound USING (job) WHERE job = ?"
    mhz, excess, bytes_per_tick = await fetched_one(connection, about, (job,))
    rate = 0.0 if mhz is None else (bytes_per_tick or 0.0) * _ticks_per_s(mhz)
    # The stored bounds prove most JOBs plausible without reading a record.
    is_odd = excess is None or excess > 0 or rate * ROUNDING > peak_bytes_per_s
    checks = _checks(mhz, peak_bytes_per_s)
    sessions = await fetched(
        connection,
        "SELECT DISTINCT session, counter_map IS NOT NULL FROM log JOIN part USING (log) JOIN session USING (session)"
        " WHERE job = ? AND kind = 'aicore'",
        (job,),
    )
    found: dict[int, list[str]] = {}
    for session, has_map in sessions:
        tallies = await _tallies(connection, job, session, checks) if has_map and is_odd else []
        found[session] = [implausible_text(name, tally, peak_bytes_per_s) for name, tally in tallies]
    for session, tally in (await _slow_inferences(connection, job)).items():
        if tally.implausible:
            found.setdefault(session, []).append(implausible_text(TICKS, tally))
    return found


def _checks(mhz: int | None, peak_bytes_per_s: float) -> dict[str, tuple[str, str]]:
    checks = {
        name: (f"r.{counter}", str(LARGEST_RATIO) if whole is None else f"(r.{whole} + {PART_SLACK})")
        for name, (counter, whole) in SHARES.items()
    }
    if mhz is not None:
        scale = _ticks_per_s(mhz)
        rates = {name: f"(r.{counter} * {scale} / nullif(r.ticks, 0))" for name, counter in RATES.items()}
        checks |= {name: (rate, str(peak_bytes_per_s)) for name, rate in rates.items()}
    return checks


def _ticks_per_s(mhz: int) -> float:
    return mhz * 1e6 / CYCLES_PER_TICK


async def _tallies(
    connection: aiosqlite.Connection, job: int, session: int, checks: Mapping[str, tuple[str, str]]
) -> list[tuple[str, Tally]]:
    """Return the checks that fail: one walk over the records finds them, and further queries count them.

    SQLite computes the checks: reading all counters into numpy takes twice the time of the walk, and few checks fail.
    """
    about = (job, session)
    found: list[tuple[str, Tally]] = []
    excesses = ", ".join(f"max({value} - {limit})" for value, limit in checks.values())
    row = await fetched_one(connection, f"SELECT {excesses} {_OF_SESSION}", about)
    for excess, (name, (value, limit)) in zip(row, checks.items(), strict=True):
        if excess is not None and excess > 0:
            rows, implausible, worst = await fetched_one(
                connection,
                f"SELECT count({value}), total({value} > {limit}), max(iif({value} > {limit}, {value}, NULL))"
                f" {_OF_SESSION}",
                about,
            )
            first = await fetched_one(
                connection,
                f"SELECT i.current_pic_count, l.shown_path, r.record % {RECORDS_PER_PART} + p.first_record"
                f" {_WITH_INFERENCES} AND {value} > {limit} ORDER BY 1, 2, 3 LIMIT 1",
                about,
            )
            found.append((name, Tally(rows, int(implausible), RecordPlace(*first), worst)))
    return found


async def _slow_inferences(connection: aiosqlite.Connection, job: int) -> dict[int, Tally]:
    tallies: dict[int, Tally] = {}
    for session, pictures, path, share, window_us in await fetched(connection, _INFERENCES, (job,)):
        is_odd = share > LAYERS_SHARE + SLACK_US / window_us
        one = Tally(1, 1, RecordPlace(pictures, path, 0), share) if is_odd else Tally(1)
        tallies[session] = merged(tallies.get(session, Tally()), one)
    return tallies


def exchange_counters(
    connection: sqlite3.Connection,
    session: int,
    counter_map: CounterMap,
    bytes_of: _BytesOf,
    shown: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[int, int]:
    """Decode the counters anew from the records' bytes, in one transaction; an error leaves everything as it was.

    Returns how many records have values of the new map, and how many have none. `shown` is called with the number of
    records done and their total. A record whose bytes are missing loses its counters: values of the old map would not
    fit the rest. Memory is bounded by a page.
    """
    filled = seen = 0
    (total,) = connection.execute(_NUMBER, (session,)).fetchone()
    with transaction(connection):
        for keys, records, are_there in _pages(connection, session, bytes_of):
            known = {name: np.where(are_there, values, np.nan) for name, values in counter_map.apply(records).items()}
            # NaN is NULL in the database.
            unknown = np.full(len(records), np.nan)
            columns = [known.get(name, unknown).tolist() for name in MAPPED_NAMES]
            connection.executemany(_UPDATE, zip(*columns, keys.tolist(), strict=True))
            filled += int(are_there.sum())
            seen += len(keys)
            shown(seen, total)
        connection.execute(
            "DELETE FROM counter_bound WHERE job IN (SELECT job FROM session_job WHERE session = ?)", (session,)
        )
        connection.execute(
            "UPDATE session SET counter_map = ?, counter_map_digest = ?, counter_map_likely = ? WHERE session = ?",
            (counter_map.name, counter_map.fingerprint, ",".join(counter_map.likely) or None, session),
        )
    return filled, seen - filled


def _pages(connection: sqlite3.Connection, session: int, bytes_of: _BytesOf) -> Iterator[_Page]:
    """Yield the session's records, many small logs at once: numpy calls for each log would cost too much."""
    files = {part: file for part, *file in connection.execute(_PARTS, (session,))}
    names = ("record", "sequence", "ticks")
    for query in chunks(connection, Segments.of_session(connection, session), LogKind.AICORE, names, session):
        columns = query.read(connection).columns
        table = np.stack([columns[name] for name in names], axis=1)[np.argsort(columns["record"])]
        for begin in range(0, len(table), COUNTERS_PER_BATCH):
            yield _page(table[begin : begin + COUNTERS_PER_BATCH], files, bytes_of)


def _page(table: Ints, files: Mapping[int, Sequence[Any]], bytes_of: _BytesOf) -> _Page:
    """Return a page's keys, bytes and mask; bytes that hold another record by now count as missing."""
    pieces, are_there = [], []
    for keys in np.split(table[:, 0], np.flatnonzero(np.diff(table[:, 0] // RECORDS_PER_PART)) + 1):
        part, number = divmod(int(keys[0]), RECORDS_PER_PART)
        board, job, stored_path, first_record = files[part]
        places = keys - keys[0]
        start, count = number + first_record, int(places[-1]) + 1
        data = bytes_of(board, job, path_from_sql(stored_path), start * RECORD, count * RECORD)
        whole = data[: len(data) // RECORD * RECORD].ljust(count * RECORD, b"\0")
        pieces.append(np.frombuffer(whole, np.uint8).reshape(-1, RECORD)[places])
        are_there.append(places < len(data) // RECORD)
    records = np.concatenate(pieces).view(AICORE_DTYPE)[:, 0]
    # Sequence and ticks were stored from the same bytes: if they differ, the file has been replaced.
    is_same = (records["sequence"] == table[:, 1]) & (records["ticks"] == table[:, 2])
    return table[:, 0], records, np.concatenate(are_there) & is_same

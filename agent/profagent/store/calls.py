"""API calls as numpy columns: all of a session, JOB or log, and those around the inferences of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from profagent.formats.inference_times import Calls
from profagent.formats.names import LogKind
from profagent.formats.records import api_name
from profagent.limits import CALLS_NEAR_US
from profagent.store.columns import integers, pieces_of
from profagent.store.database import keys_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from profagent.formats.inference_times import Spans
    from profagent.store.database import Row

    Ints = NDArray[np.int64]

# Type of a function that the database has no name for.
UNKNOWN_TYPE = "N/A"
_CALL_PARTS = "SELECT part, log, offset, ifnull(model, 0) FROM part JOIN log USING (log) WHERE kind = 'acl_api'"
# Times from 2^63 on are REAL; the cast limits them to SQLite's largest integer.
_CALLS = """
SELECT group_concat(api), group_concat(CAST(begin_us AS INTEGER)), group_concat(CAST(end_us AS INTEGER)),
       group_concat(pid), group_concat(tid)
FROM api WHERE record BETWEEN ? AND ?
"""
_CALL_NAMES = "SELECT api, name, type FROM api_name"
# A log of calls has a name that sorts between these.
_PARTS_OF_CALLS = (
    "SELECT part FROM model m JOIN log l ON l.job = m.job AND l.path BETWEEN 'data/ac' AND 'data/ad'"
    " JOIN part USING (log) WHERE m.model = ?1 AND l.model = ?1 AND l.kind = 'acl_api'"
)
_NEXT_CALL = "SELECT record, begin_us, end_us FROM api WHERE record BETWEEN ? AND ? ORDER BY record LIMIT 1"
_LAST_CALL = "SELECT record, begin_us FROM api WHERE record BETWEEN ? AND ? ORDER BY record DESC LIMIT 1"
_CALLS_BETWEEN = "SELECT api, begin_us, end_us FROM api WHERE record BETWEEN ? AND ?"


@dataclass(frozen=True, slots=True)
class CallTable:
    """API calls as integer columns of one length, in the order of the part of a log.

    `log` and `model` are numbers of the database. `begin_us` is 0 where unknown.
    """

    log: Ints
    model: Ints
    api: Ints
    begin_us: Ints
    end_us: Ints
    pid: Ints
    tid: Ints

    @classmethod
    def joined(cls, tables: Iterable[CallTable]) -> CallTable:
        """Return the calls of several tables as one."""
        columns = zip(*([getattr(table, name) for name in cls.__slots__] for table in tables), strict=True)
        return cls(*([np.concatenate(each) for each in columns] or [np.empty(0, np.int64)] * len(cls.__slots__)))

    def at(self, places: NDArray[np.intp] | NDArray[np.bool_] | slice) -> CallTable:
        """Return the calls at these places, in their order."""
        return CallTable(*(getattr(self, name)[places] for name in self.__slots__))

    def __len__(self) -> int:
        return len(self.api)


def call_tables(
    connection: sqlite3.Connection, *, session: int | None = None, job: int | None = None, log: int | None = None
) -> Iterator[CallTable]:
    """Yield the API calls that a session fetched, of a JOB or of a log, about RECORDS_PER_CHUNK at a time."""
    chosen = {name: key for name, key in (("session", session), ("job", job), ("log", log)) if key is not None}
    query = "".join((_CALL_PARTS, *(f" AND {name} = :{name}" for name in chosen), " ORDER BY part"))
    for part, of_log, size, model in connection.execute(query, chosen).fetchall():
        for first, last, _ in pieces_of(connection, LogKind.ACL_API, part, size):
            columns = [integers(text) for text in connection.execute(_CALLS, (first, last)).fetchone()]
            about = (np.full(len(columns[0]), each) for each in (of_log, model))
            yield CallTable(*about, *columns)


def calls_near(connection: sqlite3.Connection, model: int, whole: Spans) -> tuple[Calls, float]:
    """Return the calls of a model around the spans of inferences, and when its newest call began; -inf without one.

    A log has its calls in the order of their ends, so a few of a great many are read.
    """
    rows: list[Row] = []
    latest_us = -np.inf
    for (part,) in connection.execute(_PARTS_OF_CALLS, (model,)).fetchall():
        first, end = keys_of(part)
        for last, begin_us in connection.execute(_LAST_CALL, (first, end)).fetchall():
            latest_us = max(latest_us, float(begin_us))
            for from_us, to_us in _times_around(whole):
                begin = _first_call(connection, first, last, from_us)
                end = _first_call(connection, begin, last, to_us)
                rows += connection.execute(_CALLS_BETWEEN, (begin, end)).fetchall()
                first = end + 1
    api, begins, ends = np.array(rows, np.float64).reshape(-1, 3).T
    return Calls(api.astype(np.int64), begins, ends), latest_us


def _times_around(whole: Spans) -> list[tuple[float, float]]:
    """Return the times around inferences in which their calls begin and end, apart and in order.

    Of a backlog, inferences come that lie far from each other.
    """
    order = np.argsort(whole.begin_us)
    begins = whole.begin_us[order] - CALLS_NEAR_US
    ends = np.maximum.accumulate(whole.end_us[order] + CALLS_NEAR_US)
    breaks = np.flatnonzero(begins[1:] > ends[:-1])
    return [*zip(begins[[0, *breaks + 1]].tolist(), ends[[*breaks, -1]].tolist(), strict=True)]


def _first_call(connection: sqlite3.Connection, first: int, last: int, time_us: float) -> int:
    """Return the key of the first call between two keys that ends at a time or later, or the last key."""
    while first < last:
        middle = (first + last) // 2
        ((_, _, end_us),) = connection.execute(_NEXT_CALL, (middle, last)).fetchall()
        first, last = (first, middle) if end_us >= time_us else (middle + 1, last)
    return first


class CallNames(dict[int, tuple[str, str]]):
    """Names and types of the API's functions by number; an unknown number gets a name of its own."""

    @classmethod
    def of(cls, connection: sqlite3.Connection) -> CallNames:
        """Return the names that a database has."""
        return cls((api, (name, kind)) for api, name, kind in connection.execute(_CALL_NAMES))

    def __missing__(self, api: int) -> tuple[str, str]:
        return api_name(api), UNKNOWN_TYPE

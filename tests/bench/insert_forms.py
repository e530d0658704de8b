"""Ways to keep aicore records in SQLite, each in a process of its own with one SQLite library.

`python insert_forms.py FORM DATABASE` reads pickled batches from standard input until its end, keeps each durably in a
transaction of its own, and prints seconds from the first batch to the last commit, and its processor time. A batch is
a dict of numpy arrays, one value a record, as decoding gives them; its records are those of files of RECORDS each.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Protocol

RECORDS = 100
INTEGERS = ("record", "segment", "sequence", "layer_index", "ticks", "ticks_before")
COUNTERS = tuple(f"counter_{number}" for number in range(10))
_COLUMNS = f"{' INTEGER, '.join(INTEGERS[1:])} INTEGER, {' REAL, '.join(COUNTERS)} REAL"
SCHEMA = (
    f"CREATE TABLE aicore (record INTEGER PRIMARY KEY, {_COLUMNS})",
    "CREATE TABLE blob (segment INTEGER PRIMARY KEY, data BLOB)",
)
SETTINGS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA cache_size = -32768")

Batch = dict[str, Any]
Insert = tuple[str, Iterable[tuple[Any, ...]]]


class Library(Protocol):
    """A connection of one SQLite library."""

    def keep(self, inserts: list[Insert]) -> None:
        """Insert rows in one durable transaction."""


class Standard:
    """Python's own library."""

    def __init__(self, database: str) -> None:
        self._connection = import_module("sqlite3").connect(database, isolation_level=None)
        for statement in (*SETTINGS, *SCHEMA):
            self._connection.execute(statement)

    def keep(self, inserts: list[Insert]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for statement, rows in inserts:
            self._connection.executemany(statement, rows)
        self._connection.execute("COMMIT")


class Apsw:
    """apsw, which brings a SQLite of its own."""

    def __init__(self, database: str) -> None:
        self._connection = import_module("apsw").Connection(database)
        for statement in (*SETTINGS, *SCHEMA):
            self._connection.execute(statement)

    def keep(self, inserts: list[Insert]) -> None:
        with self._connection:
            for statement, rows in inserts:
                self._connection.executemany(statement, rows)


class Adbc:
    """ADBC, which brings a SQLite of its own, and takes columns as Arrow."""

    def __init__(self, database: str) -> None:
        self._arrow = import_module("pyarrow")
        self._connection = import_module("adbc_driver_sqlite.dbapi").connect(database, autocommit=True)
        self._cursor = self._connection.cursor()
        for statement in (*SETTINGS, *SCHEMA):
            self._cursor.execute(statement)
            self._cursor.fetchall()
        self._cursor.execute("PRAGMA synchronous")
        assert self._cursor.fetchone() == (2,)

    def keep_columns(self, batch: Batch) -> None:
        """Insert a batch as it is."""
        table = self._arrow.table({name: batch[name] for name in INTEGERS + COUNTERS})
        self._cursor.execute("BEGIN IMMEDIATE")
        self._cursor.adbc_ingest("aicore", table, mode="append")
        self._cursor.execute("COMMIT")


def _all_columns(batch: Batch) -> list[Insert]:
    marks = ", ?" * (len(INTEGERS + COUNTERS) - 1)
    columns = [batch[name].tolist() for name in INTEGERS + COUNTERS]
    return [(f"INSERT INTO aicore VALUES (?{marks})", zip(*columns, strict=True))]


def _integers(batch: Batch) -> list[Insert]:
    columns = [batch[name].tolist() for name in INTEGERS]
    statement = f"INSERT INTO aicore ({', '.join(INTEGERS)}) VALUES (?{', ?' * (len(INTEGERS) - 1)})"
    return [(statement, zip(*columns, strict=True))]


def _blobs(batch: Batch, names: tuple[str, ...]) -> Insert:
    """A blob for each file, column by column."""
    starts = range(0, len(batch["record"]), RECORDS)
    rows = (
        (int(batch["segment"][at]), b"".join(batch[name][at : at + RECORDS].tobytes() for name in names))
        for at in starts
    )
    return "INSERT INTO blob VALUES (?, ?)", rows


def _written(library: Library, form: Callable[[Batch], list[Insert]]) -> Callable[[Batch], None]:
    return lambda batch: library.keep(form(batch))


FORMS: dict[str, Callable[[str], Callable[[Batch], None]]] = {
    "sqlite3, a column each": lambda database: _written(Standard(database), _all_columns),
    "sqlite3, no counters": lambda database: _written(Standard(database), _integers),
    "sqlite3, counters of a segment in a blob": lambda database: _written(
        Standard(database), lambda batch: [*_integers(batch), _blobs(batch, COUNTERS)]
    ),
    "sqlite3, a segment in a blob": lambda database: _written(
        Standard(database), lambda batch: [_blobs(batch, INTEGERS + COUNTERS)]
    ),
    "apsw, a column each": lambda database: _written(Apsw(database), _all_columns),
    "ADBC, a column each": lambda database: Adbc(database).keep_columns,
}


def main(form: str, database: str) -> None:
    """Keep what comes; prints what it took."""
    keep = FORMS[form](database)
    print("ready", flush=True)
    batch: Batch | None = pickle.load(sys.stdin.buffer)
    begin, begin_cpu_s = time.monotonic(), time.process_time()
    while batch is not None:
        keep(batch)
        batch = pickle.load(sys.stdin.buffer)
    print(time.monotonic() - begin, time.process_time() - begin_cpu_s)


if __name__ == "__main__":
    main(*sys.argv[1:])

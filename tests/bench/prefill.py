"""Filling a database with more of what is in it, by SQL: every JOB's rows once more under new numbers.

`python -m tests.bench.prefill DATABASE ROWS` does it in a process of its own.
"""

from __future__ import annotations

import sqlite3
import string
import sys
from contextlib import closing
from pathlib import Path

from profagent.store.database import RECORDS_PER_PART

# Tables of a JOB's rows, each with the columns whose numbers are shifted by the rows that there are of that kind.
TABLES = ("job", "session_job", "model", "layer", "log", "part", "inference", "segment", "aicore")
NUMBERED = ("job", "model", "log", "part", "inference", "segment")


def prefill(database: Path, rows: int) -> None:
    """Add copies of the first JOB until there are `rows` aicore records."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -262144")
        ends = {table: _largest(connection, table) for table in NUMBERED}
        first_job = _first_job_ends(connection)
        (stored,) = connection.execute("SELECT count(*) FROM aicore").fetchone()
        (each,) = connection.execute(
            f"SELECT count(*) FROM aicore WHERE record < {(first_job['part'] + 1) * RECORDS_PER_PART}"
        ).fetchone()
        for copy in range(max(0, -(-(rows - stored) // each))):
            shifts = {table: ends[table] + copy * first_job[table] for table in NUMBERED}
            connection.execute("BEGIN")
            for table in TABLES:
                _copy(connection, table, first_job, shifts, _job_name(ends["job"] + copy))
            connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _copy(
    connection: sqlite3.Connection, table: str, first_job: dict[str, int], shifts: dict[str, int], name: str
) -> None:
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    values = [f"{column} + {shifts[column]}" if column in shifts else column for column in columns]
    where = f"{'model' if table == 'layer' else table if table in NUMBERED else 'job'} <= ?"
    limit = first_job["model" if table == "layer" else table if table in NUMBERED else "job"]
    if table == "aicore":
        values[columns.index("record")] = f"record + {shifts['part'] * RECORDS_PER_PART}"
        where, limit = "record < ?", (first_job["part"] + 1) * RECORDS_PER_PART
    if table == "job":
        values[columns.index("name")] = f"'{name}'"
    connection.execute(
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM {table} WHERE {where}", (limit,)
    )


def _first_job_ends(connection: sqlite3.Connection) -> dict[str, int]:
    """The largest number of each kind that the first JOB has; it was alone when its rows were written."""
    (job, model, log) = connection.execute(
        "SELECT 1, (SELECT max(model) FROM model WHERE job = 1), (SELECT max(log) FROM log WHERE job = 1)"
    ).fetchone()
    (part,) = connection.execute("SELECT max(part) FROM part WHERE log <= ?", (log,)).fetchone()
    (segment, inference) = connection.execute(
        "SELECT max(segment), max(inference) FROM segment WHERE log <= ?", (log,)
    ).fetchone()
    return {"job": job, "model": model, "log": log, "part": part, "segment": segment, "inference": inference}


def _largest(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT max({table}) FROM {table}").fetchone()[0])


def _job_name(number: int) -> str:
    """`JOB` and 29 letters, which nobody else chooses."""
    letters = []
    for _ in range(29):
        number, letter = divmod(number, len(string.ascii_uppercase))
        letters.append(string.ascii_uppercase[letter])
    return "JOB" + "".join(letters)


if __name__ == "__main__":
    prefill(Path(sys.argv[1]), int(sys.argv[2]))

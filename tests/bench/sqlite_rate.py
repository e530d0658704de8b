"""What SQLite itself takes for the rows of a database: `python sqlite_rate.py DATABASE NEW` prints seconds and rows.

The new one has the same schema. Only inserting and committing is counted, 20,000 rows at a time, in order of the keys.
"""

from __future__ import annotations

import sqlite3
import sys
import time

ROWS_TOGETHER = 20_000
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
_SCHEMA = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' AND type != 'view'"


def rewrite(source: str, target: str) -> tuple[float, int]:
    """Return the seconds of processor time, and how many rows there were."""
    old, new = sqlite3.connect(source), sqlite3.connect(target, isolation_level=None)
    (page_bytes,) = old.execute("PRAGMA page_size").fetchone()
    new.executescript(f"PRAGMA page_size = {page_bytes}; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
    new.executescript("; ".join(statement for (statement,) in old.execute(_SCHEMA)))
    took_s, count = 0.0, 0
    for (table,) in old.execute(_TABLES).fetchall():
        rows = old.execute(f"SELECT * FROM {table}")
        insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows.description))})"
        while page := rows.fetchmany(ROWS_TOGETHER):
            begun_s = time.process_time()
            new.execute("BEGIN")
            new.executemany(insert, page)
            new.execute("COMMIT")
            took_s += time.process_time() - begun_s
            count += len(page)
    return took_s, count


if __name__ == "__main__":
    print(*rewrite(sys.argv[1], sys.argv[2]))

"""Bound of a database in memory: the oldest inferences are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.limits import LARGEST_DATABASE_IN_MEMORY_BYTES
from profagent.store.subset import delete_below

if TYPE_CHECKING:
    import sqlite3

_USED_BYTES = (
    "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
)
# Logs whose inferences are all deleted; `is_open` if one of these was pending.
_LOGS = (
    "INSERT INTO gone SELECT log, max(figures = 'pending') AS is_open"
    " FROM segment JOIN inference USING (inference) GROUP BY log HAVING max(inference) <= ?"
)
# The `.done` files of those logs, unless more may come.
_DONES = (
    "INSERT INTO gone SELECT d.log, 0 FROM gone JOIN log l USING (log) JOIN log d"
    " ON d.job = l.job AND d.path = l.path || '.done' WHERE NOT is_open"
)
# Open logs keep their rows and are skipped from now on: without the deleted records, their figures would be wrong.
_OPEN = "UPDATE log SET kept = 0 WHERE log IN (SELECT log FROM gone WHERE is_open)"
_SAMPLES = (
    "DELETE FROM sample WHERE (model, current_pic_count) IN"
    " (SELECT model, current_pic_count FROM inference WHERE inference <= ?)"
)


def make_room(connection: sqlite3.Connection, most_bytes: int = LARGEST_DATABASE_IN_MEMORY_BYTES) -> None:
    """Delete the older half of the inferences, and everything about them, while the database is too large."""
    while connection.execute(_USED_BYTES).fetchone()[0] > most_bytes:
        ((middle,),) = connection.execute("SELECT (min(inference) + max(inference)) / 2 FROM inference").fetchall()
        # Without inferences nothing more can be deleted.
        if middle is None:
            return
        delete_up_to(connection, middle)


def delete_up_to(connection: sqlite3.Connection, last: int) -> None:
    """Delete the inferences up to this number; open logs among theirs are skipped from now on."""
    # Chosen before anything is deleted: the choice reads segments and inferences.
    connection.execute("CREATE TEMP TABLE gone (log INTEGER PRIMARY KEY, is_open)")
    connection.execute(_LOGS, (last,))
    connection.execute(_DONES)
    delete_below(connection, "log", "log IN (SELECT log FROM gone)")
    delete_below(connection, "inference", f"inference <= {last}")
    connection.execute("DELETE FROM ledger_entry WHERE log IN (SELECT log FROM gone)")
    connection.execute(_SAMPLES, (last,))
    connection.execute(_OPEN)
    connection.execute("DELETE FROM log WHERE log IN (SELECT log FROM gone WHERE NOT is_open)")
    connection.execute("DELETE FROM inference WHERE inference <= ?", (last,))
    connection.execute("DROP TABLE gone")

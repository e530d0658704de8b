"""Rows of chosen sessions in all tables, copied between databases and deleted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib import resources
from typing import Any

import pytest

from profagent.ingest.source import schemas
from profagent.store.database import RECORDS_PER_PART
from profagent.store.subset import copy_sessions, delete_below, sharing, tables_of

# A table that nobody knows but by its references.
_TOY = "CREATE TABLE toy (toy INTEGER PRIMARY KEY, log INTEGER NOT NULL REFERENCES log, color TEXT)"
# Sessions 1 and 2 on boards a and b with a JOB each; 3 is on a, and has JOB 1 as well.
_ROWS = {
    "board": ["(1, 'a', '', '')", "(2, 'b', '', '')"],
    "session (session, board, source, address, started_us, simulated, daemon_version, sdk_version)": [
        f"({session}, {board}, 'record', '', 5, 0, '', '')" for session, board in ((1, 1), (2, 2), (3, 1))
    ],
    "job (job, board, name, directory, state, frequency_mhz)": [
        f"({job}, {job}, 'J', '', 'open', 100)" for job in (1, 2)
    ],
    "session_job": ["(1, 1)", "(2, 2)", "(3, 1)"],
    "model (model, job, name, model_id)": ["(1, 1, 'm', 0)", "(2, 2, 'm', 0)"],
    "layer": ["(1, 0, 0, 0, 'x', 'c')", "(2, 0, 0, 0, 'y', 'c')"],
    "log (log, job, path, shown_path, kind, model, generation, offset, complete)": [
        f"({log}, {log}, 'p', 'p', 'aicore', {log}, 1, 0, 1)" for log in (1, 2)
    ],
    "part": ["(1, 1, 1, 0)", "(2, 2, 2, 0)", "(3, 1, 3, 1)"],
    "inference (inference, session, model, device_id, batch_num, input_pic_num, current_pic_count, load, complete)": [
        f"({number}, {number}, {model}, 0, 1, 1, {number}, 0, 1)" for number, model in ((1, 1), (2, 2), (3, 1))
    ],
    "segment": [
        f"({number}, {log}, {number}, 'aicore', {number}, 0, 7, 9, 2, 1)" for number, log in ((1, 1), (2, 2), (3, 1))
    ],
    "aicore (record, segment, sequence, layer_index, ticks, ticks_before)": [
        f"({part * RECORDS_PER_PART + 4}, {part}, 0, 0, {part}, 0)" for part in (1, 2, 3)
    ],
    "api": [f"({part * RECORDS_PER_PART}, 0, 1, 2, {part}, 0)" for part in (1, 2, 3)],
    "sample": ["(1, 1, 1, 1, 1)", "(1, 3, 1, 1, 3)", "(2, 2, 1, 1, 2)"],
    "ledger_entry (entry, session, log, origin, grade, reason, detail, count)": [
        "(1, 1, 1, 'link', 'note', 'r', '', 1)",
        "(2, 2, 2, 'link', 'note', 'r', '', 1)",
        "(3, 3, NULL, 'board', 'note', 'r', '', 1)",
    ],
    "kept_loss (board, id, entry)": ["(1, 'k', 3)"],
    "metric_name": ["(1, 1, 0, 'cpu', '%')"],
    "metric": ["(1, 1, 0, 0, 10, 1.0)", "(1, 3, 1, 0, 20, 2.0)"],
    "toy": ["(1, 1, 'red')", "(2, 2, 'blue')"],
}


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """A database with three sessions, and an empty one beside it as `other`."""
    script = "\n".join([resources.files("profagent.store").joinpath("schema.sql").read_text("utf-8"), *schemas(), _TOY])
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("ATTACH ':memory:' AS other")
        connection.executescript(script)
        tables = "SELECT sql FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        for (sql,) in connection.execute(tables).fetchall():
            connection.execute(sql.replace("CREATE TABLE ", "CREATE TABLE other.", 1))
        for table, rows in _ROWS.items():
            connection.execute(f"INSERT INTO {table} VALUES {', '.join(rows)}")
        yield connection


def found(connection: sqlite3.Connection, sql: str) -> list[tuple[Any, ...]]:
    return connection.execute(sql).fetchall()


def test_sessions_that_share_a_job_go_together(connection: sqlite3.Connection) -> None:
    assert [sharing(connection, "main", session) for session in (1, 2, 3)] == [[1, 3], [2], [1, 3]]
    connection.execute("INSERT INTO session_job VALUES (3, 2)")
    assert sharing(connection, "main", 1) == [1, 2, 3]
    # A record of an inference that the other began.
    connection.execute("UPDATE aicore SET segment = 1 WHERE segment = 3")
    copy_sessions(connection, "main", "other", sharing(connection, "main", 1))
    assert found(connection, "PRAGMA other.foreign_key_check") == []
    for table in ("aicore", "segment", "inference"):
        assert found(connection, f"SELECT * FROM other.{table}") == found(connection, f"SELECT * FROM {table}")


def test_an_empty_database_has_the_rows_of_a_session_with_their_numbers(connection: sqlite3.Connection) -> None:
    copy_sessions(connection, "main", "other", [3])
    assert found(connection, "PRAGMA other.foreign_key_check") == []
    # The JOB's are there whichever session they came with, records and inferences of other sessions are not.
    assert {
        table: len(found(connection, f"SELECT * FROM other.{table}")) for table in tables_of(connection, "other")
    } == {
        **dict.fromkeys(tables_of(connection), 0),
        **dict.fromkeys(("board", "session", "job", "session_job", "model", "layer", "log", "part", "inference"), 1),
        **dict.fromkeys(("segment", "aicore", "api", "ledger_entry", "kept_loss", "metric_name", "metric", "toy"), 1),
        "sample": 2,
        "api_name": 6,
    }
    assert found(connection, "SELECT record, segment FROM other.aicore") == [(3 * RECORDS_PER_PART + 4, 3)]
    assert found(connection, "SELECT * FROM other.toy") == [(1, 1, "red")]
    # Session 1 is not there: what may name no session names none.
    assert found(connection, "SELECT current_pic_count, session FROM other.sample") == [(1, None), (3, 3)]


def test_rows_are_numbered_behind_those_that_are_there_and_a_board_is_one_board(connection: sqlite3.Connection) -> None:
    copy_sessions(connection, "main", "other", [2])
    copy_sessions(connection, "main", "other", [1, 3])
    assert found(connection, "PRAGMA other.foreign_key_check") == []
    connection.execute("UPDATE other.job SET name = 'K'")
    copy_sessions(connection, "main", "other", [2])
    assert found(connection, "PRAGMA other.foreign_key_check") == []
    records = (
        "SELECT b.identity, p.session, r.ticks, l.name, y.color FROM other.aicore r"
        f" JOIN other.part p ON p.part = r.record / {RECORDS_PER_PART} JOIN other.segment g USING (segment)"
        " JOIN other.inference i USING (inference) JOIN other.layer l USING (model) JOIN other.model m USING (model)"
        " JOIN other.job j USING (job) JOIN other.board b USING (board) JOIN other.toy y ON y.log = p.log"
        " WHERE i.session = p.session AND g.log = p.log ORDER BY p.session"
    )
    assert found(connection, records) == [
        ("b", 2, 2, "y", "blue"),
        ("a", 3, 1, "x", "red"),
        ("a", 5, 3, "x", "red"),
        ("b", 7, 2, "y", "blue"),
    ]


def test_what_belongs_to_rows_goes_children_first_and_they_stay(connection: sqlite3.Connection) -> None:
    delete_below(connection, "log", "job = 1")
    assert found(connection, "PRAGMA foreign_key_check") == []
    for table in ("part", "segment", "aicore", "api", "toy", "log", "inference", "ledger_entry"):
        left = {"log": [1, 2], "inference": [1, 2, 3], "ledger_entry": [1, 2, 3]}.get(table, [2])
        key = {"aicore": f"record / {RECORDS_PER_PART}", "api": f"record / {RECORDS_PER_PART}", "ledger_entry": "entry"}
        sql = f"SELECT {key.get(table, table)} FROM {table}"
        assert sorted(number for (number,) in found(connection, sql)) == left, table
    assert found(connection, "SELECT 1 FROM metric UNION SELECT 1 FROM metric_name") == []

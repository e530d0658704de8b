"""Opening a database: made, brought up to date, or refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from profagent.errors import StoreError
from profagent.store.database import SCHEMA_VERSION, migrate, open_for_writing

if TYPE_CHECKING:
    from pathlib import Path


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_a_new_database_has_the_schema_and_commits_durably(tmp_path: Path) -> None:
    with closing(open_for_writing(tmp_path / "deep" / "profagent.db")) as connection:
        assert pragma(connection, "user_version") == SCHEMA_VERSION
        assert pragma(connection, "journal_mode") == "wal"
        assert pragma(connection, "synchronous") == 2
        assert connection.execute("SELECT * FROM op_records").fetchall() == []


def test_opening_again_keeps_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "profagent.db"
    with closing(open_for_writing(file)) as connection:
        connection.execute("INSERT INTO board (identity, hostname, model) VALUES ('b', 'h', 'm')")
    with closing(open_for_writing(file)) as connection:
        assert connection.execute("SELECT identity FROM board").fetchall() == [("b",)]


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "profagent.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(StoreError, match=f"schema version {SCHEMA_VERSION + 1}"):
        open_for_writing(file)


def test_another_programs_database_is_refused_and_not_changed(tmp_path: Path) -> None:
    file = tmp_path / "theirs.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    with pytest.raises(StoreError, match="another program"):
        open_for_writing(file)
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be looked at as one" * 100)
    with pytest.raises(StoreError, match="cannot open"):
        open_for_writing(tmp_path / "text")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot open"):
        open_for_writing(tmp_path / "file" / "profagent.db")


def test_migrations_run_in_order_and_only_those_that_are_missing() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE steps (n)")
        scripts = {
            number: f"INSERT INTO steps VALUES ({number}); PRAGMA user_version = {number}" for number in (4, 2, 3)
        }
        migrate(connection, 2, scripts)
        assert connection.execute("SELECT n FROM steps").fetchall() == [(3,), (4,)]
        assert pragma(connection, "user_version") == 4

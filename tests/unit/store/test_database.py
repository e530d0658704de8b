"""Opening the database: made, brought up to date, or refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from profagent.errors import StoreError
from profagent.store.database import SCHEMA_VERSION, migrate, open_for_writing
from tests.fakes.dumps import check
from tests.unit.store.earlier import database_of_version_1


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_a_new_database_has_the_schema_and_is_durable(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "profagent.db"
    with closing(open_for_writing(file)) as connection:
        assert pragma(connection, "user_version") == SCHEMA_VERSION
        assert (pragma(connection, "journal_mode"), pragma(connection, "synchronous")) == ("wal", 2)
        assert connection.execute("SELECT count(*) FROM op_records").fetchone() == (0,)
        assert connection.execute("SELECT name FROM api_name WHERE api = 0").fetchone() == (
            "svp_acl_mdl_load_from_mem",
        )


def test_a_database_to_be_thrown_away_waits_for_no_disk(tmp_path: Path) -> None:
    with closing(open_for_writing(tmp_path / "x.db", durable=False)) as connection:
        assert (pragma(connection, "journal_mode"), pragma(connection, "synchronous")) == ("off", 0)


def test_a_database_that_is_there_keeps_its_rows(tmp_path: Path) -> None:
    for expected in (0, 1):
        with closing(open_for_writing(tmp_path / "x.db")) as connection:
            assert connection.execute("SELECT count(*) FROM board").fetchone() == (expected,)
            connection.execute(
                "INSERT INTO board (identity, hostname, model) VALUES ('b', '', '')"
            ) if not expected else None


def test_a_newer_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    with closing(open_for_writing(tmp_path / "x.db")) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(StoreError, match=f"version {SCHEMA_VERSION + 1}") as caught:
        open_for_writing(tmp_path / "x.db")
    assert "newer profagent" in caught.value.hint


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute("CREATE TABLE board (x)")
    with pytest.raises(StoreError, match="another program"):
        open_for_writing(tmp_path / "x.db")
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("board",)]


@pytest.mark.parametrize(
    "content", [b"not a database, but text that is long enough" * 9, b"SQLite format 3\0" + b"x" * 999]
)
def test_what_is_no_database_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.db").write_bytes(content)
    with pytest.raises(StoreError, match="cannot open the database"):
        open_for_writing(tmp_path / "x.db")
    assert (tmp_path / "x.db").read_bytes() == content


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot open the database") as caught:
        open_for_writing(tmp_path / "file" / "x.db")
    assert caught.value.hint


def test_migrations_run_in_their_order_from_the_version_that_is_there() -> None:
    scripts = {
        3: "INSERT INTO steps VALUES (3); PRAGMA user_version = 3",
        2: "INSERT INTO steps VALUES (2); PRAGMA user_version = 2",
        1: "CREATE TABLE steps (n); PRAGMA user_version = 1",
    }
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, 0, {1: scripts[1]})
        migrate(connection, 1, scripts)
        assert connection.execute("SELECT n FROM steps").fetchall() == [(2,), (3,)]
        assert pragma(connection, "user_version") == 3


def columns(connection: sqlite3.Connection) -> dict[str, list[object]]:
    """Every table, view and index with its columns."""
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")]
    return {name: connection.execute(f"PRAGMA table_xinfo({name})").fetchall() for name in sorted(names)}


def test_a_database_of_version_1_becomes_what_a_new_one_is_and_keeps_its_rows(tmp_path: Path) -> None:
    database_of_version_1(tmp_path / "old.db", "INSERT INTO job VALUES (1, 1, 'JOB', '/root', 'open', 700)")
    with closing(open_for_writing(tmp_path / "old.db")) as old, closing(open_for_writing(tmp_path / "new.db")) as new:
        assert pragma(old, "user_version") == SCHEMA_VERSION
        assert columns(old) == columns(new)
        views = "SELECT name, sql FROM sqlite_schema WHERE type = 'view' ORDER BY name"
        assert old.execute(views).fetchall() == new.execute(views).fetchall()
        assert old.execute("SELECT name, frequency_mhz, caught_up FROM job").fetchall() == [("JOB", 700, 0)]


def test_samples_of_version_1_are_counted(tmp_path: Path) -> None:
    database_of_version_1(tmp_path / "old.db")
    with closing(sqlite3.connect(tmp_path / "old.db")) as old:
        old.execute("INSERT INTO session VALUES (1, 1, 'record', '', 1, NULL, 0, '', '', NULL)")
        old.execute("INSERT INTO job VALUES (1, 1, 'JOB', '/root', 'open', 700)")
        old.executemany("INSERT INTO model VALUES (?, 1, ?, 0)", [(1, "m"), (2, "n")])
        samples = [(1, 1, 0, 0), (1, 1, 5, 0), (1, 1, 15, 0), (1, 1, 0, 1), (2, 2, 0, 0), (2, 4, 8, 0)]
        old.executemany(
            "INSERT INTO inference (session, model, device_id, batch_num, input_pic_num, current_pic_count, stretch,"
            " complete) VALUES (1, ?, 0, 1, ?, ?, ?, 1)",
            samples,
        )
        old.commit()
    with closing(open_for_writing(tmp_path / "old.db")) as old:
        figures = old.execute("SELECT sampled, input_pic_num, due FROM sampling").fetchall()
        assert figures == [(3, 1, None), (2, 0, None)]
        assert old.execute("SELECT * FROM sample_gap").fetchall() == [(1, 5, 1), (1, 10, 1), (2, 8, 1)]
        old.execute("DELETE FROM inference")
        check(old)


def test_a_migration_that_fails_changes_nothing() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        with pytest.raises(sqlite3.Error):
            migrate(connection, 0, {1: "CREATE TABLE a (x); PRAGMA user_version = 1; CREATE TABLE a (x)"})
        connection.execute("ROLLBACK")
        assert pragma(connection, "user_version") == 0
        assert connection.execute("SELECT * FROM sqlite_schema").fetchall() == []

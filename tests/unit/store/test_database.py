"""Opening the database: made or refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from profagent.errors import StoreError
from profagent.store.database import SCHEMA_VERSION, open_for_writing


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


def test_a_database_of_another_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    with closing(open_for_writing(tmp_path / "x.db")) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(StoreError, match=f"version {SCHEMA_VERSION + 1}") as caught:
        open_for_writing(tmp_path / "x.db")
    assert "profagent import -dir" in caught.value.hint


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

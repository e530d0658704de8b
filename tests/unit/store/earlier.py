"""Databases of earlier versions, as a profagent of their time left them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def database_of_version_1(file: Path, *statements: str) -> None:
    """One of schema version 1 with a board, and what statements put into it; closed as a writer closes it."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(Path(__file__).with_name("schema_1.sql").read_text("utf-8"))
        connection.execute("INSERT INTO board VALUES (1, 'b', 'euler', '')")
        for statement in statements:
            connection.execute(statement)

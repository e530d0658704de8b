"""A transaction: all of it, or nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from profagent.store.transaction import transaction

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE number (value INTEGER UNIQUE)")
        yield connection
        assert not connection.in_transaction


def values(connection: sqlite3.Connection) -> list[int]:
    return [value for (value,) in connection.execute("SELECT value FROM number")]


def write(connection: sqlite3.Connection, last: str | None) -> None:
    """A number, and then what fails."""
    with transaction(connection):
        connection.execute("INSERT INTO number VALUES (1)")
        if last is None:
            raise KeyboardInterrupt
        connection.execute(last)


def test_what_is_written_within_is_there_in_the_end(connection: sqlite3.Connection) -> None:
    with transaction(connection):
        connection.execute("INSERT INTO number VALUES (1)")
        assert connection.in_transaction
    assert values(connection) == [1]


@pytest.mark.parametrize(
    ("last", "error"),
    [
        ("refused", sqlite3.OperationalError),
        ("INSERT OR ROLLBACK INTO number VALUES (1)", sqlite3.IntegrityError),
        (None, KeyboardInterrupt),
    ],
)
def test_on_any_error_nothing_is_written(
    connection: sqlite3.Connection, last: str | None, error: type[BaseException]
) -> None:
    with pytest.raises(error):
        write(connection, last)
    assert values(connection) == []

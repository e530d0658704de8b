"""Sessions: begun, gone on with, ended."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from profagent.store.database import open_for_writing
from profagent.store.sessions import SessionStart, begin_session, end_session

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

START = SessionStart("board-1", "euler", "SS928", "record", "10.0.0.2:50151", 1_000, simulated=False)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_for_writing(tmp_path / "profagent.db")) as opened:
        yield opened


def test_an_unfinished_session_of_the_board_goes_on(connection: sqlite3.Connection) -> None:
    first = begin_session(connection, START)
    assert begin_session(connection, replace(START, started_us=2_000, address="elsewhere")) == first
    assert connection.execute("SELECT started_us, address FROM session").fetchall() == [(1_000, "10.0.0.2:50151")]


def test_a_finished_session_does_not_go_on(connection: sqlite3.Connection) -> None:
    session, board = begin_session(connection, START)
    end_session(connection, session, 5_000)
    assert begin_session(connection, START) == (session + 1, board)
    assert connection.execute("SELECT ended_us FROM session ORDER BY session").fetchall() == [(5_000,), (None,)]


@pytest.mark.parametrize(
    "other",
    [
        replace(START, always_new=True),
        replace(START, source="watch"),
        replace(START, identity="board-2"),
        replace(START, counter_map="mine"),
    ],
    ids=["new", "source", "board", "counter map"],
)
def test_another_capture_has_a_session_of_its_own(connection: sqlite3.Connection, other: SessionStart) -> None:
    session, _ = begin_session(connection, START)
    assert begin_session(connection, other)[0] != session


def test_labels_are_kept_and_added_to(connection: sqlite3.Connection) -> None:
    begin_session(connection, replace(START, labels={"build": "1", "net": "yolo"}))
    begin_session(connection, replace(START, labels={"build": "2"}))
    assert connection.execute("SELECT labels FROM sessions").fetchall() == [("build=2 net=yolo",)]


def test_a_boards_newest_name_is_kept(connection: sqlite3.Connection) -> None:
    begin_session(connection, START)
    begin_session(connection, replace(START, hostname="renamed"))
    assert connection.execute("SELECT identity, hostname FROM board").fetchall() == [("board-1", "renamed")]

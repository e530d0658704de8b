"""Sessions: begun, gone on with, or begun anew."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from profagent.store.counter_maps import simulated_map
from profagent.store.database import open_for_writing
from profagent.store.sessions import MapUsed, SessionStart, begin_session, end_session

START = SessionStart("b1", "euler", "SS928", "record", "10.0.0.1:50151", 17, simulated=False, daemon_version="1.0")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_for_writing(tmp_path / "x.db", durable=False)) as connection:
        yield connection


def test_a_session_has_what_is_known_when_it_begins(db: sqlite3.Connection) -> None:
    labels = {"model": "yolo v5", "note": "ä"}
    session, board = begin_session(
        db, replace(START, labels=labels, decoded_with=MapUsed("mine", "12"), sdk_version="2")
    )
    columns = (
        "board, hostname, source, address, started_us, ended_us, simulated, daemon_version, sdk_version, counter_map,"
        " counter_map_digest"
    )
    assert db.execute(f"SELECT {columns} FROM sessions WHERE session = ?", (session,)).fetchone() == (
        *("b1", "euler", "record", "10.0.0.1:50151", 17, None, 0, "1.0", "2", "mine", "12"),
    )
    assert dict(db.execute("SELECT key, value FROM session_label").fetchall()) == labels
    assert db.execute("SELECT board, model FROM board").fetchall() == [(board, "SS928")]


def test_a_session_knows_what_its_counter_map_is_not_certain_of(db: sqlite3.Connection) -> None:
    sure, *others = simulated_map().counters
    used = MapUsed.of(
        replace(simulated_map(), counters=(sure, *(replace(each, verdict="likely") for each in others[:2])))
    )
    assert MapUsed.of(simulated_map()).likely is None
    first = begin_session(db, replace(START, decoded_with=used))
    assert db.execute("SELECT counter_map_likely FROM session").fetchall() == [("mac_ppen,vec_busy",)]
    assert begin_session(db, replace(START, decoded_with=used)) == first


def test_an_unfinished_session_goes_on_with_more_labels(db: sqlite3.Connection) -> None:
    first = begin_session(db, replace(START, labels={"a": "1"}))
    assert begin_session(db, replace(START, started_us=99, labels={"a": "2", "b": "3"}, hostname="new")) == first
    assert db.execute("SELECT started_us, labels, hostname FROM sessions").fetchall() == [(17, "a=2 b=3", "new")]


@pytest.mark.parametrize(
    "other",
    [
        replace(START, always_new=True),
        replace(START, source="watch"),
        replace(START, identity="b2"),
        replace(START, decoded_with=MapUsed("mine", "12")),
        replace(START, decoded_with=MapUsed("its", "34")),
    ],
    ids=["told so", "another source", "another board", "another counter map", "a map that was changed"],
)
def test_a_session_is_not_gone_on_with_by(db: sqlite3.Connection, other: SessionStart) -> None:
    used = MapUsed("its", "12") if other.decoded_with.name == "its" else START.decoded_with
    first, _ = begin_session(db, replace(START, decoded_with=used))
    second, _ = begin_session(db, other)
    assert second != first


def test_a_session_that_ended_is_not_gone_on_with(db: sqlite3.Connection) -> None:
    first, _ = begin_session(db, START)
    end_session(db, first, 500)
    assert db.execute("SELECT ended_us FROM sessions").fetchall() == [(500,)]
    assert begin_session(db, START)[0] != first


def test_a_session_that_found_a_simulated_job_goes_on_without_its_map_being_named(db: sqlite3.Connection) -> None:
    first, _ = begin_session(db, START)
    db.execute("UPDATE session SET simulated = 1, counter_map = 'simulated'")
    assert begin_session(db, START)[0] == first


def test_the_newest_of_several_unfinished_sessions_goes_on(db: sqlite3.Connection) -> None:
    begin_session(db, START)
    newest, _ = begin_session(db, replace(START, always_new=True))
    assert begin_session(db, START)[0] == newest


def test_a_beginning_that_fails_leaves_nothing(db: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.Error):
        begin_session(db, replace(START, labels={"a": object()}))  # type: ignore[dict-item]
    assert not db.in_transaction
    assert db.execute("SELECT count(*) FROM board").fetchone() == (0,)

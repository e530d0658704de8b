"""Changes of several sessions that wait together."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from profagent.ingest.changes import Entry, JobChanges, LinkLedger
from profagent.store.database import open_for_writing
from profagent.store.sessions import SessionStart, begin_session
from profagent.store.store import WriteGroup
from profagent.store.writer import Writer

JOB = "JOB" + "A" * 29


class Refusing(Writer):
    """A writer whose changes the database refuses, after some of them were written."""

    def write(self, batches: Sequence[JobChanges]) -> None:
        super().write(batches)
        raise sqlite3.IntegrityError("refused")


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_for_writing(tmp_path / "profagent.db")) as opened:
        yield opened


def begun(connection: sqlite3.Connection, identity: str) -> tuple[sqlite3.Connection, int, int]:
    return connection, *begin_session(
        connection, SessionStart(identity, identity, "", "record", "", 0, simulated=False)
    )


def said(text: str) -> list[JobChanges]:
    return [JobChanges(JOB, "/jobs", [LinkLedger(None, Entry("note", "test", text))])]


def told(connection: sqlite3.Connection) -> list[str]:
    return [detail for (detail,) in connection.execute("SELECT detail FROM ledger_entry ORDER BY detail")]


def commits(connection: sqlite3.Connection, group: WriteGroup, *asked: object) -> int:
    """How many transactions it takes to write for each of these."""
    seen: list[str] = []
    connection.set_trace_callback(seen.append)
    for each in asked:
        group.write(connection, each)  # type: ignore[arg-type]
    connection.set_trace_callback(None)
    return seen.count("COMMIT")


def test_what_waits_together_shares_a_transaction(connection: sqlite3.Connection) -> None:
    group = WriteGroup()
    asked = [group.add(Writer(*begun(connection, name)), said(name)) for name in ("a", "b", "c")]
    assert commits(connection, group, *asked) == 1
    assert told(connection) == ["a", "b", "c"]


def test_changes_that_are_refused_fail_alone(connection: sqlite3.Connection) -> None:
    group = WriteGroup()
    first = group.add(Writer(*begun(connection, "a")), said("a"))
    second = group.add(Refusing(*begun(connection, "b")), said("b"))
    third = group.add(Writer(*begun(connection, "c")), said("c"))
    assert commits(connection, group, first, third) == 2
    with pytest.raises(sqlite3.IntegrityError, match="refused"):
        group.write(connection, second)
    assert told(connection) == ["a", "c"]
    assert not connection.in_transaction


def test_a_session_goes_on_after_a_shared_transaction_failed(connection: sqlite3.Connection) -> None:
    group = WriteGroup()
    writer, refusing = Writer(*begun(connection, "a")), Refusing(*begun(connection, "b"))
    first = group.add(writer, said("first"))
    group.add(refusing, said("b"))
    group.write(connection, first)
    group.write(connection, group.add(writer, said("second")))
    assert told(connection) == ["first", "second"]

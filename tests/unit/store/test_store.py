"""The store: one writer of a database, what is held of a JOB, and sessions."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from profagent import ledger
from profagent.errors import DiskFullError, SameBoardError, StoreError
from profagent.formats.counter_maps import simulated_map
from profagent.ingest.changes import Change, JobChanges, LinkLedger, LogAdvanced, LogRemoved
from profagent.ledger import Entry
from profagent.store.database import SCHEMA_VERSION, fetched, reading, run_script, writing
from profagent.store.sessions import MapUsed, SessionStart, begin_session
from profagent.store.store import HeldJob, HeldLog, Store, StoredSession
from tests.unit.store.database import DatabaseBuilder

if TYPE_CHECKING:
    from profagent.store.database import Writing
    from tests.unit.store.rows import Rows

JOB = "JOB" + "A" * 29
START = SessionStart("b1", "euler", "SS928", "record", "10.0.0.1:50151", 17, simulated=False, daemon_version="1.0")
ODD = "data/aicore.0.\udcff.3.0.1.1.0"


async def apply(session: StoredSession, *changes: Change, job: str = JOB) -> None:
    await session.apply([JobChanges(job, "/board", changes)])


async def test_what_is_held_is_told_by_path(tmp_path: Path) -> None:
    async with Store(tmp_path / "x.db") as store:
        session = await store.begin(START)
        assert session.number == 1
        advanced = (
            LogAdvanced("data/a", 1, 100),
            LogAdvanced(ODD, 3, 512, complete=True, digest=b"d"),
            LogAdvanced("data/b", 1, 5, complete=True, digest=b"e"),
            LogRemoved("data/b"),
        )
        await apply(session, *advanced)
        assert await session.held(JOB, ["data/a", ODD, "data/b", "data/none"]) == {
            "data/a": HeldLog(1, 100, complete=False),
            ODD: HeldLog(3, 512, complete=True, digest=b"d"),
            "data/b": HeldLog(1, 5, complete=False, digest=b"e"),
        }
        assert await session.held("JOB" + "B" * 29, ["data/a"]) == {}
        assert await session.held(JOB, []) == {}
        assert await store.query("SELECT kind FROM log ORDER BY log") == [("foreign",), ("aicore",), ("foreign",)]


async def test_a_board_has_one_session_in_a_store(tmp_path: Path) -> None:
    async with Store(tmp_path / "x.db") as store:
        session = await store.begin(START)
        with pytest.raises(SameBoardError, match="at there has the identity of the one at 10"):
            await store.begin(replace(START, address="there"))
        await session.end(99)
        with pytest.raises(SameBoardError):
            await store.begin(START)


async def test_jobs_that_stand_on_the_board_are_told_with_their_state(tmp_path: Path) -> None:
    async with Store(tmp_path / "x.db") as store:
        session = await store.begin(START)
        for job, state, caught_up in (("A", "open", False), ("B", "quiet", True), ("C", "removed", False)):
            await session.apply([JobChanges(job, "/board", (), state, caught_up)])
        assert await session.standing_jobs() == [
            HeldJob("A", "/board", "open", caught_up=False),
            HeldJob("B", "/board", "quiet", caught_up=True),
        ]
        assert await session.begun_jobs() == {"A", "B", "C"}


@pytest.mark.parametrize(
    ("changes", "is_unsettled"),
    [
        ((LogAdvanced("data/aicore.0.m.3.0.1.1.0", 1, 256),), True),
        ((LogAdvanced("data/aicore.0.m.3.0.1.1.0", 1, 256, complete=True, digest=b"d"),), False),
        ((LogAdvanced("data/aicore.0.m.3.0.1.1.0", 1, 256), LogRemoved("data/aicore.0.m.3.0.1.1.0")), True),
        (
            (
                LogAdvanced("data/aicore.0.m.3.0.1.1.0", 1, 256, complete=True, digest=b"d"),
                LogRemoved("data/aicore.0.m.3.0.1.1.0"),
            ),
            False,
        ),
        ((LogAdvanced("data/cont.0.m.0.1.1.0", 1, 256),), False),
    ],
    ids=["growing", "complete", "gone while it grew", "gone when complete", "no data log"],
)
async def test_data_logs_that_nobody_vouched_for_are_unsettled(
    tmp_path: Path, changes: tuple[Change, ...], *, is_unsettled: bool
) -> None:
    async with Store(tmp_path / "x.db") as store:
        session = await store.begin(START)
        await apply(session, *changes)
        assert bool(await session.unsettled_logs(JOB)) is is_unsettled


async def test_what_the_database_refuses_is_an_error_of_ours(tmp_path: Path) -> None:
    async with Store(tmp_path / "x.db") as store:
        with pytest.raises(StoreError, match=r"x\.db cannot be used: no such table") as caught:
            await store.query("SELECT * FROM absent")
        assert caught.value.hint


async def test_a_full_folder_of_temporary_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    file = DatabaseBuilder(tmp_path / "x.db").close()

    async def fill() -> None:
        async with reading(file) as connection:
            await connection.executescript("CREATE TEMP TABLE large (what); PRAGMA temp.max_page_count = 2")
            await connection.execute("INSERT INTO large VALUES (zeroblob(100000))")

    with pytest.raises(DiskFullError, match=r"x\.db: database or disk is full") as caught:
        await fill()
    assert f"make room in {tmp_path}/temporary" in caught.value.hint


async def test_a_new_database_has_the_schema_and_is_durable(tmp_path: Path) -> None:
    async with Store(tmp_path / "folder" / "profagent.db") as store:
        assert await store.query("PRAGMA user_version") == [(SCHEMA_VERSION,)]
        assert [await store.query(f"PRAGMA {each}") for each in ("journal_mode", "synchronous")] == [[("wal",)], [(2,)]]
        await store.query("INSERT INTO board (identity, hostname, model) VALUES ('b', '', '')")
    async with Store(tmp_path / "folder" / "profagent.db") as store:
        assert await store.query("SELECT count(*) FROM board") == [(1,)]


async def test_a_database_to_be_thrown_away_waits_for_no_disk(tmp_path: Path) -> None:
    async with Store(tmp_path / "x.db", durable=False) as store:
        assert [await store.query(f"PRAGMA {each}") for each in ("journal_mode", "synchronous")] == [[("off",)], [(0,)]]


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (f"PRAGMA user_version = {SCHEMA_VERSION + 1}", f"version {SCHEMA_VERSION + 1}"),
        ("CREATE TABLE board (x)", "another program"),
    ],
)
async def test_a_database_of_another_kind_is_refused_and_left_alone(tmp_path: Path, statement: str, what: str) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute(statement)
    before = (tmp_path / "x.db").read_bytes()
    with pytest.raises(StoreError, match=what) as caught:
        await Store(tmp_path / "x.db").__aenter__()
    assert caught.value.hint
    assert (tmp_path / "x.db").read_bytes() == before


async def test_a_database_that_cannot_be_written_when_it_is_opened_is_told(tmp_path: Path) -> None:
    async with Store(tmp_path / "x.db") as store:
        await store.query("DROP TABLE counter_bound")  # as an earlier profagent made it
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # There is room for SQLite's shared memory of 32 KiB, not for a write.
    resource.setrlimit(resource.RLIMIT_FSIZE, (33 << 10, limits[1]))
    try:
        with pytest.raises(StoreError, match="cannot open the database"):
            await Store(tmp_path / "x.db").__aenter__()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(
    "content", [b"not a database, but text that is long enough" * 9, b"SQLite format 3\0" + b"x" * 999]
)
async def test_what_is_no_database_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.db").write_bytes(content)
    for file in (tmp_path / "x.db", tmp_path / "x.db" / "y.db"):
        with pytest.raises(StoreError, match="cannot open the database"):
            await Store(file).__aenter__()
    assert (tmp_path / "x.db").read_bytes() == content


# Changes of several sessions that wait together


def said(text: str, *broken: Change) -> list[JobChanges]:
    return [JobChanges(JOB, "/jobs", [LinkLedger(None, Entry("note", "test", text)), *broken])]


async def test_what_waits_together_shares_a_transaction_and_what_is_refused_fails_alone(tmp_path: Path) -> None:
    broken = LogAdvanced("data/x", 1, 0, digest=object())  # type: ignore[arg-type]
    async with Store(tmp_path / "x.db") as store:
        sessions = [await store.begin(replace(START, identity=name)) for name in "abc"]
        await asyncio.gather(*(each.apply(said(str(each.number))) for each in sessions))
        first, second, third = sessions
        asked = (first.apply(said("first")), second.apply(said("second", broken)), third.apply(said("third")))
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in found] == [list, StoreError, list]
        rows = await store.query("SELECT detail FROM ledger_entry ORDER BY detail")
        assert [detail for (detail,) in rows] == ["1", "2", "3", "first", "third"]


async def test_a_batch_that_is_cancelled_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    async with Store(tmp_path / "x.db") as store:
        session = await store.begin(START)
        for number in range(40):
            task = asyncio.create_task(session.apply([*said(f"{number} a"), *said(f"{number} b")]))
            await asyncio.sleep(number / 20_000)
            task.cancel()
            await asyncio.wait([task])
        rows = await store.query("SELECT detail FROM ledger_entry")
        told = {detail for (detail,) in rows}
        assert all((f"{number} a" in told) == (f"{number} b" in told) for number in range(40))


# Sessions: begun, gone on with, or begun anew


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Writing]:
    async with writing(tmp_path / "x.db", durable=False) as connection:
        yield connection


async def test_a_session_has_what_is_known_when_it_begins(db: Writing) -> None:
    labels = {"model": "yolo v5", "note": "ä"}
    session, board = await db.run(
        lambda it: begin_session(it, replace(START, labels=labels, decoded_with=MapUsed("mine", "12"), sdk_version="2"))
    )
    columns = (
        "board, hostname, source, address, started_us, ended_us, simulated, daemon_version, sdk_version, counter_map,"
        " counter_map_digest"
    )
    assert await fetched(db, f"SELECT {columns} FROM sessions WHERE session = ?", (session,)) == [
        (*("b1", "euler", "record", "10.0.0.1:50151", 17, None, 0, "1.0", "2", "mine", "12"),)
    ]
    assert dict(await fetched(db, "SELECT key, value FROM session_label")) == labels
    assert await fetched(db, "SELECT board, model FROM board") == [(board, "SS928")]


async def test_a_session_knows_what_its_counter_map_is_not_certain_of(db: Writing) -> None:
    counters = simulated_map().counters
    likely = {name: msgspec.structs.replace(counters[name], verdict="likely") for name in ("mac_ppen", "vec_busy")}
    used = MapUsed.of(msgspec.structs.replace(simulated_map(), counters={**counters, **likely}))
    assert MapUsed.of(simulated_map()).likely is None
    first = await db.run(lambda it: begin_session(it, replace(START, decoded_with=used)))
    assert await fetched(db, "SELECT counter_map_likely FROM session") == [("mac_ppen,vec_busy",)]
    assert await db.run(lambda it: begin_session(it, replace(START, decoded_with=used))) == first


async def begun(db: Writing, **changes: Any) -> int:
    session, _ = await db.run(lambda it: begin_session(it, replace(START, **changes)))
    return session


async def test_an_unfinished_session_goes_on_with_more_labels(db: Writing) -> None:
    first = await begun(db, labels={"a": "1"})
    assert await begun(db, started_us=99, labels={"b": "3"}, hostname="new") == first
    assert await fetched(db, "SELECT started_us, labels, hostname FROM sessions") == [(17, "a=1 b=3", "new")]
    assert await begun(db, labels={"a": "2"}) == first + 1  # it is another build


@pytest.mark.parametrize(
    ("reason", "goes_on"), [*((reason, True) for reason in sorted(ledger.INCOMPLETE)), ("no-done", False)]
)
async def test_a_session_that_was_not_complete_goes_on(db: Writing, reason: str, goes_on: bool) -> None:
    first = await begun(db)
    await db.execute("UPDATE session SET ended_us = 5")
    await db.execute(
        "INSERT INTO ledger_entry (session, origin, grade, reason, detail, count) VALUES (1, 'link', 'note', ?, '', 1)",
        (reason,),
    )
    assert (await begun(db) == first) is goes_on
    # What it lacked is found again at its end, or is there.
    kept = [] if goes_on else [(reason,)]
    assert await fetched(db, "SELECT reason FROM ledger_entry") == kept


async def test_a_session_that_was_not_complete_stays_so_when_another_came_after_it(db: Writing) -> None:
    await begun(db)
    await db.execute("UPDATE session SET ended_us = 5")
    await db.execute(
        "INSERT INTO ledger_entry (session, origin, grade, reason, detail, count)"
        " VALUES (1, 'link', 'note', 'not-covered', '', 1)"
    )
    await begun(db, always_new=True)
    await db.execute("UPDATE session SET ended_us = 6")
    assert await begun(db) == 3


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
async def test_a_session_is_not_gone_on_with_by(db: Writing, other: SessionStart) -> None:
    used = MapUsed("its", "12") if other.decoded_with.name == "its" else START.decoded_with
    first, _ = await db.run(lambda it: begin_session(it, replace(START, decoded_with=used)))
    second, _ = await db.run(lambda it: begin_session(it, other))
    assert second != first


async def test_a_session_that_found_a_simulated_job_goes_on_without_its_map_being_named(db: Writing) -> None:
    first, _ = await db.run(lambda it: begin_session(it, START))
    await db.execute("UPDATE session SET simulated = 1, counter_map = 'simulated'")
    assert (await db.run(lambda it: begin_session(it, START)))[0] == first


async def test_a_beginning_that_fails_leaves_nothing(db: Writing) -> None:
    with pytest.raises(sqlite3.Error):
        await db.run(lambda it: begin_session(it, replace(START, labels={"a": object()})))  # type: ignore[dict-item]
    assert not db.in_transaction
    assert await fetched(db, "SELECT count(*) FROM board") == [(0,)]


def test_a_script_runs_in_the_transaction_that_is_open(rows: Rows) -> None:
    """A reader that makes temporary tables sees the state that it saw before."""
    reader, writer = rows.connection, sqlite3.connect(rows.file)
    with closing(writer):
        reader.execute("BEGIN")
        before = reader.execute("SELECT count(*) FROM board").fetchone()
        with writer:
            writer.execute("INSERT INTO board VALUES (9, 'other', '', '')")
        run_script(
            reader, "-- One; and more.\nCREATE TEMP TABLE a (x);\nCREATE TEMP VIEW b AS\nSELECT ';' AS x FROM a;\n"
        )
        assert reader.execute("SELECT count(*) FROM b").fetchone() == (0,)
        assert (reader.in_transaction, reader.execute("SELECT count(*) FROM board").fetchone()) == (True, before)
        reader.execute("ROLLBACK")

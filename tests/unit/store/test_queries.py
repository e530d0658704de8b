"""What a reader finds in a database, and in which order."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from profagent.errors import StoreError, UsageError
from profagent.store import database
from profagent.store.database import fetched_one, reading, readings
from profagent.store.queries import (
    CallLog,
    CallRow,
    LedgerRow,
    Scope,
    call_logs,
    calls,
    earliest_call_us,
    find_session,
    jobs_of,
    ledger_of,
)
from tests.daemon.privileges import public_directory, without_privileges
from tests.unit.store.database import JOB, START_US, DatabaseBuilder

if TYPE_CHECKING:
    from pathlib import Path

    import aiosqlite

COUNT = "SELECT count(*) FROM board"
OTHER_JOB = JOB[::-1].replace("BOJ", "JOB")


@pytest.fixture
def builder(tmp_path: Path) -> DatabaseBuilder:
    return DatabaseBuilder(tmp_path / "profagent.db")


async def _scope(connection: aiosqlite.Connection, session: int | None = None, job: str | None = None) -> Scope:
    found = await find_session(connection, session)
    return Scope(found, (await jobs_of(connection, found.session, job))[0])


async def test_a_reader_keeps_seeing_one_state_while_a_writer_commits(builder: DatabaseBuilder) -> None:
    file = builder.close()
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    async with reading(file) as connection:
        before = await fetched_one(connection, COUNT)
        writer.execute("INSERT INTO board (identity, hostname, model) VALUES ('another', 'h', 'm')")
        assert await fetched_one(connection, COUNT) == before
    writer.close()


async def test_readers_see_one_state_though_a_writer_commits_while_they_begin(
    builder: DatabaseBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = builder.close()
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        asked: list[aiosqlite.Connection] = []
        data_version = database._data_version

        async def and_somebody_writes(connection: aiosqlite.Connection) -> int:
            asked.append(connection)
            version = await data_version(connection)
            if len(asked) == 2:
                writer.execute("INSERT INTO board (identity, hostname, model) VALUES ('another', 'h', 'm')")
            return version

        monkeypatch.setattr(database, "_data_version", and_somebody_writes)
        async with readings(file, 2) as readers:
            assert [await fetched_one(each, COUNT) for each in readers] == [(2,), (2,)]


async def test_readers_see_one_database_though_another_takes_its_place_while_they_begin(
    builder: DatabaseBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = builder.close()
    other = DatabaseBuilder(file.with_name("other.db"))
    other.insert("board", identity="another", hostname="h", model="m")
    other.close()

    opened = database._reader

    async def and_another_file_comes(uri: str) -> aiosqlite.Connection:
        connection = await opened(uri)
        if other.file.exists():
            other.file.replace(file)
        return connection

    monkeypatch.setattr(database, "_reader", and_another_file_comes)
    async with readings(file, 2) as readers:
        assert [await fetched_one(each, COUNT) for each in readers] == [(2,), (2,)]


async def test_a_missing_database_is_an_error_with_its_path_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"absent\.db") as caught:
        async with reading(tmp_path / "absent.db"):
            pass
    assert caught.value.hint
    assert not (tmp_path / "absent.db").exists()


async def test_a_path_with_signs_of_an_uri_is_opened_as_it_stands(tmp_path: Path) -> None:
    folder = tmp_path / "a?mode=rwc#%41"
    folder.mkdir()
    async with reading(DatabaseBuilder(folder / "profagent.db").close()) as connection:
        assert await fetched_one(connection, "SELECT hostname FROM board") == ("euler",)


async def test_a_database_in_a_folder_that_cannot_be_written_is_told_with_what_to_do() -> None:
    with public_directory() as folder:
        database = DatabaseBuilder(folder / "profagent.db")
        with closing(sqlite3.connect(database.close())) as writer:
            writer.execute("PRAGMA journal_mode = WAL")
        folder.chmod(0o555)
        with without_privileges(), pytest.raises(StoreError) as caught:
            async with reading(folder / "profagent.db"):
                pass
        folder.chmod(0o755)
        assert "SQLite writes beside" in caught.value.hint


async def test_the_newest_session_is_taken_unless_one_is_named(builder: DatabaseBuilder) -> None:
    builder.session()
    builder.session(simulated=1, counter_map="simulated")
    async with reading(builder.close()) as connection:
        assert (await find_session(connection)).session == 2
        assert (await find_session(connection)).simulated is True
        assert (await find_session(connection)).counter_map == "simulated"
        assert (await find_session(connection, 1)).simulated is False
        with pytest.raises(UsageError, match="no session 3"):
            await find_session(connection, 3)
        with pytest.raises(UsageError, match=f"no session {2**63}"):
            await find_session(connection, 2**63)


async def test_jobs_are_those_of_the_session(builder: DatabaseBuilder) -> None:
    first, second = builder.session(), builder.session()
    builder.job(first, second)
    builder.job(second, name=OTHER_JOB, frequency_mhz=None)
    async with reading(builder.close()) as connection:
        assert [job.name for job in await jobs_of(connection, first)] == [JOB]
        assert [job.name for job in await jobs_of(connection, second)] == sorted([JOB, OTHER_JOB])
        assert (await jobs_of(connection, second, OTHER_JOB))[0].frequency_mhz is None
        with pytest.raises(UsageError, match=OTHER_JOB):
            await jobs_of(connection, first, OTHER_JOB)


async def test_an_api_log_takes_its_device_from_its_path_and_its_model_s_smallest_batch(
    builder: DatabaseBuilder,
) -> None:
    session = builder.session()
    job = builder.job(session)
    yolo, bare = builder.model(job, "yolo"), builder.model(job, "a.b", 1)
    for batch in (8, 2):
        builder.inference(session, yolo, batch_num=batch)
    paths: list[tuple[int, str | bytes]] = [
        (yolo, "data/acl_api.2.yolo.0"),
        (bare, b"data/AclModule.0.a.b\xff.1"),
        (bare, "data/acl_api.0.a.b.1"),
    ]
    logs = [builder.log(job, model, "acl_api", path) for model, path in paths]
    for log in logs[:2]:
        builder.part(session, log)
    async with reading(builder.close()) as connection:
        assert await call_logs(connection, await _scope(connection)) == [
            CallLog(logs[1], 0, "a.b", 1, 0),
            CallLog(logs[0], 2, "yolo", 0, 2),
        ]


async def test_calls_come_in_the_order_of_the_file_and_only_those_of_the_session(builder: DatabaseBuilder) -> None:
    first, second = builder.session(), builder.session()
    job = builder.job(first, second)
    log = builder.log(job, builder.model(job), "acl_api", "data/acl_api.0.yolo.0")
    builder.calls(builder.part(first, log), [(2, 100, 250), (9, None, 300)])
    builder.calls(builder.part(second, log, 2), [(1, 400, 500)])
    async with reading(builder.close()) as connection:
        scope = await _scope(connection, first)
        assert [call async for page in calls(connection, scope, log) for call in page] == [
            CallRow("svp_acl_mdl_execute", "model", START_US + 100, START_US + 250, 500, 501),
            CallRow("unknown(9)", "N/A", None, START_US + 300, 500, 501),
        ]
        assert await earliest_call_us(connection, scope) == START_US + 100
        assert [
            call.name async for page in calls(connection, await _scope(connection, second), log) for call in page
        ] == ["svp_acl_mdl_unload"]


async def test_the_ledger_is_summed_by_reason_over_the_job_and_the_session_itself(builder: DatabaseBuilder) -> None:
    session = builder.session()
    job, other = builder.job(session), builder.job(session, name=OTHER_JOB)
    builder.ledger(session, "note", "gap", 3, job)
    builder.ledger(session, "note", "gap", 4, job)
    builder.ledger(session, "loss", "link", 1)
    builder.ledger(session, "loss", "torn", 1, other)
    async with reading(builder.close()) as connection:
        assert await ledger_of(connection, await _scope(connection, session, JOB)) == [
            LedgerRow("loss", "link", 1),
            LedgerRow("note", "gap", 7),
        ]

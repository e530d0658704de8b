"""What a reader finds in a database, and in which order."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from profagent.errors import StoreError, UsageError
from profagent.store import database
from profagent.store.database import fetched_one, reading, readings
from profagent.store.queries import (
    find_session,
    ledger_of,
)
from tests.daemon.privileges import public_directory, without_privileges
from tests.unit.store.database import JOB, DatabaseBuilder

if TYPE_CHECKING:
    from pathlib import Path

    import aiosqlite

COUNT = "SELECT count(*) FROM board"
OTHER_JOB = JOB[::-1].replace("BOJ", "JOB")


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
        data_version = database.data_version

        async def and_somebody_writes(connection: aiosqlite.Connection) -> int:
            asked.append(connection)
            version = await data_version(connection)
            if len(asked) == 2:
                writer.execute("INSERT INTO board (identity, hostname, model) VALUES ('another', 'h', 'm')")
            return version

        monkeypatch.setattr(database, "data_version", and_somebody_writes)
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


async def test_the_ledger_is_summed_by_reason_over_the_job_and_the_session_itself(builder: DatabaseBuilder) -> None:
    session = builder.session()
    job, other = builder.job(session), builder.job(session, name=OTHER_JOB)
    builder.ledger(session, "note", "gap", 3, job)
    builder.ledger(session, "note", "gap", 4, job)
    builder.ledger(session, "loss", "link", 1)
    builder.ledger(session, "loss", "torn", 1, other)
    async with reading(builder.close()) as connection:
        assert await ledger_of(connection, session, job) == {"loss": {"link": 1}, "note": {"gap": 7}}
        assert await ledger_of(connection, session) == {"loss": {"link": 1, "torn": 1}, "note": {"gap": 7}}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
@pytest.mark.parametrize(
    ("command", "leaves_log", "code", "said"),
    [
        (("sessions",), False, 1, "copy "),
        (("sessions",), True, 0, ""),
        (("baseline", "set", "release", "1"), True, 1, "cannot be used: "),
    ],
)
def test_a_read_only_file_system_is_an_answer_at_once(
    builder: DatabaseBuilder, tmp_path: Path, command: tuple[str, ...], leaves_log: bool, code: int, said: str
) -> None:
    builder.session()
    file = builder.close()
    leave = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA journal_mode = WAL');"
        f"c.executescript('CREATE TABLE more (x); DROP TABLE more'); {'os._exit(0)' if leaves_log else 'c.close()'}"
    )
    subprocess.run([sys.executable, "-c", leave, str(file)], check=True)
    mounted = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    main = "import sys; from profagent.cli.main import main; sys.exit(main())"
    profagent = [sys.executable, "-c", main, *command, "--workspace", str(tmp_path)]
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", mounted, "sh", str(tmp_path), *profagent],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert (ended.returncode, "Traceback" in ended.stderr) == (code, False), ended.stderr
    assert said in ended.stderr

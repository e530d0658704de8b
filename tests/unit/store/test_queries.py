"""What a reader finds in a database, and in which order."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from profagent.errors import StoreError, UsageError
from profagent.ingest.changes import Change, ContentLedger, JobChanges, LinkLedger, LogAdvanced, LogReset, RecordedLoss
from profagent.ledger import Entry
from profagent.store import database
from profagent.store import rows as module
from profagent.store.database import fetched_one, reading, readings
from profagent.store.queries import Scope, find_session, jobs_of, ledger_of, recorded_losses_of
from profagent.store.summary import all_sessions, session_summary
from profagent.tables.provenance import provenance_of
from tests.daemon.privileges import public_directory, without_privileges
from tests.unit.store.database import JOB, DatabaseBuilder
from tests.unit.store.rows import AICORE, AICPU, Rows
from tests.unit.store.rows import JOB as WRITTEN_JOB

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


# The ledger: entries that follow from bytes replace each other, those of the way are added once

GAP = Entry("note", "sequence-gap", "records missing", 0, 512, 3)
TORN = Entry("loss", "torn-record", "the last record has 44 bytes", 256, 300)


def ledger(rows: Rows) -> list[tuple[object, ...]]:
    return rows.query("SELECT session, log, reason, count FROM ledger ORDER BY log, reason")


def test_an_entry_has_everything(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 300), ContentLedger(AICORE, (TORN,)))
    assert rows.query("SELECT * FROM ledger") == [
        (1, "JOB" + "A" * 29, AICORE, "loss", "torn-record", "the last record has 44 bytes", 256, 300, 1)
    ]


def test_what_is_said_of_a_logs_bytes_replaces_what_was(rows: Rows) -> None:
    rows.apply(ContentLedger(AICORE, (TORN,)), ContentLedger(AICPU, (TORN,)))
    rows.apply(ContentLedger(AICORE, (GAP,)))
    assert ledger(rows) == [(1, AICORE, "sequence-gap", 3), (1, AICPU, "torn-record", 1)]
    rows.apply(ContentLedger(AICORE, ()))
    assert ledger(rows) == [(1, AICPU, "torn-record", 1)]


def test_what_follows_from_the_job_s_files_together_replaces_what_was(rows: Rows) -> None:
    rows.apply(ContentLedger(None, (GAP,)), LinkLedger(None, TORN), ContentLedger(AICORE, (GAP,)))
    rows.apply(ContentLedger(None, (GAP,)))
    assert ledger(rows) == [(1, None, "sequence-gap", 3), (1, None, "torn-record", 1), (1, AICORE, "sequence-gap", 3)]
    rows.apply(ContentLedger(None, ()))
    assert ledger(rows) == [(1, None, "torn-record", 1), (1, AICORE, "sequence-gap", 3)]


def test_what_was_told_before_stays_with_the_session_that_told_it(rows: Rows) -> None:
    rows.apply(ContentLedger(AICORE, (GAP,)))
    before = rows.query("SELECT * FROM ledger_entry")
    rows.session()
    rows.apply(ContentLedger(AICORE, (GAP, TORN)))
    assert ledger(rows) == [(1, AICORE, "sequence-gap", 3), (2, AICORE, "torn-record", 1)]
    assert rows.query("SELECT * FROM ledger_entry WHERE session = 1") == before


def test_what_happened_on_the_way_is_added_once(rows: Rows) -> None:
    for _ in range(2):
        rows.apply(LinkLedger(AICORE, Entry("loss", "unreadable", "EIO")), LinkLedger(None, Entry("note", "x", "y")))
        rows.session()
    rows.apply(LinkLedger(AICORE, Entry("loss", "unreadable", "EACCES")))
    assert ledger(rows) == [(1, None, "x", 1), (1, AICORE, "unreadable", 1), (3, AICORE, "unreadable", 1)]


def test_a_new_generation_keeps_what_happened_on_the_way_only(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 9), ContentLedger(AICORE, (GAP,)), LinkLedger(AICORE, TORN))
    rows.apply(LogReset(AICORE))
    assert ledger(rows) == [(1, AICORE, "torn-record", 1)]
    rows.apply(ContentLedger(AICORE, (GAP,)))
    assert len(ledger(rows)) == 2


def test_what_is_about_the_board_itself_has_no_job(rows: Rows) -> None:
    for _ in range(2):
        rows.apply(LinkLedger(None, Entry("loss", "unreadable", "EIO")), job="")
    assert rows.query("SELECT session, job, log, reason FROM ledger") == [(1, None, None, "unreadable")]
    assert rows.query("SELECT * FROM job") == []
    rows.session()
    rows.apply(LinkLedger(None, Entry("loss", "unreadable", "EIO")), job="")
    assert len(rows.query("SELECT * FROM ledger")) == 2


def test_what_had_come_before_is_not_lost_when_its_job_goes(rows: Rows) -> None:
    unread = LinkLedger(None, Entry("loss", "removed-unread", "the JOB was removed before all of it was looked at"))
    rows.finish()
    rows.apply(unread)
    assert rows.query("SELECT * FROM ledger") == []
    rows.apply(state="open")
    rows.apply(unread)
    assert rows.query("SELECT reason FROM ledger") == [("removed-unread",)]


def test_what_is_told_without_end_is_counted(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NOTED", 3)
    for number in range(6):
        rows.apply(LinkLedger(None, Entry("loss", "unreadable", f"file {number}", count=2**60)))
    found = rows.query("SELECT reason, count(*), max(count) FROM ledger GROUP BY reason ORDER BY reason")
    assert found == [("more", 1, 2**48), ("unreadable", 3, 2**48)]


def test_what_is_counted_goes_on_after_a_restart(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NOTED", 1)
    for number in range(4):
        rows.apply(LinkLedger(None, Entry("loss", "unreadable", f"file {number}")))
        rows.session(always_new=False)
    assert rows.query("SELECT reason, count FROM ledger ORDER BY reason") == [("more", 3), ("unreadable", 1)]


DELETED = RecordedLoss(
    2**64 - 1, Entry("loss", "deleted-undelivered", "made room", count=512), WRITTEN_JOB, 3, 512, from_us=10, to_us=20
)
FULL = RecordedLoss(7, Entry("loss", "disk-full", "no space"), from_us=5)


def hear(rows: Rows, *changes: Change) -> None:
    rows.write(JobChanges("", "", changes))


def test_a_kept_loss_is_written_with_its_ledger_entry(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 0))
    hear(rows, DELETED, FULL)
    assert rows.ask(recorded_losses_of, 1) == [
        {
            "job": None,
            "reason": "disk-full",
            "detail": "no space",
            "lost_logs": None,
            "lost_bytes": None,
            "from_us": 5,
            "to_us": None,
        },
        {
            "job": WRITTEN_JOB,
            "reason": "deleted-undelivered",
            "detail": "made room",
            "lost_logs": 3,
            "lost_bytes": 512,
            "from_us": 10,
            "to_us": 20,
        },
    ]
    assert rows.query("SELECT job, grade, reason, count FROM ledger ORDER BY count") == [
        (None, "loss", "disk-full", 1),
        (WRITTEN_JOB, "loss", "deleted-undelivered", 512),
    ]
    assert rows.query("SELECT id FROM kept_losses ORDER BY id") == [("0000000000000007",), ("f" * 16,)]


def test_told_again_it_is_not_counted_again_and_has_the_newest_figures(rows: Rows) -> None:
    hear(rows, FULL)
    rows.run(rows.writer.end(9))
    rows.session()
    hear(rows, FULL, replace(FULL, entry=replace(FULL.entry, detail="still none"), to_us=99))
    rows.run(rows.writer.end(9))
    assert rows.query("SELECT session, detail, to_us FROM kept_losses") == [(1, "still none", 99)]
    assert rows.query("SELECT session, detail, count FROM ledger") == [(1, "still none", 1)]
    assert rows.ask(session_summary, 1)["complete"] is False
    assert rows.ask(session_summary, 2)["complete"] is True
    assert [len(session["kept_losses"]) for session in rows.ask(all_sessions)] == [1, 0]


async def test_results_of_another_tool_are_known_by_their_family_whatever_their_clock(builder: DatabaseBuilder) -> None:
    session = builder.session()
    builder.job(session, name="JOBA", frequency_mhz=100_000)
    builder.job(session, name="JOBB", frequency_mhz=700, family="ascend")
    async with reading(builder.close()) as connection:
        found, jobs = await find_session(connection, session), await jobs_of(connection, session)
        told = [await provenance_of(connection, Scope(found, each)) for each in jobs]
        (listed,) = await all_sessions(connection)
    assert [(each["frequency_mhz"], "imported_from" in each) for each in told] == [(100_000, False), (None, True)]
    assert listed["frequencies_mhz"] == [100_000]

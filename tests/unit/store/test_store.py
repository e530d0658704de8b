"""The store: one writer on a thread of its own, and what is held of a JOB."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profagent.errors import SameBoardError, StoreError
from profagent.ingest.changes import Change, JobChanges, LogAdvanced, LogRemoved
from profagent.store.sessions import SessionStart
from profagent.store.store import Store
from profagent.store.stored_session import PATHS_PER_QUERY, HeldJob, HeldLog, StoredSession

JOB = "JOB" + "A" * 29
START = SessionStart("b1", "euler", "SS928", "record", "here", 17, simulated=False)
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


async def test_more_paths_than_a_query_takes_are_asked_in_pages(tmp_path: Path) -> None:
    paths = [f"data/{number}" for number in range(2 * PATHS_PER_QUERY + 1)]
    async with Store(tmp_path / "x.db", durable=False) as store:
        session = await store.begin(START)
        await apply(session, *(LogAdvanced(path, 1, number) for number, path in enumerate(paths)))
        held = await session.held(JOB, paths)
        assert [held[path].offset for path in paths] == list(range(len(paths)))


async def test_boards_do_not_share_their_jobs(tmp_path: Path) -> None:
    async with Store(tmp_path / "x.db") as store:
        session = await store.begin(START)
        await apply(session, LogAdvanced("data/a", 1, 100))
        other = await store.begin(SessionStart("b2", "", "", "record", "there", 18, simulated=False))
        assert other.board != session.board
        assert await other.held(JOB, ["data/a"]) == {}
        await apply(other, LogAdvanced("data/a", 1, 7))
        assert (await session.held(JOB, ["data/a"]))["data/a"].offset == 100


async def test_a_board_has_one_session_in_a_store(tmp_path: Path) -> None:
    async with Store(tmp_path / "x.db") as store:
        session = await store.begin(START)
        with pytest.raises(SameBoardError, match="at there has the identity of the one at here: b1"):
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


async def test_done_files_without_data_are_orphans(tmp_path: Path) -> None:
    alone, whole = ODD + ".done", "data/aicpu.0.m.3.0.1.1.0"
    async with Store(tmp_path / "x.db") as store:
        session = await store.begin(START)
        await apply(session, LogAdvanced(alone, 1, 9), LogAdvanced(whole, 1, 128), LogAdvanced(whole + ".done", 1, 9))
        assert await session.orphan_dones(JOB) == [alone]
        await apply(session, LogAdvanced(ODD, 1, 0))
        assert await session.orphan_dones(JOB) == []


async def test_a_session_ends(tmp_path: Path) -> None:
    async with Store(tmp_path / "x.db") as store:
        session = await store.begin(START)
        await session.end(99)
        assert await store.query("SELECT ended_us FROM sessions") == [(99,)]


async def test_statements_and_questions_run_on_the_stores_own_thread(tmp_path: Path) -> None:
    def ask(connection: sqlite3.Connection) -> Any:
        return threading.current_thread().name, connection.execute("SELECT count(*) FROM board").fetchone()

    async with Store(tmp_path / "x.db") as store:
        await store.execute("INSERT INTO board (identity, hostname, model) VALUES (?, '', '')", ("b",))
        name, count = await store.run(ask)
        assert name.startswith("profagent-store")
        assert count == (1,)
    assert not any(thread.name.startswith("profagent-store") for thread in threading.enumerate())


async def test_what_the_database_refuses_is_an_error_of_ours(tmp_path: Path) -> None:
    async with Store(tmp_path / "x.db") as store:
        with pytest.raises(StoreError, match=r"x\.db cannot be used: no such table") as caught:
            await store.query("SELECT * FROM absent")
        assert caught.value.hint


async def test_a_store_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"no database" * 99)
    with pytest.raises(StoreError):
        async with Store(tmp_path / "x.db"):
            pass
    for thread in threading.enumerate():
        if thread.name.startswith("profagent-store"):
            thread.join(10)
            assert not thread.is_alive()


async def test_a_commit_is_seen_by_other_connections_at_once(tmp_path: Path) -> None:
    async with Store(tmp_path / "x.db") as store:
        session = await store.begin(START)
        await apply(session, LogAdvanced("data/a", 1, 100))
        with sqlite3.connect(tmp_path / "x.db") as other:
            assert other.execute("SELECT offset FROM log").fetchall() == [(100,)]
        other.close()

"""A capture into mirror and database: what is kept, acknowledged, refused and told."""

from __future__ import annotations

import asyncio
import gc
import resource
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from profagent.errors import DiskFullError, ProtocolError, StoreError, UnreachableError
from profagent.ingest.changes import LogReset, PlainLogs
from profagent.ingest.mirror import JobMirror, SharedSync, digest_of
from profagent.link.messages import (
    Acknowledgement,
    Chunk,
    Clocks,
    Completed,
    FollowedLog,
    LogEvent,
    Received,
    Retention,
    Started,
)
from profagent.record.mirroring import OpenBatch
from profagent.record.options import RecordingOptions
from profagent.record.recording import Recording, Step
from profagent.store.store import Store
from profagent.store.workspace import Workspace
from tests.fakes.open_files import open_below
from tests.unit.record.link import JOB, Sender, board
from tests.unit.watch.arriving_job import aicore_done, aicore_path, records

NOW_US = 1_800_000_000_000_000

CALLS = "data/acl_api.0.m.0"


class Kept:
    """A recording into a workspace."""

    def __init__(self, store: Store, recording: Recording) -> None:
        self.store = store
        self.recording = recording
        self.sender = Sender(recording)

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return await self.store.query(sql)

    @property
    def job(self) -> Path:
        """The JOB's mirror."""
        return self.recording.mirror / JOB


@asynccontextmanager
async def keeping(
    root: Path,
    *,
    reached: Callable[[Step], None] | None = None,
    sync: Callable[[Path], None] | None = None,
    **options: Any,
) -> AsyncIterator[Kept]:
    """A recording whose stream is open; its session stays unfinished unless it is ended."""
    workspace = Workspace(root)
    if sync is not None:
        workspace.synced = SharedSync(root, sync=sync)
    with workspace.locked():
        async with Store(workspace.database) as store:
            recording = Recording(workspace, store, RecordingOptions(lambda: NOW_US, **options), reached=reached)
            kept = Kept(store, recording)
            await kept.sender.open()
            yield kept


async def test_a_board_is_held_once_though_its_session_is_begun_at_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, held = Workspace(tmp_path), list[str]()
    with workspace.locked():
        async with Store(workspace.database) as store:
            recording = Recording(workspace, store, RecordingOptions(lambda: NOW_US, hold=held.append))
            with monkeypatch.context() as full:
                full.setattr("profagent.store.store.begin_session", _full)
                with pytest.raises(DiskFullError):
                    await recording.begin(board(), "127.0.0.1:1")
            await recording.begin(board(), "127.0.0.1:1")
            assert held == [board().identity]


def _full(*_: object) -> None:
    raise DiskFullError("full", hint="")


async def test_an_unfinished_session_goes_on_and_knows_its_jobs(tmp_path: Path) -> None:
    async with keeping(tmp_path) as kept:
        await kept.sender.send(aicore_path(), records(700), complete=False)
        assert not kept.recording.has_begun(JOB)
    async with keeping(tmp_path) as kept:
        assert kept.recording.has_begun(JOB)
        assert not kept.recording.has_begun(JOB[:-1] + "B")
        await kept.sender.send(aicore_path(), records(700, 1400), complete=False)
        assert await kept.rows("SELECT session, ticks FROM op_records") == [(1, 700), (1, 1400)]
        await kept.recording.end()
    async with keeping(tmp_path) as kept:
        assert kept.recording.session.number == 2


async def test_a_done_that_a_kill_left_before_its_data_judges_nothing(tmp_path: Path) -> None:
    def die(step: Step) -> None:
        if step is Step.MIRRORED:
            raise StoreError("killed", hint="")

    path, data = aicore_path(), records(700, 1400)
    async with keeping(tmp_path) as kept:
        await kept.sender.send(path, data[:300], complete=False)
    async with keeping(tmp_path, reached=die) as kept:
        with pytest.raises(StoreError, match="killed"):
            await kept.sender.send(f"{path}.done", aicore_done(len(data)), snapshot=True)
    async with keeping(tmp_path) as kept:
        await kept.sender.send(path, data)
    async with keeping(tmp_path) as kept:
        await kept.sender.confirm(f"{path}.done")
        await kept.recording.change_state(JOB, "finished", caught_up=True)
        assert await kept.rows("SELECT whole, fault FROM log WHERE kind = 'aicore'") == [(1, None)]


async def test_a_disk_that_is_full_at_first_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise DiskFullError("full", hint="")

    async with keeping(tmp_path) as kept:
        await kept.sender.send(aicore_path(), records(700), complete=False)
    workspace = Workspace(tmp_path)
    async with Store(workspace.database) as store:
        recording = Recording(workspace, store, RecordingOptions(lambda: NOW_US))
        with monkeypatch.context() as patched:
            patched.setattr(OpenBatch, "names", full)
            with pytest.raises(DiskFullError):
                await recording.begin(board(), "127.0.0.1:1")
        kept = Kept(store, recording)
        (kept.job / aicore_path()).write_bytes(records(700, 1400))
        await kept.sender.open()
        assert (kept.job / aicore_path()).read_bytes() == records(700), "what was never committed is undone"


async def test_a_done_that_cannot_be_read_and_is_told_again_takes_nothing_back(tmp_path: Path) -> None:
    told = "SELECT session, reason FROM ledger WHERE grade = 'loss'"
    path = aicore_path()
    async with keeping(tmp_path) as kept:
        await kept.sender.send(path, records(700), complete=False)
        await kept.sender.send(f"{path}.done", b"", snapshot=True)
        await kept.recording.change_state(JOB, "finished", caught_up=True)
        lost = await kept.rows(told)
        assert [session for session, _ in lost] == [1]
        await kept.recording.end()
    async with keeping(tmp_path) as kept:
        await kept.sender.offer(path)
        await kept.sender.confirm(f"{path}.done")
        assert await kept.rows(told) == lost


async def test_a_recording_that_has_ended_has_no_file_of_a_mirror_open(tmp_path: Path) -> None:
    async with keeping(tmp_path) as kept:
        await kept.sender.send(aicore_path(), records(700), complete=False)
        assert open_below(kept.recording.mirror)
        await kept.recording.end()
        assert not open_below(kept.recording.mirror)


async def test_what_the_thread_writes_to_stays_open_until_the_next_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes, goes_on, append = threading.Event(), threading.Event(), JobMirror.append

    def held_up(mirror: JobMirror, path: str, offset: int, data: bytes, *, snapshot: bool) -> None:
        writes.set()
        goes_on.wait()
        append(mirror, path, offset, data, snapshot=snapshot)

    async with keeping(tmp_path) as kept:
        await kept.sender.send(aicore_path(), records(700), complete=False)
        await kept.sender.send(CALLS, b"", complete=False)
        with monkeypatch.context() as patched:
            patched.setattr(JobMirror, "append", held_up)
            sending = asyncio.create_task(kept.sender.send(aicore_path(), records(700, 1400), complete=False))
            await asyncio.to_thread(writes.wait)
            for _ in range(2):
                sending.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await sending
            still_open = open_below(kept.job)
            goes_on.set()
            assert still_open == [kept.job / CALLS]
            await kept.rows("SELECT 1")
        await kept.sender.open()
        assert (kept.job / aicore_path()).read_bytes() == records(700), "what was never committed is undone"


async def test_what_a_batch_made_is_freed_at_once(tmp_path: Path) -> None:
    async with keeping(tmp_path) as kept:
        gc.collect()
        gc.disable()
        try:
            for number in range(1, 11):
                await kept.sender.send(aicore_path(number), records(700), complete=False)
            # It runs for days, and cycles are looked for seldom.
            assert gc.collect() < 10
        finally:
            gc.enable()


async def test_what_is_held_of_other_logs_is_told_while_a_batch_goes_to_the_disk(tmp_path: Path) -> None:
    data, is_on_disk = records(700), asyncio.Event()

    async def acknowledge(_: Sequence[Acknowledgement]) -> None:
        await is_on_disk.wait()

    async with keeping(tmp_path) as kept:
        log, _ = await kept.sender.offer(aicore_path(1))
        at = replace(log, generation=1, offset=len(data))
        events = [Received(JOB, at, each) for each in (Started(log.handle, 1, 0, "new"), Chunk(log.handle, 1, 0, data))]
        await kept.recording.take(events, acknowledge, more=True)
        same = asyncio.create_task(kept.sender.offer(aicore_path(1)))
        for number in (2, 3):
            _, other = await kept.sender.offer(aicore_path(number))
            assert other.offset == 0
        assert not same.done()
        is_on_disk.set()
        _, held = await same
        assert held.offset == len(data)


def test_the_names_of_a_batch_stay_where_those_of_the_next_cannot_be_written(tmp_path: Path) -> None:
    batch = OpenBatch(tmp_path / "board.batch")

    def begin(path: bytes) -> None:
        log = FollowedLog(1, JOB, path, snapshot=False)
        batch.begin([Received(JOB, log, Started(1, 1, 0, "new"))], lambda _: ("/root", "job"))

    begin(b"data/aicore.0")
    written = batch.names()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(StoreError):
            begin(b"data/aicore.1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [each.data for each in written] == [["data/aicore.0"]]
    assert batch.names() == written
    batch = OpenBatch(tmp_path / "board.batch")
    for name in ("aicore.1", "aicore.10", "aicore.2"):
        begin(b"data/" + name.encode())
    assert sorted(path for each in batch.names() for path in each.data) == ["data/aicore.10", "data/aicore.2"]


@pytest.mark.parametrize("is_snapshot", [False, True])
async def test_a_log_in_one_event_is_kept_as_one_in_several(tmp_path: Path, *, is_snapshot: bool) -> None:
    path, data = aicore_path(), records(700, 1400)
    if is_snapshot:
        path, data = f"{path}.done", aicore_done(len(data))
    digest, kept_of = digest_of(data), []
    several = (Started(1, 1, 0, "new"), Chunk(1, 1, 0, data[:50]), Chunk(1, 1, 50, data[50:]))
    ways = ((Started(1, 1, 0, "new", data, digest),), (*several, Completed(1, 1, len(data), digest)))
    for number, events in enumerate(ways):
        async with keeping(tmp_path / str(number)) as kept:
            if not is_snapshot:
                # It came before, and tells of another start of the last inference than the records do.
                await kept.sender.send(f"{path}.done", aicore_done(len(data) // 2), snapshot=True)
            log, _ = await kept.sender.offer(path, snapshot=is_snapshot)
            at = replace(log, generation=1, offset=len(data))
            await kept.sender.happen(*(Received(JOB, at, event) for event in events))
            assert (kept.job / path).read_bytes() == data
            tables = ("log", "op_records", "inferences", "ledger")
            rows = [await kept.rows(f"SELECT * FROM {table}") for table in tables]
            kept_of.append((rows, kept.sender.acknowledged))
    assert kept_of[0] == kept_of[1]
    assert kept_of[0][1][-1] == Acknowledgement(1 if is_snapshot else 2, 1, len(data), complete=True)


@pytest.mark.parametrize("is_cut", [False, True])
async def test_an_inference_that_comes_whole_is_decoded_with_others(is_cut: bool, tmp_path: Path) -> None:
    files = {aicore_path(count): records(700 + count, 1400) for count in range(3)}
    async with keeping(tmp_path) as kept:
        events: list[Received] = []
        for path, data in files.items():
            for each, content in ((path, data), (f"{path}.done", aicore_done(len(data)))):
                log, _ = await kept.sender.offer(each, snapshot=each != path)
                at = replace(log, generation=1, offset=len(content))
                pieces: list[LogEvent] = [Started(log.handle, 1, 0, "new", content, digest_of(content))]
                if is_cut:
                    begun, rest = Started(log.handle, 1, 0, "new", content[:20]), Chunk(log.handle, 1, 20, content[20:])
                    pieces = [begun, rest, Completed(log.handle, 1, len(content), digest_of(content))]
                events += [Received(JOB, at, piece) for piece in pieces]
        changes = await kept.sender.happen(*events)
        (plain,) = [change for change in changes if isinstance(change, PlainLogs)]
        assert [group.aicore.path for group in plain.groups] == [*files]
        assert not [change for change in changes if isinstance(change, LogReset)], "nothing is decoded by itself"
        assert {each.handle for each in kept.sender.acknowledged if each.complete} == set(range(1, 7))
        assert await kept.rows("SELECT count(*), sum(whole) FROM inference") == [(3, 3)]
        for path, data in files.items():
            assert (kept.job / path).read_bytes() == data
        # What comes after is decoded by itself, from what is held of them.
        await kept.sender.send(aicore_path(1), files[aicore_path(1)] + records(1, 2))
        await kept.sender.send(f"{aicore_path(1)}.done", aicore_done(4 * 256), snapshot=True)
        assert await kept.rows("SELECT count(*) FROM aicore") == [(8,)]


async def test_a_whole_log_that_is_not_what_its_digest_says_is_refused(tmp_path: Path) -> None:
    async with keeping(tmp_path) as kept:
        log, _ = await kept.sender.offer(aicore_path())
        event = Started(log.handle, 1, 0, "new", records(700), digest_of(b""))
        with pytest.raises(ProtocolError, match="digest"):
            await kept.sender.happen(Received(JOB, replace(log, generation=1, offset=256), event))


async def test_another_board_at_the_address_is_refused(tmp_path: Path) -> None:
    async with keeping(tmp_path) as kept:
        await kept.recording.begin(board(), "127.0.0.1:1")
        with pytest.raises(UnreachableError, match="another board"):
            await kept.recording.begin(board("board-2"), "127.0.0.1:1")


async def test_a_board_without_identity_is_known_by_its_address(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    async with Store(workspace.database) as store:
        recording = Recording(workspace, store, RecordingOptions(lambda: NOW_US))
        await recording.begin(board(""), "10.0.0.7:50151")
        assert await store.query("SELECT identity FROM board") == [("address 10.0.0.7:50151",)]
        assert recording.mirror.parent == tmp_path / "mirror"


DAY_US = 86_400_000_000


class _Channel:
    """A board whose clock is 70 µs ahead; its replies take longer and longer. During an exchange it may be set."""

    def __init__(self, set_by_us: tuple[int, ...] = ()) -> None:
        self.now_us = 0
        self.exchanges = 0
        self._set_by_us = list(set_by_us)

    async def clocks(self) -> tuple[Clocks, Clocks]:
        self.exchanges += 1
        self.now_us += 10 * self.exchanges
        board_us = self.now_us + 70
        self.now_us += 10 * self.exchanges
        set_by_us = self._set_by_us.pop(0) if self._set_by_us else 0
        return Clocks(board_us, 5), Clocks(board_us + set_by_us, 5)


async def test_of_several_clock_exchanges_the_shortest_is_kept(tmp_path: Path) -> None:
    channel = _Channel()
    workspace = Workspace(tmp_path)
    async with Store(workspace.database) as store:
        recording = Recording(workspace, store, RecordingOptions(lambda: channel.now_us))
        await recording.begin(board(), "127.0.0.1:1")
        await recording.sample_clock(channel)  # type: ignore[arg-type]
        rows = await store.query("SELECT offset_us, round_trip_us FROM clock_sample")
    assert rows == [(70, 20)]
    assert channel.exchanges > 1


@pytest.mark.parametrize(
    ("set_by_us", "kept"), [((DAY_US,), [(70, 40)]), ((-DAY_US, DAY_US), [(70, 60)]), ((DAY_US,) * 5, [])]
)
async def test_an_exchange_in_which_the_boards_clock_was_set_is_no_sample(
    tmp_path: Path, set_by_us: tuple[int, ...], kept: list[tuple[int, int]]
) -> None:
    channel = _Channel(set_by_us)
    workspace = Workspace(tmp_path)
    async with Store(workspace.database) as store:
        recording = Recording(workspace, store, RecordingOptions(lambda: channel.now_us))
        await recording.begin(board(), "127.0.0.1:1")
        await recording.sample_clock(channel)  # type: ignore[arg-type]
        assert await store.query("SELECT offset_us, round_trip_us FROM clock_sample") == kept


class _Gone:
    """A JOB that the board has no longer when the next stream is opened."""

    LEDGER = "SELECT session, grade, reason, count FROM ledger WHERE reason LIKE 'removed%'"

    def __init__(self, root: Path) -> None:
        self.root = root

    async def copy(self, state: str, *, complete: bool, caught_up: bool) -> None:
        async with keeping(self.root) as kept:
            await kept.sender.send(aicore_path(), records(700), complete=complete)
            await kept.recording.change_state(JOB, state, caught_up=caught_up)

    async def listed(self, *names: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        """The ledger, and the states that are told, when the board lists these JOBs."""
        async with keeping(self.root) as kept:
            told = [each.batch.state for each in await kept.recording.listed(names) if each.batch.state]
            assert await kept.rows("SELECT state FROM job") == [("removed",)]
            return await kept.rows(self.LEDGER), told


async def test_a_job_that_went_unseen_before_it_was_whole_is_a_loss_and_over(tmp_path: Path) -> None:
    gone = _Gone(tmp_path)
    await gone.copy("open", complete=False, caught_up=True)
    for told in (["removed"], []):
        assert await gone.listed() == ([(1, "loss", "removed-open", 1)], told)


@pytest.mark.parametrize(("complete", "reasons"), [(True, []), (False, ["removed-open"])])
async def test_a_job_that_had_come_goes_while_the_link_is_away_from_a_stream_that_had_just_begun(
    *, complete: bool, reasons: list[str], tmp_path: Path
) -> None:
    gone = _Gone(tmp_path)
    await gone.copy("quiet", complete=complete, caught_up=True)
    async with keeping(tmp_path) as kept:
        await kept.recording.change_state(JOB, "quiet", caught_up=False)
    ledger, told = await gone.listed()
    assert ([reason for _, _, reason, _ in ledger], told) == (reasons, ["removed"])


async def test_what_a_board_that_deletes_what_was_delivered_has_deleted_had_come(tmp_path: Path) -> None:
    """Its JOB had become quiet meanwhile."""
    await _Gone(tmp_path).copy("open", complete=True, caught_up=True)
    async with keeping(tmp_path) as kept:
        await kept.recording.begin(replace(board(), retention=Retention("delivered")), "127.0.0.1:1")
        await kept.recording.listed([])
        assert await kept.rows(_Gone.LEDGER) == []


async def test_a_job_of_a_session_that_was_ended_is_no_loss_of_the_next(tmp_path: Path) -> None:
    async with keeping(tmp_path) as kept:
        await kept.sender.send(aicore_path(), records(700), complete=False)
        await kept.recording.end()
    assert await _Gone(tmp_path).listed() == ([], [])


async def test_a_job_that_came_whole_before_is_none_of_the_next_session(tmp_path: Path) -> None:
    async with keeping(tmp_path) as kept:
        await kept.sender.send(aicore_path(), records(700), complete=True)
        await kept.recording.change_state(JOB, "finished", caught_up=True)
        await kept.recording.end()
    assert await _Gone(tmp_path).listed() == ([], [])
    async with keeping(tmp_path) as kept:
        assert await kept.rows("SELECT session FROM session_job") == [(1,)]


@pytest.mark.parametrize(
    ("told", "complete", "grade"),
    [("open", True, "loss"), ("open", False, "loss"), ("finished", False, "loss"), ("finished", True, None)],
)
async def test_a_job_that_went_before_it_could_be_followed_is_told(
    told: str, complete: bool, grade: str | None, tmp_path: Path
) -> None:
    async with keeping(tmp_path) as kept:
        await kept.sender.send(aicore_path(), records(700), complete=complete)
        await kept.recording.change_state(JOB, told, caught_up=False)
        applied = await kept.recording.change_state(JOB, "removed", caught_up=False)
        (batch,) = [each.batch for each in applied if each.batch.state]
        assert (batch.state, batch.caught_up) == ("removed", True)
        assert [row[1] for row in await kept.rows(_Gone.LEDGER)] == ([grade] if grade else [])


@pytest.mark.parametrize(
    ("state", "path", "reasons"),
    [
        ("open", aicore_path(), ["removed-open"]),
        ("open", CALLS, []),
        ("quiet", aicore_path(), []),
        ("finished", aicore_path(), []),
    ],
)
async def test_a_job_that_is_removed_before_it_has_ended_is_a_loss_that_stays(
    state: str, path: str, reasons: list[str], tmp_path: Path
) -> None:
    """With its calls complete, a model was unloaded: that is an end that the board had no time to tell."""
    told = "SELECT reason FROM ledger WHERE grade = 'loss'"
    async with keeping(tmp_path) as kept:
        await kept.sender.send(path, b"" if path == CALLS else records(700), complete=True)
        await kept.recording.change_state(JOB, state, caught_up=True)
        await kept.recording.change_state(JOB, "removed", caught_up=True)
        assert [reason for (reason,) in await kept.rows(told)] == reasons
        await kept.recording.change_state(JOB, "open", caught_up=False)
        assert [reason for (reason,) in await kept.rows(told)] == reasons

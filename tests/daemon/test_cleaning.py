"""The policy kept on real files: what goes, what stays, and what is a loss; the clock is turned."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from profagentd import cleaning as module
from profagentd.board import Board, Job
from profagentd.cleaning import RETRY_S, SWEEP_S, Cleaner, Look
from profagentd.deleted import Deleted
from profagentd.delivery import SETTLE_S, Deliveries
from profagentd.kept_deliveries import KeptDeliveries
from profagentd.losses import KeptLosses
from profagentd.opening import Place, fingerprint
from profagentd.removal import NotOurs
from profagentd.retention import Policy, Retain
from profagentd.roots import Roots
from profagentd.space import SpaceWatch
from profagentd.state import JobState
from tests.daemon.clocks import FakeClock
from tests.daemon.daemon_process import AICORE_DONE, API_DONE, content, make_job
from tests.daemon.waiting import run_until
from tests.fakes.small_disk import small_disk

SIZE_BYTES = 1024 * 1024
LOG_BYTES = 40 * 1024
QUIET_S = 60.0
DELIVERED = Policy(Retain.DELIVERED, ("a",))
ROOM = Policy(Retain.MIN_FREE, ("a",), min_free_share=0.5)
ROOM_AT_ANY_PRICE = Policy(Retain.MIN_FREE, ("a",), min_free_share=0.5, delete_undelivered=True)


class Bench:
    """A root on a small disk, and a policy for it."""

    def __init__(self, disk: Path, policy: Policy) -> None:
        self.disk = disk
        self.root = os.fsencode(disk)
        self.clock = FakeClock()
        self.board = Board(self.clock, QUIET_S)
        self.deliveries = Deliveries(policy.retain_for, KeptDeliveries(None))
        self.board.add_listener(self.deliveries)
        self.deleted = Deleted(None)
        self.kept = KeptLosses(None)
        self.space = SpaceWatch(Roots([self.root]), self.clock, self.board, self.kept)
        self.cleaner = Cleaner(
            policy,
            Roots([self.root]),
            self.clock,
            self.board,
            self.deliveries,
            self.deleted,
            self.kept,
            self.space,
            has_npu=False,
        )

    def find(self, logs: int = 1, *, ended: bool = True, number: int = 0) -> Path:
        """A JOB that was written long ago."""
        job = make_job(self.disk, number)
        for log in range(logs):
            data = job / "data" / f"aicore.0.m.3.0.1.1.{log}"
            data.write_bytes(bytes(LOG_BYTES))
            Path(f"{data}.done").write_bytes(AICORE_DONE % LOG_BYTES)
            os.utime(data, ns=(log, log))
            os.utime(f"{data}.done", ns=(log, log))
        (job / "data" / "acl_api.0.m.0").write_bytes(b"x" * 32)
        if ended:
            (job / "data" / "acl_api.0.m.0.done").write_bytes(API_DONE % 32)
        place = Place(self.root, os.fsencode(job.name))
        self.board.found(place, self.clock.wall, self.clock.wall, is_scanned=False)
        return job

    def job(self, directory: Path) -> Job:
        return next(job for job in self.board.jobs if job.name == directory.name)

    def deliver(self, directory: Path, pattern: str = "*", consumer: str = "a") -> None:
        place = self.job(directory).place
        for file in directory.rglob(pattern):
            if file.is_file():
                path = os.fsencode(file.relative_to(directory))
                self.deliveries.delivered(consumer, place, path, fingerprint(file.stat()), self.clock.now)

    async def end(self, directory: Path) -> None:
        """Let so much time pass that nothing more comes."""
        job = self.job(directory)
        await run_until(self.board.keep_states(), lambda: job.state is not JobState.OPEN)
        self.clock.advance(QUIET_S)

    async def clean(self, after_s: float = SETTLE_S) -> None:
        self.clock.advance(after_s)
        await self.space.look(self.root)
        await self.cleaner.clean(self.root)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", SIZE_BYTES) as made:
        yield made


async def test_delivered_logs_go_while_their_job_goes_on(disk: Path) -> None:
    bench = Bench(disk, DELIVERED)
    job = bench.find(3, ended=False)
    before = content(job)
    bench.deliver(job, "aicore.0.m.3.0.1.1.[01]*")
    await bench.clean(0.0)
    assert content(job) == before
    await bench.clean()
    assert {path for path in before if b"aicore" in path} - {*content(job)} == {
        b"data/aicore.0.m.3.0.1.1.%d%s" % (log, end) for log in (0, 1) for end in (b"", b".done")
    }
    assert bench.kept.since(0) == []


async def test_calls_and_tables_of_a_job_that_goes_on_stay(disk: Path) -> None:
    bench = Bench(disk, DELIVERED)
    job = bench.find(1)
    bench.deliver(job)
    await bench.clean()
    assert set(content(job)) == {b"info.json.0", b"data/acl_api.0.m.0", b"data/acl_api.0.m.0.done"}


async def test_a_job_that_is_over_and_delivered_goes_with_its_directories(disk: Path) -> None:
    bench = Bench(disk, DELIVERED)
    job = bench.find(3)
    bench.deliver(job)
    await bench.end(job)
    await bench.clean()
    assert not job.exists()
    assert bench.kept.since(0) == []


async def test_whatever_was_not_delivered_stays_with_what_explains_it(disk: Path) -> None:
    bench = Bench(disk, DELIVERED)
    job = bench.find(2)
    bench.deliver(job, "aicore.0.m.3.0.1.1.0*")
    bench.deliver(job, "info*")
    await bench.end(job)
    before = content(job)
    await bench.clean()
    assert {*before} - {*content(job)} == {b"data/aicore.0.m.3.0.1.1.0", b"data/aicore.0.m.3.0.1.1.0.done"}
    bench.deliver(job)
    await bench.clean(SWEEP_S)
    assert not job.exists()


async def test_foreign_files_stay_and_so_do_the_tables_and_the_directory(disk: Path) -> None:
    bench = Bench(disk, DELIVERED)
    job = bench.find(1)
    (job / "data" / "mine.txt").write_bytes(b"mine")
    bench.deliver(job)
    await bench.end(job)
    await bench.clean()
    assert set(content(job)) == {b"info.json.0", b"data/mine.txt"}


async def test_a_log_that_changed_after_its_delivery_stays(disk: Path) -> None:
    bench = Bench(disk, DELIVERED)
    job = bench.find(1, ended=False)
    bench.deliver(job)
    with (job / "data" / "aicore.0.m.3.0.1.1.0").open("ab") as file:
        file.write(b"more")
    before = content(job)
    await bench.clean()
    assert content(job) == before


async def test_what_could_not_go_while_the_job_was_away_goes_later(disk: Path) -> None:
    bench = Bench(disk, DELIVERED)
    job = bench.find(3, ended=False)
    away = job.with_name("away")
    bench.deliver(job, "aicore*")
    job.rename(away)
    await bench.clean()
    away.rename(job)
    await bench.clean(RETRY_S - 1)
    assert len(list(job.glob("data/aicore*"))) == 6
    await bench.clean(1)
    assert list(job.glob("data/aicore*")) == []


@pytest.mark.parametrize("unseen", ["facts", "check", "remove_directories"])
async def test_what_is_left_of_a_job_goes_though_it_was_away_when_all_of_it_was_to_go(
    disk: Path, monkeypatch: pytest.MonkeyPatch, unseen: str
) -> None:
    bench = Bench(disk, DELIVERED)
    job = bench.find(0)
    bench.deliver(job)
    await bench.end(job)
    away = job.with_name("away")

    def leave(*_: object) -> None:
        monkeypatch.undo()
        job.rename(away)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(Look if unseen == "facts" else module, unseen, leave)
    await bench.clean()
    away.rename(job)
    await bench.clean(RETRY_S)
    assert not job.exists()


@pytest.mark.parametrize("logs", [0, 1])
async def test_a_job_that_was_away_while_it_was_to_be_deleted_is_delivered_anew(
    disk: Path, monkeypatch: pytest.MonkeyPatch, logs: int
) -> None:
    bench = Bench(disk, DELIVERED)
    job = bench.find(logs)
    bench.deliver(job)
    await bench.end(job)
    place, before = bench.job(job).place, content(job)

    async def leave_and_return() -> None:
        bench.board.gone(place)
        bench.board.found(place, bench.clock.wall, bench.clock.wall, is_scanned=False)

    monkeypatch.setattr(bench.deleted, "save", leave_and_return)
    await bench.clean()
    assert content(job) == before


async def test_directories_of_a_job_that_was_away_meanwhile_go_later(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(disk, DELIVERED)
    job = bench.find(0)
    bench.deliver(job)
    await bench.end(job)
    place = bench.job(job).place

    async def leave() -> None:
        if not content(job):
            bench.board.gone(place)

    monkeypatch.setattr(bench.kept, "save", leave)
    await bench.clean()
    assert job.exists()
    monkeypatch.undo()
    bench.board.found(place, bench.clock.wall, bench.clock.wall, is_scanned=False)
    await bench.end(job)
    await bench.clean()
    assert not job.exists()


async def test_a_program_that_may_go_on_keeps_the_directory(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [True, None, False]
    monkeypatch.setattr(module, "is_npu_open", lambda _made: answers.pop(0))
    bench = Bench(disk, DELIVERED)
    bench.cleaner._has_npu = True
    job = bench.find(1)
    bench.deliver(job)
    await bench.end(job)
    for _ in range(2):
        await bench.clean(SWEEP_S)
        assert (job / "data" / "acl_api.0.m.0").exists()
    await bench.clean(SWEEP_S)
    assert not job.exists()


async def test_while_there_is_room_nothing_goes(disk: Path) -> None:
    bench = Bench(disk, ROOM_AT_ANY_PRICE)
    job = bench.find(3)
    bench.deliver(job)
    await bench.end(job)
    before = content(job)
    await bench.clean()
    assert content(job) == before


async def test_room_is_made_by_the_oldest_that_are_delivered(disk: Path) -> None:
    bench = Bench(disk, ROOM)
    job = bench.find(16)
    bench.deliver(job, "aicore*.?")
    bench.deliver(job, "aicore*.?.done")
    await bench.clean()
    left = sorted(int(file.name.rpartition(".")[2]) for file in job.glob("data/aicore*[0-9]"))
    assert left[-6:] == [*range(10, 16)]
    assert 0 < left[0] < 10
    assert bench.kept.since(0) == []
    assert bench.space.free_bytes[0] >= SIZE_BYTES // 2


async def test_what_goes_undelivered_is_one_loss_of_its_job(disk: Path) -> None:
    bench = Bench(disk, ROOM_AT_ANY_PRICE)
    job = bench.find(16)
    await bench.clean()
    (loss,) = bench.kept.since(0)
    gone = 16 - len(list(job.glob("data/aicore*[0-9]")))
    assert gone > 0
    assert (loss.reason, loss.job, loss.lost_logs) == ("deleted-undelivered", job.name, 2 * gone)
    assert loss.lost_bytes == gone * (LOG_BYTES + len(AICORE_DONE % LOG_BYTES))
    assert loss.from_wall_us == bench.clock.wall
    (disk / "other").write_bytes(bytes(3 * LOG_BYTES))
    await bench.clean(5.0)
    (again,) = bench.kept.since(0)
    assert (again.id, again.from_wall_us, again.to_wall_us) == (loss.id, loss.from_wall_us, bench.clock.wall)
    assert again.lost_logs > loss.lost_logs


async def test_where_no_consumer_is_named_what_some_client_has_goes_first_and_is_no_loss(disk: Path) -> None:
    bench = Bench(disk, dataclasses.replace(ROOM_AT_ANY_PRICE, retain_for=()))
    job = bench.find(16)
    bench.deliver(job, consumer="whoever")
    await bench.clean()
    assert len(list(job.glob("data/aicore*[0-9]"))) < 16
    assert bench.kept.since(0) == []


async def test_what_is_lost_is_known_to_those_who_follow_it(disk: Path) -> None:
    bench = Bench(disk, ROOM_AT_ANY_PRICE)
    job = bench.find(16)
    bench.deliver(job, "aicore.0.m.3.0.1.1.0*")
    await bench.clean()
    place = bench.job(job).place
    known = [bench.deleted.lost(place, b"data/aicore.0.m.3.0.1.1.%d" % log) for log in (0, 1, 15)]
    assert known == [False, True, False]
    assert bench.deleted.lost(place, b"data/aicore.0.m.3.0.1.1.1.done")


async def test_what_was_deleted_is_known_while_a_root_is_away_and_until_its_job_is_deleted(disk: Path) -> None:
    bench = Bench(disk, DELIVERED)
    job, path = bench.find(1, ended=False), b"data/aicore.0.m.3.0.1.1.0"
    place = bench.job(job).place
    bench.deliver(job)
    await bench.clean()
    bench.board.gone(place)
    assert bench.deleted.has(place, path)
    (job / "data" / "acl_api.0.m.0.done").write_bytes(API_DONE % 32)
    bench.board.found(place, bench.clock.wall, bench.clock.wall, is_scanned=False)
    bench.deliver(job)
    await bench.end(job)
    await bench.clean()
    assert not job.exists()
    assert not bench.deleted.has(place, path)


async def test_without_leave_what_nobody_has_stays_though_there_is_no_room(
    disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(disk, ROOM)
    job = bench.find(16)
    before = content(job)
    for _ in range(2):
        await bench.clean()
    assert content(job) == before
    assert [record.message for record in caplog.records if "nothing may be deleted" in record.message] != []
    assert len(caplog.records) == 1


@pytest.mark.parametrize("failure", [NotOurs(), PermissionError(13, "Permission denied")])
async def test_what_cannot_be_deleted_is_said_once_and_is_no_loss(
    disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    def refuse(_place: Place) -> None:
        raise failure

    monkeypatch.setattr(module, "check", refuse)
    bench = Bench(disk, ROOM_AT_ANY_PRICE)
    job = bench.find(16)
    before = content(job)
    await bench.clean()
    assert content(job) == before
    assert bench.kept.since(0) == []
    assert any("nothing" in record.message for record in caplog.records)

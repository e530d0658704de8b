"""A real daemon, real gRPC, real files: whatever happens to a JOB, the client's copies become the board's files."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagentd.follow import client as client_stream
from profagentd.follow import table
from tests.daemon.clocks import FastClock
from tests.daemon.daemon_process import AICORE_DONE, API_DONE, content, make_job
from tests.daemon.own_daemon import own_daemon
from tests.daemon.wire_client import Client, following

NAME = "aicore.0.model.3.0.1.1.0"
RECORD = bytes(range(256))
BOTH_WAYS = pytest.mark.parametrize("scan", [False, True], ids=["inotify", "scan"], indirect=True)


@pytest.fixture
def scan(request: pytest.FixtureRequest) -> bool:
    """Whether directories are looked at; tests in which the two ways to watch differ ask for both."""
    return bool(getattr(request, "param", False))


@pytest.fixture
async def client(scan: bool, tmp_path: Path) -> AsyncIterator[Client]:
    """A client that follows everything below an empty root."""
    async with own_daemon(tmp_path, scan=scan) as (address, _), following(address) as opened:
        await opened.start()
        await opened.until(lambda: opened.is_listed)
        yield opened


def holds(client: Client, job: Path) -> Callable[[], bool]:
    """Whether the client's copies are the JOB's files."""
    return lambda: client.mirror(job.name) == content(job)


@BOTH_WAYS
async def test_a_job_made_later_is_found_and_followed(client: Client, tmp_path: Path) -> None:
    job = make_job(tmp_path / "app" / "output")
    (job / "data" / NAME).write_bytes(RECORD * 3)
    await client.until(holds(client, job))
    assert client.jobs[job.name].state == wire.JOB_STATE_OPEN
    assert client.jobs[job.name].directory == str(job)


@BOTH_WAYS
async def test_a_log_that_grows_at_odd_places_is_one_generation(client: Client, tmp_path: Path) -> None:
    job = make_job(tmp_path)
    whole = RECORD * 40
    for end in (1, 255, 256, 300, 1111, 5000, len(whole)):
        with (job / "data" / NAME).open("ab") as file:
            file.write(whole[file.tell() : end])
        await client.until(holds(client, job))
    assert client.copy(NAME).generation == 1
    assert client.copy(NAME).starts == [wire.START_REASON_NEW]
    assert not client.copy(NAME).is_complete


async def test_a_log_is_complete_when_its_done_parses(client: Client, tmp_path: Path) -> None:
    job = make_job(tmp_path)
    (job / "data" / NAME).write_bytes(RECORD)
    await client.until(holds(client, job))
    (job / "data" / f"{NAME}.done").write_bytes(b"file_len:")
    await client.until(lambda: client.has(f"{NAME}.done") and client.copy(f"{NAME}.done").is_complete)
    assert not client.copy(NAME).is_complete
    (job / "data" / f"{NAME}.done").write_bytes(AICORE_DONE % 256)
    await client.until(lambda: client.copy(NAME).is_complete)
    await client.until(holds(client, job))


async def test_a_complete_log_may_grow_again(client: Client, tmp_path: Path) -> None:
    job = make_job(tmp_path)
    for load in (1, 2):
        with (job / "data" / NAME).open("ab") as file:
            file.write(RECORD * load)
        (job / "data" / f"{NAME}.done").write_bytes(AICORE_DONE % (256 * load))
        await client.until(holds(client, job))
        await client.until(lambda: client.copy(NAME).is_complete)
        await client.until(lambda: client.open_logs == 0)
    assert client.copy(NAME).generation == 1


async def test_a_log_that_is_made_comes_unasked(tmp_path: Path) -> None:
    job = make_job(tmp_path / "root")
    async with own_daemon(tmp_path / "root") as (address, _), following(address) as client:
        await client.start()
        await client.until(lambda: job.name in client.jobs and client.jobs[job.name].caught_up)
        (job / "data" / NAME).write_bytes(RECORD)
        await client.until(holds(client, job))
        (job / "data" / f"{NAME}.done").write_bytes(AICORE_DONE % len(RECORD))
        await client.until(lambda: client.has(f"{NAME}.done") and client.open_logs == 0)
        # Its client holds something else: what comes unasked is passed over.
        (tmp_path / "another").write_bytes(RECORD[::-1])
        (tmp_path / "another").replace(job / "data" / NAME)
        await client.until(holds(client, job))
        assert client.copy(NAME).starts == [wire.START_REASON_NEW, wire.START_REASON_DIFFERENT]
        assert client.unasked == [client.key(name) for name in (NAME, f"{NAME}.done", NAME)]


@BOTH_WAYS
async def test_a_rewritten_snapshot_is_sent_again_whole(client: Client, tmp_path: Path) -> None:
    job = make_job(tmp_path)
    info = job / "data" / "model.0.layer.info"
    for generation, text in enumerate((b"first", b"second, longer", b"third"), 1):
        info.write_bytes(text)
        await client.until(
            lambda: client.has(info.name) and client.copy(info.name).is_complete and holds(client, job)()
        )
        assert client.copy(info.name).generation == generation
    assert client.copy(info.name).kind == wire.LOG_KIND_SNAPSHOT


@pytest.mark.parametrize("size", [100, 256 * 3], ids=["smaller", "equal"])
async def test_a_data_log_made_anew_is_a_new_generation(client: Client, tmp_path: Path, size: int) -> None:
    job = make_job(tmp_path)
    path = job / "data" / NAME
    path.write_bytes(RECORD * 3)
    await client.until(holds(client, job))
    path.unlink()
    path.write_bytes(bytes(size))
    (job / "data" / f"{NAME}.done").write_bytes(AICORE_DONE % size)
    await client.until(lambda: holds(client, job)() and client.copy(NAME).is_complete)
    assert client.copy(NAME).generation == 2


@BOTH_WAYS
async def test_a_data_log_that_shrank_is_a_new_generation(client: Client, tmp_path: Path) -> None:
    job = make_job(tmp_path)
    path = job / "data" / NAME
    path.write_bytes(RECORD * 3)
    await client.until(holds(client, job))
    os.truncate(path, 256)
    await client.until(holds(client, job))
    assert client.copy(NAME).generation == 2
    assert client.copy(NAME).starts[-1] == wire.START_REASON_RECREATED


@BOTH_WAYS
async def test_a_removed_log_is_told_with_what_was_sent(client: Client, tmp_path: Path) -> None:
    job = make_job(tmp_path)
    (job / "data" / NAME).write_bytes(RECORD)
    await client.until(holds(client, job))
    (job / "data" / NAME).unlink()
    await client.until(lambda: client.copy(NAME).is_removed)
    removed = client.copy(NAME).removed
    assert removed is not None
    assert (removed.generation, removed.sent, removed.size) == (1, 256, 256)


@BOTH_WAYS
async def test_a_removed_job_is_told_after_its_logs(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing else than its logs' end wakes the stream.
    monkeypatch.setattr(client_stream, "HEARTBEAT_S", 1e6)
    job = make_job(tmp_path)
    (job / "data" / NAME).write_bytes(RECORD)
    await client.until(holds(client, job))
    shutil.rmtree(job)
    await client.until(lambda: client.jobs[job.name].state == wire.JOB_STATE_REMOVED)
    assert client.copy(NAME).is_removed
    assert client.open_logs == 0


async def test_every_file_of_a_job_that_goes_was_announced_or_is_a_loss(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    names = [f"aicore.0.model.3.0.{number}.1.0" for number in range(200)]
    async with own_daemon(tmp_path) as (address, _), following(address) as client:
        await client.start()
        await client.until(holds(client, job))
        for name in names:
            (job / "data" / name).write_bytes(RECORD)
        shutil.rmtree(job)
        await client.until(lambda: client.jobs[job.name].state == wire.JOB_STATE_REMOVED)
        lost = {loss.detail.partition(" ")[0] for loss in client.losses}
        assert {loss.reason for loss in client.losses} <= {"removed-unread"}
        assert {name for name in names if client.has(name)} | {Path(path).name for path in lost} == {*names}


async def test_a_job_that_is_delivered_and_goes_is_no_loss(client: Client, tmp_path: Path) -> None:
    job = make_job(tmp_path)
    (job / "data" / NAME).write_bytes(RECORD)
    (job / "data" / (NAME + ".done")).write_bytes(AICORE_DONE % len(RECORD))
    await client.until(holds(client, job))
    await client.until(lambda: client.open_logs == 0)
    shutil.rmtree(job)
    await client.until(lambda: client.jobs[job.name].state == wire.JOB_STATE_REMOVED)
    assert client.losses == []


async def test_what_is_no_file_is_told_once_and_not_followed(client: Client, tmp_path: Path) -> None:
    job = make_job(tmp_path)
    secret = tmp_path / "secret"
    secret.write_bytes(b"not yours")
    (job / "data" / "link.0.layer.info").symlink_to(secret)
    os.mkfifo(job / "data" / "aicore.0.fifo.3.0.1.1.0")
    (job / "data" / "aicore.0.directory.3.0.1.1.0").mkdir()
    (job / "elsewhere").symlink_to(tmp_path)
    await client.until(lambda: len(client.losses) == 4)
    (job / "data" / NAME).write_bytes(RECORD)
    await client.until(lambda: client.has(NAME) and len(client.copy(NAME).data) == 256)
    assert {loss.reason for loss in client.losses} == {"not-a-file"}
    assert len(client.losses) == 4
    assert all(loss.job and not loss.handle for loss in client.losses)
    assert set(client.mirror(job.name)) == {b"info.json.0", b"data/" + NAME.encode()}


async def test_a_log_replaced_by_a_link_is_removed_and_told(client: Client, tmp_path: Path) -> None:
    job = make_job(tmp_path)
    (job / "data" / NAME).write_bytes(RECORD)
    await client.until(holds(client, job))
    (job / "data" / NAME).unlink()
    (job / "data" / NAME).symlink_to("/etc/passwd")
    await client.until(lambda: client.copy(NAME).is_removed)
    assert bytes(client.copy(NAME).data) == RECORD


async def test_names_that_are_no_text_are_copied(client: Client, tmp_path: Path) -> None:
    job = make_job(tmp_path)
    name = b"aicore.0.\xff\xfe\xe4\xba.3.0.1.1.0"
    (job / "data" / os.fsdecode(name)).write_bytes(RECORD)
    (job / "data" / os.fsdecode(b"\xff")).symlink_to("x")
    await client.until(holds(client, job))
    await client.until(lambda: bool(client.losses))
    assert "\\xff" in client.losses[0].detail


async def test_a_job_is_finished_two_seconds_after_its_last_log(client: Client, tmp_path: Path) -> None:
    job = make_job(tmp_path)
    data = job / "data"
    (data / "model.0.net.info").write_bytes(b"x")
    for name, done in ((NAME, AICORE_DONE), ("acl_api.0.model.0", API_DONE)):
        (data / name).write_bytes(RECORD)
        (data / f"{name}.done").write_bytes(done % 256)
    (data / "aicore.0.model.3.0.1.1.1").write_bytes(b"")
    await client.until(lambda: job.name in client.jobs)
    await client.until(lambda: client.jobs[job.name].state == wire.JOB_STATE_FINISHED)
    await client.until(lambda: client.jobs[job.name].caught_up)
    assert client.mirror(job.name) == content(job)
    (data / "aicore.0.model.3.0.1.1.1").write_bytes(RECORD)
    await client.until(lambda: client.jobs[job.name].state == wire.JOB_STATE_OPEN)
    await client.until(holds(client, job))


async def test_a_job_moved_within_a_root_is_followed_at_its_new_place(client: Client, tmp_path: Path) -> None:
    job = make_job(tmp_path / "a")
    await client.until(holds(client, job))
    (tmp_path / "b").mkdir()
    moved = job.rename(tmp_path / "b" / job.name)
    (moved / "data" / NAME).write_bytes(RECORD)
    await client.until(lambda: client.jobs[job.name].directory == str(moved))
    await client.until(holds(client, moved))


@pytest.mark.parametrize("late", [b"", RECORD], ids=["whole", "written to"])
async def test_a_log_that_is_closed_and_removed_is_a_loss_when_something_was_written_since_it_was_read(
    tmp_path: Path, late: bytes
) -> None:
    job = make_job(tmp_path)
    async with own_daemon(tmp_path) as (address, _), following(address) as client:
        await client.start()
        await client.until(holds(client, job))
        with (job / "data" / NAME).open("wb", buffering=0) as file:
            file.write(RECORD)
            await client.until(holds(client, job))
            file.write(late)
        (job / "data" / NAME).unlink()
        await client.until(lambda: client.copy(NAME).is_removed)
        is_whole = bytes(client.copy(NAME).data) == RECORD + late
        assert [loss.reason for loss in client.losses] == ([] if is_whole else ["removed-unread"])
        assert is_whole or late


@pytest.fixture
def small_window(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many logs may be announced and not over."""
    monkeypatch.setattr(table, "COMMON_LOGS", 70)
    return 70


async def test_many_files_are_copied_through_the_window(tmp_path: Path, small_window: int) -> None:
    job = make_job(tmp_path)
    for number in range(2 * small_window):
        name = job / "data" / f"aicore.0.model.3.0.1.1.{number}"
        name.write_bytes(b"%d" % number)
        name.with_name(f"{name.name}.done").write_bytes(AICORE_DONE % number)
    async with own_daemon(tmp_path, FastClock()) as (address, _), following(address) as client:
        await client.start()
        await client.until(lambda: job.name in client.jobs and client.jobs[job.name].caught_up)
        assert len(client.copies) == 4 * small_window + 1
        assert client.mirror(job.name) == content(job)


async def test_incomplete_logs_give_way_when_there_are_too_many(tmp_path: Path, small_window: int) -> None:
    job = make_job(tmp_path)
    for number in range(small_window + 100):
        (job / "data" / f"aicore.0.model.3.0.1.1.{number}").write_bytes(b"%d" % number)
    async with own_daemon(tmp_path, FastClock()) as (address, _), following(address) as client:
        await client.start()
        await client.until(lambda: job.name in client.jobs and client.jobs[job.name].caught_up)
        assert client.mirror(job.name) == content(job)
        late = job / "data" / "aicore.0.model.3.0.1.1.0"
        with late.open("ab") as file:
            file.write(RECORD)
        await client.until(lambda: len(client.copy(late.name).data) == 257)
        assert client.copy(late.name).generation == 1

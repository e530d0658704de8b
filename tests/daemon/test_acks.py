"""Who has which log, what takes that back, and what of it a daemon that starts anew knows."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagentd.follow.log import FileEvent
from profagentd.follow.registry import FollowedJob, JobStateTracker
from profagentd.retention import policy as acks
from profagentd.retention.losses import FILE_NAME
from profagentd.retention.policy import DIRECTORY_NAME, RECORD_BYTES, AckTracker
from profagentd.retention.reaper import SAVE_S
from profagentd.sources.files import Fingerprint, FolderPlace
from tests.daemon.daemon_process import AICORE_DONE, content, job_name, make_job, running
from tests.daemon.wire_client import Client, digest, following
from tests.fakes.small_disk import small_disk

PLACE = FolderPlace(b"/r", job_name().encode())
DATA, DONE = b"data/aicore.0.model.3.0.1.1.0", b"data/aicore.0.model.3.0.1.1.0.done"
SEEN, OTHER = Fingerprint(7, 256, 10), Fingerprint(7, 256, 11)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / DIRECTORY_NAME / job_name()


def records(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


async def delivered(state: Path | None, *consumers: str, paths: tuple[bytes, ...] = (DATA, DONE)) -> AckTracker:
    """A daemon to which these say that they have the logs; it is killed when it has kept that."""
    tracker = AckTracker(("a", "b"), state)
    for consumer in consumers:
        for path in paths:
            tracker.note_delivered(consumer, PLACE, path, SEEN)
    await tracker.save()
    return tracker


async def restarted(state: Path, *retain_for: str) -> AckTracker:
    """Another daemon, when it looks at the JOB."""
    tracker = AckTracker(retain_for or ("a", "b"), state)
    await tracker.load_job(PLACE)
    return tracker


async def test_a_log_is_delivered_when_every_named_consumer_has_this_very_file() -> None:
    tracker = await delivered(None, "a", "c")
    assert not tracker.has(PLACE, DATA, SEEN)
    tracker.note_delivered("b", PLACE, DATA, SEEN)
    assert tracker.has(PLACE, DATA, SEEN)
    assert not tracker.has(PLACE, DATA, OTHER)
    assert not tracker.has(PLACE, DONE, SEEN)
    assert not tracker.has(FolderPlace(b"/other", PLACE.path), DATA, SEEN)
    tracker.note_delivered("b", PLACE, DATA, OTHER)  # they do not add up
    assert not tracker.has(PLACE, DATA, SEEN)


@pytest.mark.parametrize("touch", [FileEvent.WRITTEN, FileEvent.CREATED, FileEvent.DELETED, FileEvent.MOVED])
async def test_whatever_happens_to_a_log_takes_its_delivery_back(tmp_path: Path, touch: FileEvent) -> None:
    await delivered(tmp_path, "a", "b")
    tracker = await restarted(tmp_path)
    tracker.names_changed(FollowedJob(PLACE, 0, 0, JobStateTracker(0.0, 60.0), is_scanned=False), {DATA: touch})
    assert not tracker.has(PLACE, DATA, SEEN)
    assert tracker.has(PLACE, DONE, SEEN)


async def test_what_each_consumer_has_adds_up_over_restarts(tmp_path: Path) -> None:
    await delivered(tmp_path, "a")
    tracker = await restarted(tmp_path)
    assert not tracker.has(PLACE, DATA, SEEN)
    tracker.note_delivered("b", PLACE, DATA, SEEN)
    assert tracker.has(PLACE, DATA, SEEN)
    await tracker.save()
    assert (await restarted(tmp_path)).has(PLACE, DATA, SEEN)
    assert (await restarted(tmp_path, "a")).has(PLACE, DONE, SEEN)
    assert not (await restarted(tmp_path, "a", "c")).has(PLACE, DATA, SEEN)


async def test_a_record_that_was_cut_off_is_passed_over_and_written_over(tmp_path: Path, file: Path) -> None:
    await delivered(tmp_path, "a", "b")
    whole = records(file)
    os.truncate(file, len(whole) - 1)
    tracker = await restarted(tmp_path)
    assert tracker.has(PLACE, DATA, SEEN)
    assert not tracker.has(PLACE, DONE, SEEN)
    await delivered(tmp_path, "b", paths=(DONE,))
    assert records(file) == whole


async def test_what_is_told_again_and_what_is_gone_does_not_pile_up(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acks, "SPARE_RECORDS", 10)
    job = FollowedJob(PLACE, 0, 0, JobStateTracker(0.0, 60.0), is_scanned=False)
    await delivered(tmp_path, "a", "b")
    tracker = await delivered(tmp_path, "a", "b")
    assert len(records(file)) == 4 * RECORD_BYTES
    for number in range(100):
        path = DATA + b"%d" % number
        tracker.note_delivered("a", PLACE, path, SEEN)
        await tracker.save()
        tracker.names_changed(job, {path: FileEvent.DELETED})
        assert len(records(file)) <= 30 * RECORD_BYTES
    assert (await restarted(tmp_path)).has(PLACE, DATA, SEEN)
    await tracker.forget_job(PLACE)
    assert not records(file)


# A real daemon that deletes: for whom, when, and what its clients are told of it

NAME = "aicore.0.model.3.0.1.1.0"
TABLES = {b"info.json.0"}
DISK_BYTES = 1 << 20
ROOM = ("--retain", "min_free", "--min-free", "50%", "--delete-undelivered")
# Much longer than the daemon takes when it may delete.
LONG_S = 1.0
# Since when a log stands as it is that may be deleted at once.
RESTED_S = 60.0


def complete_job(root: Path) -> Path:
    job = make_job(root)
    (job / "data" / NAME).write_bytes(bytes(1024))
    (job / "data" / f"{NAME}.done").write_bytes(AICORE_DONE % 1024)
    return job


def names(job: Path) -> set[bytes]:
    """The files of a JOB; what is listed may be gone before it could be read."""
    return {os.fsencode(path.relative_to(job)) for path in job.rglob("*") if not path.is_dir()}


async def until_gone(job: Path) -> None:
    for _ in range(400):
        if names(job) == TABLES:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(names(job))


async def until_written(file: Path) -> None:
    for _ in range(400):
        if await asyncio.to_thread(file.exists):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(file)


def lost_logs(state: Path) -> list[int]:
    """Of each loss that is kept."""
    file = state / FILE_NAME
    return [json.loads(loss)["lost_logs"] for loss in file.read_text("ascii").splitlines()] if file.exists() else []


async def copied(client: Client, job: Path, consumer: str) -> None:
    """Follow until the client has it all, and has said so."""
    await client.start(consumer)
    await client.until(lambda: client.has(NAME) and client.copy(NAME).is_complete)
    await client.until(lambda: bytes(client.copy(NAME).data) == bytes(1024) and client.open_logs == 0)
    assert job.name in client.jobs


async def test_logs_go_when_every_consumer_has_them_and_nobody_is_told_of_a_loss(tmp_path: Path) -> None:
    job = complete_job(tmp_path)
    arguments = ("--retain", "delivered", "--retain-for", "a", "--retain-for", "b")
    with running("--root", tmp_path, *arguments) as daemon:
        async with following(daemon.address) as first, following(daemon.address) as second:
            await copied(first, job, "a")
            await asyncio.sleep(LONG_S)
            assert len(content(job)) == 3
            await copied(second, job, "b")
            hearing = [asyncio.ensure_future(client.until_ended()) for client in (first, second)]
            await until_gone(job)
            await asyncio.sleep(0.5)
            for client, heard in zip((first, second), hearing):
                heard.cancel()
                assert client.losses == []
                assert not client.copy(NAME).is_removed
                assert client.jobs[job.name].state == wire.JOB_STATE_OPEN


async def test_what_goes_while_a_client_is_asked_about_it_is_a_kept_loss(tmp_path: Path) -> None:
    with small_disk(tmp_path / "board", DISK_BYTES) as disk, running("--root", disk, *ROOM) as daemon:
        job = complete_job(disk)
        for file in (job / "data").iterdir():
            os.utime(file, (time.time() - RESTED_S,) * 2)
        async with following(daemon.address) as client:
            client.answers = False
            await client.start("late")
            await client.until(lambda: client.open_logs == 3)
            (disk / "fill").write_bytes(bytes(DISK_BYTES * 6 // 10))
            await client.until(has_losses(client))
            await until_gone(job)
            asked = [wire.Holding(handle=handle) for handle in client._open]
            await client.say(wire.ClientMessage(holdings=wire.Holdings(logs=asked)))
            await client.until(lambda: client.copy(NAME).is_removed and client.copy(f"{NAME}.done").is_removed)
            (loss,) = client.losses
            assert (loss.reason, loss.lost_logs) == ("deleted-undelivered", 2)
            assert loss.lost_bytes == 1024 + len(AICORE_DONE % 1024)


@pytest.mark.parametrize(("end", "consumers"), [(signal.SIGKILL, "ab"), (signal.SIGTERM, "a")])
async def test_what_every_consumer_has_is_no_loss_after_a_restart(
    tmp_path: Path, end: signal.Signals, consumers: str
) -> None:
    policy = (*ROOM, "--retain-for", "a", "--retain-for", "b", "--state", tmp_path / "state")
    with small_disk(tmp_path / "board", DISK_BYTES) as disk:
        job = complete_job(disk)
        with running("--root", disk, *policy) as daemon:
            for consumer in consumers:
                async with following(daemon.address) as client:
                    await copied(client, job, consumer)
            if end is signal.SIGKILL:
                await asyncio.sleep(4 * SAVE_S)
            daemon.process.send_signal(end)
            daemon.process.wait(20)
        (disk / "fill").write_bytes(bytes(DISK_BYTES * 6 // 10))
        with running("--root", disk, *policy):
            await until_gone(job)
    assert lost_logs(tmp_path / "state") == ([2] if consumers == "a" else [])


async def test_after_a_restart_what_a_client_holds_is_delivered_again_without_its_bytes(tmp_path: Path) -> None:
    job = complete_job(tmp_path)
    with running("--root", tmp_path) as daemon:
        async with following(daemon.address) as client:
            await copied(client, job, "a")
            copies = client.copies
    with running("--root", tmp_path, "--retain", "delivered", "--retain-for", "a") as daemon:
        async with following(daemon.address) as client:
            client.copies = copies
            await client.start("a")
            hearing = asyncio.ensure_future(client.until_ended())
            await until_gone(job)
            hearing.cancel()
            assert client.copy(NAME).starts[-1] == wire.START_REASON_SAME
            assert client.losses == []
        # It comes back once more: what is deleted is not asked for, and not missed.
        async with following(daemon.address) as client:
            client.copies = copies
            await client.start("a")
            await client.until(lambda: job.name in client.jobs and client.jobs[job.name].caught_up)
            assert client.losses == []
            assert digest(bytes(client.copy(NAME).data)) == digest(bytes(1024))


async def test_an_acknowledgement_of_an_earlier_completion_delivers_nothing(tmp_path: Path) -> None:
    job = complete_job(tmp_path)
    with running("--root", tmp_path, "--retain", "delivered", "--retain-for", "a") as daemon:
        async with following(daemon.address) as client:
            client.acknowledges = False
            await client.start("a")
            await client.until(lambda: client.has(NAME) and client.copy(NAME).completed == 1)
            (job / "data" / NAME).write_bytes(bytes(1024) + b"more")
            await client.until(lambda: client.copy(NAME).completed == 2)
            handle = next(each for each, key in client._open.items() if key == client.key(NAME))
            earlier = wire.Acknowledgement(handle=handle, generation=1, offset=1024, complete=True)
            await client.say(wire.ClientMessage(acknowledge=wire.Acknowledge(logs=[earlier])))
            await asyncio.sleep(LONG_S)
    assert (job / "data" / NAME).exists()


async def test_kept_losses_are_told_on_each_stream_and_after_a_restart(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with small_disk(tmp_path / "board", 1 << 20) as disk:
        job = make_job(disk)
        ids = set()
        for start in range(2):
            with running("--root", disk, "--state", state) as daemon:
                if not start:
                    (disk / "fill").write_bytes(bytes(disk_room(disk)))
                for _ in range(2):
                    async with following(daemon.address) as client:
                        await client.start()
                        await client.until(has_losses(client))
                        (loss,) = client.losses[:1]
                        ids.add(loss.id)
                        assert (loss.reason, loss.job_name, loss.handle) == ("disk-full", job.name, 0)
                        assert 0 < loss.from_wall_us <= loss.to_wall_us
                await until_written(state / "losses.jsonl")
            (disk / "fill").unlink(missing_ok=True)
    assert len(ids) == 1
    (line,) = (state / "losses.jsonl").read_text().splitlines()
    assert json.loads(line)["id"] in ids


def has_losses(client: Client) -> Callable[[], bool]:
    return lambda: bool(client.losses)


def disk_room(disk: Path) -> int:
    """Bytes that fit."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize

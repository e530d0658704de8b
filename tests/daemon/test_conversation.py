"""The conversation of Follow: what a client may do, what it may not, and that one client is no other's concern."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from profagent_wire.v1 import board_pb2 as wire
from tests.daemon.clocks import FastClock
from tests.daemon.daemon_process import AICORE_DONE, Daemon, content, make_job, running
from tests.daemon.own_daemon import own_daemon
from tests.daemon.waiting import SLACK_S
from tests.daemon.wire_client import Client, Copy, following, message, open_message

NAME = "aicore.0.model.3.0.1.1.0"
RECORD = bytes(range(256))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A JOB with one complete data log."""
    made = make_job(tmp_path)
    (made / "data" / NAME).write_bytes(RECORD * 4)
    (made / "data" / f"{NAME}.done").write_bytes(AICORE_DONE % 1024)
    return made


@pytest.fixture
async def address(job: Path, tmp_path: Path) -> AsyncIterator[str]:
    """That of a daemon that serves it."""
    async with own_daemon(tmp_path) as (listens, _):
        yield listens


@pytest.fixture
def daemon(job: Path, tmp_path: Path) -> Iterator[Daemon]:
    """One in a process of its own."""
    with running("--root", tmp_path) as started:
        yield started


@pytest.fixture
async def client(address: str) -> AsyncIterator[Client]:
    """A client whose stream is not opened."""
    async with following(address) as opened:
        yield opened


async def refused(client: Client, *messages: wire.ClientMessage) -> tuple[grpc.StatusCode, str]:
    """Code and text with which the server answers these messages."""
    for each in messages:
        await client.say(each)
    client.is_mute = True
    code = await client.until_ended()
    return code, await client.call.details()


async def opened_with_log(client: Client) -> int:
    """Follow the JOB without answering; the handle of its data log."""
    client.answers = False
    handles: dict[bytes, int] = {}
    original = client._on_announced

    async def note(announced: wire.Announced) -> None:
        handles.update({log.path: log.handle for log in announced.logs})
        await original(announced)

    client._on_announced = note  # type: ignore[method-assign]
    await client.start()
    await client.until(lambda: client.has(NAME))
    return handles[b"data/" + NAME.encode()]


async def test_the_welcome_comes_first_and_describes_the_board(client: Client, tmp_path: Path) -> None:
    await client.start()
    await client.until(lambda: client.welcome is not None)
    assert client.welcome is not None
    assert client.welcome.heartbeat_us == 4_000_000
    assert client.welcome.description.protocol == wire.ProtocolVersion(major=1, minor=0)
    assert list(client.welcome.description.roots) == [str(tmp_path)]
    assert not client.is_listed


INVALID, TOO_MUCH = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED
OPEN = open_message()


@pytest.mark.parametrize(
    ("said", "status", "word"),
    [
        ([message(select=wire.Select())], INVALID, "is Open"),
        ([wire.ClientMessage()], INVALID, "is Open"),
        ([OPEN, OPEN], INVALID, "Open comes once"),
        ([open_message(major=2, minor=7)], grpc.StatusCode.FAILED_PRECONDITION, "2.7, this daemon 1.0"),
        ([open_message("a b")], INVALID, "consumer's name"),
        ([open_message("x" * 65)], INVALID, "consumer's name"),
        ([OPEN, message(select=wire.Select(follow=[7]))], INVALID, "no JOB 7"),
        ([OPEN, message(select=wire.Select(follow=[1] * 600, unfollow=[1] * 401))], TOO_MUCH, "Select"),
        ([OPEN, message(holdings=wire.Holdings(logs=[wire.Holding(handle=999)]))], INVALID, "no log"),
        ([OPEN, message(holdings=wire.Holdings(logs=[wire.Holding(handle=1)] * 1001))], TOO_MUCH, "Holdings"),
        ([OPEN, message(acknowledge=wire.Acknowledge(logs=[wire.Acknowledgement()]))], INVALID, "no log"),
        ([OPEN, message(acknowledge=wire.Acknowledge(logs=[wire.Acknowledgement()] * 1001))], TOO_MUCH, "Acknowledge"),
    ],
)
async def test_what_is_against_the_rules_ends_the_stream(
    client: Client, said: list[wire.ClientMessage], status: grpc.StatusCode, word: str
) -> None:
    code, text = await refused(client, *said)
    assert code is status
    assert word in text


async def test_unfollowing_releases_and_following_again_announces_anew(client: Client, job: Path) -> None:
    client.acknowledges = False
    await client.start()
    await client.until(lambda: client.mirror(job.name) == content(job))
    handle = client.jobs[job.name].handle
    await client.say(message(select=wire.Select(unfollow=[handle])))
    await client.until(lambda: client.open_logs == 0)
    await client.say(message(select=wire.Select(follow=[handle])))
    await client.until(lambda: client.copy(NAME).announced == 2)
    await client.until(lambda: client.copy(NAME).starts == [wire.START_REASON_NEW, wire.START_REASON_SAME])


@pytest.mark.parametrize(
    "holdings",
    [
        [wire.Holding(offset=5, prefix_digest=bytes(16))],
        [wire.Holding(generation=1, offset=5, prefix_digest=b"")],
        [wire.Holding(), wire.Holding()],
    ],
    ids=["no generation", "no digest", "twice"],
)
async def test_a_holding_makes_sense_or_ends_the_stream(client: Client, holdings: list[wire.Holding]) -> None:
    handle = await opened_with_log(client)
    for each in holdings:
        each.handle = handle
    code, _ = await refused(client, *(message(holdings=wire.Holdings(logs=[each])) for each in holdings))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_skipped_log_is_over_until_it_changes(client: Client, job: Path) -> None:
    client.wants = lambda key: not key[1].endswith(NAME.encode())
    await client.start()
    await client.until(lambda: job.name in client.jobs and client.jobs[job.name].caught_up)
    assert client.copy(NAME).announced == 1
    assert client.copy(NAME).starts == []
    with (job / "data" / NAME).open("ab") as file:
        file.write(RECORD)
    await client.until(lambda: client.copy(NAME).announced >= 2)


def holding(client: Client, job: Path, name: str, generation: int, data: bytes) -> Copy:
    """Let the client hold this of a log before its stream begins."""
    copy = client.copies[(job.name, b"data/" + name.encode())] = Copy(generation=generation, data=bytearray(data))
    return copy


async def test_a_prefix_that_is_held_is_gone_on_from(client: Client, job: Path) -> None:
    held = holding(client, job, NAME, 5, RECORD * 2)
    await client.start()
    await client.until(lambda: held.is_complete)
    assert held.starts == [wire.START_REASON_SAME]
    assert (held.generation, bytes(held.data)) == (5, RECORD * 4)
    assert client.chunks > 0


@pytest.mark.parametrize(
    ("name", "data"),
    [(NAME, b"other" + RECORD), (NAME, RECORD * 5), (f"{NAME}.done", b"file_len:"), (f"{NAME}.done", b"other" * 200)],
    ids=["other bytes", "longer than the file", "a part of a snapshot", "longer than the snapshot"],
)
async def test_another_prefix_begins_a_new_generation(client: Client, job: Path, name: str, data: bytes) -> None:
    held = holding(client, job, name, 5, data)
    await client.start()
    await client.until(lambda: held.is_complete)
    assert held.starts == [wire.START_REASON_DIFFERENT]
    assert (held.generation, bytes(held.data)) == (6, (job / "data" / name).read_bytes())


async def test_a_delivered_log_is_released_and_nothing_else(client: Client, job: Path) -> None:
    (job / "data" / "aicore.0.model.3.0.1.1.1").write_bytes(RECORD)
    await client.start()
    await client.until(lambda: job.name in client.jobs and client.jobs[job.name].caught_up)
    await client.until(lambda: client.open_logs == 1)
    assert len(client.released) == 3


@pytest.mark.parametrize(
    "acknowledgement",
    [
        wire.Acknowledgement(generation=1, offset=1025),
        wire.Acknowledgement(generation=2, offset=1),
        wire.Acknowledgement(generation=1, offset=2**64 - 1),
        wire.Acknowledgement(generation=1, offset=1, complete=True),
    ],
    ids=["beyond the end", "a later generation", "absurd", "a completion that was not told"],
)
async def test_an_acknowledgement_beyond_what_was_sent_ends_the_stream(
    client: Client, job: Path, acknowledgement: wire.Acknowledgement
) -> None:
    (job / "data" / f"{NAME}.done").unlink()
    handle = await opened_with_log(client)
    await client.say(message(holdings=wire.Holdings(logs=[wire.Holding(handle=handle)])))
    client.acknowledges = False
    await client.until(lambda: client.chunks > 0)
    acknowledgement.handle = handle
    code, _ = await refused(client, message(acknowledge=wire.Acknowledge(logs=[acknowledgement])))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def _give_signs_of_life(client: Client) -> None:
    while True:
        await client.say(message(heartbeat=wire.Heartbeat()))
        await asyncio.sleep(0.1)


async def test_the_server_gives_signs_of_life(job: Path, tmp_path: Path) -> None:
    async with own_daemon(tmp_path, FastClock()) as (address, _), following(address) as client:
        await client.start()
        # A client that says nothing is sent away after 1.2 s by this clock, and what was on its way with it.
        speaking = asyncio.create_task(_give_signs_of_life(client))
        await client.until(lambda: bool(client.heartbeats))
        speaking.cancel()


@pytest.mark.parametrize("scan", [False, True])
async def test_a_sync_is_answered_when_all_that_was_there_before_it_has_been_sent(
    job: Path, tmp_path: Path, scan: bool
) -> None:
    calls = "acl_api.0.model.1"
    async with own_daemon(tmp_path, scan=scan) as (address, _), following(address) as client:
        await client.start()
        await client.until(lambda: client.has(NAME) and client.jobs[job.name].caught_up)
        assert client.welcome is not None
        assert "sync" in client.welcome.description.capabilities
        for number in range(1, 21):
            with (job / "data" / calls).open("ab") as log:
                log.write(RECORD)
            await client.say(message(sync=wire.Sync(number=number)))
            await client.until(lambda: client.synced == number)  # noqa: B023 - profagent waits for it to return at once
            assert len(client.copy(calls).data) == number * len(RECORD)


async def test_a_job_made_before_a_sync_is_told_before_its_answer(client: Client, job: Path, tmp_path: Path) -> None:
    await client.start()
    await client.until(lambda: client.is_listed)
    made = make_job(tmp_path, 1)
    await client.say(message(sync=wire.Sync(number=1)))
    await client.until(lambda: client.synced == 1)
    assert made.name in client.jobs


async def test_a_client_that_never_reads_holds_up_no_other(daemon: Daemon, job: Path) -> None:
    async with following(daemon.address) as slow, following(daemon.address) as fast:
        await slow.start("slow")
        await slow.until(lambda: job.name in slow.jobs and slow.jobs[job.name].caught_up)
        await fast.start("fast")
        size = 0
        for _ in range(4):
            with (job / "data" / NAME).open("ab") as file:
                file.write(bytes(4_000_000))
            size += 4_000_000
            await fast.until(lambda: fast.has(NAME) and len(fast.copy(NAME).data) == size + 1024)  # noqa: B023
        assert fast.mirror(job.name) == content(job)
        resident = int(Path(f"/proc/{daemon.process.pid}/statm").read_text().split()[1])  # noqa: ASYNC240
        assert resident * resource.getpagesize() < 100_000_000
        await slow.until(lambda: len(slow.copy(NAME).data) == size + 1024)


async def test_a_client_that_is_silent_is_given_up(job: Path, tmp_path: Path) -> None:
    clock = FastClock()
    async with own_daemon(tmp_path, clock) as (address, _), following(address) as client:
        await client.start()
        began = clock.monotonic()
        client.is_mute = True
        assert await client.until_ended() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert clock.monotonic() - began > 11


async def test_a_stop_says_goodbye_and_ends_within_five_seconds(daemon: Daemon, job: Path) -> None:
    async with following(daemon.address) as client, following(daemon.address) as silent:
        await silent.start("silent")
        await client.start()
        await client.until(lambda: client.has(NAME))
        client.is_mute = True
        began = time.monotonic()
        stopped = asyncio.get_running_loop().run_in_executor(None, daemon.stop)
        assert await client.until_ended() is grpc.StatusCode.OK
        assert await stopped == 0
        assert time.monotonic() - began < 5 + SLACK_S
        assert client.goodbye is not None
        assert client.goodbye.retry_after_us > 0

"""Work on roots: one that hangs holds up no other, shown on a file system that never answers."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagentd.limits import ROOT_THREADS
from profagentd.loop import NoAnswerError, in_time, is_late, on_disk
from tests.daemon.daemon_process import AICORE_DONE, content, make_job, running
from tests.daemon.wire_client import Client, connect, following
from tests.fakes.hung_mount import hung_mount

NAME = "aicore.0.model.3.0.1.1.0"
SOON_S = 10.0
# More than comes before the test sees that it comes.
LARGE_BYTES = 128 << 20


class Gate:
    """Work that ends when it is let."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.running = 0
        self.most = 0

    def work(self) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        self.event.wait(SOON_S)
        self.running -= 1
        return "done"


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.event.set()


async def test_a_root_that_hangs_holds_up_no_other(gate: Gate) -> None:
    hanging = [asyncio.ensure_future(on_disk(b"/hung", gate.work)) for _ in range(3 * ROOT_THREADS)]
    assert await asyncio.wait_for(on_disk(b"/other", os.path.basename, "/x"), SOON_S) == "x"
    assert gate.most <= ROOT_THREADS
    gate.event.set()
    assert await asyncio.gather(*hanging) == ["done"] * len(hanging)


async def test_what_is_late_is_not_asked_again_until_it_is_over(gate: Gate) -> None:
    for _ in range(2):
        with pytest.raises(NoAnswerError):
            await in_time(b"/late", gate.work, patience_s=0.05)
    assert (is_late(b"/late"), gate.running) == (True, 1)
    assert await in_time(b"/other", os.path.basename, "/x") == "x"
    gate.event.set()
    assert await on_disk(b"/late", gate.work) == "done"
    await asyncio.sleep(0.05)
    assert not is_late(b"/late")


def _complete(root: Path, number: int) -> Path:
    job = make_job(root, number)
    (job / "data" / NAME).write_bytes(bytes(256))
    (job / "data" / f"{NAME}.done").write_bytes(AICORE_DONE % 256)
    return job


async def _copied(address: str, jobs: list[Path]) -> Client:
    async with following(address) as client:
        await client.start()
        await client.until(lambda: all(client.mirror(job.name) == content(job) for job in jobs))
        return client


async def test_a_root_that_hangs_from_the_start_is_waited_for_and_the_other_is_served(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    with (
        hung_mount(tmp_path / "hung") as hung,
        running("--root", hung, "--root", tmp_path / "good", "--retain", "delivered", "--retain-for", "test") as daemon,
    ):
        jobs = [_complete(tmp_path / "good", 0)]
        async with connect(daemon.address) as stub:
            described = await asyncio.wait_for(stub.Describe(wire.DescribeRequest()), SOON_S)
        assert list(described.roots) == [str(hung), str(tmp_path / "good")]
        await asyncio.wait_for(_copied(daemon.address, jobs), 3 * SOON_S)
        begun = time.monotonic()
        assert await asyncio.to_thread(daemon.stop) == 0
        assert time.monotonic() - begun < SOON_S


async def test_a_root_that_hangs_ends_its_streams_and_those_that_come_go_on_without_it(tmp_path: Path) -> None:
    roots = [tmp_path / "bad", tmp_path / "good"]
    jobs = [_complete(root, number) for number, root in enumerate(roots)]
    large = jobs[0] / "data" / f"{NAME}7"
    with large.open("wb") as file:
        file.truncate(LARGE_BYTES)
    with running("--root", roots[0], "--root", roots[1]) as daemon:
        async with following(daemon.address) as client:
            await client.start()
            await client.until(lambda: client.has(large.name, jobs[0].name) and client.chunks > 0)
            with hung_mount(jobs[0]):
                assert await client.until_ended() is grpc.StatusCode.UNAVAILABLE
                assert "bad" in await client.call.details()
                await _copied(daemon.address, jobs[1:])
        large.unlink()
        await _copied(daemon.address, jobs)

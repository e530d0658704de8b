"""What the daemon writes itself: kept beside its other work, followed and deleted like what programs write."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profagent_wire.v1 import board_pb2 as wire
from profagentd.spools.intake import RECORD_BYTES
from tests.daemon.daemon_process import make_job, running
from tests.daemon.own_daemon import own_daemon
from tests.daemon.waiting import until
from tests.daemon.wire_client import Client, connect, following

if TYPE_CHECKING:
    import pytest

RECORD = bytes(range(256))
EVERYTHING = ("ops", "marks", "metrics")


def collection(client: Client, prefix: str) -> str:
    return next((name for name in client.jobs if name.startswith(prefix)), "")


def segments(client: Client, name: str) -> bytes:
    mirror = client.mirror(name)
    return b"".join(mirror[path] for path in sorted(mirror) if path.isdigit())


async def test_the_simulated_board_has_all_four_sources_marked_simulated() -> None:
    options = ("--simulate", "--for", "1", "--rate", "20", "--metrics-hz", "20", "--spools", ",".join(EVERYTHING))
    with running(*options) as daemon:
        async with following(daemon.address) as client:
            await client.start()
            await client.until(
                lambda: (
                    len(client.jobs) == 4
                    and all(job.state == wire.JOB_STATE_FINISHED for job in client.jobs.values())
                    and all(copy.is_complete for copy in client.copies.values())
                    and all(b"simulated" in client.mirror(name) for name in client.jobs)
                )
            )
            sources = {job.source: name for name, job in client.jobs.items()}
            assert sorted(sources) == ["job", "marks", "metrics", "ops"]
            marks = segments(client, sources["marks"])
            executes = len(marks) // RECORD_BYTES // 3
            assert [marks[at * RECORD_BYTES + 0x30 :].split(b"{")[0] for at in range(3)] == [
                b"preprocess",
                b"infer",
                b"postprocess",
            ]
            assert 0 < executes <= 20
            ops = segments(client, sources["ops"])
            assert len(ops) % (RECORD_BYTES * executes) == 0
            metrics = segments(client, sources["metrics"])
            for name in (b"npu.hw_utilization", b"thermal.0", b"program.detector-4711.cpu", b"daemon.rss"):
                assert name in metrics
            assert b"\ne " not in metrics
            assert not client.losses
        async with connect(daemon.address) as stub:
            unknown = (await stub.Examine(wire.ExamineRequest())).unknown
            assert not [each for each in unknown if each.source.startswith("metrics")], "it gives every metric"


async def test_one_that_fails_is_told_once_and_the_rest_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = make_job(tmp_path)
    (tmp_path / "run").write_text("no directory")
    settings: dict[str, Any] = {"spools": EVERYTHING, "run": str(tmp_path / "run"), "metrics_hz": 20.0}
    async with own_daemon(tmp_path, **settings) as (address, _), following(address) as client:
        await client.start()
        await client.until(lambda: segments(client, collection(client, "METRICS-board-")).count(b"\ns ") > 2)
        assert job.name in client.jobs
    told = [each.getMessage() for each in caplog.records if each.name == "profagentd.spools.keeper"]
    assert len(told) == 1
    assert told[0].startswith("subscriptions or marks of programs cannot be recorded: ")


async def test_two_daemons_do_not_share_a_fifo(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings: dict[str, Any] = {"spools": ("marks",), "run": str(tmp_path / "run")}
    async with own_daemon(tmp_path, **settings):
        await until((tmp_path / "run" / "marks").exists)
        async with own_daemon(tmp_path, **settings):
            await until(lambda: "another profagentd takes in what programs write" in caplog.text)


class Subscribed:
    """A daemon's settings for subscriptions with a small cap, what it stores, and a program."""

    def __init__(self, folder: Path) -> None:
        self.spools, self._fifo = folder / "spools", folder / "run" / "ops.program"
        run = str(folder / "run")
        self.settings: dict[str, Any] = {
            "spools": ("ops",),
            "run": run,
            "spool_cap": "1MB",
            "spool_dir": str(self.spools),
        }
        self.jobs = folder / "jobs"
        self.jobs.mkdir()

    async def write(self, count: int) -> None:
        """A program that writes so many descriptors, and ends."""
        await until(self._fifo.exists)
        await asyncio.to_thread(self._write_all, count)

    def stored_bytes(self) -> int:
        """What stands in segments."""
        size = 0
        for each in self.spools.glob("OPS-*/????????"):
            with suppress(FileNotFoundError):  # it has just gone
                size += each.stat().st_size
        return size

    def segments(self) -> list[str]:
        """The files of the collection."""
        return sorted(each.name for each in self.spools.glob("OPS-*/*"))

    def _write_all(self, count: int) -> None:
        fifo = os.open(self._fifo, os.O_WRONLY)
        for _ in range(count):
            assert os.write(fifo, RECORD) == RECORD_BYTES
        os.close(fifo)


async def test_a_stalled_host_holds_up_no_program_and_the_cap_is_a_loss(tmp_path: Path) -> None:
    count, subscribed = 20_000, Subscribed(tmp_path)
    async with own_daemon(subscribed.jobs, **subscribed.settings) as (address, _), following(address) as client:
        # What a host acknowledges is no loss. This one does not: it begins to read while records stand in the pipe.
        client.acknowledges = False
        await client.start()
        await subscribed.write(count)  # meanwhile nobody reads the stream
        reading = asyncio.create_task(client.until(lambda: False))
        await until(lambda: subscribed.stored_bytes() + dropped_bytes(client) == count * RECORD_BYTES)
        reading.cancel()
        assert 500_000 < subscribed.stored_bytes() <= 1_000_000


def dropped_bytes(client: Client) -> int:
    """By the newest of what was told of each loss."""
    losses = {loss.id: loss for loss in client.losses if loss.reason == "deleted-undelivered"}
    return sum(loss.lost_bytes for loss in losses.values())


async def test_what_a_host_has_goes_at_the_cap_without_a_loss(tmp_path: Path) -> None:
    subscribed = Subscribed(tmp_path)
    async with own_daemon(subscribed.jobs, **subscribed.settings) as (address, _), following(address) as client:
        await client.start()
        for number in range(1, 9):
            wanted = number * 900 * RECORD_BYTES
            await subscribed.write(900)
            await client.until(partial(_has, client, wanted))
        assert subscribed.stored_bytes() <= 1_000_000 < received(client)
        assert not client.losses


def _has(client: Client, size: int) -> bool:
    return received(client) == size


def received(client: Client) -> int:
    return sum(len(copy.data) for (_, path), copy in client.copies.items() if path.isdigit())


async def test_delivered_segments_are_deleted_by_the_retention_that_is_there(tmp_path: Path) -> None:
    subscribed = Subscribed(tmp_path)
    policy: dict[str, Any] = {"retain": "delivered", "retain_for": ("test",)}
    async with (
        own_daemon(subscribed.jobs, **subscribed.settings, **policy) as (address, _),
        following(address) as client,
    ):
        await client.start()
        await subscribed.write(3000)
        # The one that is written to stays.
        reading = asyncio.ensure_future(client.until(lambda: False))
        await until(lambda: subscribed.segments() == ["00000004"])
        reading.cancel()
        assert received(client) == 3000 * RECORD_BYTES
        assert not client.losses

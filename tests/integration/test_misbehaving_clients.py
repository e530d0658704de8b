"""Fifty clients that do a daemon no good, and one that does: what they cost it, and that the one has everything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from profagent_wire.v1 import board_pb2 as wire
from tests.daemon.daemon_process import Daemon, content, running
from tests.daemon.wire_client import Client, following
from tests.fakes.misbehaving import BEHAVIOURS, Behaviour, misbehave, never_acknowledges, never_reads

CLIENTS = 50
MIB = 1 << 20
LIMIT_BYTES = 64 * MIB
# 100 inferences/s of 100 records: 10,000 records/s.
BOARD = ("--simulate", "--layers", "100", "--rate", "100", "--for", "6", "--log-level", "error")
PATIENCE_S = 60.0


def memory_bytes(daemon: Daemon, key: str) -> int:
    """A line of the kernel's account of the daemon's memory."""
    lines = Path(f"/proc/{daemon.process.pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":"))


@asynccontextmanager
async def misbehaving(behaviours: Sequence[Behaviour], address: str) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Fifty clients, in turn of each kind."""
    tasks = [
        asyncio.create_task(misbehave(behaviours[number % len(behaviours)], number, address))
        for number in range(CLIENTS)
    ]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def has_finished(client: Client) -> bool:
    """Whether the board's only JOB has finished and all of it has come."""
    return any(job.state == wire.JOB_STATE_FINISHED and job.caught_up for job in client.jobs.values())


@pytest.mark.parametrize(
    "behaviours",
    [BEHAVIOURS, (never_reads,), (never_acknowledges,)],
    ids=["mixed", "never_reads", "never_acknowledges"],
)
async def test_memory_stays_bounded_and_the_one_that_behaves_has_everything(
    behaviours: Sequence[Behaviour], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running("--root", tmp_path, *BOARD), running("--root", tmp_path, "--log-level", "error") as daemon:
        before = memory_bytes(daemon, "VmRSS")
        async with following(daemon.address) as client:
            await client.start()
            async with misbehaving(behaviours, daemon.address) as tasks:
                await client.until(lambda: has_finished(client), PATIENCE_S)
                assert not any(task.done() for task in tasks), "they go on all the time"
        peak = memory_bytes(daemon, "VmHWM")
        (name,) = client.jobs
        assert client.mirror(name) == content(tmp_path / name)
        assert daemon.stop() == 0
    with capsys.disabled():
        print(f"\ndaemon: {before / MIB:.1f} MiB before, at most {peak / MIB:.1f} MiB while {CLIENTS} misbehave")
    assert peak < LIMIT_BYTES

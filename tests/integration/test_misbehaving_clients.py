"""Fifty clients that do a daemon no good, and one that does: what they cost it, and that the one has everything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from profagent.keys.keys import OPERATOR, issue_board, issue_host, new_ca
from profagent_wire.v1 import board_pb2 as wire
from tests.daemon.daemon_process import Daemon, content
from tests.daemon.wire_client import Client, following
from tests.fakes.misbehaving import (
    BEHAVIOURS,
    Behaviour,
    Door,
    misbehave,
    never_acknowledges,
    never_reads,
    opens_and_closes,
    stays_in_its_handshake,
)
from tests.integration.board import running

NOW = datetime.now(UTC)
CLIENTS = 50
LIMIT_BYTES = 64_000_000
# A connection over TLS takes 0.1 to 0.2 MB more, and after two minutes the peak is still below this.
TLS_LIMIT_BYTES = 80_000_000
# 100 inferences/s of 100 records: 10,000 records/s.
BOARD = ("--simulate", "--layers", "100", "--rate", "100", "--for", "3", "--log-level", "error")
PATIENCE_S = 60.0
CANCEL_S = 2.0


def memory_bytes(daemon: Daemon, key: str) -> int:
    """A line of the kernel's account of the daemon's memory."""
    lines = Path(f"/proc/{daemon.process.pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":"))


@asynccontextmanager
async def misbehaving(
    behaviours: Sequence[Behaviour], doors: Sequence[Door]
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """A client for each door, in turn of each kind."""
    tasks = [
        asyncio.create_task(misbehave(behaviours[number % len(behaviours)], number, door))
        for number, door in enumerate(doors)
    ]
    try:
        yield tasks
    finally:
        left = {*tasks}
        while left:
            # What a call of gRPC raises when it is cancelled may take the cancellation's place: then once more.
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=CANCEL_S)


def has_finished(client: Client) -> bool:
    """Whether the board's only JOB has finished and all of it has come."""
    return any(job.state == wire.JOB_STATE_FINISHED and job.caught_up for job in client.jobs.values())


class Way:
    """How the daemon is reached: in plain text, or over TLS."""

    def __init__(self, folder: Path, *, tls: bool) -> None:
        self._authority = new_ca("lab", NOW) if tls else None
        self.arguments: list[str | Path] = []
        if self._authority is not None:
            board = issue_board(self._authority, "board", ("127.0.0.1", "localhost"), days=1, now=NOW)
            files = {"ca": self._authority.certificate, "cert": board.certificate, "key": board.key}
            for name, data in files.items():
                (folder / name).write_bytes(data)
                (folder / name).chmod(0o600)
                self.arguments += [f"--tls-{name}", folder / name]

    def doors(self, address: str, count: int) -> list[Door]:
        """So many clients' ways to the daemon; over TLS each has a certificate of its own."""
        if self._authority is None:
            return [Door(address)] * count
        issued = (issue_host(self._authority, f"host{each}", OPERATOR, days=1, now=NOW) for each in range(count))
        ca = self._authority.certificate
        return [Door(address, grpc.ssl_channel_credentials(ca, each.key, each.certificate)) for each in issued]


MIXED = "mixed, TLS"
MIXED_TLS = (*BEHAVIOURS, stays_in_its_handshake)
ATTACKS: dict[str, tuple[bool, Sequence[Behaviour]]] = {
    "mixed": (False, BEHAVIOURS),
    "never_reads": (False, (never_reads,)),
    "never_acknowledges": (False, (never_acknowledges,)),
    "opens_and_closes": (False, (opens_and_closes,)),
    MIXED: (True, MIXED_TLS),
    "never_reads, TLS": (True, (never_reads,)),
    "never_acknowledges, TLS": (True, (never_acknowledges,)),
    "opens_and_closes, TLS": (True, (opens_and_closes,)),
    "stays_in_its_handshake, TLS": (True, (stays_in_its_handshake,)),
}


@pytest.mark.parametrize(
    "attack", [MIXED, *(pytest.param(each, marks=pytest.mark.long) for each in ATTACKS if each != MIXED)]
)
async def test_memory_stays_bounded_and_the_one_that_behaves_has_everything(
    attack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a board, the daemon finds its modules compiled: by the simulator, which comes first.
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "compiled"))
    is_tls, behaviours = ATTACKS[attack]
    way, root = Way(tmp_path, tls=is_tls), tmp_path / "root"
    root.mkdir()
    with (
        (tmp_path / "log").open("w+") as log,
        running("--root", root, *BOARD),
        running("--root", root, "--log-level", "error", *way.arguments, log=log) as daemon,
    ):
        mine, *others = way.doors(daemon.address, 1 + CLIENTS)
        before = memory_bytes(daemon, "VmRSS")
        async with following(daemon.address, mine.credentials) as client:
            await client.start()
            async with misbehaving(behaviours, others) as tasks:
                await client.until(lambda: has_finished(client), PATIENCE_S)
                assert not any(task.done() for task in tasks), "they go on all the time"
        peak = memory_bytes(daemon, "VmHWM")
        (name,) = client.jobs
        assert client.mirror(name) == content(root / name)
        assert daemon.stop() == 0
        assert (tmp_path / "log").read_text() == "", "what strangers do fills no disk"
    with capsys.disabled():
        print(f"\ndaemon: {before / 1e6:.1f} MB before, at most {peak / 1e6:.1f} MB while {CLIENTS} misbehave")
    assert peak < (TLS_LIMIT_BYTES if is_tls else LIMIT_BYTES)

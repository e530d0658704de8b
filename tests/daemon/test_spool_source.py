"""What programs write goes the way of a JOB's files: followed while it grows, complete, finished."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profagent_wire.v1 import board_pb2 as wire
from profagentd.spools.intake import Intake
from profagentd.spools.spool import Spool
from tests.daemon.own_daemon import own_daemon
from tests.daemon.wire_client import following

RECORD = bytes(range(256))


@pytest.mark.parametrize("scan", [False, True], ids=["inotify", "scan"])
async def test_a_subscription_is_followed_to_its_end(tmp_path: Path, scan: bool) -> None:
    spools = tmp_path / "spool"
    spools.mkdir()
    intake = Intake(
        str(tmp_path / "run"), ["camera"], lambda kind, name: Spool(str(spools), kind, name, segment_bytes=600)
    )
    intake.start()
    async with own_daemon(tmp_path, scan=scan) as (address, _), following(address) as client:
        await client.start()
        fifo = os.open(tmp_path / "run" / "ops.camera", os.O_WRONLY)
        os.write(fifo, RECORD)
        await client.until(lambda: any(name.startswith("OPS-camera-") for name in client.jobs))
        (name,) = client.jobs
        await client.until(lambda: client.mirror(name).get(b"00000001") == RECORD)
        for _ in range(3):
            os.write(fifo, RECORD)
        os.close(fifo)
        intake.stop()
        await client.until(lambda: client.jobs[name].state == wire.JOB_STATE_FINISHED)
        await client.until(lambda: all(copy.is_complete for copy in client.copies.values()))
        assert client.jobs[name].source == "ops"
        segments = sorted(path for path in client.mirror(name) if path.isdigit())
        assert len(segments) > 1
        assert b"".join(client.mirror(name)[path] for path in segments) == RECORD * 4
        assert not client.losses

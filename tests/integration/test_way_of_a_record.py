"""How many files a record goes through, of the daemon and of `record`: a reader has to open as many."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import profagent
import profagentd
from profagent.record.options import RecordOptions
from profagent.record.record import record
from profagent.store.workspace import Workspace
from tests.daemon.daemon_process import make_job
from tests.daemon.own_daemon import own_daemon
from tests.encoders import aicore_record, layer_item, net_item
from tests.integration.rows import so_far

NAME = "aicore.0.m.3.0.1.1.0"
# By the part, where its files are, and how many of them a record may cross.
PARTS = {"daemon": (profagentd, 12), "record": (profagent, 21)}
RECORDS = 5
PAUSE_S = 0.4


class Trace:
    """The files of each part whose functions are called while it is on, in whatever thread."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.is_on = False
        self._folders = tuple(f"{Path(package.__path__[0])}/" for package, _ in PARTS.values())

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(self._folders):
            self.files.add(frame.f_code.co_filename)

    def take(self) -> set[str]:
        """What was called since the last time."""
        taken, self.files = self.files, set()
        return taken


@contextmanager
def traced() -> Iterator[Trace]:
    trace, before = Trace(), sys.getprofile()
    sys.setprofile(trace.note)
    threading.setprofile(trace.note)
    try:
        yield trace
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


async def _until_there(database: Path, records: int) -> None:
    async with asyncio.timeout(30):
        while so_far(database, "SELECT count(*) FROM aicore") < [(records,)]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def _record(number: int) -> bytes:
    return aicore_record(number - 1, 100 + number, 0, {0x08: 50})


async def test_a_record_goes_through_few_files(tmp_path: Path) -> None:
    root = tmp_path / "board"
    root.mkdir()
    job = make_job(root)
    (job / "info.json.0").write_bytes(b'{"DeviceInfo": [{"aic_frequency": "700"}]}')
    layers = [layer_item(10 + each, b"l\0", prof_layer_id=1 + each, segment=0) for each in range(10)]
    (job / "data" / "m.0.layer.info").write_bytes(b"".join(layers))
    (job / "data" / "m.0.net.info").write_bytes(net_item(0, prof_layers=10))
    log = job / "data" / NAME
    log.write_bytes(_record(1))
    workspace, stop, ways = Workspace(tmp_path / "workspace"), asyncio.Event(), []
    with traced() as trace:
        async with own_daemon(root) as (address, _):
            recording = asyncio.create_task(record(RecordOptions((address,), workspace), lambda _: None, stop))
            await _until_there(workspace.database, 1)
            await asyncio.sleep(PAUSE_S)
            for number in range(2, 2 + RECORDS):
                trace.is_on = True
                with log.open("ab") as file:
                    file.write(_record(number))
                await _until_there(workspace.database, number)
                await asyncio.sleep(PAUSE_S)
                trace.is_on = False
                ways.append(trace.take())
            stop.set()
            await recording
    # What goes on by itself is not there each time.
    way = set.intersection(*ways)
    for package, most in PARTS.values():
        folder = Path(package.__path__[0])
        files = sorted(str(Path(each).relative_to(folder)) for each in way if Path(each).is_relative_to(folder))
        assert 0 < len(files) <= most, " ".join(files)

"""How many files of the daemon a record goes through, from the disk to the client: a reader has to open as many."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import profagentd
from tests.daemon.daemon_process import make_job
from tests.daemon.own_daemon import own_daemon
from tests.daemon.wire_client import following

NAME = "aicore.0.model.3.0.1.1.0"
DAEMON = str(Path(profagentd.__file__).parent)
MOST_FILES = 12
RECORDS = 5
PAUSE_S = 0.17


class Trace:
    """The files of the daemon whose functions are called while it is on, in whatever thread."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.is_on = False

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(DAEMON):
            self.files.add(frame.f_code.co_filename[len(DAEMON) + 1 :])

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


async def test_a_record_goes_through_few_files_of_the_daemon(tmp_path: Path) -> None:
    log = make_job(tmp_path) / "data" / NAME
    log.write_bytes(bytes(256))
    ways = []
    with traced() as trace:
        async with own_daemon(tmp_path) as (address, _), following(address) as client:
            await client.start()
            await client.until(lambda: client.has(NAME) and len(client.copy(NAME).data) == 256)
            for number in range(2, 2 + RECORDS):
                trace.is_on = True
                with log.open("ab") as file:
                    file.write(bytes(256))
                await client.until(lambda size=256 * number: len(client.copy(NAME).data) == size)  # type: ignore[misc]
                trace.is_on = False
                ways.append(trace.take())
                await asyncio.sleep(PAUSE_S)
    # What goes on by itself is not there each time.
    way = set.intersection(*ways)
    assert {"follow/inotify.py", "follow/messages.py"} <= way
    assert len(way) <= MOST_FILES, " ".join(sorted(way))

"""When rows are committed, as another process that reads the database sees it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing, contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from tests.bench.probes import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.programs import Program

# What is written meanwhile is not counted: the clients have just come.
SETTLING_S = 2.0
# How long the last inferences are waited for.
ENDING_S = 2.0
POLL_S = 0.004
# Rows that are looked at again: their `.done` may come after those of later ones.
LOOK_BACK = 300
# An inference is known by its `current_pic_count`, which is its number in its JOB.
_COMPLETE = "SELECT inference, current_pic_count FROM inference WHERE inference > ? AND complete = 1"


@contextmanager
def committed_inferences(database: Path) -> Iterator[dict[int, float]]:
    """When a reader first saw each new inference complete in the database; it looks every 4 ms."""
    seen: dict[int, float] = {}
    stopping = Event()
    thread = Thread(target=_look, args=(database, seen, stopping), name="committed-inferences")
    thread.start()
    try:
        yield seen
    finally:
        stopping.set()
        thread.join()


async def delays_ms(profiled: Program, seen: dict[int, float], measured_s: float) -> list[float]:
    """Milliseconds from each write to the moment when it was seen; the program is stopped for that."""
    await until(lambda: bool(seen))
    begin = time.monotonic() + SETTLING_S
    await asyncio.sleep(SETTLING_S + measured_s)
    end = time.monotonic()
    await asyncio.sleep(ENDING_S)
    await asyncio.to_thread(profiled.stop)
    written = {number: at for number, at in profiled.written.items() if begin <= at < end}
    await until(lambda: written.keys() <= seen.keys())
    return [(seen[number] - at) * 1000 for number, at in written.items()]


def _look(database: Path, seen: dict[int, float], stopping: Event) -> None:
    while not database.exists():
        if stopping.wait(POLL_S):
            return
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        last = _newest(connection)
        while not stopping.wait(POLL_S):
            try:
                rows = connection.execute(_COMPLETE, (last,)).fetchall()
            except sqlite3.OperationalError:
                continue  # it is being made
            now = time.monotonic()
            for _, number in rows:
                seen.setdefault(number, now)
            last = max([last, *(inference - LOOK_BACK for inference, _ in rows)])


def _newest(connection: sqlite3.Connection) -> int:
    try:
        return int(connection.execute("SELECT ifnull(max(inference), 0) FROM inference").fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # it is being made

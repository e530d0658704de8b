"""Finding JOB directories and what changes in them, and telling it to one sink."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Protocol

from profagentd.jobs import find_jobs
from profagentd.opening import Place, open_directory
from profagentd.scan import JobScan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from profagentd.changes import Touch
    from profagentd.clock import Clock


class Sink(Protocol):
    """Who is told."""

    def found(self, place: Place, made_wall_us: int, changed_wall_us: int) -> None: ...
    def gone(self, place: Place) -> None: ...
    def changed(self, place: Place, touches: Mapping[bytes, Touch]) -> None: ...
    def unsure(self, place: Place) -> None: ...
    def seen(self, place: Place, until: float) -> None: ...


class Watch:
    def __init__(self, roots: Sequence[bytes], depth: int, clock: Clock, sink: Sink) -> None:
        self.roots = roots
        self._depth = depth
        self._clock = clock
        self._sink = sink
        self._scans: dict[Place, JobScan] = {}
        self.ready = asyncio.Event()
        self.is_scanning = True

    async def run(self) -> None:
        while True:
            await self._discover()
            self.ready.set()
            for place in list(self._scans):
                await self._scan(place)
            await self._clock.sleep(0.02)

    async def _discover(self) -> None:
        present: set[Place] = set()
        for root in self.roots:
            found = await asyncio.to_thread(find_jobs, Place(root, b""), self._depth)
            present.update(found.jobs)
        for place in present - set(self._scans):
            made, changed = await asyncio.to_thread(_times, place)
            scan = self._scans[place] = JobScan(place)
            await asyncio.to_thread(scan.scan)
            self._sink.found(place, made, changed)
        for place in set(self._scans) - present:
            del self._scans[place]
            self._sink.gone(place)

    async def _scan(self, place: Place) -> None:
        begun = self._clock.monotonic()
        try:
            scanned = await asyncio.to_thread(self._scans[place].scan)
        except OSError:
            return
        if scanned.touches:
            self._sink.changed(place, scanned.touches)
        self._sink.seen(place, begun)


def _times(place: Place) -> tuple[int, int]:
    made = newest = 0
    for path in (place.path, os.path.join(place.path, b"data")):
        try:
            descriptor = open_directory(Place(place.root, path))
        except OSError:
            continue
        status = os.fstat(descriptor)
        os.close(descriptor)
        made = made or status.st_mtime_ns // 1000
        newest = max(newest, status.st_mtime_ns // 1000)
    return made, newest

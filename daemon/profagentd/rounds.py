"""Looking at JOBs that give no notices, round after round, within a share of one core."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from profagentd.clock import US_PER_S, Clock, moment
from profagentd.disks import on_disk
from profagentd.scan import JobScan

if TYPE_CHECKING:
    from collections.abc import Sized

    from profagentd.board import Board
    from profagentd.opening import Place

# Looking takes at most this share of a core, and a round never begins sooner after another than MIN_PAUSE_S.
SHARE = 0.1
MIN_PAUSE_S = 0.03
# A JOB that did not change for so long is looked at in turn with others like it, one in each round.
RESTING_S = 60.0
# The wall clock, by which files are dated, was set when it moves by this much against the monotonic one.
JUMP_S = 1.0


class ScanRounds:
    """The JOBs that are looked at, and when."""

    def __init__(self, clock: Clock, board: Board, sharers: Sized = (0,)) -> None:
        """`sharers`: those who divide the core's share between them, this one counted."""
        self._sharers = sharers
        self._clock = clock
        self._board = board
        self._scans: dict[Place, JobScan] = {}
        self._changed: dict[Place, float] = {}
        self._resting_turn = 0
        self._wake = asyncio.Event()

    async def add(self, place: Place) -> None:
        """Look at this JOB from now on."""
        scan = JobScan(place)
        # Where this fails, the first look that succeeds will tell of everything.
        with suppress(OSError):
            await on_disk(place.root, scan.scan)
        self._scans[place] = scan
        self._changed[place] = self._clock.monotonic()
        self._wake.set()

    def drop(self, place: Place) -> None:
        """Look no more."""
        self._scans.pop(place, None)
        self._changed.pop(place, None)

    async def run(self) -> None:
        """Look until cancelled."""
        offset_s = self._wall_offset_s()
        while True:
            await self._wake.wait()
            cpu_s = 0.0
            for place in self._due():
                cpu_s += await self._look(place)
            if abs(self._wall_offset_s() - offset_s) > JUMP_S:
                offset_s = self._wall_offset_s()
                self._start_over()
            if not self._scans:
                self._wake.clear()
            await self._clock.sleep(max(MIN_PAUSE_S, cpu_s * len(self._sharers) / SHARE - cpu_s))

    def _due(self) -> list[Place]:
        now = self._clock.monotonic()
        resting = [place for place, changed in self._changed.items() if now - changed > RESTING_S]
        due = [place for place in self._scans if place not in set(resting)]
        if resting:
            self._resting_turn += 1
            due.append(resting[self._resting_turn % len(resting)])
        return due

    async def _look(self, place: Place) -> float:
        begun = self._clock.monotonic()
        try:
            scanned = await on_disk(place.root, self._scans[place].scan)
        except OSError:
            return 0.0  # it is gone, which the search will tell, or cannot be read, which its clients are told
        if place not in self._scans:
            return scanned.cpu_s
        if scanned.is_all or scanned.touches or scanned.names_changed:
            self._changed[place] = begun
        if scanned.is_all:
            self._board.unsure(place)
        elif scanned.touches:
            self._board.changed(place, scanned.touches)
        if scanned.names_changed:
            self._board.names_removed(place)
        self._board.seen(place, begun)
        return scanned.cpu_s

    def _start_over(self) -> None:
        """Files are dated by another clock from now on."""
        for place in self._scans:
            self._scans[place] = JobScan(place)

    def _wall_offset_s(self) -> float:
        now = moment(self._clock)
        return now.wall_us / US_PER_S - now.monotonic

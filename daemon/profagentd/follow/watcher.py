"""Finding JOB directories, and what changes in them, by events of the kernel where there are any, else by looking."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from profagentd.follow.inotify import Inotify, InotifyWatcher
from profagentd.follow.scan import JobScan
from profagentd.loop import US_PER_S, Clock, moment, on_disk, until_first
from profagentd.sources.acl_json import find_profiling
from profagentd.sources.job import Place, is_remote
from profagentd.sources.walk import Found, find_jobs, job_times

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

    from profagentd.follow.registry import JobRegistry
    from profagentd.loop import Clock, Roots
    from profagentd.sources.job import DirectoryId


# Looking takes at most this share of a core, and a round never begins sooner after another than MIN_PAUSE_S.
SHARE = 0.1
MIN_PAUSE_S = 0.03
# A JOB that did not change for so long is looked at in turn with others like it, one in each round.
RESTING_S = 60.0
# The wall clock, by which files are dated, was set when it moves by this much against the monotonic one.
JUMP_S = 1.0


class ScanRounds:
    """The JOBs that are looked at, and when."""

    def __init__(self, clock: Clock, board: JobRegistry, sharers: Sized = (0,)) -> None:
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


_LOGGER = logging.getLogger(__name__)

# How often JOBs are looked for everywhere: as a safety net beside events, and where there are none.
SEARCH_S = 5.0
SEARCH_UNNOTICED_S = 0.5
# Looking for JOBs takes at most this share of the time.
SEARCH_SHARE = 0.05
# Clients are kept waiting for the first search so long; a root that hangs is searched when it answers.
READY_S = 5.0


class Watch:
    """Tells the board of JOBs that come and go and of names that change in them."""

    def __init__(
        self,
        roots: Roots,
        depth: int,
        clock: Clock,
        board: JobRegistry,
        *,
        scan: bool,
        acl_json: Sequence[str] = (),
    ) -> None:
        """`acl_json`: patterns of files that tell what programs record, instead of the usual places."""
        self.roots = roots
        self.ready = asyncio.Event()  # the JOBs that there are have been found once
        self.depth = depth
        self.acl_json = acl_json  # for JOBs that come
        self._clock = clock
        self._board = board
        self._inotify = None if scan else _inotify(self, board)
        self._rounds: dict[bytes, ScanRounds] = {}
        self._jobs: dict[bytes, Place] = {}  # by name
        self._directories: dict[Place, DirectoryId] = {}  # theirs
        self._missed: set[Place] = set()  # JOBs that somebody wanted to read, and could not find
        board.on_missed = self.miss
        self._doubles: set[Place] = set()
        self._missing: set[Place] = set()
        self._wanted: dict[bytes, set[Place]] = {}
        self._wakes: dict[bytes, asyncio.Event] = {}
        self._unsearched = set(roots)

    async def run(self) -> None:
        """Watch until cancelled."""
        timer = asyncio.get_running_loop().call_later(READY_S, self.ready.set)
        try:
            if self._inotify:
                self._inotify.start()
                self._board.catch_up = self._inotify.catch_up
            if not self.roots:
                self.ready.set()
            await self.roots.each(self._watch_root)
        finally:
            timer.cancel()
            if self._inotify:
                self._board.catch_up = lambda: None
                self._inotify.close()

    # What the events tell

    def look_in(self, place: Place) -> None:
        """A directory has come, or has gone: JOBs may have with it."""
        self._wanted[place.root].add(place)
        self._wakes[place.root].set()

    def miss(self, place: Place) -> None:
        """A JOB's directory was not there: it is told as gone, or found again."""
        self._missed.add(place)
        self.look_in(place)

    def look_everywhere(self) -> None:
        """Anything may have changed."""
        for place in self._jobs.values():
            self._board.unsure(place)
        for root in self._wanted:
            self._want_all(root)

    def lost(self, place: Place) -> None:
        """The directory of a JOB is gone."""
        name = os.path.basename(place.path)
        if self._jobs.get(name) == place:
            del self._jobs[name], self._directories[place]
            self._missed.discard(place)
            self._rounds[place.root].drop(place)
            self._board.gone(place)

    # Looking for JOBs

    async def _watch_root(self, root: bytes) -> None:
        self._wanted[root], self._wakes[root] = set(), asyncio.Event()
        rounds = self._rounds[root] = ScanRounds(self._clock, self._board, self._rounds)
        await until_first(self._search(root), rounds.run())

    async def _search(self, root: bytes) -> None:
        self._want_all(root)
        while True:
            self._wakes[root].clear()
            wanted, self._wanted[root] = self._wanted[root], set()
            begun = self._clock.monotonic()
            for place in sorted(wanted, key=lambda each: each.directory):
                await self._search_below(place)
            self._unsearched.discard(root)
            if not self._unsearched:
                self.ready.set()
            await self._clock.sleep(min(SEARCH_S, (self._clock.monotonic() - begun) / SEARCH_SHARE))
            await self._wait_for_wish(root)

    async def _wait_for_wish(self, root: bytes) -> None:
        has_events = self._inotify is not None and not self._inotify.is_exhausted and not self._missing
        delay_s = SEARCH_S if has_events else SEARCH_UNNOTICED_S
        timer = asyncio.get_running_loop().call_later(delay_s, self._want_all, root)
        try:
            await self._wakes[root].wait()
        finally:
            timer.cancel()

    def _want_all(self, root: bytes) -> None:
        self._wanted[root].add(Place(root, b""))
        self._wakes[root].set()

    async def _search_below(self, start: Place) -> None:
        found = await self._find_watched(start)
        if not start.path:
            self._note_root(start, is_missing=start in found.unreadable)
        present = set(found.jobs)
        gone = [each for each in self._jobs.values() if each.is_below(start) and each not in present]
        if gone and self._inotify:
            self._inotify.catch_up()  # with what happened in them before
        for place in gone:
            if self._inotify:
                self._inotify.unwatch_job(place)
            self.lost(place)
        for place, directory in found.jobs.items():
            await self._adopt(place, directory)

    async def _find_watched(self, start: Place) -> Found:
        """What is below `start`; each directory was watched before it was looked at last, so nothing comes unseen."""
        while True:
            found = await on_disk(start.root, find_jobs, start, self.depth)
            # A network's gives no events, and watching it would block here where it hangs.
            own = [place for place in found.directories if not is_remote(place.directory)]
            if not self._inotify or not self._inotify.watch_parents(own):
                return found

    async def _adopt(self, place: Place, directory: DirectoryId) -> None:
        """Watch a new JOB, then tell of it: whatever happens after the telling is noticed."""
        name = os.path.basename(place.path)
        known = self._jobs.setdefault(name, place)
        if known != place:
            self._note_double(place, known)
        elif self._board.has(place):
            self._see_again(place, directory)
        else:
            self._directories[place] = directory
            has_events = self._watch_job(place)
            if not has_events:
                await self._rounds[place.root].add(place)
            made_us, changed_us = await on_disk(place.root, job_times, place)
            now_us = self._clock.wall_us()
            profiling = await on_disk(place.root, find_profiling, place, made_us, now_us, self.acl_json)
            self._board.found(
                place, made_us, changed_us, is_scanned=not has_events, profiling=profiling, directory=directory
            )

    def _see_again(self, place: Place, directory: DirectoryId) -> None:
        """A JOB that is known; with another directory in its place, nothing is known of what is in it."""
        if self._directories[place] == directory and place not in self._missed:
            return
        self._directories[place] = directory
        self._missed.discard(place)
        if self._inotify and self._inotify.is_watched(place) and not self._watch_job(place):
            self.lost(place)  # it is gone again, or is to be looked at from now on
        else:
            self._board.found_again(place, directory)

    def _watch_job(self, place: Place) -> bool:
        """Have the JOB's changes noticed; False where they cannot be."""
        if self._inotify is None or is_remote(place.directory):
            return False
        return self._inotify.watch_job(place)

    def _note_double(self, place: Place, known: Place) -> None:
        if place not in self._doubles:
            self._doubles.add(place)
            names = os.fsdecode(place.directory), os.fsdecode(known.directory)
            _LOGGER.warning("%s has the name of %s and is not served", *names)

    def _note_root(self, root: Place, *, is_missing: bool) -> None:
        if is_missing and root not in self._missing:
            _LOGGER.warning("%s cannot be read; it is served when it can", os.fsdecode(root.directory))
            self._missing.add(root)
        elif not is_missing and root in self._missing:
            _LOGGER.info("%s can be read now", os.fsdecode(root.directory))
            self._missing.discard(root)


def _inotify(watch: Watch, registry: JobRegistry) -> InotifyWatcher | None:
    try:
        return InotifyWatcher(Inotify(), watch, registry)
    except OSError as error:
        _LOGGER.warning("no inotify (%s): directories are looked at instead", error.strerror)
        return None

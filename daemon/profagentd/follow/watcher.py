"""Finding JOB directories, and what changes in them, by events of the kernel where there are any, else by looking."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from profagentd.follow.inotify import InotifyWatcher
from profagentd.follow.log import FileEvent
from profagentd.limits import LOOKING_SHARE, NAMES_LIMIT, READY_S, SEARCH_SHARE
from profagentd.loop import DaemonClock, on_disk, until_first
from profagentd.sources.acl_json import find_profiling
from profagentd.sources.files import FolderPlace, is_remote, open_directory
from profagentd.sources.walk import FoundCollections, directories_of, find_jobs, job_times

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

    from profagentd.follow.registry import JobRegistry
    from profagentd.loop import Roots

_LOGGER = logging.getLogger(__name__)

MIN_PAUSE_S = 0.03
# A JOB that did not change for so long is looked at in turn with others like it, one in each round.
RESTING_S = 60.0
# File times have the grain of the kernel's tick, 10 ms at most; a file written within it may be written again.
SLACK_NS = 50_000_000
# How often JOBs are looked for everywhere: as a safety net beside events, and where there are none.
SEARCH_S = 5.0
SEARCH_UNNOTICED_S = 0.5


@dataclass
class Scanned:
    """What one look gave."""

    touches: dict[bytes, FileEvent]
    is_all: bool = False  # anything may have changed; `touches` does not tell
    names_changed: bool = False  # names were made or removed
    cpu_s: float = 0.0


class _Seen(NamedTuple):
    inode: int
    size: int
    ctime_ns: int


class DirectoryScan:
    """One directory, looked at again and again by one thread at a time. The first look gives no touches.

    Nothing is kept for each file but for those changed within the last moments: a file counts as changed when its ctime
    is not before the newest one seen. The clock that writes these times decides, whoever keeps it; when it is seen to
    go back, anything may have changed.
    """

    def __init__(self, place: FolderPlace, inside: bytes = b"", without: tuple[bytes, ...] = ()) -> None:
        """`without`: names of subdirectories that are looked at by themselves."""
        self._place = place.below(inside)
        self._inside = inside
        self._without = without
        self._newest_ns: int | None = None
        self._recent: dict[bytes, _Seen] = {}
        self._directory_ns: int | None = None
        self._inode = 0

    def scan(self) -> Scanned:
        """Paths of files that changed since the last call. OSError when the directory cannot be read."""
        descriptor = self._open()
        if descriptor is None:
            was_there, self._directory_ns, self._newest_ns = self._directory_ns is not None, None, None
            return Scanned({}, is_all=was_there)
        try:
            status = os.fstat(descriptor)
            before_ns, self._directory_ns = self._directory_ns, status.st_mtime_ns
            went_back = before_ns is not None and (self._directory_ns < before_ns or self._inode != status.st_ino)
            self._inode = status.st_ino
            since_ns = 0 if self._newest_ns is None or went_back else self._newest_ns - SLACK_NS
            touches = self._changed(descriptor, since_ns)
        finally:
            os.close(descriptor)
        if before_ns is None:
            return Scanned({}, is_all=bool(self._inside))
        is_all = went_back or len(touches) > NAMES_LIMIT
        return Scanned({} if is_all else touches, is_all, self._directory_ns != before_ns)

    def _open(self) -> int | None:
        """None where there is no such directory inside a JOB."""
        try:
            return open_directory(self._place)
        except (FileNotFoundError, NotADirectoryError):
            if self._inside:
                return None
            raise

    def _changed(self, descriptor: int, since_ns: int) -> dict[bytes, FileEvent]:
        before, self._recent = self._recent, {}
        newest_ns = since_ns
        touches: dict[bytes, FileEvent] = {}
        for name, status in self._entries(descriptor):
            if status.st_ctime_ns < since_ns:
                continue
            newest_ns = max(newest_ns, status.st_ctime_ns)
            seen = _Seen(status.st_ino, status.st_size, status.st_ctime_ns)
            if before.get(name) != seen and len(touches) <= NAMES_LIMIT:
                touches[os.path.join(self._inside, name)] = FileEvent.WRITTEN
            if seen.ctime_ns >= newest_ns - SLACK_NS:
                self._recent[name] = seen
        self._recent = {name: each for name, each in self._recent.items() if each.ctime_ns >= newest_ns - SLACK_NS}
        self._newest_ns = newest_ns
        return touches

    def _entries(self, descriptor: int) -> list[tuple[bytes, os.stat_result]]:
        found = []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                with suppress(OSError):  # it has just gone
                    status, name = entry.stat(follow_symlinks=False), os.fsencode(entry.name)
                    if not (name in self._without and stat.S_ISDIR(status.st_mode)):
                        found.append((name, status))
        return found


def scan_job(scans: Sequence[DirectoryScan]) -> Scanned:
    """Paths inside a JOB that changed since the last call. OSError when the JOB cannot be read."""
    begun_s = time.thread_time()
    all_of_it = Scanned({})
    for each in scans:
        scanned = each.scan()
        all_of_it.touches.update(scanned.touches)
        all_of_it.is_all |= scanned.is_all
        all_of_it.names_changed |= scanned.names_changed
    all_of_it.cpu_s = time.thread_time() - begun_s
    return all_of_it


class ScanRounds:
    """The JOBs that are looked at, and when."""

    def __init__(self, clock: DaemonClock, board: JobRegistry, sharers: Sized) -> None:
        """`sharers`: those who divide the core's share between them, this one counted."""
        self._sharers = sharers
        self._clock = clock
        self._board = board
        self._scans: dict[FolderPlace, list[DirectoryScan]] = {}
        self._changed: dict[FolderPlace, float] = {}
        self._resting_turn = 0
        self._wake = asyncio.Event()

    async def add(self, place: FolderPlace) -> None:
        """Look at this JOB from now on."""
        directories = directories_of(place)
        scans = [DirectoryScan(place, each, () if each else directories) for each in directories]
        # Where this fails, the first look that succeeds will tell of everything.
        with suppress(OSError):
            await on_disk(place.root, scan_job, scans)
        self._scans[place] = scans
        self._changed[place] = self._clock.monotonic()
        self._wake.set()

    def drop(self, place: FolderPlace) -> None:
        """Look no more."""
        self._scans.pop(place, None)
        self._changed.pop(place, None)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._wake.wait()
            cpu_s = 0.0
            for place in self._due():
                cpu_s += await self._look(place)
            if not self._scans:
                self._wake.clear()
            await self._clock.sleep(max(MIN_PAUSE_S, cpu_s * len(self._sharers) / LOOKING_SHARE - cpu_s))

    def _due(self) -> list[FolderPlace]:
        now = self._clock.monotonic()
        resting = {place: None for place, changed in self._changed.items() if now - changed > RESTING_S}
        due = [place for place in self._scans if place not in resting]
        if resting:
            self._resting_turn += 1
            due.append(list(resting)[self._resting_turn % len(resting)])
        return due

    async def _look(self, place: FolderPlace) -> float:
        begun = self._clock.monotonic()
        try:
            scanned = await on_disk(place.root, scan_job, self._scans[place])
        except OSError:
            return 0.0  # it is gone, which the search will tell, or cannot be read, which its clients are told
        if place not in self._scans:
            return scanned.cpu_s
        if scanned.is_all or scanned.touches or scanned.names_changed:
            self._changed[place] = begun
        if scanned.is_all:
            self._board.changed(place, None)
        elif scanned.touches:
            self._board.changed(place, scanned.touches)
        if scanned.names_changed:
            self._board.changed(place, {})
        self._board.seen(place, begun)
        return scanned.cpu_s


class Watch:
    """Tells the board of JOBs that come and go and of names that change in them."""

    def __init__(
        self,
        roots: Roots,
        depth: int,
        clock: DaemonClock,
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
        self._inotify = None if scan else self._new_inotify()
        self._rounds: dict[bytes, ScanRounds] = {}
        self._jobs: dict[bytes, FolderPlace] = {}  # by name
        self._doubles: set[FolderPlace] = set()
        self._missing: set[FolderPlace] = set()
        self._wanted: dict[bytes, set[FolderPlace]] = {}
        self._wakes: dict[bytes, asyncio.Event] = {}
        self._unsearched = set(roots)
        self._searching: set[bytes] = set()  # roots in which JOBs are looked for now
        self._hurries: dict[bytes, asyncio.Event] = {}  # by root: a client waits for what is wanted to be searched

    async def run(self) -> None:
        """Watch until cancelled."""
        timer = asyncio.get_running_loop().call_later(READY_S, self.ready.set)
        try:
            if self._inotify:
                self._inotify.start()
            if not self.roots:
                self.ready.set()
            await self.roots.each(self._watch_root)
        finally:
            timer.cancel()
            if self._inotify:
                self._inotify.close()

    def catch_up(self) -> None:
        """Take the kernel's events that wait, and search at once where they tell of a directory."""
        if self._inotify:
            self._inotify.catch_up()
        for root, wanted in self._wanted.items():
            if wanted:
                self._hurries[root].set()

    @property
    def has_searched(self) -> bool:
        """Return True if no search for JOBs is due or under way."""
        return not self._searching and not any(self._wanted.values())

    # What the events tell

    def look_in(self, place: FolderPlace) -> None:
        """A directory has come, or has gone: JOBs may have with it."""
        if place.root in self._wanted:
            self._wanted[place.root].add(place)
            self._wakes[place.root].set()

    def look_everywhere(self) -> None:
        """Anything may have changed."""
        for place in self._jobs.values():
            self._board.changed(place, None)
        for root in self._wanted:
            self.look_in(FolderPlace(root, b""))

    def lost(self, place: FolderPlace) -> None:
        """The directory of a JOB is gone."""
        if self._jobs.get(place.name) == place:
            del self._jobs[place.name]
            self._rounds[place.root].drop(place)
            self._board.gone(place)

    # Looking for JOBs

    async def _watch_root(self, root: bytes) -> None:
        self._wanted[root], self._wakes[root], self._hurries[root] = set(), asyncio.Event(), asyncio.Event()
        rounds = self._rounds[root] = ScanRounds(self._clock, self._board, self._rounds)
        await until_first(self._search(root), rounds.run())

    async def _search(self, root: bytes) -> None:
        self.look_in(FolderPlace(root, b""))
        while True:
            self._wakes[root].clear()
            wanted, self._wanted[root] = self._wanted[root], set()
            begun = self._clock.monotonic()
            self._searching.add(root)
            for place in sorted(wanted, key=lambda each: each.directory):
                await self._search_below(place)
            self._searching.discard(root)
            self._unsearched.discard(root)
            if not self._unsearched:
                self.ready.set()
            pause_s = min(SEARCH_S, (self._clock.monotonic() - begun) / SEARCH_SHARE)
            await until_first(self._clock.sleep(pause_s), self._hurries[root].wait())
            self._hurries[root].clear()
            await self._wait_for_wish(root)

    async def _wait_for_wish(self, root: bytes) -> None:
        has_events = self._inotify is not None and not self._inotify.is_exhausted and not self._missing
        delay_s = SEARCH_S if has_events else SEARCH_UNNOTICED_S
        timer = asyncio.get_running_loop().call_later(delay_s, self.look_in, FolderPlace(root, b""))
        try:
            await self._wakes[root].wait()
        finally:
            timer.cancel()

    async def _search_below(self, start: FolderPlace) -> None:
        found = await self._find_watched(start)
        if not start.path:
            self._note_root(start, is_missing=start in found.unreadable)
        gone = [each for each in self._jobs.values() if each.is_below(start) and each not in found.jobs]
        if gone and self._inotify:
            self._inotify.catch_up()  # with what happened in them before
        for place in gone:
            if self._inotify:
                self._inotify.unwatch_job(place)
            self.lost(place)
        for place in found.jobs:
            await self._adopt(place)

    async def _find_watched(self, start: FolderPlace) -> FoundCollections:
        """What is below `start`; each directory was watched before it was looked at last, so nothing comes unseen."""
        while True:
            found = await on_disk(start.root, find_jobs, start, self.depth)
            # A network's gives no events, and watching it would block here where it hangs.
            own = [place for place in found.directories if not is_remote(place.directory)]
            if not self._inotify or not self._inotify.watch_parents(own):
                return found

    async def _adopt(self, place: FolderPlace) -> None:
        """Watch a new JOB, then tell of it: whatever happens after the telling is noticed."""
        known = self._jobs.setdefault(place.name, place)
        if known != place:
            if place not in self._doubles:
                self._doubles.add(place)
                names = os.fsdecode(place.directory), os.fsdecode(known.directory)
                _LOGGER.warning("%s has the name of %s and is not served", *names)
        elif not self._board.has(place):
            has_events = self._watch_job(place)
            if not has_events:
                await self._rounds[place.root].add(place)
            made_us, changed_us = await on_disk(place.root, job_times, place)
            now_us = self._clock.wall_us()
            profiling = await on_disk(place.root, find_profiling, place, made_us, now_us, self.acl_json)
            self._board.found(place, made_us, changed_us, is_scanned=not has_events, profiling=profiling)

    def _watch_job(self, place: FolderPlace) -> bool:
        """Have the JOB's changes noticed; False where they cannot be."""
        if self._inotify is None or is_remote(place.directory):
            return False
        return self._inotify.watch_job(place)

    def _note_root(self, root: FolderPlace, *, is_missing: bool) -> None:
        if is_missing and root not in self._missing:
            _LOGGER.warning("%s cannot be read; it is served when it can", os.fsdecode(root.directory))
            self._missing.add(root)
        elif not is_missing and root in self._missing:
            _LOGGER.info("%s can be read now", os.fsdecode(root.directory))
            self._missing.discard(root)

    def _new_inotify(self) -> InotifyWatcher | None:
        try:
            return InotifyWatcher(self, self._board)
        except OSError as error:
            _LOGGER.warning("no inotify (%s): directories are looked at instead", error.strerror)
            return None

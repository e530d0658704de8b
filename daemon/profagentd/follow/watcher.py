"""Discovery of JOB directories and of changes in them: by the kernel's events where there are any, else by scanning."""

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

# Shortest pause between two rounds of scans.
MIN_PAUSE_S = 0.03
# JOBs that did not change for this long are scanned in turn, one in each round.
RESTING_S = 60.0
# File times have the grain of the kernel's tick, 10 ms at most; a file written within it may be written again.
SLACK_NS = 50_000_000
# Interval of searching all roots for JOBs: as a safety net beside events, and where there are no events.
SEARCH_S = 5.0
SEARCH_WITHOUT_EVENTS_S = 0.5


@dataclass
class ScanResult:
    """Result of one scan."""

    touches: dict[bytes, FileEvent]
    may_be_anything: bool = False  # any name may have changed; `touches` is empty
    names_changed: bool = False  # names were created or removed
    cpu_s: float = 0.0  # processor time of the scanning thread


class _ScannedFile(NamedTuple):
    inode: int
    size: int
    ctime_ns: int


class DirectoryScan:
    """Repeated scan of one directory, by one thread at a time. The first scan reports no changes.

    Only files that changed within the last moments are remembered: a file counts as changed when its ctime is not
    before the newest ctime seen. So the clock that writes these times decides, even if it is a file server's. When that
    clock goes back, anything may have changed.
    """

    def __init__(self, place: FolderPlace, inside: bytes = b"", without: tuple[bytes, ...] = ()) -> None:
        """Scan the directory `inside` a collection; `without` names subdirectories that have scans of their own."""
        self._place = place.below(inside)
        self._inside = inside
        self._without = without
        self._newest_ns: int | None = None  # newest ctime seen; None before the first scan
        self._recent: dict[bytes, _ScannedFile] = {}  # files with a ctime within SLACK_NS of the newest
        # Time and inode of the directory at the last scan: another inode is another directory under the same path.
        self._directory_ns: int | None = None
        self._inode = 0

    def scan(self) -> ScanResult:
        """Return the paths of files that changed since the last call. Raises OSError where that cannot be read."""
        descriptor = self._open()
        if descriptor is None:
            was_there, self._directory_ns, self._newest_ns = self._directory_ns is not None, None, None
            return ScanResult({}, may_be_anything=was_there)
        try:
            status = os.fstat(descriptor)
            before_ns, self._directory_ns = self._directory_ns, status.st_mtime_ns
            # A directory that was replaced, or whose time goes back, may hold any change.
            went_back = before_ns is not None and (self._directory_ns < before_ns or self._inode != status.st_ino)
            self._inode = status.st_ino
            # Files within SLACK_NS of the newest time are examined again: a later write may have the same time.
            since_ns = 0 if self._newest_ns is None or went_back else self._newest_ns - SLACK_NS
            touches = self._changed(descriptor, since_ns)
        finally:
            os.close(descriptor)
        if before_ns is None:
            return ScanResult({}, may_be_anything=bool(self._inside))
        may_be_anything = went_back or len(touches) > NAMES_LIMIT
        return ScanResult({} if may_be_anything else touches, may_be_anything, self._directory_ns != before_ns)

    def _open(self) -> int | None:
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
            seen = _ScannedFile(status.st_ino, status.st_size, status.st_ctime_ns)
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
                with suppress(OSError):  # the file has just been removed
                    status, name = entry.stat(follow_symlinks=False), os.fsencode(entry.name)
                    if not (name in self._without and stat.S_ISDIR(status.st_mode)):
                        found.append((name, status))
        return found


def scan_job(scans: Sequence[DirectoryScan]) -> ScanResult:
    """Return the changes inside a JOB since the last call, of all its directories.

    Raises OSError if it cannot be read.
    """
    started_s = time.thread_time()
    result = ScanResult({})
    for each in scans:
        scanned = each.scan()
        result.touches.update(scanned.touches)
        result.may_be_anything |= scanned.may_be_anything
        result.names_changed |= scanned.names_changed
    result.cpu_s = time.thread_time() - started_s
    return result


class ScanRounds:
    """Scanned JOBs of one root, and the loop that scans them in rounds."""

    def __init__(self, clock: DaemonClock, registry: JobRegistry, sharers: Sized) -> None:
        """Share the allowed processor time with the other rounds in `sharers`, which include this one."""
        self._sharers = sharers
        self._clock = clock
        self._registry = registry
        self._scans: dict[FolderPlace, list[DirectoryScan]] = {}  # one for each directory of a JOB
        self._changed: dict[FolderPlace, float] = {}  # monotonic time of each JOB's last change
        self._resting_turn = 0  # counts up, to choose the resting JOB of a round
        self._wake = asyncio.Event()  # set while there are JOBs to scan

    async def add(self, place: FolderPlace) -> None:
        """Scan this JOB from now on."""
        directories = directories_of(place)
        scans = [DirectoryScan(place, each, () if each else directories) for each in directories]
        # Where this fails, the first scan that succeeds reports that anything may have changed.
        with suppress(OSError):
            await on_disk(place.root, scan_job, scans)
        self._scans[place] = scans
        self._changed[place] = self._clock.monotonic()
        self._wake.set()

    def drop(self, place: FolderPlace) -> None:
        """Scan this JOB no more."""
        self._scans.pop(place, None)
        self._changed.pop(place, None)

    async def run(self) -> None:
        """Scan in rounds, until cancelled."""
        while True:
            await self._wake.wait()
            cpu_s = 0.0
            for place in self._due():
                cpu_s += await self._scan(place)
            if not self._scans:
                self._wake.clear()
            # The pause keeps all rounds together at LOOKING_SHARE of a core, however large the directories are.
            await self._clock.sleep(max(MIN_PAUSE_S, cpu_s * len(self._sharers) / LOOKING_SHARE - cpu_s))

    def _due(self) -> list[FolderPlace]:
        now = self._clock.monotonic()
        resting = {place: None for place, changed in self._changed.items() if now - changed > RESTING_S}
        due = [place for place in self._scans if place not in resting]
        if resting:
            self._resting_turn += 1
            due.append(list(resting)[self._resting_turn % len(resting)])
        return due

    async def _scan(self, place: FolderPlace) -> float:
        begun = self._clock.monotonic()
        try:
            scanned = await on_disk(place.root, scan_job, self._scans[place])
        except OSError:
            return 0.0  # it is gone, which the search finds, or unreadable, which streams report
        if place not in self._scans:
            return scanned.cpu_s
        if scanned.may_be_anything or scanned.touches or scanned.names_changed:
            self._changed[place] = begun
        if scanned.may_be_anything:
            self._registry.note_changes(place, None)
        elif scanned.touches:
            self._registry.note_changes(place, scanned.touches)
        if scanned.names_changed:
            self._registry.note_changes(place, {})
        self._registry.note_seen_until(place, begun)
        return scanned.cpu_s


class LogDiscovery:
    """Finder of JOBs below the roots, and reporter of changed names in them to the registry.

    Each directory is watched before it is listed, and a JOB before it is reported. So nothing that happens between two
    steps is missed; at worst it is seen twice.
    """

    def __init__(
        self,
        roots: Roots,
        depth: int,
        clock: DaemonClock,
        registry: JobRegistry,
        *,
        scan: bool,
        acl_json: Sequence[str] = (),
    ) -> None:
        """Search `roots` down to `depth` levels, by events unless `scan`.

        `acl_json`: patterns of files with the programs' profiling settings, instead of the usual places.
        """
        self.roots = roots
        self.ready = asyncio.Event()  # set once the existing JOBs are found
        self.depth = depth
        self.acl_json = acl_json  # applies to JOBs that are found later
        self._clock = clock
        self._registry = registry
        self._inotify = None if scan else self._new_inotify()
        self._rounds: dict[bytes, ScanRounds] = {}  # by root
        self._jobs: dict[bytes, FolderPlace] = {}  # known JOBs by name
        self._duplicates: set[FolderPlace] = set()  # JOBs with the name of another; each is logged once
        self._missing: set[FolderPlace] = set()  # roots that cannot be read
        self._pending: dict[bytes, set[FolderPlace]] = {}  # by root: directories below which a search is due
        self._wake_events: dict[bytes, asyncio.Event] = {}  # by root: set when something is pending
        self._unsearched = set(roots)  # roots that were not searched even once
        self._searching: set[bytes] = set()  # roots in which JOBs are looked for now
        # By root: set when a client's Sync waits for the pending searches, which then begin at once.
        self._hurry_events: dict[bytes, asyncio.Event] = {}

    async def run(self) -> None:
        """Search and watch until cancelled."""
        # A root that hangs must not hold up clients for ever.
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
        """Handle the kernel's events that wait, and let pending searches begin at once."""
        if self._inotify:
            self._inotify.catch_up()
        for root, pending in self._pending.items():
            if pending:
                self._hurry_events[root].set()

    @property
    def has_searched(self) -> bool:
        """True if no search for JOBs is due or under way."""
        return not self._searching and not any(self._pending.values())

    # Reports of the kernel's events

    def search_in(self, place: FolderPlace) -> None:
        """Search below a directory that was created or removed."""
        if place.root in self._pending:
            self._pending[place.root].add(place)
            self._wake_events[place.root].set()

    def search_everywhere(self) -> None:
        """Search all roots, and report for all JOBs that anything may have changed."""
        for place in self._jobs.values():
            self._registry.note_changes(place, None)
        for root in self._pending:
            self.search_in(FolderPlace(root, b""))

    def remove_job(self, place: FolderPlace) -> None:
        """Remove a JOB whose directory is gone."""
        if self._jobs.get(place.name) == place:
            del self._jobs[place.name]
            self._rounds[place.root].drop(place)
            self._registry.remove_job(place)

    # Searching for JOBs

    async def _watch_root(self, root: bytes) -> None:
        self._pending[root], self._wake_events[root], self._hurry_events[root] = set(), asyncio.Event(), asyncio.Event()
        rounds = self._rounds[root] = ScanRounds(self._clock, self._registry, self._rounds)
        await until_first(self._search(root), rounds.run())

    async def _search(self, root: bytes) -> None:
        self.search_in(FolderPlace(root, b""))
        while True:
            self._wake_events[root].clear()
            pending, self._pending[root] = self._pending[root], set()
            begun = self._clock.monotonic()
            self._searching.add(root)
            for place in sorted(pending, key=lambda each: each.directory):
                await self._search_below(place)
            self._searching.discard(root)
            self._unsearched.discard(root)
            if not self._unsearched:
                self.ready.set()
            pause_s = min(SEARCH_S, (self._clock.monotonic() - begun) / SEARCH_SHARE)
            await until_first(self._clock.sleep(pause_s), self._hurry_events[root].wait())
            self._hurry_events[root].clear()
            await self._wait_until_due(root)

    async def _wait_until_due(self, root: bytes) -> None:
        has_events = self._inotify is not None and not self._inotify.is_exhausted and not self._missing
        delay_s = SEARCH_S if has_events else SEARCH_WITHOUT_EVENTS_S
        timer = asyncio.get_running_loop().call_later(delay_s, self.search_in, FolderPlace(root, b""))
        try:
            await self._wake_events[root].wait()
        finally:
            timer.cancel()

    async def _search_below(self, start: FolderPlace) -> None:
        found = await self._find_watched(start)
        if not start.path:
            self._note_root_state(start, is_missing=start in found.unreadable)
        gone = [each for each in self._jobs.values() if each.is_below(start) and each not in found.jobs]
        if gone and self._inotify:
            self._inotify.catch_up()  # so that the last changes inside them are reported before their end
        for place in gone:
            if self._inotify:
                self._inotify.unwatch_job(place)
            self.remove_job(place)
        for place in found.jobs:
            await self._adopt(place)

    async def _find_watched(self, start: FolderPlace) -> FoundCollections:
        """Return the collections below `start`. Each directory was watched before it was listed, so none is missed."""
        while True:
            found = await on_disk(start.root, find_jobs, start, self.depth)
            # A network file system gives no events, and adding a watch would block the loop if it hangs.
            own = [place for place in found.directories if not is_remote(place.directory)]
            if not self._inotify or not self._inotify.watch_parents(own):
                return found

    async def _adopt(self, place: FolderPlace) -> None:
        """Watch a new JOB, then report it: whatever happens after the report is noticed."""
        known = self._jobs.setdefault(place.name, place)
        if known != place:
            if place not in self._duplicates:
                self._duplicates.add(place)
                names = os.fsdecode(place.directory), os.fsdecode(known.directory)
                _LOGGER.warning("%s has the same name as %s and is not served: rename or remove one of them", *names)
        elif not self._registry.has(place):
            has_events = self._watch_job(place)
            if not has_events:
                await self._rounds[place.root].add(place)
            made_us, changed_us = await on_disk(place.root, job_times, place)
            now_us = self._clock.wall_us()
            profiling = await on_disk(place.root, find_profiling, place, made_us, now_us, self.acl_json)
            self._registry.add_job(place, made_us, changed_us, is_scanned=not has_events, profiling=profiling)

    def _watch_job(self, place: FolderPlace) -> bool:
        if self._inotify is None or is_remote(place.directory):
            return False
        return self._inotify.watch_job(place)

    def _note_root_state(self, root: FolderPlace, *, is_missing: bool) -> None:
        if is_missing and root not in self._missing:
            _LOGGER.warning("cannot read %s: it is served once it is readable", os.fsdecode(root.directory))
            self._missing.add(root)
        elif not is_missing and root in self._missing:
            _LOGGER.info("%s is readable again", os.fsdecode(root.directory))
            self._missing.discard(root)

    def _new_inotify(self) -> InotifyWatcher | None:
        try:
            return InotifyWatcher(self, self._registry)
        except OSError as error:
            _LOGGER.warning("inotify is not available (%s): directories are polled instead", error.strerror)
            return None

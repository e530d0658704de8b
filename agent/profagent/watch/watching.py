"""A board's stream for the eye only: decoded in memory, acknowledged, kept nowhere."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from cachetools import LRUCache
from msgspec.structs import replace

from profagent.errors import FormatError, StoreError, UnsupportedBoardError
from profagent.formats.names import SIMULATED_MARKER, LogKind, parse_log_name
from profagent.ingest import reasons
from profagent.ingest.changes import ApiRecords, JobChanges, LinkLedger, LogAnnounced, LogRemoved
from profagent.ingest.decoder import LARGEST_CONTENT_BYTES, decoder_of, source_named
from profagent.ingest.mirror import digest_of
from profagent.ingest.reasons import checked_path, loss_change, refusal, removal_entry
from profagent.ingest.states import beginnings
from profagent.link.channel import clock_difference
from profagent.link.messages import (
    ENDED_STATES,
    JOB_SOURCE,
    REMOVED,
    Acknowledgement,
    Chunk,
    Completed,
    Holding,
    Loss,
    Removed,
    Started,
)
from profagent.store.counter_maps import CounterMaps, simulated_map
from profagent.store.writer import Applied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence

    from profagent.formats.countermap import CounterMap
    from profagent.formats.names import LogName
    from profagent.ingest.changes import Change
    from profagent.link.channel import Channel
    from profagent.link.messages import Board, FollowedLog, JobStatus, Received
    from profagent.record.beginnings import Beginnings


# Logs whose state the decoder keeps. What it may ask for again is kept longer: data, `.done` files; tables longest.
DECODED_LOGS = 4_096
REMEMBERED_BYTES = 64 << 20
# What a remembered file takes beside its content.
FILE_BYTES = 1 << 10
TABLES = frozenset({LogKind.NET_INFO, LogKind.LAYER_INFO})


class RememberedFiles:
    """What decoding may ask for again, in memory: tables of layers, and the files that came last."""

    def __init__(self) -> None:
        self._tables, self._recent = _bounded(), _bounded()

    def keep(self, path: str, name: LogName, data: bytes) -> None:
        """Remember a snapshot that decoding may need."""
        if name.kind in TABLES:
            self._tables[path] = bytearray(data)
        elif name.is_done:
            self._recent[path] = bytearray(data)

    def begin(self, path: str) -> None:
        """A file comes from its start."""
        self._recent[path] = bytearray()

    def append(self, path: str, data: bytes) -> None:
        """A file goes on; of one that was forgotten, or is too large, the rest is not kept either."""
        known = self._recent.pop(path, None)
        if known is not None and _room(known) + len(data) <= REMEMBERED_BYTES:
            known += data
            self._recent[path] = known

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        """At most `size` bytes of a remembered file from `start` on; None for another."""
        data = self._tables.get(path) or self._recent.get(path)
        return None if data is None else bytes(data[start : None if size is None else start + size])

    @property
    def size(self) -> int:
        """The room that they take."""
        return int(self._tables.currsize + self._recent.currsize)

    def names(self) -> list[str]:
        """Paths of remembered files."""
        return [*self._tables, *self._recent]


def _bounded() -> LRUCache[str, bytearray]:
    """Files that were used last."""
    return LRUCache(REMEMBERED_BYTES, getsizeof=_room)


def _room(data: bytearray) -> int:
    return len(data) + FILE_BYTES


# JOBs whose state is kept, those that were heard of last, and the bytes of all their files together.
REMEMBERED_JOBS = 16
REMEMBERED_BYTES_OF_ALL = 2 * REMEMBERED_BYTES
# Logs that were told of since something came; a stream has fewer at a time.
MOST_ANNOUNCED = 10_000
# Files of calls of which it is known how far they were shown.
REMEMBERED_CALLS = 4_096
FORGOTTEN = reasons.entry(
    reasons.TOO_LARGE,
    "more JOBs, or more of them, than are remembered while watching: should this one go on, layers have no names, and"
    " what began before is not shown",
)


NOT_READ = reasons.entry(reasons.TOO_LARGE, "more than is read of small files: 4 MiB, or 64 in all")


class _Job:
    def __init__(self, source: str, counter_map: CounterMap | None, begun_us: int) -> None:
        """`begun_us`: calls that ended by then, on the board's clock, are from before."""
        self.files = RememberedFiles()
        self.source = source
        self.decoder = decoder_of(source)(
            self.files, counter_map=counter_map, marked_map=simulated_map(), remembered_logs=DECODED_LOGS
        )
        self._begun_us = begun_us
        self._calls_until_us: LRUCache[str, int] = LRUCache(REMEMBERED_CALLS)
        self._calls_shown_us: dict[str, int] = {}

    def begin_anew(self) -> None:
        """Everything comes again, calls that were shown as well."""
        self.decoder.begin_stream()
        self._calls_shown_us = dict(self._calls_until_us)

    def new_calls(self, changes: Iterable[Change]) -> Iterator[Change]:
        """Changes without the calls that are from before or were shown: a file of calls comes whole."""
        for change in changes:
            if not isinstance(change, ApiRecords):
                yield change
                continue
            ended_us = change.records["end_us"]
            is_new = ended_us > self._calls_shown_us.get(change.path, self._begun_us)
            if is_new.any():
                latest_us = max(int(ended_us.max()), self._calls_until_us.get(change.path, 0))
                self._calls_until_us[change.path] = latest_us
                yield replace(change, number=change.number[is_new], records=change.records[is_new])


class Watching:
    """The sink of a capture that keeps nothing."""

    def __init__(
        self, maps: CounterMaps, beginnings: Beginnings, compared: Callable[[int], None] | None = None
    ) -> None:
        """`compared` is told by how many µs the board's clock is ahead."""
        self._maps, self._compared = maps, compared
        self._counter_map: CounterMap | None = None
        self._beginnings = beginnings
        self._jobs: OrderedDict[str, _Job] = OrderedDict()
        # By handle, small files of which not all has come.
        self._arriving: dict[int, bytearray] = {}
        self._arriving_size = 0
        self._announced: dict[str, list[Change]] = {}  # by JOB, what was told since events came last
        self._directories: dict[str, str] = {}
        self._begun_us = 0
        self.refused: dict[str, UnsupportedBoardError] = {}

    async def begin(self, board: Board, address: str) -> None:  # noqa: ARG002 - the sink's interface
        """Choose the board's counter map; what was on the way in an earlier stream comes again."""
        self._counter_map = await asyncio.to_thread(
            lambda: self._maps.of(simulated=board.simulated, sdk=board.sdk_version)
        )
        self._begun_us = self._begun_us or board.clocks.wall_us
        self._arriving.clear()
        self._arriving_size = 0
        for job in self._jobs.values():
            job.begin_anew()

    def know_job(self, job: JobStatus) -> None:
        """A JOB that is watched from now on."""
        self._directories.setdefault(job.name, job.directory)
        self._job(job.name)

    async def listed(self, names: Collection[str]) -> Sequence[Applied]:  # noqa: ARG002 - the sink's interface
        """Nothing is kept of JOBs that are gone."""
        return ()

    async def holdings(self, logs: Sequence[FollowedLog]) -> list[Holding]:
        """Nothing is held; what was shown or is from before, and what is no file of the runtime, is not wanted."""
        # Of what programs and the daemon wrote before, the newest segment tells how things are.
        newest: dict[str, bytes] = {}
        for log in logs:
            if not log.snapshot:
                newest[log.job] = max(log.path, newest.get(log.job, b""))
        wanted = [self._is_wanted(log, newest.get(log.job)) for log in logs]
        for log, is_wanted in zip(logs, wanted, strict=True):
            if is_wanted:
                path = checked_path(log.path)
                self._announced.setdefault(log.job, []).append(LogAnnounced(path))
                self._job(log.job).decoder.expect([path])
        if sum(map(len, self._announced.values())) > MOST_ANNOUNCED:
            self._announced.clear()  # of so many something would have come
        return [Holding(log.handle, skip=not is_wanted) for log, is_wanted in zip(logs, wanted, strict=True)]

    async def take(
        self,
        events: Sequence[Received],
        acknowledge: Callable[[Sequence[Acknowledgement]], Awaitable[None]],
        *,
        more: bool = False,  # noqa: ARG002 - the sink's interface
    ) -> Sequence[Applied]:
        """Decode events; everything is acknowledged, so that the board forgets it."""
        reached: dict[int, Acknowledgement] = {}
        for job, found in beginnings(events).items():
            if job not in self.refused:
                self._job(job).decoder.read_ahead(found)
        announced, self._announced = self._announced, {}
        changes = [JobChanges(job, self._directory(job), logs) for job, logs in announced.items()]
        changes += [self._understood(each, reached) for each in _apart(events) if each.job not in self.refused]
        changes += self._make_room()
        if reached:
            await acknowledge(list(reached.values()))
        return [Applied(each) for each in changes]

    async def committed(self) -> Sequence[Applied]:
        """Nothing is kept that could be."""
        return ()

    async def change_state(self, name: str, state: str, *, caught_up: bool) -> Sequence[Applied]:
        """Pass the state on, that of an ended JOB when all of it has come that will."""
        if state in ENDED_STATES and not caught_up and state != REMOVED:
            return ()
        job = self._jobs.get(name)
        is_whole = caught_up and state in ENDED_STATES and state != REMOVED
        changes = [*job.decoder.settle()] if job is not None and is_whole else []
        return (Applied(JobChanges(name, self._directory(name), changes, state, caught_up)),)

    async def sample_clock(self, channel: Channel) -> None:
        """Tell by how much the board's clock is ahead, where somebody wants to know."""
        if self._compared is None:
            return
        found = await clock_difference(channel, lambda: time.time_ns() // 1000)
        if found is not None:
            self._compared(found.offset_us)

    async def has_room(self) -> bool:
        """Nothing is stored: there is always room."""
        return True

    def _directory(self, job: str) -> str:
        return self._directories[job] if job else ""

    def _job(self, name: str) -> _Job:
        """The JOB's state, made anew where it was forgotten."""
        if name not in self._jobs:
            begun_us = self._begun_us if self._beginnings.is_in_past(name) else 0
            self._jobs[name] = _Job(source_named(name) or JOB_SOURCE, self._counter_map, begun_us)
        self._jobs.move_to_end(name)
        return self._jobs[name]

    def _make_room(self) -> Iterator[JobChanges]:
        """Forget JOBs that were not heard of for longest, and say so."""
        size = sum(job.files.size for job in self._jobs.values())
        while len(self._jobs) > REMEMBERED_JOBS or (size > REMEMBERED_BYTES_OF_ALL and len(self._jobs) > 1):
            name, job = self._jobs.popitem(last=False)
            size -= job.files.size
            if job.files.size:
                yield JobChanges(name, self._directories[name], (LinkLedger(None, FORGOTTEN),))

    def _is_wanted(self, log: FollowedLog, newest: bytes | None) -> bool:
        try:
            path = checked_path(log.path)
        except FormatError:
            return False
        if self._job(log.job).source != JOB_SOURCE:
            return path == SIMULATED_MARKER or (not log.snapshot and log.path == newest)
        name = parse_log_name(path)
        if name is None:
            return path == SIMULATED_MARKER
        if not (name.is_data or name.is_done):
            return name.kind is not LogKind.CONT
        return not (self._beginnings.passes_over(log.job, name) or self._beginnings.was_shown(log.job, name))

    def _understood(self, received: Received, reached: dict[int, Acknowledgement]) -> JobChanges:
        job = received.job
        if isinstance(received.event, Loss):
            path = None if received.log is None else checked_path(received.log.path)
            job, change = loss_change(job, path, received.event)
            return JobChanges(job, self._directory(job), (change,))
        try:
            return JobChanges(job, self._directory(job), list(self._mean(received, reached)))
        except UnsupportedBoardError as error:
            self.refused[job], entry = refusal(job, error)
            return JobChanges(job, self._directory(job), (LinkLedger(None, entry),))

    def _mean(self, received: Received, reached: dict[int, Acknowledgement]) -> Iterable[Change]:
        log, event = received.log, received.event
        assert log is not None, "only a Loss can be about no log"
        assert not isinstance(event, Loss), "it has no bytes"
        job, path = self._job(log.job), checked_path(log.path)
        reached[log.handle] = Acknowledgement(log.handle, log.generation, log.offset, isinstance(event, Completed))
        if isinstance(event, Removed):
            reached.pop(log.handle)
            self._take_arrived(log.handle)
            return [LogRemoved(path), *(LinkLedger(path, entry) for entry in removal_entry(event.sent, event.size))]
        try:
            return list(self._snapshot(job, log, path, event) if log.snapshot else _data(job, path, event))
        except StoreError as error:
            return [LinkLedger(path, reasons.entry(reasons.TOO_LARGE, f"not decoded again: {error}"))]

    def _snapshot(self, job: _Job, log: FollowedLog, path: str, event: Started | Chunk | Completed) -> Iterable[Change]:
        if isinstance(event, Started):
            self._take_arrived(log.handle)
            self._arriving[log.handle] = bytearray()
            return ()
        if isinstance(event, Chunk):
            return () if self._has_arrived(log.handle, event.data) else [LinkLedger(path, NOT_READ)]
        data = self._take_arrived(log.handle)
        if data is None:
            return ()
        name = parse_log_name(path)
        if name is not None:
            job.files.keep(path, name, data)
        return job.decoder.snapshot(path, event.generation, data, digest_of(data))

    def _has_arrived(self, handle: int, data: bytes) -> bool:
        """A small file goes on; False where it is dropped, because it or all together are too large."""
        content = self._arriving.get(handle)
        if content is None:
            return True
        content += data
        self._arriving_size += len(data)
        if len(content) <= LARGEST_CONTENT_BYTES and self._arriving_size <= REMEMBERED_BYTES:
            return True
        self._take_arrived(handle)
        return False

    def _take_arrived(self, handle: int) -> bytes | None:
        """What has come of a small file, which is kept here no longer; None of one that was dropped."""
        content = self._arriving.pop(handle, None)
        self._arriving_size -= len(content or b"")
        return None if content is None else bytes(content)


def _apart(events: Iterable[Received]) -> Iterator[Received]:
    """What came with a log's start, as if it came after it."""
    for received in events:
        yield received
        event = received.event
        if isinstance(event, Started) and event.data:
            yield replace(received, event=Chunk(event.handle, event.generation, event.offset, event.data))
        if isinstance(event, Started) and event.digest:
            yield replace(received, event=event.completed)


def _data(job: _Job, path: str, event: Started | Chunk | Completed) -> Iterable[Change]:
    match event:
        case Started():
            job.files.begin(path)
            return job.decoder.begin(path, event.generation, event.offset)
        case Chunk():
            job.files.append(path, event.data)
            return job.new_calls(job.decoder.append(path, event.generation, event.offset, event.data))
    return job.decoder.complete(path, event.generation, event.size, event.digest)

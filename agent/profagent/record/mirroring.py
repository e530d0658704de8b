"""Events of a board's logs into its mirrors, and what they mean. Everything here blocks: it belongs on a thread."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from profagent import ledger
from profagent.errors import ProtocolError, StoreError, UnsupportedBoardError
from profagent.files import make_anew, opened, write_all
from profagent.formats.counter_maps import simulated_map
from profagent.ingest.changes import LinkLedger, LogAdvanced, LogRemoved, PassedOver, loss_change
from profagent.ingest.feed import Feed
from profagent.ingest.mirror import ClosingCache, Translated, digest_of, logs_set_aside
from profagent.ingest.source import decoder_of, source_named
from profagent.ledger import another_file, checked_path, refusal, removal_entry
from profagent.limits import LARGEST_CONTENT_BYTES, REMEMBERED_JOBS
from profagent.link.messages import Acknowledgement, Chunk, Completed, Holding, Loss, Removed, Started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from profagent.formats.countermap import CounterMap
    from profagent.formats.sampling import Keeping
    from profagent.ingest.changes import Change
    from profagent.ingest.decoder import Decoder
    from profagent.ingest.feed import Arrival, Feed
    from profagent.ingest.memory_mirror import MemoryMirror
    from profagent.ingest.mirror import JobMirror
    from profagent.ingest.mirror_in_place import MirrorInPlace
    from profagent.link.messages import FollowedLog, Received
    from profagent.store.store import CommittedLog, HeldLog
    from profagent.store.workspace import Workspace


class OpenJob(NamedTuple):
    """One JOB's mirror and decoder."""

    mirror: JobMirror | MemoryMirror | MirrorInPlace
    decoder: Decoder


class LeftLogs(NamedTuple):
    """Logs of one JOB that a batch was to write, where the JOB stands on its board, and its source."""

    job: str
    directory: str
    source: str
    data: list[str]
    snapshots: list[str]


class OpenBatch:
    """The file that names them, written before they are; what it says of a batch that was committed does no harm.

    There are two, for batches in turn: the one before may not be committed yet. They are written over in their place,
    which costs a quarter of a file that is made anew.
    """

    def __init__(self, file: Path | None) -> None:
        """Without a file nothing is left to a later process."""
        self._files = () if file is None else (file, file.with_suffix(".batch2"))
        self._names: set[tuple[str, bytes, bool]] = set()

    def begin(self, events: Iterable[Received], place: Callable[[str], tuple[str, str]]) -> None:
        """These events are about to be written; `place`: a JOB's directory and source. Raises StoreError."""
        self._files = self._files[::-1]
        self._names = {(each.job, each.log.path, each.log.snapshot) for each in events if each.log is not None}
        if not self._files:
            return
        by_job: dict[str, LeftLogs] = {}
        for job, path, is_snapshot in self._names:
            left = by_job.get(job)
            if left is None:
                left = by_job[job] = LeftLogs(job, *place(job), [], [])
            (left.snapshots if is_snapshot else left.data).append(os.fsdecode(path))
        file = self._files[0]
        with Translated(f"cannot write {file}", file.parent):
            handle = opened(str(file), os.O_WRONLY)
            if handle is None:
                handle = make_anew(str(file))
            try:
                # Half of them, with some of an earlier batch behind, do no harm: nothing of this one is written yet.
                names = json.dumps([*by_job.values()]).encode("ascii")
                write_all(handle, 0, names)
                os.ftruncate(handle, len(names))
            finally:
                os.close(handle)

    def has(self, log: FollowedLog) -> bool:
        """Whether the latest batch has something of a log."""
        return any((log.job, log.path, is_snapshot) in self._names for is_snapshot in (False, True))

    def left(self) -> list[LeftLogs]:
        """What the latest two batches were to write. Raises StoreError."""
        return [each for file in self._files for each in _names_in(file)]


def _names_in(file: Path) -> list[LeftLogs]:
    with Translated(f"cannot read {file}", file.parent):
        try:
            return [LeftLogs(*each) for each in json.loads(file.read_bytes())]
        except (FileNotFoundError, ValueError):
            # There was none, or the power went before its names were on the disk.
            return []


# A file that was copied before is not the one that is there now.
_ANOTHER_FILE = frozenset({ledger.DIFFERENT, ledger.RECREATED})


class BoardMirrors:
    """The mirrors of one board's JOBs."""

    def __init__(
        self,
        workspace: Workspace,
        identity: str,
        counter_map: CounterMap | None,
        feed: Feed | None = None,
        *,
        keeping: Keeping | None = None,
        is_past: Callable[[str], bool] | None = None,
    ) -> None:
        """`feed` finds inferences that come whole; None where whoever sends has found them.

        `keeping` chooses inferences; `is_past` tells whether what comes of a JOB is from before the capture.
        """
        self.root = workspace.board_mirror(identity)
        self.batch = OpenBatch(workspace.open_batch(identity))
        self.refused: dict[str, UnsupportedBoardError] = {}
        # Sources of JOBs, and intervals where their programs' acl.json is known, set before anything of them comes.
        self.sources: dict[str, str] = {}
        self.intervals: dict[str, int | None] = {}
        self._is_past = is_past or (lambda _job: False)
        self._past: dict[str, dict[str, int]] = {}  # by JOB, how far logs had come by then
        self._workspace, self._identity = workspace, identity
        self._counter_map, self._keeping = counter_map, keeping
        self._jobs: ClosingCache[OpenJob] = ClosingCache(REMEMBERED_JOBS, lambda job: job.mirror.close())
        # By handle, complete logs of this stream of which the mirror has the very bytes that were committed.
        self._verified: dict[int, HeldLog] = {}
        self._damaged: set[int] = set()  # handles of the logs of which the mirror lost what it held
        self._feed = feed

    def set_aside(self) -> list[tuple[str, str]]:
        """JOB and path of each log of which an earlier generation is kept. Raises StoreError."""
        return logs_set_aside(self._workspace.superseded(self._identity))

    def restore(self, logs: Iterable[CommittedLog]) -> None:
        """Drop what was not committed of data logs. Raises StoreError."""
        for job, path, generation, offset in logs:
            self._of(job).mirror.restore(path, generation, offset)

    def expect(self, logs: Iterable[CommittedLog]) -> None:
        """More is to come of these data logs: a `.done` that has come does not speak of what is there."""
        for log in logs:
            self._of(log.job).decoder.expect([log.path])

    def begun(self, left: LeftLogs, held: Mapping[str, HeldLog]) -> list[Change]:
        """Which of a batch's data logs have more in the mirror than is held: it is to come again. Raises StoreError."""
        mirror = self._of(left.job).mirror
        changes: list[Change] = []
        for path in left.data:
            known = held.get(path)
            generation, offset = (known.generation, known.offset) if known else (0, 0)
            if mirror.is_beyond(path, generation, offset):
                changes.append(LogAdvanced(path, generation, offset, digest=known.digest if known else None))
        return changes

    def arrived(self, left: LeftLogs, held: Mapping[str, HeldLog]) -> list[Change]:
        """What a batch's snapshots mean that are not as they are held: they are whole, and no earlier ones are there.

        Data logs are restored before. Raises StoreError.
        """
        job = self._of(left.job)
        changes: list[Change] = []
        for path in left.snapshots:
            known, size = held.get(path), job.mirror.size(path)
            digest = None if size is None else job.mirror.prefix_digest(path, size)
            if digest is None or (known is not None and (size, digest) == (known.offset, known.digest)):
                continue
            content, generation = job.mirror.read(path, LARGEST_CONTENT_BYTES) or b"", known.generation if known else 0
            try:
                changes += job.decoder.snapshot(path, max(generation, 1), content, digest, size=size)
            except UnsupportedBoardError as error:
                changes.append(self._refuse(left.job, error))
        return changes

    def compare(
        self, job: str, by_path: Mapping[str, FollowedLog], held: Mapping[str, HeldLog]
    ) -> tuple[list[Holding], list[Change]]:
        """What the mirror holds of announced logs, and what it should hold and does not."""
        holdings: list[Holding] = []
        lost: list[Change] = []
        mirror, decoder = self._of(job)
        decoder.expect(path for path in by_path if path not in held or not held[path].complete)
        for path, log in by_path.items():
            known = held.get(path)
            self._verified.pop(log.handle, None)
            is_new = known is None or known.generation == 0
            if self._feed is not None:
                self._feed.announce(log, path, is_new=is_new and decoder.keeps(path))
            if known is None or is_new:
                holdings.append(Holding(log.handle))
                continue
            if not log.snapshot:
                mirror.take_back(path, known.generation)
            digest = mirror.prefix_digest(path, known.offset, told=known.digest)
            if log.snapshot and digest != known.digest:
                # It was rewritten and took its place, and the process died before its rows were: it comes again.
                holdings.append(Holding(log.handle, known.generation))
            elif digest is None:
                holdings.append(Holding(log.handle, known.generation))
                # A file without committed bytes may be gone for a moment: it is made anew when it begins again.
                if known.offset:
                    lost.append(self._lost(log.handle, path))
            else:
                holdings.append(Holding(log.handle, known.generation, known.offset, digest))
                if known.digest not in (None, digest):
                    lost.append(self._lost(log.handle, path))
                if known.complete and known.digest == digest:
                    self._verified[log.handle] = known
        return holdings, lost

    def is_open(self, job: str) -> bool:
        """Whether the JOB's mirror and decoder are at hand."""
        return job in self._jobs

    def begin_stream(self) -> None:
        """A stream begins: its logs come with handles of their own."""
        for job in self._jobs.values():
            job.decoder.begin_stream()
        self._verified.clear()
        self._damaged.clear()
        if self._feed is not None:
            self._feed.begin_stream()

    def take(
        self, events: Sequence[Received], read: Sequence[Arrival] = ()
    ) -> tuple[dict[str, list[Change]], list[Acknowledgement]]:
        """Write events; returns their changes by JOB, and what can be acknowledged once that is durable.

        `read` are inferences that this process read whole itself, whose digests are those of their bytes. Raises
        StoreError when the disk fails, ProtocolError for a copy without the board's digest.
        """
        changes: dict[str, list[Change]] = {}
        reached: dict[int, Acknowledgement] = {}
        arrivals, others = self._found(events)
        for arrival in read:
            arrivals.setdefault(arrival.received[0].job, []).append(arrival)
        # The others first: among them is what names and times the records.
        self._take_each(others, changes, reached)
        for name, found in arrivals.items():
            if name not in self.refused:
                odd = self._take_plain(name, found, changes.setdefault(name, []), reached)
                self._take_each(odd, changes, reached)
        return changes, list(reached.values())

    def _found(self, events: Sequence[Received]) -> tuple[dict[str, list[Arrival]], Sequence[Received]]:
        """Return inferences that came whole, by JOB, with the board's digests, and the other events."""
        if self._feed is None:
            return {}, events
        arrivals, others = self._feed.take(events, is_plain_allowed=self._may_be_plain)
        for arrival in (each for found in arrivals.values() for each in found):
            for file, received in zip(arrival.group.files, arrival.received, strict=True):
                _check_digest(digest_of(file.data), file.digest, received.job, file.path)
        return arrivals, others

    def _may_be_plain(self, job: str) -> bool:
        return job not in self.refused and not self._is_past(job)

    def _take_plain(
        self, name: str, arrivals: Sequence[Arrival], changes: list[Change], reached: dict[int, Acknowledgement]
    ) -> list[Received]:
        """Write inferences that came whole; returns the events of those that are to be decoded log by log."""
        job = self._of(name)
        found, odd = job.decoder.inferences([arrival.group for arrival in arrivals])
        is_odd = set(map(id, odd))
        left: list[Received] = []
        for group, events in arrivals:
            if id(group) in is_odd:
                left += events
                continue
            for file, received in zip(group.files, events, strict=True):
                assert received.log is not None, "a file of an inference"
                self._put(job, received.log, file.path, file.generation, file.data, reached)
        changes += found
        return left

    def _take_each(
        self, events: Sequence[Received], changes: dict[str, list[Change]], reached: dict[int, Acknowledgement]
    ) -> None:
        for received in events:
            job, log = received.job, received.log
            if job in self.refused:
                continue
            if isinstance(received.event, Loss):
                job, change = loss_change(job, None if log is None else checked_path(log.path), received.event)
                changes.setdefault(job, []).append(change)
                continue
            assert log is not None, "only a Loss can be about no log"
            try:
                changes.setdefault(job, []).extend(self._mean(log, received.event, reached))
            except UnsupportedBoardError as error:
                changes[job].append(self._refuse(job, error))
            except StoreError as error:
                if not self._of(job).mirror.forgets:
                    raise
                entry = ledger.entry(ledger.TOO_LARGE, f"not decoded again: {error}")
                changes[job].append(LinkLedger(checked_path(log.path), entry))

    def assess(self, job: str, unsettled: Sequence[str], orphans: Sequence[str]) -> list[Change]:
        """What is left to say of a JOB that has ended: of logs that nobody vouched for, of `.done` without data.

        Nothing of it stays in memory or open; for one that goes on after all both are made again.
        """
        changes = list(self._of(job).decoder.end(unsettled, orphans))
        self._jobs.pop(job).mirror.close()
        return changes

    def close(self) -> None:
        """Close all files and drop what is in memory: the state of a log is built again from its committed bytes."""
        self._jobs.clear()

    def _of(self, name: str) -> OpenJob:
        """The JOB, opened where it is not in use."""
        job = self._jobs.get(name)
        if job is None:
            # Of one that is gone, the board tells no source.
            source = self.sources.get(name) or source_named(name)
            mirror = self._workspace.job_mirror(self._identity, name)
            decoder = decoder_of(source)(
                mirror,
                past=self._past.setdefault(name, {}),
                counter_map=self._counter_map,
                marked_map=simulated_map(),
                keeping=self._keeping,
                interval=self.intervals.get(name),
            )
            job = self._jobs[name] = OpenJob(mirror, decoder)
        return job

    def _refuse(self, job: str, error: UnsupportedBoardError) -> Change:
        self.refused[job], entry = refusal(job, error)
        return LinkLedger(None, entry)

    def _mean(
        self, log: FollowedLog, event: Started | Chunk | Completed | Removed, reached: dict[int, Acknowledgement]
    ) -> Iterable[Change]:
        job, path = self._of(log.job), checked_path(log.path)
        if isinstance(event, Started | Chunk) and self._is_past(log.job):
            self._past[log.job][path] = event.offset + len(event.data)
        match event:
            case Started() if event.is_whole and log.handle not in self._verified:
                return self._whole(job, log, path, event, reached)
            case Started():
                changes = self._started(job, log, path, event)
                if event.data:
                    changes += self._grown(job, log, path, event, reached)
                if event.digest:
                    changes += self._completed(job, log, path, event.completed, reached)
                return changes
            case Chunk():
                job.mirror.append(path, event.offset, event.data, snapshot=log.snapshot)
                return self._grown(job, log, path, event, reached)
            case Completed():
                return self._completed(job, log, path, event, reached)
            case Removed():
                reached.pop(log.handle, None)
                if not job.decoder.keeps(path):
                    return [PassedOver(path), LogRemoved(path)]
                return [LogRemoved(path), *(LinkLedger(path, each) for each in removal_entry(event.sent, event.size))]

    def _whole(
        self, job: OpenJob, log: FollowedLog, path: str, event: Started, reached: dict[int, Acknowledgement]
    ) -> list[Change]:
        """All of a log, as most of them come: it costs much less than its beginning, its bytes and its end."""
        _check_digest(digest_of(event.data), event.digest, log.job, path)
        self._put(job, log, path, event.generation, event.data, reached)
        meaning = job.decoder.snapshot if log.snapshot else job.decoder.whole
        return [*meaning(path, event.generation, event.data, event.digest), *self._another_file(log, path, event)]

    @staticmethod
    def _put(
        job: OpenJob,
        log: FollowedLog,
        path: str,
        generation: int,
        data: bytes,
        reached: dict[int, Acknowledgement],
    ) -> None:
        job.mirror.put(path, generation, data, snapshot=log.snapshot)
        reached[log.handle] = Acknowledgement(log.handle, generation, len(data), complete=True)

    def _started(self, job: OpenJob, log: FollowedLog, path: str, event: Started) -> list[Change]:
        is_known = self._is_as_held(log.handle, event)
        job.mirror.begin(path, event.generation, event.offset, snapshot=log.snapshot)
        if event.data:
            job.mirror.append(path, event.offset, event.data, snapshot=log.snapshot)
        if log.snapshot or is_known:
            return []
        return [*job.decoder.begin(path, event.generation, event.offset), *self._another_file(log, path, event)]

    def _another_file(self, log: FollowedLog, path: str, event: Started) -> Iterator[Change]:
        # Of a log that the mirror damaged that is told already.
        is_told = log.snapshot or (event.reason == ledger.DIFFERENT and log.handle in self._damaged)
        if event.reason in _ANOTHER_FILE and not is_told:
            yield LinkLedger(path, another_file(event.reason))

    def _grown(
        self, job: OpenJob, log: FollowedLog, path: str, event: Started | Chunk, reached: dict[int, Acknowledgement]
    ) -> list[Change]:
        self._verified.pop(log.handle, None)
        if log.snapshot:
            return []
        reached[log.handle] = Acknowledgement(log.handle, log.generation, log.offset, complete=False)
        return list(job.decoder.append(path, event.generation, event.offset, event.data))

    def _completed(
        self, job: OpenJob, log: FollowedLog, path: str, event: Completed, reached: dict[int, Acknowledgement]
    ) -> list[Change]:
        reached[log.handle] = Acknowledgement(log.handle, event.generation, event.size, complete=True)
        if self._is_as_held(log.handle, event):
            return list(job.decoder.confirm(path))
        changes: list[Change] = []
        if not log.snapshot:
            changes += job.decoder.complete(path, event.generation, event.size, event.digest)
        elif (content := job.mirror.finish_snapshot(path)) is not None:
            changes += job.decoder.snapshot(path, event.generation, content, event.digest, size=event.size)
        else:
            # It stands as it was held: one that was removed is back.
            changes.append(LogAdvanced(path, event.generation, event.size, complete=True, digest=event.digest))
            changes += job.decoder.confirm(path)
        _check_digest(job.mirror.prefix_digest(path, event.size, told=event.digest), event.digest, log.job, path)
        return changes

    def _is_as_held(self, handle: int, event: Started | Completed) -> bool:
        """Whether a complete log goes on and ends as it is held: neither its bytes nor its rows change."""
        known = self._verified.get(handle)
        if known is None:
            return False
        if isinstance(event, Started) and (event.generation, event.offset) == (known.generation, known.offset):
            return True
        del self._verified[handle]
        end = (known.generation, known.offset, known.digest)
        return isinstance(event, Completed) and (event.generation, event.size, event.digest) == end

    def _lost(self, handle: int, path: str) -> Change:
        self._damaged.add(handle)
        detail = f"the mirror's {path} lost bytes that were committed: what the board has of it is copied anew"
        return LinkLedger(None, ledger.entry(ledger.MIRROR_CHANGED, detail))


def _check_digest(found: bytes | None, digest: bytes, job: str, path: str) -> None:
    if found != digest:
        raise ProtocolError(
            f"the copy of {job}/{path} does not have the board's digest",
            hint="check the disk of the host; the log is copied anew",
        )

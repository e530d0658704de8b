"""Mirrors of a board's logs, into which events are written and decoded. Everything here blocks: run it on a thread."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from profagent import ledger
from profagent.errors import ProtocolError, StoreError, UnsupportedBoardError
from profagent.files import make_anew, opened, write_all
from profagent.formats.counter_maps import simulated_map
from profagent.ingest.changes import LinkLedger, LogAdvanced, LogRemoved, PassedOver, loss_change
from profagent.ingest.mirror import ClosingCache, JobMirror, Translated, digest_of, logs_set_aside
from profagent.ingest.source import decoder_of, source_named
from profagent.ledger import another_file, checked_path, refusal, removal_entry
from profagent.limits import LARGEST_CONTENT_BYTES, REMEMBERED_JOBS
from profagent.link.messages import Acknowledgement, Chunk, Completed, Holding, Loss, Removed, Started

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from profagent.formats.countermap import CounterMap
    from profagent.formats.sampling import Keeping
    from profagent.ingest.changes import Change
    from profagent.ingest.decoder import Decoder
    from profagent.ingest.feed import Arrival, Feed
    from profagent.ingest.memory_mirror import MemoryMirror
    from profagent.ingest.mirror_in_place import MirrorInPlace
    from profagent.link.messages import FollowedLog, LogEvent, Received
    from profagent.store.store import CommittedLog, HeldLog
    from profagent.store.workspace import Workspace


class OpenJob(NamedTuple):
    """The mirror and the decoder of one JOB."""

    mirror: JobMirror | MemoryMirror | MirrorInPlace
    decoder: Decoder


class BatchLogs(NamedTuple):
    """Logs of one JOB that a batch was going to write, with the JOB's directory on the board and its source."""

    job: str
    directory: str
    source: str
    data: list[str]
    snapshots: list[str]


class OpenBatch:
    """Files that name the logs of a batch before they are written, for a process that starts after a kill.

    Two files take turns, because the batch before may not be committed yet. They are overwritten in place, which costs
    a quarter of making a new file. Entries of a committed batch are harmless: `begun` and `arrived` compare each log
    with the database.
    """

    def __init__(self, file: Path | None) -> None:
        """`file` is the path of the first file; without it nothing is left to a later process."""
        self._files = () if file is None else (file, file.with_suffix(".batch2"))
        # JOB, path and kind of the logs in the latest batch.
        self._names: set[tuple[str, bytes, bool]] = set()

    def begin(self, events: Iterable[Received], place: Callable[[str], tuple[str, str]]) -> None:
        """Name the logs of a batch before it is written; `place` gives a JOB's directory and source.

        Raises StoreError.
        """
        # The other file may name the batch before, which is perhaps not committed.
        self._files = self._files[::-1]
        self._names = {(each.job, each.log.path, each.log.snapshot) for each in events if each.log is not None}
        if not self._files:
            return
        by_job: dict[str, BatchLogs] = {}
        for job, path, is_snapshot in self._names:
            logs = by_job.get(job)
            if logs is None:
                logs = by_job[job] = BatchLogs(job, *place(job), [], [])
            (logs.snapshots if is_snapshot else logs.data).append(os.fsdecode(path))
        file = self._files[0]
        with Translated(f"cannot write {file}", file.parent):
            handle = opened(str(file), os.O_WRONLY)
            if handle is None:
                handle = make_anew(str(file))
            try:
                # A write that is cut short is harmless: nothing of this batch is in the mirrors before all its names
                # are written.
                names = json.dumps([*by_job.values()]).encode("ascii")
                write_all(handle, 0, names)
                os.ftruncate(handle, len(names))
            finally:
                os.close(handle)

    def has(self, log: FollowedLog) -> bool:
        """Return True if the latest batch has an event of a log."""
        return any((log.job, log.path, is_snapshot) in self._names for is_snapshot in (False, True))

    @property
    def logs(self) -> Collection[tuple[str, bytes, bool]]:
        """JOB, path and kind of the logs in the latest batch: a new object for each batch."""
        return self._names

    def names_log(self, job: str, path: str) -> bool:
        """Return True if the latest batch has an event of the log of a JOB at this path."""
        raw = os.fsencode(path)
        return any((job, raw, is_snapshot) in self._names for is_snapshot in (False, True))

    def names(self) -> list[BatchLogs]:
        """Return the logs that the latest two batches were going to write. Raises StoreError."""
        return [each for file in self._files for each in _names_in(file)]


def _names_in(file: Path) -> list[BatchLogs]:
    with Translated(f"cannot read {file}", file.parent):
        try:
            return [BatchLogs(*each) for each in json.loads(file.read_bytes())]
        except (FileNotFoundError, ValueError):
            # No batch was ever begun, or the power failed before its names were on the disk.
            return []


# Reasons of a new start which say that the file on the board is not the one that was copied.
_ANOTHER_FILE = frozenset({ledger.DIFFERENT, ledger.RECREATED})


class BoardMirrors:
    """Mirrors and decoders of one board's JOBs; those that were used last stay open."""

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
        """`feed` collects inferences that arrive complete; None if the caller finds them itself.

        `keeping` chooses inferences; `is_past` returns True if what arrives of a JOB is from before the capture.
        """
        self.root = workspace.board_mirror(identity)
        self.batch = OpenBatch(workspace.open_batch(identity))
        # JOBs of another SoC, by name: their events are dropped.
        self.refused: dict[str, UnsupportedBoardError] = {}
        # Sources of JOBs, and the sampling intervals of programs whose acl.json is known; set before a JOB's first
        # event.
        self.sources: dict[str, str] = {}
        self.intervals: dict[str, int | None] = {}
        self._is_past = is_past or (lambda _job: False)
        # by JOB and path, the bytes of each log that are from before the capture
        self._past: dict[str, dict[str, int]] = {}
        self._workspace, self._identity = workspace, identity
        self._counter_map, self._keeping = counter_map, keeping
        self._jobs: ClosingCache[OpenJob] = ClosingCache(REMEMBERED_JOBS, lambda job: job.mirror.close())
        # By handle, complete logs of this stream whose bytes in the mirror have the committed digest.
        self._verified: dict[int, HeldLog] = {}
        self._damaged: set[int] = set()  # handles of logs whose committed bytes are not in the mirror any more
        # By handle, logs whose files were removed because their inferences were thinned: nothing more of them is taken.
        self._thinned: dict[int, HeldLog] = {}
        self._feed = feed

    def set_aside(self) -> list[tuple[str, str]]:
        """Return JOB and path of each log whose earlier generation is kept aside. Raises StoreError."""
        return logs_set_aside(self._workspace.superseded(self._identity))

    def restore(self, logs: Iterable[CommittedLog]) -> None:
        """Cut data logs to their committed bytes. Raises StoreError."""
        for job, path, generation, offset in logs:
            self._of(job).mirror.restore(path, generation, offset)

    def expect(self, logs: Iterable[CommittedLog]) -> None:
        """Tell the decoders that more of these data logs is to arrive, so that an earlier `.done` does not end them."""
        for log in logs:
            self._of(log.job).decoder.expect([log.path])

    def begun(self, logs: BatchLogs, held: Mapping[str, HeldLog]) -> list[Change]:
        """Return changes that mark a batch's data logs as begun if the mirror has more of them than is committed.

        The rest of these logs arrives again. Raises StoreError.
        """
        mirror = self._of(logs.job).mirror
        changes: list[Change] = []
        for path in logs.data:
            known = held.get(path)
            generation, offset = (known.generation, known.offset) if known else (0, 0)
            if mirror.is_beyond(path, generation, offset):
                changes.append(LogAdvanced(path, generation, offset, digest=known.digest if known else None))
        return changes

    def arrived(self, logs: BatchLogs, held: Mapping[str, HeldLog]) -> list[Change]:
        """Return the changes of a batch's snapshots that differ from what is committed: no earlier file is logs.

        Data logs are restored before this call. Raises StoreError.
        """
        job = self._of(logs.job)
        changes: list[Change] = []
        for path in logs.snapshots:
            known, size = held.get(path), job.mirror.size(path)
            digest = None if size is None else job.mirror.prefix_digest(path, size)
            if digest is None or (known is not None and (size, digest) == (known.offset, known.digest)):
                continue
            content, generation = job.mirror.read(path, LARGEST_CONTENT_BYTES) or b"", known.generation if known else 0
            try:
                changes += job.decoder.snapshot(path, max(generation, 1), content, digest, size=size)
            except UnsupportedBoardError as error:
                changes.append(self._refuse(logs.job, error))
        return changes

    def compare(
        self, job: str, by_path: Mapping[str, FollowedLog], held: Mapping[str, HeldLog]
    ) -> tuple[list[Holding], list[Change]]:
        """Return what the mirror holds of announced logs, and ledger changes for committed bytes that it has lost."""
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
            holding, is_lost = self._compare_held(mirror, log, path, known)
            holdings.append(holding)
            lost += [self._lost(log.handle, path)] if is_lost else []
        return holdings, lost

    def _compare_held(
        self, mirror: JobMirror | MemoryMirror | MirrorInPlace, log: FollowedLog, path: str, known: HeldLog
    ) -> tuple[Holding, bool]:
        """Return what the mirror holds of a log that has begun, and True if it has lost committed bytes."""
        if not known.kept and known.complete and mirror.size(path) is None:
            self._thinned[log.handle] = known
            return Holding(log.handle, known.generation, known.offset, known.digest or b""), False
        if not log.snapshot:
            mirror.take_back(path, known.generation)
        digest = mirror.prefix_digest(path, known.offset, declared=known.digest)
        if log.snapshot and digest != known.digest:
            # The process ended after the new snapshot had taken the old one's place and before its rows were committed.
            return Holding(log.handle, known.generation), False
        if digest is None:
            # A missing file without committed bytes is no loss: it is made anew when the log starts again.
            return Holding(log.handle, known.generation), known.offset > 0
        if known.complete and known.digest == digest:
            self._verified[log.handle] = known
        is_lost = known.digest not in (None, digest)
        return Holding(log.handle, known.generation, known.offset, digest), is_lost

    def is_open(self, job: str) -> bool:
        """Return True if the JOB's mirror and decoder are open."""
        return job in self._jobs

    def begin_stream(self) -> None:
        """Forget what depends on log handles: a new stream has handles of its own."""
        for job in self._jobs.values():
            job.decoder.begin_stream()
        self._verified.clear()
        self._damaged.clear()
        self._thinned.clear()
        if self._feed is not None:
            self._feed.begin_stream()

    def take(
        self, events: Sequence[Received], read: Sequence[Arrival] = ()
    ) -> tuple[dict[str, list[Change]], list[Acknowledgement]]:
        """Write events into the mirrors; return changes by JOB, and acknowledgements to send once these are durable.

        `read` are complete inferences that this process has read itself, with the digests of their bytes. Raises
        StoreError if the disk fails, and ProtocolError for a copy that differs from the board's file (digest).
        """
        changes: dict[str, list[Change]] = {}
        reached: dict[int, Acknowledgement] = {}
        arrivals, others = self._found(events)
        for arrival in read:
            arrivals.setdefault(arrival.received[0].job, []).append(arrival)
        # Other events go first: they include the logs that name and time the records.
        self._take_each(others, changes, reached)
        for name, found in arrivals.items():
            if name not in self.refused:
                odd = self._take_plain(name, found, changes.setdefault(name, []), reached)
                self._take_each(odd, changes, reached)
        return changes, list(reached.values())

    def _found(self, events: Sequence[Received]) -> tuple[dict[str, list[Arrival]], Sequence[Received]]:
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
        """Write complete inferences; return the events of those that have to be decoded log by log."""
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
            if self._is_thinned(log, received.event):
                changes.setdefault(job, []).extend(self._pass_over(log, received.event, reached))
                continue
            try:
                changes.setdefault(job, []).extend(self._changes_of(log, received.event, reached))
            except UnsupportedBoardError as error:
                changes[job].append(self._refuse(job, error))
            except StoreError as error:
                if not self._of(job).mirror.forgets:
                    raise
                entry = ledger.entry(ledger.TOO_LARGE, f"not decoded again: {error}")
                changes[job].append(LinkLedger(checked_path(log.path), entry))

    def assess(self, job: str, unsettled: Sequence[str], orphans: Sequence[str]) -> list[Change]:
        """Return the last changes of an ended JOB: logs without a verified digest, `.done` files without data.

        The JOB's mirror is closed and its decoder dropped; both are made again if the JOB goes on after all.
        """
        changes = list(self._of(job).decoder.end(unsettled, orphans))
        self._jobs.pop(job).mirror.close()
        return changes

    def close(self) -> None:
        """Close all files and drop all decoders: the state of a log is rebuilt from its committed bytes."""
        self._jobs.clear()

    def _of(self, name: str) -> OpenJob:
        job = self._jobs.get(name)
        if job is None:
            # A board does not list a JOB that is gone, so its source follows from its name.
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

    def _changes_of(
        self, log: FollowedLog, event: Started | Chunk | Completed | Removed, reached: dict[int, Acknowledgement]
    ) -> Iterable[Change]:
        """Write an event's bytes to the mirror, and return what they change in the database."""
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

    def _is_thinned(self, log: FollowedLog, event: LogEvent) -> bool:
        """Return True if an event is about a log whose file was removed because its inference was thinned."""
        if isinstance(event, Started) and event.offset == 0:
            # A new file under the name of the old one.
            self._thinned.pop(log.handle, None)
        elif isinstance(event, Started) and log.handle in self._verified and not self._has_file(log):
            # It was thinned after this host had said that it holds the log.
            self._thinned[log.handle] = self._verified.pop(log.handle)
        return log.handle in self._thinned

    def _has_file(self, log: FollowedLog) -> bool:
        return self._of(log.job).mirror.size(checked_path(log.path)) is not None

    @staticmethod
    def _pass_over(log: FollowedLog, event: LogEvent, reached: dict[int, Acknowledgement]) -> list[Change]:
        """Acknowledge what comes of a thinned log; return a ledger entry if an inference was added to it."""
        end = event.completed if isinstance(event, Started) and event.digest else event
        if isinstance(end, Completed):
            reached[log.handle] = Acknowledgement(log.handle, end.generation, end.size, complete=True)
        if isinstance(event, Started | Chunk) and event.data:
            return [LinkLedger(None, ledger.entry(ledger.ADDED_TO_THINNED, "a model was loaded again"))]
        return []

    def remove(self, files: Iterable[tuple[str, str]]) -> None:
        """Remove files by JOB and path, whose logs were thinned. Raises StoreError."""
        for job, path in files:
            mirror = self._of(job).mirror
            assert isinstance(mirror, JobMirror), "a flight recorder has its own copy of the files"
            mirror.remove(path)

    def _whole(
        self, job: OpenJob, log: FollowedLog, path: str, event: Started, reached: dict[int, Acknowledgement]
    ) -> list[Change]:
        """Write a log that arrived in one event, as most do: much cheaper than a start, chunks and an end."""
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
        # The ledger has an entry already for a log whose bytes the mirror lost.
        is_repeated = log.snapshot or (event.reason == ledger.DIFFERENT and log.handle in self._damaged)
        if event.reason in _ANOTHER_FILE and not is_repeated:
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
            # The board sent no content, as the mirror has it already. The row is written again, in case the snapshot
            # was removed and is back.
            changes.append(LogAdvanced(path, event.generation, event.size, complete=True, digest=event.digest))
            changes += job.decoder.confirm(path)
        _check_digest(job.mirror.prefix_digest(path, event.size, declared=event.digest), event.digest, log.job, path)
        return changes

    def _is_as_held(self, handle: int, event: Started | Completed) -> bool:
        """Return True if a complete log starts or ends as it is committed: its bytes and rows stay unchanged.

        Where it does not, the log counts as verified no longer.
        """
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
            f"the copy of {job}/{path} differs from the board's file (digest)",
            hint="check the disk of this host; the log is copied again",
        )

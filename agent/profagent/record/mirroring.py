"""Events of a board's logs into its mirrors, and what they mean. Everything here blocks: it belongs on a thread."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from profagent.errors import ProtocolError, UnsupportedBoardError
from profagent.files import PRIVATE_FILE, make_private_folder
from profagent.formats.lru import Lru
from profagent.ingest import reasons
from profagent.ingest.changes import LinkLedger, LogAdvanced, LogRemoved, PassedOver
from profagent.ingest.decode import JobDecoder
from profagent.ingest.local import growing_kind
from profagent.ingest.mirror import LARGEST_CONTENT_BYTES, Translated, digest_of, logs_set_aside
from profagent.ingest.reasons import another_file, checked_path, refusal, removal_entry, told_loss
from profagent.link.messages import Acknowledgement, Chunk, Completed, Holding, Loss, Removed, Started
from profagent.store.counter_maps import simulated_map
from profagent.store.store import HeldLog

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence
    from pathlib import Path

    from profagent.formats.countermap import CounterMap
    from profagent.formats.sampling import Keeping
    from profagent.ingest.changes import Change
    from profagent.ingest.mirror import JobMirror
    from profagent.link.messages import FollowedLog, Happened, LogEvent
    from profagent.store.store import CommittedLog
    from profagent.store.workspace import Workspace


# JOBs with open files and decoding state; those of any other are opened and built again when it goes on.
REMEMBERED_JOBS = 16


class OpenJob(NamedTuple):
    """One JOB's mirror and decoder."""

    mirror: JobMirror
    decoder: JobDecoder


class OpenJobs:
    """The latest JOBs of a board by name; at most REMEMBERED_JOBS."""

    def __init__(
        self, workspace: Workspace, identity: str, counter_map: CounterMap | None, keeping: Keeping | None
    ) -> None:
        self._workspace = workspace
        self._identity = identity
        self._counter_map = counter_map
        self._keeping = keeping
        # The intervals of JOBs whose programs' acl.json is known, set before anything of them comes.
        self.intervals: dict[str, int | None] = {}
        self._jobs: Lru[str, OpenJob] = Lru(REMEMBERED_JOBS, lambda job: job.mirror.close())

    def __len__(self) -> int:
        return len(self._jobs)

    def of(self, name: str) -> OpenJob:
        """The JOB, opened where it is not in use."""
        job = self._jobs.get(name)
        if job is None:
            mirror, interval = self._workspace.job_mirror(self._identity, name), self.intervals.get(name)
            decoder = JobDecoder(
                mirror, self._counter_map, marked_map=simulated_map(), keeping=self._keeping, interval=interval
            )
            job = self._jobs[name] = OpenJob(mirror, decoder)
        else:
            self._jobs.move_to_end(name)
        return job

    def read_ahead(self, events: Iterable[Happened], *, passing_over: Container[str]) -> None:
        """Let what begins with these events be read together, but of some JOBs."""
        beginnings: dict[str, list[tuple[str, bytes]]] = {}
        for name, log, event in ((each.job, each.log, each.event) for each in events):
            if isinstance(event, Chunk) and log is not None and not log.snapshot and not event.offset:
                beginnings.setdefault(name, []).append((checked_path(log.path), event.data))
        for name, logs in beginnings.items():
            if name not in passing_over:
                self.of(name).decoder.read_ahead(logs)

    def begin_stream(self) -> None:
        """A stream of the board begins."""
        for job in self._jobs.values():
            job.decoder.begin_stream()

    def settle(self) -> None:
        """Have what was written read back from now on."""
        for job in self._jobs.values():
            job.mirror.settle()

    def close(self, name: str) -> None:
        """Close the JOB's files and drop what is in memory of it."""
        self._jobs.pop(name).mirror.close()

    def close_all(self) -> None:
        """Close all files and drop all that is in memory."""
        while self._jobs:
            self._jobs.popitem()[1].mirror.close()


class LeftLogs(NamedTuple):
    """Logs of one JOB that a batch was to write, and where the JOB stands on its board."""

    job: str
    directory: str
    paths: list[str]


class OpenBatch:
    """The file that names them, written before they are; what it says of a batch that was committed does no harm."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def begin(self, events: Iterable[Happened], directory: Callable[[str], str]) -> None:
        """These events are about to be written; `directory` of a JOB. Raises StoreError."""
        names = {(each.job, each.log.path) for each in events if each.log is not None}
        by_job: dict[str, LeftLogs] = {}
        for job, path in names:
            by_job.setdefault(job, LeftLogs(job, directory(job), [])).paths.append(os.fsdecode(path))
        with Translated(f"cannot write {self._file}", self._file.parent):
            make_private_folder(self._file.parent)
            handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
            with open(handle, "w", encoding="ascii") as file:  # noqa: PTH123 - a descriptor
                json.dump([*by_job.values()], file)

    def left(self) -> list[LeftLogs]:
        """What the latest batch was to write. Raises StoreError."""
        with Translated(f"cannot read {self._file}", self._file.parent):
            try:
                return [LeftLogs(*each) for each in json.loads(self._file.read_bytes())]
            except (FileNotFoundError, ValueError):
                # A process that died while it wrote the names had written nothing else.
                return []


NOTHING_HELD = HeldLog(0, 0, complete=False)
# A file that was copied before is not the one that is there now.
_ANOTHER_FILE = frozenset({reasons.DIFFERENT, reasons.RECREATED})


class BoardMirrors:
    """The mirrors of one board's JOBs."""

    def __init__(
        self, workspace: Workspace, identity: str, counter_map: CounterMap | None, *, keeping: Keeping | None = None
    ) -> None:
        """`keeping` chooses inferences."""
        self.root = workspace.board_mirror(identity)
        self._superseded = workspace.superseded(identity)
        self._jobs = OpenJobs(workspace, identity, counter_map, keeping)
        self.refused: dict[str, UnsupportedBoardError] = {}
        # By handle, complete logs of this stream of which the mirror has the very bytes that were committed.
        self._verified: dict[int, HeldLog] = {}
        self._damaged: set[int] = set()  # handles of the logs of which the mirror lost what it held

    @property
    def intervals(self) -> dict[str, int | None]:
        """The intervals of JOBs whose programs' acl.json is known, set before anything of them comes."""
        return self._jobs.intervals

    def set_aside(self) -> list[tuple[str, str]]:
        """JOB and path of each log of which an earlier generation is kept. Raises StoreError."""
        return logs_set_aside(self._superseded)

    def restore(self, logs: Iterable[CommittedLog]) -> None:
        """Drop what was not committed of data logs. Raises StoreError."""
        for job, path, generation, offset in logs:
            self._jobs.of(job).mirror.restore(path, generation, offset)

    def begun(self, job: str, paths: Iterable[str], held: Mapping[str, HeldLog]) -> list[Change]:
        """Which of a batch's data logs have more in the mirror than is held: it is to come again. Raises StoreError."""
        mirror = self._jobs.of(job).mirror
        changes: list[Change] = []
        for path in filter(growing_kind, paths):
            known = held.get(path, NOTHING_HELD)
            if mirror.is_beyond(path, known.generation, known.offset):
                changes.append(LogAdvanced(path, known.generation, known.offset, digest=known.digest))
        return changes

    def arrived(self, job: str, paths: Iterable[str], held: Mapping[str, HeldLog]) -> list[Change]:
        """What a batch's snapshots mean that are not as they are held: they are whole, and no earlier ones are there.

        Data logs are restored before. Raises StoreError.
        """
        mirror = self._jobs.of(job).mirror
        changes: list[Change] = []
        for path in paths:
            known, size = held.get(path, NOTHING_HELD), None if growing_kind(path) else mirror.size(path)
            digest = None if size is None else mirror.prefix_digest(path, size)
            if size is None or digest is None or (size, digest) == (known.offset, known.digest):
                continue
            content, generation = mirror.read(path, LARGEST_CONTENT_BYTES) or b"", max(known.generation, 1)
            try:
                changes += self._jobs.of(job).decoder.snapshot(path, generation, content, digest, size=size)
            except UnsupportedBoardError as error:
                self.refused[job], entry = refusal(job, error)
                changes.append(LinkLedger(None, entry))
        return changes

    def compare(
        self, job: str, by_path: Mapping[str, FollowedLog], held: Mapping[str, HeldLog]
    ) -> tuple[list[Holding], list[Change]]:
        """What the mirror holds of announced logs, and what it should hold and does not."""
        holdings: list[Holding] = []
        lost: list[Change] = []
        self._jobs.of(job).decoder.expect(path for path in by_path if not held.get(path, NOTHING_HELD).complete)
        for path, log in by_path.items():
            known = held.get(path)
            self._verified.pop(log.handle, None)
            if known is None or known.generation == 0:
                holdings.append(Holding(log.handle))
                continue
            if not log.snapshot:
                self._jobs.of(job).mirror.take_back(path, known.generation)
            digest = self._jobs.of(job).mirror.prefix_digest(path, known.offset)
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

    def begin_stream(self) -> None:
        """A stream begins: its logs come with handles of their own."""
        self._jobs.begin_stream()
        self._verified.clear()
        self._damaged.clear()

    def take(self, events: Sequence[Happened]) -> tuple[dict[str, list[Change]], list[Acknowledgement]]:
        """Write events; returns their changes by JOB, and what can be acknowledged once that is durable.

        Raises StoreError when the disk fails, ProtocolError for a copy without the board's digest.
        """
        changes: dict[str, list[Change]] = {}
        reached: dict[int, Acknowledgement] = {}
        self._jobs.read_ahead(events, passing_over=self.refused)
        for happened in events:
            if happened.job in self.refused:
                continue
            if isinstance(happened.event, Loss):
                job, change = told_loss(happened, happened.event)
                changes.setdefault(job, []).append(change)
                continue
            try:
                changes.setdefault(happened.job, []).extend(self._mean(happened, reached))
            except UnsupportedBoardError as error:
                self.refused[happened.job], entry = refusal(happened.job, error)
                changes[happened.job].append(LinkLedger(None, entry))
        self._jobs.settle()
        return changes, list(reached.values())

    def assess(self, job: str, unsettled: Sequence[str], orphans: Sequence[str]) -> list[Change]:
        """What is left to say of a JOB that has ended: of logs that nobody vouched for, of `.done` without data.

        Nothing of it stays in memory or open; for one that goes on after all both are made again.
        """
        changes = list(self._jobs.of(job).decoder.end(unsettled, orphans))
        self._jobs.close(job)
        return changes

    def forget(self) -> None:
        """Drop what is in memory: the state of each log is built again from its committed bytes."""
        self._jobs.close_all()

    def close(self) -> None:
        """Close the mirrors' files."""
        self._jobs.close_all()

    def _mean(self, happened: Happened, reached: dict[int, Acknowledgement]) -> Iterable[Change]:
        log, event = happened.log, happened.event
        assert log is not None, "only a Loss can be about no log"
        assert not isinstance(event, Loss), "it has no bytes"
        job, path = self._jobs.of(log.job), checked_path(log.path)
        is_known = self._is_as_held(log.handle, event)
        match event:
            case Started():
                return self._started(job, log, path, event, is_known=is_known)
            case Chunk():
                job.mirror.append(path, event.offset, event.data, snapshot=log.snapshot)
                if not log.snapshot:
                    reached[log.handle] = Acknowledgement(log.handle, log.generation, log.offset, complete=False)
                    return list(job.decoder.append(path, event.generation, event.offset, event.data))
            case Completed():
                reached[log.handle] = Acknowledgement(log.handle, event.generation, event.size, complete=True)
                return job.decoder.confirm(path) if is_known else self._completed(job, log, path, event)
            case Removed():
                reached.pop(log.handle, None)
                if not job.decoder.keeps(path):
                    return [PassedOver(path), LogRemoved(path)]
                return [LogRemoved(path), *(LinkLedger(path, each) for each in removal_entry(event.sent, event.size))]
        return []

    def _started(
        self, job: OpenJob, log: FollowedLog, path: str, event: Started, *, is_known: bool
    ) -> Iterable[Change]:
        job.mirror.begin(path, event.generation, event.offset, snapshot=log.snapshot)
        if log.snapshot or is_known:
            return []
        changes: list[Change] = list(job.decoder.begin(path, event.generation, event.offset))
        # Of a log that the mirror damaged that is told already.
        if event.reason in _ANOTHER_FILE and not (event.reason == reasons.DIFFERENT and log.handle in self._damaged):
            changes.append(LinkLedger(path, another_file(event.reason)))
        return changes

    def _completed(self, job: OpenJob, log: FollowedLog, path: str, event: Completed) -> Iterable[Change]:
        changes: list[Change] = []
        digest = None
        if not log.snapshot:
            changes += job.decoder.complete(path, event.generation, event.size, event.digest)
        elif (content := job.mirror.finish_snapshot(path)) is not None:
            changes += job.decoder.snapshot(path, event.generation, content, event.digest, size=event.size)
            # What was read back whole just now is not read once more.
            digest = digest_of(content) if len(content) == event.size else None
        else:
            # It stands as it was held: one that was removed is back.
            changes.append(LogAdvanced(path, event.generation, event.size, complete=True, digest=event.digest))
            changes += job.decoder.confirm(path)
        if (digest or job.mirror.prefix_digest(path, event.size)) != event.digest:
            raise ProtocolError(
                f"the copy of {log.job}/{path} does not have the board's digest",
                hint="check the disk of the host; the log is copied anew",
            )
        return changes

    def _is_as_held(self, handle: int, event: LogEvent) -> bool:
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
        return LinkLedger(None, reasons.entry(reasons.MIRROR_CHANGED, detail))

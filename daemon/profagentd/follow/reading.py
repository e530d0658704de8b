"""Moving one log forward: reads its file and produces the events that follow. Runs in a worker thread."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from profagentd.follow.log import (
    OVER,
    Chunk,
    Comparison,
    Event,
    FileEvent,
    Loss,
    LossReason,
    Removed,
    StartReason,
    unread_loss,
)
from profagentd.limits import CHUNK_BYTES, COMPARE_BYTES
from profagentd.sources.files import Gone, JobGone, NotAFile, OpenCollection, Unreadable, fingerprint, translate_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagentd.follow.log import Log
    from profagentd.loop import ClockReading
    from profagentd.sources.files import FolderPlace
    from profagentd.sources.source import Source

# A log that did not change for this long counts as stable.
STABLE_S = 0.3
# A snapshot that changed while it was read is read again after this.
REREAD_S = 0.02
# A log whose JOB directory is missing is read again after this, unless the registry reports the JOB as gone first.
MISSED_S = 1.0


class ReadStep(NamedTuple):
    """Result of one read of a log: events in order, and the next turn that it asks for.

    `again` asks for another turn at once, `due` for one at that monotonic time; `sent_bytes` counts the chunks' bytes.
    """

    events: tuple[Event, ...] = ()
    again: bool = False
    due: float | None = None
    sent_bytes: int = 0


class ReadTask(NamedTuple):
    """A log that is to be read, and its collection's place.

    If the collection `is_removed`, the place belongs to another.
    """

    log: Log
    place: FolderPlace
    source: Source
    is_removed: bool = False


def read_batch(tasks: Sequence[ReadTask], now: ClockReading, limit: int = CHUNK_BYTES) -> list[ReadStep]:
    """Return the steps of the first tasks, in order, until they hold `limit` bytes or more; the rest was not read."""
    steps: list[ReadStep] = []
    size = 0
    with ExitStack() as opened:
        jobs: dict[FolderPlace, OpenCollection] = {}
        for task in tasks:
            # The limit bounds a stream's memory: the chunks of a batch stay until gRPC has taken them.
            if size >= limit:
                break
            if task.is_removed:
                steps.append(_removed(task.log))
                continue
            files = jobs.get(task.place)
            if files is None:
                files = jobs[task.place] = opened.enter_context(OpenCollection(task.place))
            step = poll_log(task.log, files, task.source, now, limit)
            size += step.sent_bytes
            steps.append(step)
    return steps


def poll_log(log: Log, files: OpenCollection, source: Source, now: ClockReading, limit: int = CHUNK_BYTES) -> ReadStep:
    """Read the log's file once and return its step, with at most one chunk of at most `limit` bytes."""
    # Cleared before the file is opened: an event that arrives during the read sets it again.
    if log.needs_comparison:
        log.needs_comparison = False
        log.compare_again()
    try:
        step = _FileRead(log, files, source, now, limit).step()
    except JobGone:
        log.needs_comparison = True
        return ReadStep(due=now.monotonic + MISSED_S)
    except Gone:
        return _removed(log)
    except NotAFile:
        loss = Loss(log.handle, log.job, LossReason.NOT_A_FILE, f"{os.fsdecode(log.path)} is no longer a regular file")
        return ReadStep((loss, *_removed(log).events))
    except Unreadable as error:
        # One loss for each time that the file becomes unreadable: further reads would repeat it.
        was_sent, log.is_loss_sent = log.is_loss_sent, True
        loss = Loss(log.handle, log.job, LossReason.UNREADABLE, f"{os.fsdecode(log.path)}: {error}")
        return ReadStep(() if was_sent else (loss,))
    log.is_loss_sent = False
    return step


def _removed(log: Log) -> ReadStep:
    """Return the step of a log whose file is removed, with a loss if content was written since the last read."""
    log.set_state(OVER)
    holding = log.comparison if log.generation == 0 else None
    generation, sent = (holding.generation, holding.offset) if holding else (log.generation, log.sent)
    if sent > log.size:
        sent = 0  # the client holds more than the file had, so its bytes are of another file
    removed = Removed(log.handle, generation, sent, log.size)
    if log.size > sent or not log.grows or not log.file_events.implies_loss:
        return ReadStep((removed,))
    return ReadStep((unread_loss(log.job, log.path, read_bytes=0 if log.file_events.is_created else log.sent), removed))


class _FileRead:
    """One read of a file: compares, sends, completes."""

    __slots__ = (
        "_content",
        "_descriptor",
        "_events",
        "_files",
        "_fingerprint",
        "_limit",
        "_log",
        "_now",
        "_sent_bytes",
        "_source",
    )

    def __init__(self, log: Log, files: OpenCollection, source: Source, now: ClockReading, limit: int) -> None:
        self._log = log
        self._files = files
        self._source = source
        self._now = now
        self._limit = limit
        # Events in the order in which the client needs them, and the bytes of their chunks.
        self._events: list[Event] = []
        self._sent_bytes = 0
        self._content: bytes | None = None  # the whole file, where an earlier read of this batch already has it

    def step(self) -> ReadStep:
        """Open the file if there is anything to read, and return the step.

        Raises Gone, JobGone, NotAFile, Unreadable.
        """
        log = self._log
        if log.is_fully_sent and fingerprint(self._files.status(log.path)) == log.fingerprint:
            log.file_events = FileEvent.HINT
            return self._finish(is_whole=False)
        log.file_events = FileEvent.HINT
        # A `.done` may just have been read for the length of its data log, in this batch.
        end = None if log.comparison and log.comparison.offset else self._files.take_end(log.path)
        if end is not None and end.seen.size <= self._limit:
            self._fingerprint, self._content = end
            return self._read()
        self._descriptor, status = self._files.open(log.path)
        self._fingerprint = fingerprint(status)
        try:
            return self._read()
        except OSError as error:
            raise translate_error(error) from error
        finally:
            os.close(self._descriptor)

    def _read(self) -> ReadStep:
        log = self._log
        if self._fingerprint.size != log.size:
            self._note_change()
        # The status of the open descriptor decides, not that of the name: another file may take the name at any time.
        log.size = self._fingerprint.size
        if log.comparison and not self._compare(log.comparison):
            return ReadStep(again=True)
        if log.grows:
            return self._read_growing()
        return self._read_small_snapshot() if self._fingerprint.size <= self._limit else self._read_large_snapshot()

    def _compare(self, comparison: Comparison) -> bool:
        # A snapshot is compared as a unit: a longer file that begins with the same bytes is another snapshot.
        must_be_equal = comparison.generation > 0 and not self._log.grows
        differs = (
            self._fingerprint.size != comparison.offset if must_be_equal else self._fingerprint.size < comparison.offset
        )
        if not differs and comparison.compared_bytes < comparison.offset and not self._read_prefix(comparison):
            return False
        digest = None if differs else comparison.matching_digest()
        if digest is None:
            self._events.append(self._log.start(comparison.generation + 1, comparison.reason_if_different))
            return True
        started = self._log.resume(comparison, digest)
        self._log.fingerprint = self._fingerprint
        self._events += [started] if started else []
        return True

    def _read_prefix(self, comparison: Comparison) -> bool:
        until = min(comparison.offset, comparison.compared_bytes + COMPARE_BYTES)
        while comparison.compared_bytes < until:
            data = os.pread(
                self._descriptor, min(CHUNK_BYTES, until - comparison.compared_bytes), comparison.compared_bytes
            )
            if not data:
                return False  # the file has just shrunk, which the next read sees by its size
            comparison.update(data)
        return comparison.compared_bytes == comparison.offset

    def _read_growing(self) -> ReadStep:
        log = self._log
        if log.fingerprint and (log.fingerprint.inode != self._fingerprint.inode or self._fingerprint.size < log.sent):
            self._events.append(log.start(log.generation + 1, StartReason.RECREATED))
        before, log.fingerprint = log.fingerprint, self._fingerprint
        if (
            before
            and before != self._fingerprint
            and log.sent
            and (self._fingerprint.size <= before.size or log.is_complete)
        ):
            # A changed file that did not grow may have other content. A complete one that grew may be a new run of the
            # same model, which appends.
            log.compare_again()
            return self._step(again=True)
        self._send_next()
        return self._step(again=True) if log.sent < self._fingerprint.size else self._finish(is_whole=False)

    def _read_small_snapshot(self) -> ReadStep:
        """Send a snapshot of one chunk; the fingerprint before and after proves that no writer came between."""
        log, data = self._log, self._content
        if data is None:
            data = os.pread(self._descriptor, self._fingerprint.size + 1, 0)
            if len(data) != self._fingerprint.size or fingerprint(os.fstat(self._descriptor)) != self._fingerprint:
                return self._step(due=self._now.monotonic + REREAD_S)
        if not log.has_sent_exactly(data):
            self._note_change()
            self._rewrite()
            self._send(data)
        log.fingerprint = self._fingerprint
        ended = self._source.ended_by(log.path)
        return self._finish(is_whole=ended is not None and self._source.end_length(ended, data) is not None)

    def _read_large_snapshot(self) -> ReadStep:
        """Send a snapshot of many chunks, from its beginning again whenever the file changed on the way."""
        log = self._log
        if log.fingerprint != self._fingerprint:
            self._note_change()
            if not self._is_stable:
                return self._step(due=log.changed_s + STABLE_S)
            self._rewrite()
        log.fingerprint = self._fingerprint
        self._send_next()
        return self._step(again=True) if log.sent < self._fingerprint.size else self._finish(is_whole=False)

    def _finish(self, *, is_whole: bool) -> ReadStep:
        log = self._log
        if log.is_complete:
            return self._step()
        if log.grows and self._source.end_of(log.path) is not None:
            length = self._files.announced_length(self._source, log.path)
            if length is None:
                return self._step()  # the `.done` is not there yet; its arrival gives the log another turn
            # The runtime closes the data before it writes the `.done`, so an equal length is the end. With another
            # length more bytes may follow, and the log has to be stable as well.
            is_whole = length == log.sent
        if not is_whole and not self._is_stable:
            return self._step(due=log.changed_s + STABLE_S)
        self._events.append(log.complete())
        return self._step()

    @property
    def _is_stable(self) -> bool:
        return self._now.monotonic >= self._log.changed_s + STABLE_S

    def _note_change(self) -> None:
        self._log.changed_s = max(self._log.changed_s, self._now.monotonic_of(self._fingerprint.mtime_ns // 1000))

    def _rewrite(self) -> None:
        if self._log.has_content:
            self._events.append(self._log.start(self._log.generation + 1, StartReason.REWRITTEN))

    def _send_next(self) -> None:
        # Bytes beyond the size in the fingerprint belong to the next read, whose fingerprint covers them.
        size = min(self._limit, self._fingerprint.size - self._log.sent)
        self._send(os.pread(self._descriptor, size, self._log.sent))

    def _send(self, data: bytes) -> None:
        if data:
            self._events.append(Chunk(self._log.handle, self._log.generation, self._log.sent, data))
            self._log.append_sent(data)
            self._sent_bytes += len(data)

    def _step(self, *, again: bool = False, due: float | None = None) -> ReadStep:
        return ReadStep(tuple(self._events), again, due, self._sent_bytes)

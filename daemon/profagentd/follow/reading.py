"""Moving one log forward: what the file says now, and the events that follow. Runs in a worker thread."""

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
from profagentd.sources.files import Gone, JobGone, NotAFile, OpenCollection, Unreadable, fingerprint, meaning_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagentd.follow.log import Log
    from profagentd.loop import ClockReading
    from profagentd.sources.files import FolderPlace
    from profagentd.sources.source import Source

# A log that was not changed for so long has stopped changing.
STABLE_S = 0.3
# A snapshot that was caught while it was written is read again after this.
REREAD_S = 0.02
# A log whose directory is not there is looked for again after this, unless it is told as gone.
MISSED_S = 1.0


class ReadStep(NamedTuple):
    """What one look gave: events in order, whether to look again at once, or when, and the bytes sent with it."""

    events: tuple[Event, ...] = ()
    again: bool = False
    due: float | None = None
    sent_bytes: int = 0


class ReadTask(NamedTuple):
    """A log that is to be looked at, and where; once its collection `is_removed`, what stands there is another's."""

    log: Log
    place: FolderPlace
    source: Source
    is_removed: bool = False


def read_batch(tasks: Sequence[ReadTask], now: ClockReading, limit: int = CHUNK_BYTES) -> list[ReadStep]:
    """Steps of the first tasks, in order, until there are `limit` bytes or more; the others were not taken."""
    steps: list[ReadStep] = []
    size = 0
    with ExitStack() as opened:
        jobs: dict[FolderPlace, OpenCollection] = {}
        for task in tasks:
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
    """Look at the log's file once and send at most one chunk of it, of at most `limit` bytes."""
    if log.doubted:
        log.doubted = False
        log.compare_again()
    try:
        step = _Look(log, files, source, now, limit).step()
    except JobGone:
        log.doubted = True
        return ReadStep(due=now.monotonic + MISSED_S)
    except Gone:
        return _removed(log)
    except NotAFile:
        loss = Loss(log.handle, log.job, LossReason.NOT_A_FILE, f"{os.fsdecode(log.path)} is no regular file any more")
        return ReadStep((loss, *_removed(log).events))
    except Unreadable as error:
        was_sent, log.is_loss_sent = log.is_loss_sent, True
        loss = Loss(log.handle, log.job, LossReason.UNREADABLE, f"{os.fsdecode(log.path)}: {error}")
        return ReadStep(() if was_sent else (loss,))
    log.is_loss_sent = False
    return step


def _removed(log: Log) -> ReadStep:
    """The log's file is gone; of what was seen to be written since it was read, a loss is told."""
    log.set_state(OVER)
    asked = log.comparison if log.generation == 0 else None
    generation, sent = (asked.generation, asked.offset) if asked else (log.generation, log.sent)
    if sent > log.size:
        sent = 0  # what the client holds was longer: it is of another file
    gone = Removed(log.handle, generation, sent, log.size)
    if log.size > sent or not log.grows or not log.news.is_loss:
        return ReadStep((gone,))
    return ReadStep((unread_loss(log.job, log.path, read_bytes=0 if log.news.is_made else log.sent), gone))


class _Look:
    """One look at a file."""

    __slots__ = (
        "_content",
        "_descriptor",
        "_events",
        "_files",
        "_limit",
        "_log",
        "_now",
        "_seen",
        "_sent_bytes",
        "_source",
    )

    def __init__(self, log: Log, files: OpenCollection, source: Source, now: ClockReading, limit: int) -> None:
        self._log = log
        self._files = files
        self._source = source
        self._now = now
        self._limit = limit
        self._events: list[Event] = []
        self._sent_bytes = 0
        self._content: bytes | None = None  # where it was read already

    def step(self) -> ReadStep:
        """Open the file if there is anything to read. Raises Gone, JobGone, NotAFile, Unreadable."""
        log = self._log
        if log.was_sent_whole and fingerprint(self._files.status(log.path)) == log.fingerprint:
            log.news = FileEvent.HINT
            return self._finish(is_whole=False)
        log.news = FileEvent.HINT
        end = None if log.comparison and log.comparison.offset else self._files.take_end(log.path)
        if end is not None and end.seen.size <= self._limit:
            self._seen, self._content = end
            return self._read()
        self._descriptor, status = self._files.open(log.path)
        self._seen = fingerprint(status)
        try:
            return self._read()
        except OSError as error:
            raise meaning_of(error) from error
        finally:
            os.close(self._descriptor)

    def _read(self) -> ReadStep:
        """Compare, then send, then see whether it is complete."""
        log = self._log
        if self._seen.size != log.size:
            self._note_change()
        log.size = self._seen.size
        if log.comparison and not self._compare(log.comparison):
            return ReadStep(again=True)
        if log.grows:
            return self._data()
        return self._small_snapshot() if self._seen.size <= self._limit else self._large_snapshot()

    def _compare(self, comparison: Comparison) -> bool:
        """Compare the prefix further; whether that is decided."""
        # A snapshot is one thing: a longer file that begins the same is another one.
        whole = comparison.generation > 0 and not self._log.grows
        unlike = self._seen.size != comparison.offset if whole else self._seen.size < comparison.offset
        if not unlike and comparison.at < comparison.offset and not self._read_prefix(comparison):
            return False
        digest = None if unlike else comparison.agreed()
        if digest is None:
            self._events.append(self._log.start(comparison.generation + 1, comparison.different))
            return True
        started = self._log.go_on(comparison, digest)
        self._log.fingerprint = self._seen
        self._events += [started] if started else []
        return True

    def _read_prefix(self, comparison: Comparison) -> bool:
        until = min(comparison.offset, comparison.at + COMPARE_BYTES)
        while comparison.at < until:
            data = os.pread(self._descriptor, min(CHUNK_BYTES, until - comparison.at), comparison.at)
            if not data:
                return False  # it has just shrunk: the next look sees that
            comparison.took(data)
        return comparison.at == comparison.offset

    def _data(self) -> ReadStep:
        """A log that grows at its end."""
        log = self._log
        if log.fingerprint and (log.fingerprint.inode != self._seen.inode or self._seen.size < log.sent):
            self._events.append(log.start(log.generation + 1, StartReason.RECREATED))
        before, log.fingerprint = log.fingerprint, self._seen
        if before and before != self._seen and log.sent and (self._seen.size <= before.size or log.is_complete):
            # Written, and not longer: it may have been written anew. Complete, and longer: it may go on.
            log.compare_again()
            return self._step(again=True)
        self._send_next()
        return self._step(again=True) if log.sent < self._seen.size else self._finish(is_whole=False)

    def _small_snapshot(self) -> ReadStep:
        """A snapshot of one chunk: what is sent is what stood in the file at one time."""
        log, data = self._log, self._content
        if data is None:
            data = os.pread(self._descriptor, self._seen.size + 1, 0)
            if len(data) != self._seen.size or fingerprint(os.fstat(self._descriptor)) != self._seen:
                return self._step(due=self._now.monotonic + REREAD_S)
        if not log.was_sent(data):
            self._note_change()
            self._rewrite()
            self._send(data)
        log.fingerprint = self._seen
        ended = self._source.ended_by(log.path)
        return self._finish(is_whole=ended is not None and self._source.end_length(ended, data) is not None)

    def _large_snapshot(self) -> ReadStep:
        """A snapshot of many chunks: begun anew when it has changed on the way, and rests."""
        log = self._log
        if log.fingerprint != self._seen:
            self._note_change()
            if not self._is_stable:
                return self._step(due=log.changed + STABLE_S)
            self._rewrite()
        log.fingerprint = self._seen
        self._send_next()
        return self._step(again=True) if log.sent < self._seen.size else self._finish(is_whole=False)

    def _finish(self, *, is_whole: bool) -> ReadStep:
        """Everything that is there was sent: say so when it is complete, look again when it may be soon."""
        log = self._log
        if log.is_complete:
            return self._step()
        if log.grows and self._source.end_of(log.path) is not None:
            length = self._files.announced_length(self._source, log.path)
            if length is None:
                return self._step()  # when one comes, the log has its turn again
            # The runtime closes the data first. Of a log with another length nobody knows whether more comes.
            is_whole = length == log.sent
        if not is_whole and not self._is_stable:
            return self._step(due=log.changed + STABLE_S)
        self._events.append(log.complete())
        return self._step()

    @property
    def _is_stable(self) -> bool:
        return self._now.monotonic >= self._log.changed + STABLE_S

    def _note_change(self) -> None:
        self._log.changed = max(self._log.changed, self._now.seen(self._seen.mtime_ns // 1000))

    def _rewrite(self) -> None:
        if self._log.has_content:
            self._events.append(self._log.start(self._log.generation + 1, StartReason.REWRITTEN))

    def _send_next(self) -> None:
        # What comes after the size that was seen belongs to the next look.
        size = min(self._limit, self._seen.size - self._log.sent)
        self._send(os.pread(self._descriptor, size, self._log.sent))

    def _send(self, data: bytes) -> None:
        if data:
            self._events.append(Chunk(self._log.handle, self._log.generation, self._log.sent, data))
            self._log.took(data)
            self._sent_bytes += len(data)

    def _step(self, *, again: bool = False, due: float | None = None) -> ReadStep:
        return ReadStep(tuple(self._events), again, due, self._sent_bytes)

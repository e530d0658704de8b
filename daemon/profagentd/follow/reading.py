"""Moving one log forward: what the file says now, and the events that follow. Runs in a worker thread."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from profagentd.follow.log import (
    COMPARING,
    OVER,
    UNREAD,
    Chunk,
    Comparison,
    Event,
    FileEvent,
    Log,
    Loss,
    LossReason,
    Removed,
    StartReason,
    unread_loss,
)
from profagentd.sources.job import Gone, JobGone, NotAFile, OpenJob, Unreadable, done_length, ended_by, fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagentd.follow.log import Log
    from profagentd.loop import Moment
    from profagentd.sources.job import DirectoryId, Place


# Over 10 kB/s a message comes within half of the time after which a peer that is not heard is taken as gone.
SMALL_BYTES = 64 * 1024
LARGE_BYTES = 256 * 1024
# A link is judged by so many bytes, each time anew. At this rate a large message takes a quarter of a second.
JUDGED_BYTES = 1024 * 1024
QUICK_BYTES_PER_S = 1024 * 1024


class MessageSize:
    """The size for one stream. Each message costs both ends about the same, however large it is."""

    def __init__(self) -> None:
        self.limit = SMALL_BYTES
        self._bytes = 0
        self._seconds = 0.0

    def sent(self, size: int, seconds: float) -> None:
        """The link has taken `size` bytes of logs within so long."""
        self._bytes += size
        self._seconds += seconds
        is_slow = self._seconds > JUDGED_BYTES / QUICK_BYTES_PER_S
        if is_slow or self._bytes >= JUDGED_BYTES:
            self.limit = SMALL_BYTES if is_slow else LARGE_BYTES
            self._bytes, self._seconds = 0, 0.0


# One look gives what one message takes: all of it over a quick link, else one of its pieces.
CHUNK_BYTES = LARGE_BYTES
PIECE_BYTES = SMALL_BYTES
# A log that was not changed for so long has stopped changing.
STABLE_S = 0.3
# A snapshot that was caught while it was written is read again after this.
REREAD_S = 0.02
# A snapshot too large for one chunk is sent again at this rate at most, however often it is rewritten.
RESEND_BYTES_PER_S = 4 * 1024 * 1024
# So much is compared in one go before other logs have their turn.
COMPARE_BYTES = 4 * 1024 * 1024


class Step(NamedTuple):
    """What one look gave: events in order, whether to look again at once, or when, and the bytes that are sent with it.

    With `is_job_gone` the JOB's directory was not there, which says nothing of the log. With `wants_look` its handle is
    over: no regular file stands under the name of a log that nobody has looked at.
    """

    events: tuple[Event, ...] = ()
    again: bool = False
    due: float | None = None
    is_job_gone: bool = False
    sent_bytes: int = 0
    wants_look: bool = False


def poll_log(log: Log, files: OpenJob, now: Moment, *, check: bool = False, limit: int = CHUNK_BYTES) -> Step:
    """Look at the log's file once and send at most one chunk of it, of at most `limit` bytes.

    With `check`, a data log's bytes are compared with the file once more before it is called complete: for watching
    that cannot see a file replaced by another of the same inode. One that grew while it was followed always is: it may
    have been truncated, and have grown beyond its size, between two looks.
    """
    if log.doubted:
        log.doubted = False
        log.compare_again()
    try:
        step = _Look(log, files, now, check=check, limit=limit).step()
    except JobGone:
        return Step(is_job_gone=True)
    except Gone:
        return removed(log)
    except NotAFile:
        if log.state is UNREAD:
            return Step(wants_look=True)
        loss = Loss(log.handle, log.job, LossReason.NOT_A_FILE, f"{os.fsdecode(log.path)} is no regular file any more")
        return Step((loss, *removed(log).events))
    except Unreadable as error:
        return _unreadable(log, error)
    log.is_loss_sent = False
    return step


def removed(log: Log) -> Step:
    """The log's file is gone; of what may have been written since it was read, a loss is told."""
    is_unread = log.state is UNREAD or _has_unread(log)
    log.set_state(OVER)
    asked = log.comparison if log.generation == 0 else None
    generation, sent = (asked.generation, asked.offset) if asked else (log.generation, log.sent)
    if sent > log.size:
        sent = 0  # what the client holds was longer: it is of another file
    gone = Removed(log.handle, generation, sent, log.size)
    if not is_unread or log.size > sent:
        return Step((gone,))
    return Step((unread_loss(log.job, log.path, read_bytes=0 if log.news & FileEvent.MADE else log.sent), gone))


def _has_unread(log: Log) -> bool:
    """Whether it is known by events that a file that is gone was made, or written to, since it was read.

    What is complete may have been closed since; of a snapshot no state is told that another took the place of.
    """
    if not log.grows or log.news & FileEvent.MOVED:
        return False
    return bool(log.news & FileEvent.MADE) or (bool(log.news & FileEvent.WRITTEN) and not log.is_complete)


def _unreadable(log: Log, error: Unreadable) -> Step:
    told, log.is_loss_sent = log.is_loss_sent, True
    loss = Loss(log.handle, log.job, LossReason.UNREADABLE, f"{os.fsdecode(log.path)}: {error}")
    return Step(() if told else (loss,))


class _Look:
    """One look at a file."""

    __slots__ = ("_check", "_descriptor", "_events", "_files", "_limit", "_log", "_now", "_seen", "_sent_bytes")

    def __init__(self, log: Log, files: OpenJob, now: Moment, *, check: bool, limit: int) -> None:
        self._log = log
        self._files = files
        self._now = now
        self._check = check
        self._limit = limit
        self._events: list[Event] = []
        self._sent_bytes = 0

    def step(self) -> Step:
        """Open the file if there is anything to read. Raises Gone, JobGone, NotAFile, Unreadable."""
        log = self._log
        if log.was_sent_whole and fingerprint(self._files.status(log.path)) == log.fingerprint:
            log.news = FileEvent.HINT
            return self._finish(is_whole=False)
        done = None if log.grows or (log.comparison and log.comparison.offset) else self._files.done_read(log.path)
        if done:
            self._seen = done.seen
            return self._read(done.data)
        if log.state is UNREAD:
            self._files.status(log.path)  # opening what is no file, a fifo for one, may have an effect
        with self._files.open(log.path) as file:
            self._descriptor = file.descriptor
            self._seen = fingerprint(file.status)
            return self._read()

    def _read(self, whole: bytes | None = None) -> Step:
        """Compare, then send, then see whether it is complete; `whole` is all of a small file that was read already."""
        if self._log.state is UNREAD:
            self._log.set_state(COMPARING)
        self._log.news = FileEvent.HINT
        if self._seen.size != self._log.size:
            self._note_change()
        self._log.size = self._seen.size
        comparison = self._log.comparison
        if comparison and not self._compare(comparison):
            return Step(again=True)
        if self._log.grows:
            return self._data()
        return self._small_snapshot(whole) if self._seen.size <= self._limit else self._large_snapshot()

    def _compare(self, comparison: Comparison) -> bool:
        """Compare the prefix further; whether that is decided."""
        # A snapshot is one thing: a longer file that begins the same is another one.
        whole = comparison.generation > 0 and not self._log.grows
        unlike = self._seen.size != comparison.offset if whole else self._seen.size < comparison.offset
        if not unlike and comparison.at < comparison.offset and not self._read_prefix(comparison):
            return False
        digest = None if unlike else comparison.agreed()
        if digest is None:
            self._start(comparison.generation + 1, comparison.different)
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
        return comparison.is_done

    def _data(self) -> Step:
        """A log that grows at its end."""
        log = self._log
        if log.fingerprint and (log.fingerprint.inode != self._seen.inode or self._seen.size < log.sent):
            self._start(log.generation + 1, StartReason.RECREATED)
        before, log.fingerprint = log.fingerprint, self._seen
        if before and before != self._seen:
            log.checked, log.grew = 0, log.sent > 0
            if log.sent > 0 and (self._seen.size <= before.size or log.is_complete):
                # Written, and not longer: it may have been written anew. Complete, and longer: it may go on.
                log.compare_again()
                return self._step(again=True)
        self._send_next()
        if log.sent < self._seen.size:
            return self._step(again=True)
        return self._finish(is_whole=False)

    def _small_snapshot(self, whole: bytes | None) -> Step:
        """A snapshot of one chunk: what is sent is what stood in the file at one time."""
        log = self._log
        data = self._read_whole() if whole is None else whole
        if data is None:
            return self._step(due=self._now.monotonic + REREAD_S)
        if not log.was_sent(data):
            self._note_change()
            self._rewrite()
            self._send(data)
        log.fingerprint = self._seen
        ended = ended_by(log.path)
        return self._finish(is_whole=ended is not None and done_length(ended, data) is not None)

    def _read_whole(self) -> bytes | None:
        """All of the file; None where it was caught while it is written."""
        data = os.pread(self._descriptor, self._seen.size + 1, 0)
        is_whole = len(data) == self._seen.size and fingerprint(os.fstat(self._descriptor)) == self._seen
        return data if is_whole else None

    def _large_snapshot(self) -> Step:
        """A snapshot of many chunks: begun anew when it changes on the way."""
        log = self._log
        if log.fingerprint and log.fingerprint != self._seen:
            self._note_change()
            allowed = log.begun + log.sent / RESEND_BYTES_PER_S
            if allowed > self._now.monotonic:
                return self._step(due=allowed)
            self._rewrite()
        log.fingerprint = self._seen
        self._send_next()
        if log.sent < self._seen.size:
            return self._step(again=True)
        return self._finish(is_whole=False)

    def _finish(self, *, is_whole: bool) -> Step:
        """Everything that is there was sent: say so when it is complete, look again when it may be soon."""
        log = self._log
        if log.is_complete:
            return self._step()
        if log.grows:
            length = self._files.done_length(log.path)
            if length is None:
                return self._step()  # when one comes, the log has its turn again
            # The runtime closes the data first. Of a log with another length nobody knows whether more comes.
            is_whole = length == log.sent
        if not is_whole and not self._is_stable:
            return self._step(due=log.changed + STABLE_S)
        if log.grows and (self._check or log.grew) and log.checked != log.sent:
            log.compare_again()
            return self._step(again=True)
        self._events.append(log.complete())
        return self._step()

    @property
    def _is_stable(self) -> bool:
        return self._now.monotonic >= self._log.changed + STABLE_S

    def _note_change(self) -> None:
        self._log.changed = max(self._log.changed, self._now.seen(self._seen.mtime_ns // 1000))

    def _rewrite(self) -> None:
        if self._log.has_content:
            self._start(self._log.generation + 1, StartReason.REWRITTEN)

    def _start(self, generation: int, reason: StartReason) -> None:
        self._events.append(self._log.start(generation, reason, self._now.monotonic))

    def _send_next(self) -> None:
        # What comes after the size that was seen belongs to the next look.
        size = min(self._limit, self._seen.size - self._log.sent)
        self._send(os.pread(self._descriptor, size, self._log.sent))

    def _send(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE_BYTES):
            piece = data[at : at + PIECE_BYTES]
            self._events.append(Chunk(self._log.handle, self._log.generation, self._log.sent, piece))
            self._log.took(piece)
        self._sent_bytes += len(data)

    def _step(self, *, again: bool = False, due: float | None = None) -> Step:
        return Step(tuple(self._events), again, due, sent_bytes=self._sent_bytes)


class ReadTask(NamedTuple):
    """A log that is to be looked at; `check` as for `advance`, `directory` is its JOB's.

    Once the JOB `is_removed`, what stands in its place is another's.
    """

    log: Log
    place: Place
    check: bool
    directory: DirectoryId | None = None
    is_removed: bool = False


def read_batch(turns: Sequence[ReadTask], now: Moment, limit: int = CHUNK_BYTES) -> list[Step]:
    """Steps of the first turns, in order, until there are `limit` bytes or more; the others were not taken."""
    steps: list[Step] = []
    size = 0
    with ExitStack() as opened:
        jobs: dict[Place, OpenJob] = {}
        for log, place, check, directory, is_removed in turns:
            if size >= limit:
                break
            if is_removed:
                steps.append(removed(log))
                continue
            files = jobs.get(place)
            if files is None:
                files = jobs[place] = opened.enter_context(OpenJob(place, directory))
            step = poll_log(log, files, now, check=check, limit=limit)
            size += step.sent_bytes
            steps.append(step)
    return steps

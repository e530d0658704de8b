"""One log of one client's stream: what was sent of it, what was acknowledged, and what follows from that."""

from __future__ import annotations

import enum
import hashlib
import itertools
import os
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Union

from profagentd.sources.job import DATA

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Callable

    from profagentd.follow.table import QuotaShare
    from profagentd.sources.job import Fingerprint, LogKind


NAMES_LIMIT = 10_000


class FileEvent(enum.Flag):
    """What was seen to happen to a name."""

    HINT = 0  # nothing itself, but something that it depends on changed
    WRITTEN = enum.auto()
    MADE = enum.auto()  # made, or moved here: another file may stand under the name
    DELETED = enum.auto()
    MOVED = enum.auto()  # moved away
    UNSURE = enum.auto()  # any of it may have happened
    COVERED = enum.auto()  # of a `.done`: the data of its inference were announced, or stand before it
    CLOSED = enum.auto()  # closed by who may have written to it before

    @property
    def is_removal(self) -> bool:
        """Whether the name went, and nothing else: no file stands under it, and none did that is new."""
        return self in _MERE_ENDS


@lru_cache(256)
def merged(earlier: FileEvent, later: FileEvent) -> FileEvent:
    """What was seen to happen to a name in all."""
    return (earlier | later) & ~FileEvent.COVERED


_HINT = FileEvent.HINT
_MADE_ONLY = tuple(
    FileEvent.MADE | more for more in (_HINT, FileEvent.WRITTEN, FileEvent.CLOSED, FileEvent.WRITTEN | FileEvent.CLOSED)
)
_MERE_ENDS = (FileEvent.DELETED, FileEvent.MOVED, FileEvent.DELETED | FileEvent.MOVED)


class Changes:
    """Names to look at; beyond NAMES_LIMIT, or the stream's share, only that the JOB must be walked again."""

    def __init__(self, share: QuotaShare, *, walk: bool) -> None:
        self._share = share
        self._touches: dict[bytes, FileEvent] = {}
        self._walk = walk

    def __bool__(self) -> bool:
        return self._walk or bool(self._touches)

    def __contains__(self, path: bytes) -> bool:
        return path in self._touches

    @property
    def has_walk(self) -> bool:
        """Whether the JOB must be walked."""
        return self._walk

    def note(self, path: bytes, touch: FileEvent) -> None:
        """`path` may have changed; a mere end of what was not to be looked at is no reason to look."""
        known = self._touches.get(path)
        if known is not None:
            # Joining flags costs more than all the rest, and seldom tells anything.
            if touch is not _HINT:
                self._touches[path] = merged(known, touch)
        elif touch.is_removal:
            return
        elif len(self._touches) < NAMES_LIMIT and self._share.room:
            self._share.take()
            self._touches[path] = touch
        else:
            self.note_all()

    def put_back(self, touches: Mapping[bytes, FileEvent]) -> None:
        """These were taken, and are to be looked at before all others."""
        later, self._touches = self._touches, {}
        self._share.give_back(len(later))
        for path, touch in (*touches.items(), *later.items()):
            self.note(path, touch)

    def note_all(self) -> None:
        """Any name may have changed."""
        self.forget()
        self._walk = True

    def forget(self) -> None:
        """Nothing is to be looked at."""
        self._share.give_back(len(self._touches))
        self._touches.clear()
        self._walk = False

    def take(self, limit: int) -> Mapping[bytes, FileEvent]:
        """At most `limit` names, oldest first; they are forgotten."""
        paths = list(itertools.islice(self._touches, limit))
        self._share.give_back(len(paths))
        return {path: self._touches.pop(path) for path in paths}

    def take_made(self, limit: int, may_take: Callable[[bytes, bool], bool]) -> list[bytes]:
        """At most `limit` names that may be taken, oldest first; they are forgotten.

        `may_take` is asked about each in turn, and told whether it came and did not go.
        """
        made = (path for path, touch in self._touches.items() if may_take(path, touch in _MADE_ONLY))
        paths = list(itertools.islice(made, limit))
        for path in paths:
            del self._touches[path]
        self._share.give_back(len(paths))
        return paths

    def take_walk(self) -> bool:
        """Whether the JOB must be walked; forgotten when asked."""
        walk, self._walk = self._walk, False
        return walk


class StartReason(enum.IntEnum):
    """Why bytes of a log follow from where they do; the numbers are the wire's."""

    NEW = 1
    SAME = 2
    DIFFERENT = 3
    RECREATED = 4
    REWRITTEN = 5


class LossReason(enum.Enum):
    """Why something that existed is not sent; the words are the wire's."""

    UNREADABLE = "unreadable"
    REMOVED_UNREAD = "removed-unread"
    NOT_A_FILE = "not-a-file"
    DELETED_UNDELIVERED = "deleted-undelivered"
    DISK_FULL = "disk-full"


class Started(NamedTuple):
    """Bytes of `generation` follow from `offset`."""

    handle: int
    generation: int
    offset: int
    reason: StartReason


class Chunk(NamedTuple):
    """Bytes of a log at `offset`."""

    handle: int
    generation: int
    offset: int
    data: bytes


class Completed(NamedTuple):
    """The log is complete as far as the board can tell."""

    handle: int
    generation: int
    size: int
    digest: bytes


class Removed(NamedTuple):
    """The log is gone; `size` is the last one seen."""

    handle: int
    generation: int
    sent: int
    size: int


class Loss(NamedTuple):
    """Something is gone or cannot be sent; `handle` 0 when no announced log is meant."""

    handle: int
    job: int
    reason: LossReason
    detail: str
    lost_bytes: int = 0


Event = Union[Started, Chunk, Completed, Removed, Loss]


def unread_loss(job: int, path: bytes, *, read_bytes: int = 0) -> Loss:
    """What is told of a log that was removed before it was read; of `read_bytes`, before more was."""
    after = f"after {read_bytes} bytes were read, before the rest was" if read_bytes else "before it was read"
    return Loss(0, job, LossReason.REMOVED_UNREAD, f"{os.fsdecode(path)} was removed {after}")


DIGEST_BYTES = 16


class LogState(enum.Enum):
    """Where a log stands in its stream."""

    ASKED = "asked"  # the client was asked what it holds; nothing is read before it answers
    UNREAD = "unread"  # it was made while its JOB is followed, and nobody has looked at it yet
    COMPARING = "comparing"  # what the client holds, or was sent, is compared with the file
    SENDING = "sending"  # what was sent is the file's; more is sent as it comes
    COMPLETE = "complete"  # the client was told that what was sent is the whole log
    OVER = "over"  # the handle means nothing any more


ASKED, UNREAD, COMPARING, SENDING, COMPLETE, OVER = LogState
TRANSITIONS = {
    ASKED: (UNREAD, COMPARING, OVER),
    UNREAD: (COMPARING, OVER),
    COMPARING: (SENDING, COMPLETE, OVER),
    SENDING: (COMPARING, COMPLETE, OVER),
    COMPLETE: (COMPARING, SENDING, OVER),
    OVER: (),
}
_NEW, _SAME, _DIFFERENT, _RECREATED, _ = StartReason


class Comparison:
    """A prefix that is being compared with the file, and what it means when it is, or is not, the file's."""

    __slots__ = ("_digest", "at", "different", "expected", "generation", "offset", "same")

    def __init__(
        self, generation: int, offset: int, expected: bytes, same: StartReason | None, different: StartReason
    ) -> None:
        self.generation = generation
        self.offset = offset
        self.expected = expected
        self.same = same  # None: the client need not be told
        self.different = different
        self.at = 0  # compared so far
        self._digest: hashlib.blake2b | None = None  # made when it is needed: thousands of logs wait for their turn

    def took(self, data: bytes) -> None:
        """The file goes on with these bytes."""
        self._digest = self._digest or new_digest()
        self._digest.update(data)
        self.at += len(data)

    @property
    def is_done(self) -> bool:
        """Whether the whole prefix was read."""
        return self.at == self.offset

    def agreed(self) -> hashlib.blake2b | None:
        """The running digest of the prefix when it is the file's, else None."""
        digest = self._digest or new_digest()
        same = self.offset == 0 or digest.digest() == self.expected
        return digest if same else None


class Log:
    """One log in one stream: its state, what was sent of it, and what was acknowledged.

    asked → unread         it was made while its JOB is followed: the client is taken to hold nothing
    asked → comparing      the client has answered
    unread → comparing     its file was looked at
    comparing → sending    what was compared is the file's, or another generation begins
    comparing → complete   what was compared had been complete, and still is all there is
    sending → comparing    another file may stand under its name, or it was written to in its middle
    sending → complete     all of it was sent
    complete → comparing   it was written to, or made anew
    complete → sending     it goes on, or was rewritten
    any → over             its file is gone, or the stream lets it go

    What is complete seldom goes on: its running digest, most of what a log takes, gives way to the digest itself.

    `poll_log` (reading.py) moves it in a worker thread while the stream waits; what arrives meanwhile touches only
    `acknowledged`, `verified`, `news`, `doubted` and `touched`.
    """

    __slots__ = (
        "acknowledged",
        "begun",
        "changed",
        "checked",
        "comparison",
        "completed",
        "digest",
        "doubted",
        "fingerprint",
        "generation",
        "grew",
        "grows",
        "handle",
        "is_loss_sent",
        "job",
        "kind",
        "news",
        "path",
        "queued",
        "sent",
        "size",
        "state",
        "touched",
        "unasked",
        "verified",
        "waits_until",
    )

    def __init__(self, handle: int, job: int, path: bytes, kind: LogKind, size: int, changed: float) -> None:
        self.handle = handle
        self.job = job
        self.path = path
        self.kind = kind
        self.grows = kind is DATA
        self.size = size  # the last size seen
        self.changed = changed  # monotonic time of the last change seen
        self.state = ASKED
        self.comparison: Comparison | None = None
        self.generation = 0
        self.sent = 0
        self.begun = changed  # monotonic time at which the generation began
        self.digest: hashlib.blake2b | bytes | None = None  # of the bytes sent; bytes when it is complete
        self.checked = 0  # offset up to which what was sent was compared with the file again
        self.fingerprint: Fingerprint | None = None  # of the file that the generation is made of
        self.grew = False  # from one look to another: what was sent first may have been written over
        self.completed: tuple[int, int] | None = None  # generation and size of the newest Completed
        self.acknowledged = 0  # offset in the present generation
        self.verified: tuple[int, int] | None = None  # the completion that the client has verified
        self.is_loss_sent = False
        self.queued = False  # its turn is due, or it is having it
        self.touched = False  # it changed while it had its turn
        self.news = FileEvent.HINT  # what was seen to happen to its file since it was read
        self.doubted = False  # another file may stand in its place
        self.unasked = False  # the client was not asked what it holds
        self.waits_until: float | None = None  # when to look again though nothing changes

    def set_state(self, state: LogState) -> None:
        """Go on to another state, which the present one must allow; what is over stays so, whatever a look finds."""
        if state is not self.state and self.state is not OVER:
            assert state in TRANSITIONS[self.state], f"{self.state.value} → {state.value}"
            self.state = state

    def hold(self, generation: int, offset: int, prefix_digest: bytes) -> None:
        """The client's answer: it holds `offset` bytes of `generation`."""
        same = _SAME if generation else _NEW
        self.comparison = Comparison(generation, offset, prefix_digest, same, _DIFFERENT)
        self.set_state(COMPARING)

    def come_unasked(self) -> None:
        """It is sent as if the client had said that it holds nothing."""
        self.comparison = Comparison(0, 0, b"", _NEW, _DIFFERENT)
        self.set_state(UNREAD)
        self.unasked = True
        self.news = FileEvent.MADE

    def compare_again(self) -> None:
        """Compare what was sent with the file before anything more is said about it."""
        if self.digest and self.sent and not self.comparison:
            self.comparison = Comparison(self.generation, self.sent, self._sent_digest, None, _RECREATED)
            self.set_state(COMPARING)

    def start(self, generation: int, reason: StartReason, now: float) -> Started:
        """A generation begins at offset 0."""
        self.generation = generation
        self.sent = self.acknowledged = self.checked = 0
        self.grew = False
        self.begun = now
        self.digest = new_digest()
        self.fingerprint = None
        self.comparison = None
        self.set_state(SENDING)
        return self._started(reason)

    def go_on(self, comparison: Comparison, digest: hashlib.blake2b) -> Started | None:
        """The prefix that was compared is the file's: bytes follow after it."""
        self.comparison = None
        self.digest = digest
        self.checked = comparison.offset
        self.set_state(COMPLETE if self.is_complete else SENDING)
        if not comparison.same:
            return None
        self.generation = comparison.generation or 1
        self.sent = self.acknowledged = comparison.offset
        return self._started(comparison.same)

    def _started(self, reason: StartReason) -> Started:
        return Started(self.handle, self.generation, self.sent, reason)

    def took(self, data: bytes) -> None:
        """These bytes are sent; what is complete is compared again before."""
        if self.sent == 0 and isinstance(self.digest, bytes):
            self.digest = new_digest()
        assert isinstance(self.digest, hashlib.blake2b), "a generation has begun, and is not complete"
        self.digest.update(data)
        self.sent += len(data)
        self.set_state(SENDING)

    def was_sent(self, data: bytes) -> bool:
        """Whether what was sent of this generation is exactly `data`."""
        return len(data) == self.sent and new_digest(data).digest() == self._sent_digest

    def complete(self) -> Completed:
        """Everything sent so far is the whole log."""
        self.digest = digest = self._sent_digest
        self.completed = (self.generation, self.sent)
        self.set_state(COMPLETE)
        return Completed(self.handle, self.generation, self.sent, digest)

    @property
    def _sent_digest(self) -> bytes:
        assert self.digest is not None, "a generation has begun"
        return self.digest if isinstance(self.digest, bytes) else self.digest.digest()

    @property
    def has_content(self) -> bool:
        """Whether the client has something of this generation that a rewritten file contradicts."""
        return self.sent > 0 or self.completed == (self.generation, 0)

    @property
    def is_complete(self) -> bool:
        """Whether the client was told of completion and nothing was sent since."""
        return self.completed == (self.generation, self.sent)

    @property
    def was_sent_whole(self) -> bool:
        """Whether all of a file that grows at its end was sent, as it was last seen, and nothing is to be compared."""
        seen = self.fingerprint
        return seen is not None and self.sent == seen.size and self.grows and self.comparison is None

    @property
    def is_followed(self) -> bool:
        """Whether its file is to be looked at when it changes."""
        return self.state is not ASKED and self.state is not OVER

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to do for it until it changes."""
        return self.is_followed and not self.queued and self.waits_until is None

    @property
    def is_delivered(self) -> bool:
        """Whether it is complete and the client has said so: then the handle can go."""
        return self.verified is not None and self.verified == self.completed and self.is_complete and self.is_settled

    @property
    def is_idle(self) -> bool:
        """Whether all that was sent is durable at the client and nothing more is due: it may give way to others."""
        return self.is_settled and self.acknowledged == self.sent

    @property
    def lag_bytes(self) -> int:
        """Bytes that are known and not sent."""
        return max(0, self.size - self.sent)


def new_digest(data: bytes = b"") -> hashlib.blake2b:
    """A running digest as the wire wants it."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES)

"""One log of one client's stream: a state machine, and the events that it gives."""

from __future__ import annotations

import enum
import hashlib
import os
from typing import TYPE_CHECKING, NamedTuple, Union

from profagentd.sources.source import DATA

if TYPE_CHECKING:
    from profagentd.sources.files import Fingerprint
    from profagentd.sources.walk import Sighting

DIGEST_BYTES = 16


class FileEvent(enum.Flag):
    """What was seen to happen to a name; nothing of it when what it depends on has changed."""

    HINT = 0
    WRITTEN = enum.auto()
    MADE = enum.auto()  # made, or moved here: another file may stand under the name
    DELETED = enum.auto()
    MOVED = enum.auto()  # moved away

    # A Flag's own operators take ten times as long as those of its value, which shows at hundreds of files a second.

    @property
    def has_content(self) -> bool:
        """Whether the name came, or was written to."""
        return bool(self._value_ & _CONTENT)

    @property
    def is_made(self) -> bool:
        """Whether another file may stand under the name."""
        return bool(self._value_ & _MADE)

    @property
    def is_removal(self) -> bool:
        """Whether the name went, and nothing else."""
        return self._value_ > 0 and not self._value_ & _CONTENT

    @property
    def is_making(self) -> bool:
        """Whether a file came under a name that was free."""
        return bool(self._value_ & _MADE) and not self._value_ & _ENDS

    @property
    def is_loss(self) -> bool:
        """Whether there was content that nobody read, when no file stands under the name any more."""
        return bool(self._value_ & _CONTENT) and not self._value_ & _MOVED


_MADE, _MOVED = FileEvent.MADE.value, FileEvent.MOVED.value
_CONTENT = FileEvent.WRITTEN.value | _MADE
_ENDS = FileEvent.DELETED.value | _MOVED


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


class LogState(enum.Enum):
    """Where a log stands in its stream."""

    ASKED = "asked"  # the client was asked what it holds; nothing is read before it answers
    COMPARING = "comparing"  # what the client holds, or was sent, is compared with the file
    SENDING = "sending"  # what was sent is the file's; more is sent as it comes
    COMPLETE = "complete"  # the client was told that what was sent is the whole log
    OVER = "over"  # the handle means nothing any more

    __hash__ = object.__hash__  # that of Enum is slow


ASKED, COMPARING, SENDING, COMPLETE, OVER = LogState
TRANSITIONS = {
    ASKED: (COMPARING, OVER),
    COMPARING: (SENDING, COMPLETE, OVER),
    SENDING: (COMPARING, COMPLETE, OVER),
    COMPLETE: (COMPARING, SENDING, OVER),
    OVER: (),
}


class Turn(enum.Enum):
    """When a log is looked at next."""

    RESTING = "resting"  # when it changes, or its time comes
    DUE = "due"
    TAKEN = "taken"  # it is being looked at
    AGAIN = "again"  # it is being looked at, and has changed meanwhile


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

    def agreed(self) -> hashlib.blake2b | None:
        """The running digest of the prefix when it is the file's, else None."""
        digest = self._digest or new_digest()
        same = self.offset == 0 or digest.digest() == self.expected
        return digest if same else None


class Log:
    """One log in one stream: its state, what was sent of it, and what was acknowledged.

    asked → comparing      the client has answered, or is taken to hold nothing
    comparing → sending    what was compared is the file's, or another generation begins
    comparing → complete   what was compared had been complete, and still is all there is
    sending → comparing    another file may stand under its name, or it was written to in its middle
    sending → complete     all of it was sent
    complete → comparing   it was written to, or made anew
    complete → sending     it goes on, or was rewritten
    any → over             its file is gone, or the stream lets it go

    What is complete seldom goes on: its running digest, most of what a log takes, gives way to the digest itself.

    `poll_log` (reading.py) moves it in a worker thread while the stream waits; what arrives meanwhile touches only
    `acknowledged`, `verified`, `news`, `doubted`, `turn` and `waits_until`, and may let it go.
    """

    __slots__ = (
        "acknowledged",
        "changed",
        "comparison",
        "completed",
        "digest",
        "doubted",
        "fingerprint",
        "generation",
        "grows",
        "handle",
        "is_loss_sent",
        "job",
        "kind",
        "news",
        "path",
        "sent",
        "size",
        "state",
        "turn",
        "unasked",
        "verified",
        "waits_until",
    )

    def __init__(self, handle: int, job: int, sighting: Sighting, changed: float) -> None:
        self.handle = handle
        self.job = job
        self.path = sighting.path
        self.kind = sighting.kind
        self.grows = sighting.kind is DATA
        self.size = sighting.size  # the last size seen
        self.changed = changed  # monotonic time of the last change seen
        self.state = ASKED
        self.comparison: Comparison | None = None
        self.generation = 0
        self.sent = 0
        self.digest: hashlib.blake2b | bytes | None = None  # of the bytes sent; bytes when it is complete
        self.fingerprint: Fingerprint | None = None  # of the file that the generation is made of
        self.completed: tuple[int, int] | None = None  # generation and size of the newest Completed
        self.acknowledged = 0  # offset in the present generation
        self.verified: tuple[int, int] | None = None  # the completion that the client has verified
        self.is_loss_sent = False
        self.turn = Turn.RESTING
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
        """The client holds `offset` bytes of `generation`."""
        same = StartReason.SAME if generation else StartReason.NEW
        self.comparison = Comparison(generation, offset, prefix_digest, same, StartReason.DIFFERENT)
        self.set_state(COMPARING)

    def compare_again(self) -> None:
        """Compare what was sent with the file before anything more is said about it."""
        if self.grows and self.digest and self.sent and not self.comparison:
            self.comparison = Comparison(self.generation, self.sent, self._sent_digest, None, StartReason.RECREATED)
            self.set_state(COMPARING)

    def start(self, generation: int, reason: StartReason) -> Started:
        """A generation begins at offset 0."""
        self.generation = generation
        self.sent = self.acknowledged = 0
        self.digest = new_digest()
        self.fingerprint = None
        self.comparison = None
        self.set_state(SENDING)
        return Started(self.handle, generation, 0, reason)

    def go_on(self, comparison: Comparison, digest: hashlib.blake2b) -> Started | None:
        """The prefix that was compared is the file's: bytes follow after it."""
        self.comparison = None
        self.digest = digest
        self.set_state(COMPLETE if self.is_complete else SENDING)
        if not comparison.same:
            return None
        self.generation = comparison.generation or 1
        self.sent = self.acknowledged = comparison.offset
        return Started(self.handle, self.generation, self.sent, comparison.same)

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
    def is_settled(self) -> bool:
        """Whether there is nothing to do for it until it changes."""
        return self.state is not ASKED and self.turn is Turn.RESTING and self.waits_until is None

    @property
    def is_sent(self) -> bool:
        """Return True if everything that was seen of the file has been sent; it may still wait for its completion."""
        return self.state is not ASKED and self.turn is Turn.RESTING and self.sent >= self.size

    @property
    def is_delivered(self) -> bool:
        """Whether it is complete and the client has said so: then the handle can go."""
        return self.verified is not None and self.verified == self.completed and self.is_complete and self.is_settled


def new_digest(data: bytes = b"") -> hashlib.blake2b:
    """A running digest as the wire wants it."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES)

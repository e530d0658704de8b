"""The state machine of one log in one client's stream, and the events that it produces."""

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
    """Changes of a file that the kernel or a scan reported for a name.

    HINT means that something that the log depends on changed, e.g. its `.done`.
    """

    HINT = 0
    WRITTEN = enum.auto()
    CREATED = enum.auto()  # made, or moved here: another file may stand under the name
    DELETED = enum.auto()
    MOVED = enum.auto()  # moved away

    # These properties use the plain value: a Flag's own operators take ten times as long, which shows at hundreds of
    # files a second.

    @property
    def brings_content(self) -> bool:
        """True if the name was created or written to."""
        return bool(self._value_ & _CONTENT)

    @property
    def is_created(self) -> bool:
        """True if another file may now stand under the name."""
        return bool(self._value_ & _CREATED)

    @property
    def is_removal(self) -> bool:
        """True if the name was only deleted or moved away."""
        return self._value_ > 0 and not self._value_ & _CONTENT

    @property
    def is_new_name(self) -> bool:
        """True if a file was created under a name that was free."""
        return bool(self._value_ & _CREATED) and not self._value_ & _ENDS

    @property
    def implies_loss(self) -> bool:
        """True if unread content is gone, provided that no file stands under the name any more."""
        return bool(self._value_ & _CONTENT) and not self._value_ & _MOVED


_CREATED, _MOVED = FileEvent.CREATED.value, FileEvent.MOVED.value
_CONTENT = FileEvent.WRITTEN.value | _CREATED
_ENDS = FileEvent.DELETED.value | _MOVED


class StartReason(enum.IntEnum):
    """The reason why a log's bytes continue from a certain offset; the numbers are the wire's."""

    NEW = 1
    SAME = 2
    DIFFERENT = 3
    RECREATED = 4
    REWRITTEN = 5


class LossReason(enum.Enum):
    """The reason why data that existed is not sent; the words are the wire's."""

    UNREADABLE = "unreadable"
    REMOVED_UNREAD = "removed-unread"
    NOT_A_FILE = "not-a-file"
    DELETED_UNDELIVERED = "deleted-undelivered"
    DISK_FULL = "disk-full"


class Started(NamedTuple):
    """Start of a generation's bytes at `offset`, or their continuation from there."""

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
    """Completion of a log, as far as the board can tell, with its size and digest."""

    handle: int
    generation: int
    size: int
    digest: bytes


class Removed(NamedTuple):
    """Removal of a log's file; `size` is the last size that the daemon saw."""

    handle: int
    generation: int
    sent: int
    size: int


class Loss(NamedTuple):
    """Data that is gone or cannot be sent. `handle` is 0 where the loss belongs to no announced log."""

    handle: int
    job: int
    reason: LossReason
    detail: str
    lost_bytes: int = 0


Event = Union[Started, Chunk, Completed, Removed, Loss]


def unread_loss(job: int, path: bytes, *, read_bytes: int = 0) -> Loss:
    """Return the loss of a file that was removed before it was read, or after only `read_bytes` were."""
    after = f"after {read_bytes} bytes were read, before the rest was" if read_bytes else "before it was read"
    return Loss(0, job, LossReason.REMOVED_UNREAD, f"{os.fsdecode(path)} was removed {after}")


class LogState(enum.Enum):
    """State of a log in its stream; `TRANSITIONS` lists the allowed changes."""

    ANNOUNCED = "announced"  # the client has not answered yet what it holds; nothing is read before it does
    COMPARING = "comparing"  # the bytes that the client holds, or was sent, are compared with the file
    SENDING = "sending"  # the bytes sent are a prefix of the file; more follow as the file grows
    COMPLETE = "complete"  # a Completed was sent, and nothing since
    OVER = "over"  # the handle is invalid: the file is gone, or the stream released the log

    __hash__ = object.__hash__  # Enum's own hash is slow, and TRANSITIONS is looked up for each state change


ANNOUNCED, COMPARING, SENDING, COMPLETE, OVER = LogState
TRANSITIONS = {
    ANNOUNCED: (COMPARING, OVER),
    COMPARING: (SENDING, COMPLETE, OVER),
    SENDING: (COMPARING, COMPLETE, OVER),
    COMPLETE: (COMPARING, SENDING, OVER),
    OVER: (),
}


class Turn(enum.Enum):
    """Place of a log in the queue of logs that are to be read."""

    RESTING = "resting"  # not in the queue, until the file changes or `waits_until` comes
    DUE = "due"  # in the queue
    TAKEN = "taken"  # a worker thread is reading it
    AGAIN = "again"  # a worker thread is reading it, and the file has changed meanwhile


class Comparison:
    """Comparison of a prefix with the file, over several reads if the prefix is long."""

    __slots__ = (
        "_digest",
        "compared_bytes",
        "expected",
        "generation",
        "offset",
        "reason_if_different",
        "reason_if_same",
    )

    def __init__(
        self,
        generation: int,
        offset: int,
        expected: bytes,
        reason_if_same: StartReason | None,
        reason_if_different: StartReason,
    ) -> None:
        self.generation = generation
        self.offset = offset
        self.expected = expected
        self.reason_if_same = reason_if_same  # None: a match needs no Started, as the client has these bytes already
        self.reason_if_different = reason_if_different
        self.compared_bytes = 0  # how much of the file has been read into the digest
        self._digest: hashlib.blake2b | None = None  # created lazily: thousands of logs wait for their turn

    def update(self, data: bytes) -> None:
        """Add the next bytes of the file."""
        self._digest = self._digest or new_digest()
        self._digest.update(data)
        self.compared_bytes += len(data)

    def matching_digest(self) -> hashlib.blake2b | None:
        """Return the running digest of the prefix if the file begins with it, else None."""
        digest = self._digest or new_digest()
        # An empty prefix is that of any file, whatever digest the client sent with it.
        same = self.offset == 0 or digest.digest() == self.expected
        return digest if same else None


class Log:
    """State of one log in one stream: what was sent of it and what the client acknowledged.

    announced → comparing   the client has answered, or is assumed to hold nothing
    comparing → sending     the compared prefix is the file's, or another generation begins
    comparing → complete    the compared prefix was complete, and still is the whole file
    sending → comparing     another file may stand under the name, or the file was written to in its middle
    sending → complete      all of it was sent
    complete → comparing    the file was written to, or created again
    complete → sending      the file grew, or was rewritten
    any → over              the file is gone, or the stream releases the log

    A complete log seldom grows, so its running digest, most of a log's memory, is then replaced by the final digest.

    `poll_log` (reading.py) changes a log in a worker thread while the stream waits. What arrives meanwhile may only set
    `acknowledged`, `verified`, `file_events`, `needs_comparison`, `turn` and `waits_until`, or release the log.
    """

    __slots__ = (
        "acknowledged",
        "changed_s",
        "comparison",
        "completed",
        "digest",
        "file_events",
        "fingerprint",
        "generation",
        "grows",
        "handle",
        "is_holding_assumed",
        "is_loss_sent",
        "job",
        "kind",
        "needs_comparison",
        "path",
        "sent",
        "size",
        "state",
        "turn",
        "verified",
        "waits_until",
    )

    def __init__(self, handle: int, job: int, sighting: Sighting, changed_s: float) -> None:
        self.handle = handle
        self.job = job
        self.path = sighting.path
        self.kind = sighting.kind
        self.grows = sighting.kind is DATA
        self.size = sighting.size  # bytes of the file when it was last seen
        self.changed_s = changed_s  # monotonic time of the last change that was seen
        self.state = ANNOUNCED
        # The comparison under way, in state COMPARING.
        self.comparison: Comparison | None = None
        self.generation = 0  # 0 until the first Started
        self.sent = 0  # offset up to which the present generation was sent
        self.digest: hashlib.blake2b | bytes | None = None  # of the bytes sent; final once complete
        self.fingerprint: Fingerprint | None = None  # of the file that the generation was read from
        self.completed: tuple[int, int] | None = None  # generation and size in the newest Completed
        self.acknowledged = 0  # offset in the present generation up to which the client has the bytes durably
        self.verified: tuple[int, int] | None = None  # the `completed` that the client has verified by its digest
        self.is_loss_sent = False  # the client knows that the file is unreadable
        self.turn = Turn.RESTING  # place in the queue of LogTurns
        self.file_events = FileEvent.HINT  # what happened to the file since it was last read
        self.needs_comparison = False  # another file may stand under the name
        self.is_holding_assumed = False  # the log was sent without asking the client what it holds
        self.waits_until: float | None = None  # monotonic time to read again though nothing changed

    def set_state(self, state: LogState) -> None:
        """Change the state, by `TRANSITIONS`.

        A log that is over stays over, whatever a read that was under way finds.
        """
        # The stream may have released the log while a worker thread was reading it.
        if state is not self.state and self.state is not OVER:
            assert state in TRANSITIONS[self.state], f"{self.state.value} → {state.value}"
            self.state = state

    def set_holding(self, generation: int, offset: int, prefix_digest: bytes) -> None:
        """Compare the `offset` bytes of `generation` that the client holds with the file."""
        same = StartReason.SAME if generation else StartReason.NEW
        self.comparison = Comparison(generation, offset, prefix_digest, same, StartReason.DIFFERENT)
        self.set_state(COMPARING)

    def compare_again(self) -> None:
        """Compare the bytes sent with the file before anything else is sent."""
        # A snapshot's content is compared whenever it is read. A comparison that is under way covers these bytes
        # already.
        if self.grows and self.digest and self.sent and not self.comparison:
            self.comparison = Comparison(self.generation, self.sent, self._sent_digest, None, StartReason.RECREATED)
            self.set_state(COMPARING)

    def start(self, generation: int, reason: StartReason) -> Started:
        """Begin a generation at offset 0."""
        self.generation = generation
        self.sent = self.acknowledged = 0
        self.digest = new_digest()
        self.fingerprint = None
        self.comparison = None
        self.set_state(SENDING)
        return Started(self.handle, generation, 0, reason)

    def resume(self, comparison: Comparison, digest: hashlib.blake2b) -> Started | None:
        """Continue after a prefix that was compared and is the file's; return Started if the client must be told."""
        self.comparison = None
        self.digest = digest
        self.set_state(COMPLETE if self.is_complete else SENDING)
        if not comparison.reason_if_same:
            return None
        self.generation = comparison.generation or 1
        self.sent = self.acknowledged = comparison.offset
        return Started(self.handle, self.generation, self.sent, comparison.reason_if_same)

    def append_sent(self, data: bytes) -> None:
        """Count these bytes as sent. A complete log that has content is compared again before this."""
        # An empty log that was complete begins to grow. Nothing of it was sent, so there is nothing to compare first.
        if self.sent == 0 and isinstance(self.digest, bytes):
            self.digest = new_digest()
        assert isinstance(self.digest, hashlib.blake2b), "a generation has begun, and is not complete"
        self.digest.update(data)
        self.sent += len(data)
        self.set_state(SENDING)

    def has_sent_exactly(self, data: bytes) -> bool:
        """Return True if the bytes sent of this generation are exactly `data`."""
        return len(data) == self.sent and new_digest(data).digest() == self._sent_digest

    def complete(self) -> Completed:
        """Declare the bytes sent so far to be the whole log."""
        # The final digest takes the place of the running one, which is most of a log's memory.
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
        """True if the client has something of this generation that a rewritten file contradicts."""
        return self.sent > 0 or self.completed == (self.generation, 0)

    @property
    def is_complete(self) -> bool:
        """True if a Completed was sent and nothing since."""
        return self.completed == (self.generation, self.sent)

    @property
    def is_fully_sent(self) -> bool:
        """True if all of a growing file, as it was last seen, was sent, and no comparison is pending."""
        seen = self.fingerprint
        return seen is not None and self.sent == seen.size and self.grows and self.comparison is None

    @property
    def is_settled(self) -> bool:
        """True if there is nothing to do for the log until its file changes."""
        return self.state is not ANNOUNCED and self.turn is Turn.RESTING and self.waits_until is None

    @property
    def is_sent(self) -> bool:
        """True if everything that was seen of the file has been sent; it may still wait for its completion."""
        return self.state is not ANNOUNCED and self.turn is Turn.RESTING and self.sent >= self.size

    @property
    def is_delivered(self) -> bool:
        """True if the log is complete and the client has verified that; its handle can then be released."""
        return self.verified is not None and self.verified == self.completed and self.is_complete and self.is_settled


def new_digest(data: bytes = b"") -> hashlib.blake2b:
    """Return a running digest of the kind that the wire uses."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES)

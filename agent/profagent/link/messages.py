"""Messages of the wire as plain values, whose fields `board.proto` explains, and the events that a session derives.

Paths are bytes as the board sent them, not checked yet. Times are microseconds, sizes bytes.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from profagent.errors import ProfagentError

PROTOCOL = (1, 0)
OPEN = "open"
QUIET = "quiet"
REMOVED = "removed"
# Source of JOB directories, and of collections for which a board names no source.
JOB_SOURCE = "job"
ENDED_STATES = frozenset({"finished", QUIET, REMOVED})


# A clock that shows an earlier time was not set: a board without a battery starts in 1970, or at its image's build
# date.
EARLIEST = datetime(2024, 1, 1, tzinfo=UTC)
LATEST_S = 253_402_300_799


def board_time(wall_us: int) -> datetime:
    """Return the date of a clock, limited to the years 1970 to 9999 that a date can show."""
    return datetime.fromtimestamp(min(max(wall_us / 1e6, 0), LATEST_S), UTC)


class Clocks(Struct, frozen=True):
    """The board's two clocks, read together."""

    wall_us: int
    monotonic_us: int


class Retention(Struct, frozen=True):
    """Rules by which a daemon deletes: the policy is keep, delivered, min-free, or unknown."""

    policy: str
    retain_for: tuple[str, ...] = ()


class Profiling(Struct, frozen=True):
    """Texts in the `profiler` object of an acl.json; empty if the key is missing."""

    path: str
    interval: str = ""


class Board(Struct, frozen=True):
    """Description that a board gives of itself; empty if unknown. `retention` is None if it never deletes."""

    identity: str
    hostname: str
    model: str
    daemon_version: str
    protocol: tuple[int, int]
    simulated: bool
    sdk_version: str
    roots: tuple[str, ...]
    clocks: Clocks
    retention: Retention | None = None
    insecure: bool = False
    capabilities: tuple[str, ...] = ()

    @property
    def deletes(self) -> bool:
        """True if the daemon deletes files by itself."""
        return self.retention is not None and self.retention.policy != "keep"


class JobMeasure(Struct, frozen=True):
    """Size of a JOB on the board's disk; a lower bound unless `is_all`."""

    bytes: int
    inferences: int
    is_all: bool


class JobStatus(Struct, frozen=True):
    """Collection and its state: open, finished, quiet, removed, unknown; `profiling` if the board can read it."""

    handle: int
    name: str
    directory: str
    state: str
    caught_up: bool
    profiling: Profiling | None = None
    source: str = JOB_SOURCE

    @property
    def is_job(self) -> bool:
        """True for a JOB; collections of other sources go on as long as their daemon does."""
        return self.source == JOB_SOURCE

    @property
    def has_ended(self) -> bool:
        """True if no more data is expected."""
        return self.state in ENDED_STATES

    @property
    def is_over(self) -> bool:
        """True if it has ended and is complete, or was removed: no more data arrives."""
        return self.state == REMOVED or (self.has_ended and self.caught_up)


class AnnouncedLog(Struct, frozen=True):
    """Log that the board has."""

    handle: int
    job: int
    path: bytes
    snapshot: bool


class Started(Struct, frozen=True):
    """Start of a generation at `offset`: `data` are its first bytes, and all of them if there is a `digest`."""

    handle: int
    generation: int
    offset: int
    reason: str
    data: bytes = b""
    digest: bytes = b""

    @property
    def is_whole(self) -> bool:
        """True if it carries a complete log."""
        return bool(self.digest) and not self.offset

    @property
    def completed(self) -> Completed:
        """The Completed that its digest stands for."""
        return Completed(self.handle, self.generation, self.offset + len(self.data), self.digest)


class Chunk(Struct, frozen=True):
    """Bytes of a log at an offset."""

    handle: int
    generation: int
    offset: int
    data: bytes


class Completed(Struct, frozen=True):
    """Size and digest of a log that the board has declared complete."""

    handle: int
    generation: int
    size: int
    digest: bytes


class Removed(Struct, frozen=True):
    """Removal of a log from the board, with the bytes that were sent and its size."""

    handle: int
    generation: int
    sent: int
    size: int


class Loss(Struct, frozen=True):
    """Data that existed and is gone or cannot be sent; handle and job are 0 if it concerns none.

    A kept loss has an `id` other than 0. Every stream reports it under the same id, with its newest figures.
    """

    handle: int
    job: int
    reason: str
    detail: str
    lost_bytes: int
    id: int = 0
    job_name: str = ""
    from_wall_us: int = 0
    to_wall_us: int = 0
    lost_logs: int = 0


LogEvent = Started | Chunk | Completed | Removed | Loss


class Welcome(Struct, frozen=True):
    """Answer to Open; the role is viewer, operator, or unknown."""

    board: Board
    heartbeat_us: int
    role: str = "unknown"


class JobsListed(Struct, frozen=True):
    """End of the list of existing JOBs."""


class Announced(Struct, frozen=True):
    """Page of logs for each of which the board waits for a Holding."""

    logs: tuple[AnnouncedLog, ...]


class Batch(Struct, frozen=True):
    """New logs in `made`, of which the board expects the host to hold nothing, followed by events in order."""

    events: tuple[LogEvent, ...]
    made: tuple[AnnouncedLog, ...] = ()


class Released(Struct, frozen=True):
    """Handles that the board does not use any more."""

    handles: tuple[int, ...]


class Heartbeat(Struct, frozen=True):
    """Proof of life of the board, and the bytes that it has not sent yet."""

    lag_bytes: int


class Synced(Struct, frozen=True):
    """Answer to Sync: everything that followed JOBs held when the Sync of this number arrived has been sent."""

    number: int


class Goodbye(Struct, frozen=True):
    """Notice that the daemon is about to stop."""

    reason: str
    retry_after_us: int


ServerMessage = Welcome | JobStatus | JobsListed | Announced | Batch | Released | Heartbeat | Synced | Goodbye


class Open(Struct, frozen=True):
    """First message of a client."""

    consumer: str
    client: str


class Select(Struct, frozen=True):
    """Handles of JOBs to follow from now on, or not to follow any more."""

    follow: tuple[int, ...] = ()
    unfollow: tuple[int, ...] = ()


class Holding(Struct, frozen=True):
    """State of an announced log on the host; with `skip` it does not want the log."""

    handle: int
    generation: int = 0
    offset: int = 0
    prefix_digest: bytes = b""
    skip: bool = False


class Holdings(Struct, frozen=True):
    """Answers to announced logs."""

    logs: tuple[Holding, ...]


class Acknowledgement(Struct, frozen=True):
    """Acknowledgement that all bytes before `offset` are durable; `complete` once size and digest were verified."""

    handle: int
    generation: int
    offset: int
    complete: bool


class Acknowledge(Struct, frozen=True):
    """Message with acknowledgements."""

    logs: tuple[Acknowledgement, ...]


class ClientHeartbeat(Struct, frozen=True):
    """Proof of life of the client."""


class Sync(Struct, frozen=True):
    """Request for a Synced with this number."""

    number: int


ClientMessage = Open | Select | Holdings | Acknowledge | ClientHeartbeat | Sync


# Events that a session makes of these messages.


class FollowedLog(Struct, frozen=True):
    """Log of a stream as it stands after its latest event: bytes before `offset` have arrived.

    `held` is the generation and offset in the host's Holding; None before that.
    """

    handle: int
    job: str
    path: bytes
    snapshot: bool
    generation: int = 0
    offset: int = 0
    held: tuple[int, int] | None = None


class Received(Struct, frozen=True):
    """Event with its log; `log` is None for a Loss that concerns no single log, `job` is empty if it has none."""

    job: str
    log: FollowedLog | None
    event: LogEvent


class JobNames(Struct, frozen=True):
    """Names of all JOBs that the board has, once it has listed them."""

    names: frozenset[str]


class JobFollowed(Struct, frozen=True):
    """JOB that is followed from now on."""

    job: JobStatus


class LogsAnnounced(Struct, frozen=True):
    """Logs that wait for a `Holding` each."""

    logs: tuple[FollowedLog, ...]


class Arrived(Struct, frozen=True):
    """Events of logs, in order."""

    events: tuple[Received, ...]


class JobEntered(Struct, frozen=True):
    """JOB with a new state; with `caught_up` everything that it held has arrived."""

    job: JobStatus
    caught_up: bool


class JobsShown(Struct, frozen=True):
    """The followed JOBs as they are now."""

    jobs: tuple[JobStatus, ...]


class Remark(Struct, frozen=True):
    """Text about the link for people."""

    text: str


class Unlinked(Struct, frozen=True):
    """End of a stream; the next attempt follows after `wait_s` seconds."""

    error: ProfagentError
    wait_s: float


Event = Welcome | JobNames | JobFollowed | LogsAnnounced | Arrived | JobEntered | JobsShown | Remark | Unlinked

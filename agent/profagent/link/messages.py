"""The wire's messages as plain values (`board.proto` says what each field means), and what a session makes of them.

Paths are bytes as the board sent them: nothing here has been checked. Times are microseconds, sizes bytes.
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
# The source of JOB directories, and of what a board calls nothing.
JOB_SOURCE = "job"
ENDED_STATES = frozenset({"finished", QUIET, REMOVED})


# A board without a battery wakes up in 1970, or when its image was made; nobody has profiled with this before.
EARLIEST = datetime(2024, 1, 1, tzinfo=UTC)
LATEST_S = 253_402_300_799


def board_time(wall_us: int) -> datetime:
    """The date that a clock shows; the nearest one, to the end of the year 9999, where no date can say it."""
    return datetime.fromtimestamp(min(max(wall_us / 1e6, 0), LATEST_S), UTC)


class Clocks(Struct, frozen=True):
    """The board's two clocks, read together."""

    wall_us: int
    monotonic_us: int


class Retention(Struct, frozen=True):
    """What a daemon deletes by itself: the policy is keep, delivered, min-free, or unknown."""

    policy: str
    retain_for: tuple[str, ...] = ()


class Profiling(Struct, frozen=True):
    """Texts of the `profiler` object of an acl.json; empty where the key is not there."""

    path: str
    interval: str = ""


class Board(Struct, frozen=True):
    """What a board says of itself; empty where it does not know. `retention` is None where it never deletes."""

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
        """Whether its daemon deletes files by itself."""
        return self.retention is not None and self.retention.policy != "keep"


class JobMeasure(Struct, frozen=True):
    """How much a JOB holds on the board's disk; at least so much, where it is not `is_all`."""

    bytes: int
    inferences: int
    is_all: bool


class JobStatus(Struct, frozen=True):
    """A collection and its state: open, finished, quiet, removed, unknown; `profiling` where the board can read it."""

    handle: int
    name: str
    directory: str
    state: str
    caught_up: bool
    profiling: Profiling | None = None
    source: str = JOB_SOURCE

    @property
    def is_job(self) -> bool:
        """Whether it is a JOB: other sources go on as long as their daemon does."""
        return self.source == JOB_SOURCE

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is expected of it."""
        return self.state in ENDED_STATES

    @property
    def is_over(self) -> bool:
        """Whether it has ended and everything that it held has come; of a removed one nothing more comes."""
        return self.state == REMOVED or (self.has_ended and self.caught_up)


class AnnouncedLog(Struct, frozen=True):
    """A log that the board has."""

    handle: int
    job: int
    path: bytes
    snapshot: bool


class Started(Struct, frozen=True):
    """Bytes of this generation follow from `offset`: `data` are the first, and with a `digest` they are all."""

    handle: int
    generation: int
    offset: int
    reason: str
    data: bytes = b""
    digest: bytes = b""

    @property
    def is_whole(self) -> bool:
        """Whether it is all of a log."""
        return bool(self.digest) and not self.offset

    @property
    def completed(self) -> Completed:
        """Its end, as if that came after it; where it has a digest."""
        return Completed(self.handle, self.generation, self.offset + len(self.data), self.digest)


class Chunk(Struct, frozen=True):
    """Bytes of a log."""

    handle: int
    generation: int
    offset: int
    data: bytes


class Completed(Struct, frozen=True):
    """The board vouches for size and digest."""

    handle: int
    generation: int
    size: int
    digest: bytes


class Removed(Struct, frozen=True):
    """The log is gone from the board."""

    handle: int
    generation: int
    sent: int
    size: int


class Loss(Struct, frozen=True):
    """Something that existed is gone or cannot be sent; handle and job are 0 where it is about neither.

    A kept loss has an `id` other than 0; it is told on every stream, under the same one with its newest figures.
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
    """The answer to the opening; the role is viewer, operator, or unknown."""

    board: Board
    heartbeat_us: int
    role: str = "unknown"


class JobsListed(Struct, frozen=True):
    """Every JOB that existed has been told."""


class Announced(Struct, frozen=True):
    """A page of logs of which the board asks what the host holds."""

    logs: tuple[AnnouncedLog, ...]


class Batch(Struct, frozen=True):
    """Logs that were `made`, which the board takes to be new to the host, and then events in order."""

    events: tuple[LogEvent, ...]
    made: tuple[AnnouncedLog, ...] = ()


class Released(Struct, frozen=True):
    """Handles that are over."""

    handles: tuple[int, ...]


class Heartbeat(Struct, frozen=True):
    """Proof of life, and how far the host is behind."""

    lag_bytes: int


class Synced(Struct, frozen=True):
    """Everything has been sent that followed JOBs held when the Sync of this number came."""

    number: int


class Goodbye(Struct, frozen=True):
    """The daemon is about to stop."""

    reason: str
    retry_after_us: int


ServerMessage = Welcome | JobStatus | JobsListed | Announced | Batch | Released | Heartbeat | Synced | Goodbye


class Open(Struct, frozen=True):
    """The first message of a client."""

    consumer: str
    client: str


class Select(Struct, frozen=True):
    """JOBs to follow from now on, or no longer, by handle."""

    follow: tuple[int, ...] = ()
    unfollow: tuple[int, ...] = ()


class Holding(Struct, frozen=True):
    """What the host holds of an announced log."""

    handle: int
    generation: int = 0
    offset: int = 0
    prefix_digest: bytes = b""
    skip: bool = False


class Holdings(Struct, frozen=True):
    """Answers to announced logs."""

    logs: tuple[Holding, ...]


class Acknowledgement(Struct, frozen=True):
    """Every byte before `offset` is durable; `complete` when size and digest were verified."""

    handle: int
    generation: int
    offset: int
    complete: bool


class Acknowledge(Struct, frozen=True):
    """What is durable."""

    logs: tuple[Acknowledgement, ...]


class ClientHeartbeat(Struct, frozen=True):
    """Proof of life of the client."""


class Sync(Struct, frozen=True):
    """Ask for a Synced of this number."""

    number: int


ClientMessage = Open | Select | Holdings | Acknowledge | ClientHeartbeat | Sync


# What a session makes of them


class FollowedLog(Struct, frozen=True):
    """A log of the stream, as it stands after the latest event: bytes before `offset` have arrived.

    `held` is the generation and the offset that the host answered; None before it did.
    """

    handle: int
    job: str
    path: bytes
    snapshot: bool
    generation: int = 0
    offset: int = 0
    held: tuple[int, int] | None = None


class Received(Struct, frozen=True):
    """An event of a log; `log` is None for a Loss that is not about one log. `job` is empty when it is about none."""

    job: str
    log: FollowedLog | None
    event: LogEvent


class JobNames(Struct, frozen=True):
    """The board has told all its JOBs: these are there, by name."""

    names: frozenset[str]


class JobFollowed(Struct, frozen=True):
    """A JOB is followed from now on."""

    job: JobStatus


class LogsAnnounced(Struct, frozen=True):
    """Logs that wait for a `Holding` each."""

    logs: tuple[FollowedLog, ...]


class Arrived(Struct, frozen=True):
    """What has come of logs, in order."""

    events: tuple[Received, ...]


class JobEntered(Struct, frozen=True):
    """A JOB is in another state; `caught_up`: and everything that it held has come."""

    job: JobStatus
    caught_up: bool


class JobsShown(Struct, frozen=True):
    """The followed JOBs as they are now."""

    jobs: tuple[JobStatus, ...]


class Remark(Struct, frozen=True):
    """Something that people want to know of the link."""

    text: str


class Unlinked(Struct, frozen=True):
    """The stream is over, and when the next attempt follows."""

    error: ProfagentError
    wait_s: float


Event = Welcome | JobNames | JobFollowed | LogsAnnounced | Arrived | JobEntered | JobsShown | Remark | Unlinked

"""What a link wants done, in the order of its lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profagent.errors import ProfagentError
    from profagent.link.messages import Board, ClientMessage, JobStatus
    from profagent.link.session import FollowedLog, Happened


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a channel and a stream."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message on the stream."""

    message: ClientMessage


@dataclass(frozen=True, slots=True)
class Begin:
    """Tell the sink and the observer that a stream to this board has been opened, and what this host may do there."""

    board: Board
    role: str


@dataclass(frozen=True, slots=True)
class List:
    """Tell the sink which JOBs the board has, by name."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Know:
    """Tell the sink of a JOB that is followed from now on."""

    job: JobStatus


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the sink what it holds of these logs; `Link.held` takes the answer."""

    logs: tuple[FollowedLog, ...]


@dataclass(frozen=True, slots=True)
class Take:
    """Hand events to the sink; `Link.took` takes the JOBs that it refuses."""

    events: tuple[Happened, ...]


@dataclass(frozen=True, slots=True)
class ChangeState:
    """Tell the sink of a JOB's new state; `caught_up`: and everything that it held has come."""

    job: JobStatus
    caught_up: bool


@dataclass(frozen=True, slots=True)
class ShowJobs:
    """Tell the observer of the followed JOBs as they are now."""

    jobs: tuple[JobStatus, ...]


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the observer something for people."""

    text: str


@dataclass(frozen=True, slots=True)
class Unlink:
    """The stream is over: tell the observer why, and when the next attempt follows."""

    error: ProfagentError
    wait_s: float


@dataclass(frozen=True, slots=True)
class FindRoom:
    """Ask the sink whether its disk has room; `Link.room` takes the answer."""


@dataclass(frozen=True, slots=True)
class Close:
    """The link is closed for good; with an error, for that reason."""

    error: ProfagentError | None = None


Action = Connect | Send | Begin | List | Know | Ask | Take | ChangeState | ShowJobs | Tell | Unlink | FindRoom | Close

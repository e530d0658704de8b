"""What a capture needs of those who use it: a sink for what comes, an observer who is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from profagent.errors import ProfagentError, UnsupportedBoardError
    from profagent.ingest.changes import JobChanges
    from profagent.link.channel import Channel
    from profagent.link.messages import Acknowledgement, Board, Holding, JobStatus, Profiling
    from profagent.link.session import FollowedLog, Happened


class Sink(Protocol):
    """What becomes of a board's stream. Calls come one at a time, but for `sample_clock`."""

    @property
    def refused(self) -> Mapping[str, UnsupportedBoardError]:
        """JOBs that turned out to be of another SoC: nothing more of them is wanted."""

    async def begin(self, board: Board, address: str) -> None:
        """A stream has been opened; called again after each reconnection."""

    def know_job(self, name: str, directory: str, profiling: Profiling | None = None) -> None:
        """A JOB that will be followed."""

    async def listed(self, names: Collection[str]) -> Sequence[JobChanges]:
        """The board has told every JOB that it has; returns what is over because it is not among them."""

    async def holdings(self, logs: Sequence[FollowedLog]) -> list[Holding]:
        """What is held of announced logs."""

    async def take(
        self, events: Sequence[Happened], acknowledge: Callable[[Sequence[Acknowledgement]], Awaitable[None]]
    ) -> Sequence[JobChanges]:
        """Events in order; returns what they meant."""

    async def change_state(self, name: str, state: str, *, caught_up: bool) -> Sequence[JobChanges]:
        """A JOB's state is another; `caught_up`: and everything it held has come."""

    async def sample_clock(self, channel: Channel) -> None:
        """A good moment to compare clocks."""

    async def has_room(self) -> bool:
        """Whether its disk, which was full, has room again."""


class Observer(Protocol):
    """Who wants to know."""

    def linked(self, board: Board, role: str) -> None:
        """The stream is open; the role is viewer, operator or unknown."""

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        """The link was lost; the next attempt follows after `wait_s`."""

    def remark(self, text: str) -> None:
        """Something about the link that people want to know: how far behind it is, why it pauses."""

    def changed(self, changes: Sequence[JobChanges]) -> None:
        """A batch was taken."""

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """The followed JOBs, as they are now."""

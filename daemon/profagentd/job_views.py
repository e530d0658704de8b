"""The JOBs of one client's stream, by the handles that it was told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagentd.refusal import Fault, Refusal
from profagentd.state import JobState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagentd.board import Job
    from profagentd.selection import Selection


@dataclass
class JobView:
    """A JOB as this stream names and knows it."""

    handle: int
    job: Job
    selection: Selection | None = None
    status_due: bool = True
    caught_up_told: bool = False
    was_followed: bool = False

    def settle_again(self) -> None:
        """Something changed: that everything was sent is told once more, as soon as it is so."""
        # While a JOB is open its client is told once; a telling for each write would be noise.
        if self.job.state is not JobState.OPEN:
            self.caught_up_told = False


class JobViews:
    """The JOBs that have a handle; handles count up from 1, in the order in which the JOBs came."""

    def __init__(self) -> None:
        self._views: dict[int, JobView] = {}
        self._handles: dict[Job, int] = {}
        self._last_handle = 0

    def __iter__(self) -> Iterator[JobView]:
        return iter(self._views.values())

    def get(self, handle: int) -> JobView | None:
        """The JOB that has this handle; None when it was forgotten."""
        return self._views.get(handle)

    def asked(self, handle: int) -> JobView | None:
        """The JOB that the client names, or None when it was forgotten. Refusal when there never was one."""
        if not 0 < handle <= self._last_handle:
            raise Refusal(Fault.INVALID, f"there is no JOB {handle} in this stream")
        return self._views.get(handle)

    def of(self, job: Job) -> JobView | None:
        """The JOB's view, if it has one."""
        return self._views.get(self._handles.get(job, 0))

    def add(self, job: Job) -> JobView:
        """Give the JOB the next handle."""
        self._last_handle += 1
        view = self._views[self._last_handle] = JobView(self._last_handle, job)
        self._handles[job] = view.handle
        return view

    def forget(self, view: JobView) -> None:
        """The client was told of the JOB's end."""
        del self._views[view.handle], self._handles[view.job]

    def clear(self) -> None:
        """Forget all of them."""
        self._views.clear()
        self._handles.clear()

"""Which JOBs of a board are followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.link.messages import JobStatus


class JobChoice:
    """What was once chosen stays so over reconnections."""

    def __init__(self, wants: Callable[[JobStatus, bool], bool]) -> None:
        """`wants(job, listed)` chooses; `listed`: the JOB was there when the first stream was opened."""
        self._wants = wants
        self._followed: set[str] = set()
        self._passed_over: set[str] = set()
        self._refused: set[str] = set()
        self.was_listed = False

    def follows(self, job: JobStatus) -> bool:
        """Whether a JOB is followed; asked each time that the board tells of it."""
        if job.name in self._followed or job.name in self._refused:
            return job.name in self._followed
        listed = not self.was_listed or job.name in self._passed_over
        chosen = self._followed if self._wants(job, listed) else self._passed_over
        chosen.add(job.name)
        return job.name in self._followed

    def refuse(self, name: str) -> None:
        """Follow a JOB no longer, whatever becomes of it."""
        self._followed.discard(name)
        self._refused.add(name)

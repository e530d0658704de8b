"""Files of the mirror that were passed over on purpose and are not to stay: removed once that is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profagent.commands.open_jobs import OpenJob, OpenJobs


class Dropping:
    """What is to be removed of a board's mirrors; nothing where it is not `wanted`."""

    def __init__(self, jobs: OpenJobs, *, wanted: bool) -> None:
        self._jobs = jobs
        self._wanted = wanted
        # Of these more will come, on this stream or a later one.
        self._arriving: set[tuple[str, str]] = set()
        self._to_drop: list[tuple[str, str]] = []

    def arrives(self, job: str, path: str) -> None:
        """The board goes on with a log: it must stay until it has come, whatever is chosen meanwhile."""
        if self._wanted:
            self._arriving.add((job, path))

    def has_arrived(self, job: str, path: str) -> None:
        """Nothing more comes of a log."""
        self._arriving.discard((job, path))

    def note(self, name: str, path: str) -> None:
        """Have a file removed that is passed over, with others that waited for the choice."""
        job = self._jobs.of(name)
        if not self._wanted or job.choosing is None or not job.passes_over(path):
            return
        for each in job.choosing.others(path) if job.choosing.tells_time(path) else [path]:
            if (name, each) not in self._arriving and job.mirror.read(each, 0) is not None:
                self._to_drop.append((name, each))

    def drop(self) -> None:
        """Remove what was noted, which is committed now. Raises StoreError."""
        to_drop, self._to_drop = self._to_drop, []
        for job, path in to_drop:
            self._jobs.of(job).mirror.remove(path)

    def forget(self) -> None:
        """What was noted was not committed."""
        self._to_drop.clear()


def may_drop(job: OpenJob, path: str) -> bool:
    """Whether a log is passed over and nothing hangs on its bytes."""
    return job.choosing is not None and job.passes_over(path) and not job.choosing.tells_time(path)

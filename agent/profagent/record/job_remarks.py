"""What is known of a board's JOBs beside their logs, and what is to be said of them with the next batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.formats.sampling import interval_of
from profagent.ingest.changes import JobChanges, LinkLedger
from profagent.record.told import profiling_known

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from profagent.ingest.changes import Change, Entry
    from profagent.link.messages import Profiling

# So much may wait for the next batch, which a board need not ever send.
MOST_REMARKS = 1_000


class JobRemarks:
    """Where JOBs stand, what they were to record, and the remarks that wait; their number is its length."""

    def __init__(self) -> None:
        self._directories: dict[str, str] = {}
        self._told: dict[str, Profiling] = {}
        self._waiting: list[JobChanges] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def know(self, name: str, directory: str, profiling: Profiling | None) -> None:
        """The board told of a JOB."""
        self._directories[name] = directory
        if profiling is not None:
            self._told[name] = profiling
            self._waiting.append(JobChanges(name, directory, (profiling_known(profiling),)))

    def stood_in(self, name: str, directory: str) -> None:
        """A JOB that the board does not tell of stood there."""
        self._directories.setdefault(name, directory)

    def names(self) -> Iterable[str]:
        """All JOBs that are known."""
        return self._directories

    def directory(self, name: str) -> str:
        """Where a JOB stands; empty where that is not known."""
        return self._directories.get(name, "")

    def told_interval(self, name: str) -> int | None:
        """The interval that the JOB's program was given, as the board told it."""
        told = self._told.get(name)
        return None if told is None else interval_of(told.interval)

    def note(self, name: str, entry: Entry) -> None:
        """Have an entry about a JOB written."""
        self.add(name, [LinkLedger(None, entry)])

    def add(self, name: str, changes: Sequence[Change]) -> None:
        """Have changes of a JOB written."""
        self._waiting.append(JobChanges(name, self.directory(name), changes))

    def take(self) -> list[JobChanges]:
        """What waits, which waits no longer."""
        waiting, self._waiting = self._waiting, []
        return waiting

"""A workspace in memory, for a capture that is only looked at."""

from __future__ import annotations

from pathlib import Path

from profagent.ingest.memory_mirror import MemoryMirror, RememberedFiles
from profagent.store.workspace import NothingToSync, Workspace


class MemoryWorkspace(Workspace):
    """Has mirrors that forget, and no folder."""

    def __init__(self) -> None:
        super().__init__(Path("memory"))
        self.synced = NothingToSync()
        self._files = RememberedFiles()
        self._mirrors: dict[str, MemoryMirror] = {}

    def job_mirror(self, identity: str, job: str) -> MemoryMirror:
        """The mirror of one JOB; one board is watched."""
        del identity
        return self._mirrors.setdefault(job, MemoryMirror(self._files, job))

    def open_batch(self, identity: str) -> None:
        """Nothing is left of a process that died."""
        del identity

    def has_room(self) -> bool:
        """Return True: room is made by forgetting."""
        return True

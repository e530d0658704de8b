"""Workspace in memory, for a capture that is shown but not saved."""

from __future__ import annotations

from pathlib import Path

from profagent.ingest.memory_mirror import MemoryMirror, RememberedFiles
from profagent.store.workspace import NothingToSync, Workspace


class MemoryWorkspace(Workspace):
    """Workspace without a folder, whose mirrors forget the bytes that were decoded."""

    def __init__(self) -> None:
        super().__init__(Path("memory"))
        self.synced = NothingToSync()
        self._files = RememberedFiles()
        self._mirrors: dict[str, MemoryMirror] = {}

    def job_mirror(self, identity: str, job: str) -> MemoryMirror:
        """Return the mirror of one JOB; a memory workspace serves a single board."""
        del identity
        return self._mirrors.setdefault(job, MemoryMirror(self._files, job))

    def open_batch(self, identity: str) -> None:
        """Do nothing: a process that died leaves nothing in memory."""
        del identity

    def has_room(self) -> bool:
        """Return True: the mirrors make room by forgetting."""
        return True

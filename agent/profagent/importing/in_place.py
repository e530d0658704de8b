"""A collection's own folder as a workspace: for an import into the database in it, which copies nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.ingest.mirror_in_place import MirrorInPlace
from profagent.store.workspace import NothingToSync, Workspace

if TYPE_CHECKING:
    from pathlib import Path


class WorkspaceInPlace(Workspace):
    """Has the files of one collection as its mirror, and is never gone on with: its database is made anew."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.synced = NothingToSync()

    def board_mirror(self, identity: str) -> Path:
        """Return the folder that the collection stands in."""
        del identity
        return self.root.parent

    def job_mirror(self, identity: str, job: str) -> MirrorInPlace:
        """Return the mirror of the collection."""
        del identity, job
        return MirrorInPlace(self.root)

    def open_batch(self, identity: str) -> None:
        """Return None: no later process goes on with this one."""
        del identity

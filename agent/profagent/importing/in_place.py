"""The own folder of a collection as a workspace: an import into the database in it copies nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.ingest.mirror_in_place import MirrorInPlace
from profagent.store.workspace import NothingToSync, Workspace

if TYPE_CHECKING:
    from pathlib import Path


class WorkspaceInPlace(Workspace):
    """Workspace whose mirror is the files of one collection.

    No later process continues it, because its database is made anew each time.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        # The files are the original ones, so there is no copy that must reach the disk before a commit.
        self.synced = NothingToSync()

    def board_mirror(self, identity: str) -> Path:
        """Return the folder that contains the collection."""
        del identity
        return self.root.parent

    def job_mirror(self, identity: str, job: str) -> MirrorInPlace:
        """Return the mirror of the collection, which is the collection itself."""
        del identity, job
        return MirrorInPlace(self.root)

    def open_batch(self, identity: str) -> None:
        """Return None: no later process continues this one, so no batch needs to be remembered."""
        del identity

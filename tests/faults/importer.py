"""A process that imports a JOB into a workspace, and ends itself by SIGKILL at a step of a batch, if it is told to.

It is told a workspace, a JOB directory, and `BATCH:STEP` or `-`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from profagent.importing import importing as workspace_import
from profagent.importing.importing import import_into
from profagent.store.workspace import Workspace
from tests.faults.recorder import Killer

if TYPE_CHECKING:
    from pathlib import Path


def main(folder: Path, job: Path, when: str) -> None:
    """The whole life of such a process."""
    # Small batches, so that there are many steps.
    workspace_import.PARTS_PER_BATCH = 2  # type: ignore[attr-defined]
    asyncio.run(import_into(job, Workspace(folder), asyncio.Event(), reached=Killer(when).reached))

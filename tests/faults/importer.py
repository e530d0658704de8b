"""A process that imports a JOB into a workspace, and ends itself by SIGKILL at a step of a batch, if it is told to.

Arguments: workspace, JOB directory, and `BATCH:STEP` or `-`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from profagent.importing import importing as workspace_import
from profagent.importing.importing import import_into
from profagent.store.workspace import Workspace
from tests.faults.recorder import Killer

if __name__ == "__main__":
    # Small batches, so that there are many steps.
    workspace_import.BATCH_EVENTS = 7
    job, workspace = Path(sys.argv[2]), Workspace(Path(sys.argv[1]))
    asyncio.run(import_into(job, workspace, asyncio.Event(), reached=Killer(sys.argv[3]).reached))

"""A process that records from a scripted board and ends itself by SIGKILL at a step of a batch, if it is told to.

Arguments: workspace, seed, and `BATCH:STEP` or `-`. What it acknowledges is written to `acknowledged` at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.commands.recording import Recording, RecordingOptions
from profagent.commands.workspace import Workspace
from profagent.ingest.commit import Step
from profagent.store.store import Store
from tests.fakes.small_job import RELOADED, SMALL_JOB, aicore_done
from tests.faults.scripted_board import BOARD, JOB, ScriptedBoard

if TYPE_CHECKING:
    from profagent.link.messages import Acknowledgement

# What these files were before: garbage in a file that is made anew, the `.done` of a first load, another clock.
EARLIER = {
    RELOADED: bytes(range(256)) * 3,
    RELOADED + ".done": aicore_done(768, 77),
    "info.json.0": b'{"DeviceInfo": [{"aic_frequency": "350"}]}',
}


class Killer:
    """Ends the process at one step of one batch; batches count from 0."""

    def __init__(self, when: str) -> None:
        self._when = when
        self._batch = 0

    def reached(self, step: Step) -> None:
        if self._when == f"{self._batch}:{step.value}":
            os.kill(os.getpid(), signal.SIGKILL)
        if step is Step.ACKNOWLEDGED:
            self._batch += 1


async def record(folder: Path, seed: int, when: str) -> None:
    workspace = Workspace(folder)
    board = ScriptedBoard(SMALL_JOB, EARLIER, seed)
    paths = list(SMALL_JOB)
    with workspace.locked(), (folder / "acknowledged").open("a", encoding="utf-8") as told:

        async def acknowledge(logs: Sequence[Acknowledgement]) -> None:
            for log in logs:
                told.write(f"{paths[log.handle - 1]} {log.generation} {log.offset} {int(log.complete)}\n")
            told.flush()

        async with Store(workspace.database) as store:
            options = RecordingOptions(lambda: 1)
            recording = Recording(workspace, store, options, reached=Killer(when).reached)
            await recording.begin(BOARD, "scripted")
            recording.know_job(JOB, "/board/" + JOB)
            for batch in board.batches(await recording.holdings(board.announced())):
                await recording.take(batch, acknowledge)
            await recording.change_state(JOB, "finished", caught_up=True)
            await recording.end()


if __name__ == "__main__":
    asyncio.run(record(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))

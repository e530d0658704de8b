"""A process that records from two scripted boards at once, and ends itself by SIGKILL at a step, if it is told to.

It is told a workspace, a seed, `BATCH:STEP` or `-`, and files that the boards have no longer. Batches count over both
boards. What it acknowledges is written to `acknowledged` at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from msgspec.structs import replace

from profagent.link.messages import JobStatus
from profagent.record.options import RecordingOptions
from profagent.record.recording import Recording
from profagent.store.store import Store
from profagent.store.workspace import Workspace
from tests.fakes.small_job import RELOADED, SMALL_JOB, aicore_done
from tests.faults.scripted_board import BOARD, IDENTITIES, JOB, ScriptedBoard

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.link.messages import Acknowledgement
    from profagent.record.recording import Step

# What these files were before: garbage in a file that is made anew, the `.done` of a first load, another clock.
EARLIER = {
    RELOADED: bytes(range(256)) * 3,
    RELOADED + ".done": aicore_done(768, 77),
    "info.json.0": b'{"DeviceInfo": [{"aic_frequency": "350"}]}',
}


class Killer:
    """Ends the process when a step is reached for the n-th time, from 0, by whichever board."""

    def __init__(self, when: str) -> None:
        self._when = when
        self._times: Counter[Step] = Counter()

    def reached(self, step: Step) -> None:
        if self._when == f"{self._times[step]}:{step.value}":
            os.kill(os.getpid(), signal.SIGKILL)
        self._times[step] += 1


async def record(folder: Path, seed: int, when: str, gone: Sequence[str] = ()) -> None:
    workspace, killer = Workspace(folder), Killer(when)
    with workspace.locked(), (folder / "acknowledged").open("a", encoding="utf-8") as told:
        async with Store(workspace.database) as store:
            options = RecordingOptions(lambda: 1)
            recordings = [Recording(workspace, store, options, reached=killer.reached) for _ in IDENTITIES]
            async with asyncio.TaskGroup() as group:
                for number, recording in enumerate(recordings):
                    group.create_task(record_board(recording, IDENTITIES[number], seed + 1000 * number, told, gone))
            # A session that has ended does not go on: none ends before the other board is done.
            for recording in recordings:
                await recording.end()


async def record_board(recording: Recording, identity: str, seed: int, told: TextIO, gone: Sequence[str]) -> None:
    files = {path: data for path, data in SMALL_JOB.items() if path not in gone}
    board, paths = ScriptedBoard(files, EARLIER, seed), list(files)

    async def acknowledge(logs: Sequence[Acknowledgement]) -> None:
        told.writelines(
            f"{identity} {paths[log.handle - 1]} {log.generation} {log.offset} {int(log.complete)}\n" for log in logs
        )
        told.flush()

    await recording.begin(replace(BOARD, identity=identity), f"scripted {identity}")
    recording.know_job(JobStatus(1, JOB, "/board/" + JOB, "open", caught_up=False))
    for batch in board.batches(await recording.holdings(board.announced())):
        await recording.take(batch, acknowledge)
    await recording.change_state(JOB, "finished", caught_up=True)


def main(folder: Path, seed: int, when: str, gone: Sequence[str]) -> None:
    """The whole life of such a process."""
    asyncio.run(record(folder, seed, when, gone))

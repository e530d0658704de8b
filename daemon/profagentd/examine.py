"""Gathers facts for a diagnosis: each source on a thread of its own, and none waited for long."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from profagent_wire.v1 import board_pb2 as wire
from profagentd import facts
from profagentd.disks import Patience, on_disk
from profagentd.messages import text
from profagentd.root_facts import acl_facts, root_facts
from profagentd.state import JobState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagentd.board import Board
    from profagentd.clock import Clock
    from profagentd.watch import Watch

    Work = Callable[[], wire.Examination]

# A source that has not told its facts by then is said not to answer.
PATIENCE_S = 3.0
# However often it is asked, the board is looked at no more often.
KEEP_S = 2.0

_BOARD_SOURCES = {
    "npu": facts.npu,
    "processes": facts.processes,
    "umap": facts.umap,
    "mounts": facts.mounts,
    "inotify": facts.inotify,
}


class Examiner:
    """Looks at the board when it is asked to. `certificates` are the paths of the daemon's own and its authority's.

    `settings_file` is where the daemon's settings stand, if not in its arguments alone.
    """

    def __init__(
        self,
        board: Board,
        watch: Watch,
        clock: Clock,
        certificates: tuple[str, str] = ("", ""),
        settings_file: str = "",
        filesystem: Path = Path("/"),
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._board = board
        self._watch = watch
        self._clock = clock
        self._certificates = certificates
        self._settings_file = settings_file
        self._filesystem = filesystem
        self._patience_s = patience_s
        self._patience = Patience(patience_s)
        self._look: asyncio.Future[wire.Examination] | None = None
        self._fresh_until = float("-inf")  # monotonic

    async def examine(self) -> wire.Examination:
        """What can be found out now, or was a moment ago."""
        if self._look is None or (self._look.done() and self._clock.monotonic() >= self._fresh_until):
            self._look = asyncio.ensure_future(self._gather())
        # Who leaves meanwhile leaves the look to others: whatever hangs is asked only once.
        return await asyncio.shield(self._look)

    async def _gather(self) -> wire.Examination:
        try:
            parts = await asyncio.gather(*(self._ask(name, work) for name, work in self._sources()))
        finally:
            self._fresh_until = self._clock.monotonic() + KEEP_S
        gathered = wire.Examination()
        for part in parts:
            gathered.MergeFrom(part)
        return gathered

    async def _ask(self, source: str, work: Work) -> wire.Examination:
        """The facts of one source, or why there are none."""
        key = f"facts: {source}".encode()
        try:
            if self._patience.is_late(key):
                return _unknown(source, "it has not answered for long")
            task = await self._patience.wait(key, on_disk(key, work))
        except OSError as error:
            return _unknown(source, error.strerror or str(error))
        except ValueError as error:
            return _unknown(source, f"it cannot be read: {error}")
        return task.result() if task.done() else _unknown(source, f"it did not answer within {self._patience_s:g} s")

    def _sources(self) -> Iterator[tuple[str, Work]]:
        for name, look in _BOARD_SOURCES.items():
            yield name, partial(look, self._filesystem)
        yield "daemon", partial(facts.daemon, self._filesystem, self._settings_file)
        if all(self._certificates):
            yield "certificates", partial(facts.certificates, *self._certificates)
        for root in self._watch.roots:
            yield from self._sources_of(root)
        if self._watch.acl_json:
            yield "acl-json", partial(acl_facts, b"", (), tuple(self._watch.acl_json))

    def _sources_of(self, root: bytes) -> Iterator[tuple[str, Work]]:
        jobs = [job for job in reversed(self._board.jobs) if job.place.root == root]
        places = [job.place for job in jobs]
        open_jobs = sum(job.state is JobState.OPEN for job in jobs)
        yield f"root {text(root)}", partial(root_facts, self._filesystem, root, self._watch.depth, places, open_jobs)
        if not self._watch.acl_json:
            yield f"acl-json below {text(root)}", partial(acl_facts, root, places)


def _unknown(source: str, why: str) -> wire.Examination:
    return wire.Examination(unknown=[wire.UnknownFacts(source=source, why=why)])

"""The daemon's own works: taking in what programs write, and measuring the board. Each fills spools of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from profagentd.config import real_root
from profagentd.loop import until_first
from profagentd.metrics.collectors import every
from profagentd.metrics.sampler import Sampler, SweepLines
from profagentd.spools.intake import Intake
from profagentd.spools.spool import Spool, end_left, left_open

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from profagentd.config import DaemonConfig
    from profagentd.loop import DaemonClock
    from profagentd.spools.spool import Lost


_LOGGER = logging.getLogger(__name__)

# How often a disk that was full at the start is tried again.
END_AGAIN_S = 30.0


class SpoolKeeper:
    """Runs the works that are asked for. One that fails is told once, and stops neither the daemon nor the other."""

    def __init__(
        self, config: DaemonConfig, clock: DaemonClock, roots: Iterable[bytes], lost: Lost, *,
        board: Path = Path("/"), made_by: str = "",
    ) -> None:  # fmt: skip
        """`roots`: whose disks are measured. `lost` is called on the loop for each segment that the cap took.

        `board` is where the board's own files are, `made_by` what makes up all that is kept, if anything.
        """
        self._config = config
        self._clock = clock
        self._lost = lost
        self._made_by = made_by
        self._sampler = Sampler(every(roots, real_root(config.spool_directory)), board)
        self._is_refused = False  # the disk took no metrics the last time
        self._left: list[str] = []  # collections of earlier daemons that have no end yet
        self.offered = asyncio.Event()  # programs find their FIFOs, if there are to be any
        self._ending, self._ended = asyncio.Event(), asyncio.Event()

    def prepare(self) -> bool:
        """Make the directory of the spools, and end what an earlier daemon left open; False where none are wanted.

        What a full disk refuses is done later.
        """
        if not self._config.spools:
            return False
        try:
            os.makedirs(self._config.spool_directory, mode=0o750, exist_ok=True)
            self._left = left_open(self._config.spool_directory)
        except OSError as error:
            _LOGGER.warning("no %s before there is a directory for them: %s", ", ".join(self._config.spools), error)
        self._end_left()
        return True

    def _end_left(self) -> None:
        try:
            while self._left:
                with contextlib.suppress(FileNotFoundError):  # it was deleted meanwhile
                    end_left(self._left[-1])
                self._left.pop()
        except OSError as error:
            _LOGGER.warning("what an earlier daemon left stays without its end for now: %s", error)

    async def _go_on_ending(self) -> None:
        while self._left:
            await self._clock.sleep(END_AGAIN_S)
            await asyncio.to_thread(self._end_left)

    @property
    def lacking(self) -> Mapping[str, str]:
        """Metrics that this board does not give, and why."""
        return dict(self._sampler.problems)

    async def run(self) -> None:
        """Run until cancelled; every collection has its end then, or after `end`."""
        try:
            await until_first(self._ending.wait(), self._work())
        finally:
            self._ended.set()
        await asyncio.Event().wait()

    async def end(self) -> None:
        """End every collection, and fill no other."""
        self._ending.set()
        await self._ended.wait()

    async def _work(self) -> None:
        kinds = self._config.spools
        works = [self._go_on_ending()]
        if "metrics" in kinds:
            works.append(self._told("metrics", self._measure()))
        if "ops" in kinds or "marks" in kinds:
            works.append(self._told("subscriptions or marks of programs", self._take_in()))
        await asyncio.gather(*works)
        self.offered.set()
        await asyncio.Event().wait()

    async def _told(self, what: str, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except OSError as error:
            _LOGGER.warning("no %s: %s", what, error)
        except Exception:
            _LOGGER.exception("no more %s", what)

    async def _take_in(self) -> None:
        config = self._config
        ops = config.subscriptions if "ops" in config.spools else ()
        intake = Intake(config.run_directory, ops, self._new_spool(), marks="marks" in config.spools)
        try:
            intake.start()
        finally:
            self.offered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(intake.stop)

    async def _measure(self) -> None:
        lines, period_s = SweepLines(), 1 / self._config.metrics_hz
        spool = self._new_spool(lines.names)("metrics", "board")
        # One thread, so that the spool ends after its last sweep.
        with ThreadPoolExecutor(1, thread_name_prefix="metrics") as thread:
            loop = asyncio.get_running_loop()
            due = self._clock.monotonic()
            try:
                while True:
                    await loop.run_in_executor(thread, self._sweep, lines, spool)
                    due = max(due + period_s, self._clock.monotonic())
                    await self._clock.sleep(due - self._clock.monotonic())
            finally:
                self._sampler.close()
                await loop.run_in_executor(thread, spool.close)

    def _sweep(self, lines: SweepLines, spool: Spool) -> None:
        data = lines.of(self._sampler.sweep())
        try:
            if data:
                spool.write(data)
        except OSError as error:  # a disk that is full now may have room again: a segment begins with every name
            if not self._is_refused:
                _LOGGER.warning("metrics are lost: %s", error)
            self._is_refused = True
        else:
            self._is_refused = False

    def _new_spool(self, preamble: Callable[[], bytes] = bytes) -> Callable[[str, str], Spool]:
        loop, config = asyncio.get_running_loop(), self._config

        def lost(collection: str, segment: str, size: int) -> None:
            loop.call_soon_threadsafe(self._lost, collection, segment, size)

        def new(kind: str, name: str) -> Spool:
            return Spool(
                config.spool_directory, kind, name, cap_bytes=config.spool_cap_bytes, lost=lost, preamble=preamble,
                made_by=self._made_by,
            )  # fmt: skip

        return new

"""The daemon's own works: taking in what programs write, and measuring the board. Each fills spools of its own."""

from __future__ import annotations

import asyncio
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from profagentd.loop import until_first
from profagentd.metrics.collectors import every
from profagentd.metrics.sampler import Lines, Sampler
from profagentd.spools.intake import Intake
from profagentd.spools.spool import Spool, end_those_left

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from profagentd.loop import Clock
    from profagentd.spools.spool import Lost


_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpoolSettings:
    """Which spools are kept, where, and how much of each; `made_by` is what makes up all that is in them, if anything.

    `run` is where programs find their FIFOs, `board` where the board's own files are.
    """

    kinds: tuple[str, ...]
    directory: str
    cap_bytes: int
    run: str
    subscriptions: tuple[str, ...] = ()
    metrics_hz: float = 1.0
    board: Path = Path("/")
    made_by: str = ""


class SpoolKeeper:
    """Runs the works that are asked for. One that fails is told once, and stops neither the daemon nor the other."""

    def __init__(self, settings: SpoolSettings, clock: Clock, roots: Callable[[], Iterable[bytes]], lost: Lost) -> None:
        """`roots`: whose disks are measured. `lost` is called on the loop for each segment that the cap took."""
        self._settings = settings
        self._clock = clock
        self._lost = lost
        self._sampler = Sampler(every(roots), settings.board)
        self._is_refused = False  # the disk took no metrics the last time
        self.offered = asyncio.Event()  # programs find their FIFOs, if there are to be any
        self._ending, self._ended = asyncio.Event(), asyncio.Event()

    def prepare(self) -> bool:
        """Make the directory of the spools, and end what an earlier daemon left open; False where there is none."""
        if not self._settings.kinds:
            return False
        try:
            os.makedirs(self._settings.directory, mode=0o750, exist_ok=True)
            end_those_left(self._settings.directory)
        except OSError as error:
            _LOGGER.warning("no %s: %s", ", ".join(self._settings.kinds), error)
            return False
        return True

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
        kinds = self._settings.kinds
        works = [self._told("metrics", self._measure())] if "metrics" in kinds else []
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
        settings = self._settings
        ops = settings.subscriptions if "ops" in settings.kinds else ()
        intake = Intake(settings.run, ops, self._new_spool(), marks="marks" in settings.kinds)
        try:
            intake.start()
        finally:
            self.offered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(intake.stop)

    async def _measure(self) -> None:
        lines, period_s = Lines(), 1 / self._settings.metrics_hz
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

    def _sweep(self, lines: Lines, spool: Spool) -> None:
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
        loop, settings = asyncio.get_running_loop(), self._settings

        def lost(collection: str, segment: str, size: int) -> None:
            loop.call_soon_threadsafe(self._lost, collection, segment, size)

        def new(kind: str, name: str) -> Spool:
            return Spool(
                settings.directory, kind, name, cap_bytes=settings.cap_bytes, lost=lost, preamble=preamble,
                made_by=settings.made_by,
            )  # fmt: skip

        return new

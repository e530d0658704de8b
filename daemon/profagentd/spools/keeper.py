"""The daemon's own producers: the intake of programs' records and the sampler of metrics, which fill the spools."""

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
from profagentd.metrics.collectors import all_collectors
from profagentd.metrics.sampler import Sampler, SweepLines
from profagentd.spools.intake import Intake
from profagentd.spools.spool import Spool, finish_collection, unfinished_collections

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from profagentd.config import DaemonConfig
    from profagentd.loop import DaemonClock
    from profagentd.spools.spool import OnDropped


_LOGGER = logging.getLogger(__name__)

# Interval of retrying to end earlier collections on a disk that was full at the start.
END_AGAIN_S = 30.0


class SpoolKeeper:
    """Owner of the intake and the sampler. A failure of one is logged, and stops neither the daemon nor the other."""

    def __init__(
        self, config: DaemonConfig, clock: DaemonClock, roots: Iterable[bytes], on_dropped: OnDropped, *,
        board: Path = Path("/"), made_by: str = "",
    ) -> None:  # fmt: skip
        """Prepare the producers of the settings' spools.

        `roots`: directories whose disks are measured. `on_dropped` is called on the loop for each segment that the cap
        takes. `board`: root of the board's own files. `made_by`: what makes up the data of a simulated board, if any.
        """
        self._config = config
        self._clock = clock
        self._on_dropped = on_dropped
        self._made_by = made_by
        self._sampler = Sampler(all_collectors(roots, real_root(config.spool_directory)), board)
        self._is_refused = False  # the disk refused the last metrics
        self._unfinished: list[str] = []  # collections of earlier daemons that have no end yet
        self.offered = asyncio.Event()  # set once programs find their FIFOs, or none are wanted
        self._ending, self._ended = asyncio.Event(), asyncio.Event()  # `end` was called; all collections have ended

    def prepare(self) -> bool:
        """Make the spools' directory, and end what an earlier daemon left open; return False without spools.

        What a full disk refuses is done later.
        """
        if not self._config.spools:
            return False
        try:
            os.makedirs(self._config.spool_directory, mode=0o750, exist_ok=True)
            self._unfinished = unfinished_collections(self._config.spool_directory)
        except OSError as error:
            _LOGGER.warning(
                "%s are not recorded until their directory can be made: %s", ", ".join(self._config.spools), error
            )
        self._finish_earlier()
        return True

    def _finish_earlier(self) -> None:
        try:
            while self._unfinished:
                with contextlib.suppress(FileNotFoundError):  # the collection was deleted meanwhile
                    finish_collection(self._unfinished[-1])
                self._unfinished.pop()
        except OSError as error:
            _LOGGER.warning("cannot close the spools of an earlier daemon yet: %s", error)

    async def _retry_finishing(self) -> None:
        while self._unfinished:
            await self._clock.sleep(END_AGAIN_S)
            await asyncio.to_thread(self._finish_earlier)

    @property
    def lacking(self) -> Mapping[str, str]:
        """Metrics that this board does not give, with reasons."""
        return dict(self._sampler.problems)

    async def run(self) -> None:
        """Run until cancelled. Every collection is ended then, or after `end`."""
        try:
            await until_first(self._ending.wait(), self._work())
        finally:
            self._ended.set()
        await asyncio.Event().wait()

    async def end(self) -> None:
        """End every collection, and start no other."""
        self._ending.set()
        await self._ended.wait()

    async def _work(self) -> None:
        kinds = self._config.spools
        tasks = [self._retry_finishing()]
        if "metrics" in kinds:
            tasks.append(self._run_logged("metrics", self._measure()))
        if "ops" in kinds or "marks" in kinds:
            tasks.append(self._run_logged("subscriptions or marks of programs", self._run_intake()))
        await asyncio.gather(*tasks)
        self.offered.set()
        await asyncio.Event().wait()

    async def _run_logged(self, what: str, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except OSError as error:
            _LOGGER.warning("%s cannot be recorded: %s", what, error)
        except Exception:
            _LOGGER.exception("recording of %s ended by an error", what)

    async def _run_intake(self) -> None:
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
            # In a thread, as it waits for the last round of the intake's own thread.
            await asyncio.to_thread(intake.stop)

    async def _measure(self) -> None:
        lines, period_s = SweepLines(), 1 / self._config.metrics_hz
        spool = self._new_spool(lines.names)("metrics", "board")
        # One thread, so that `close` runs after the last sweep's write.
        with ThreadPoolExecutor(1, thread_name_prefix="metrics") as thread:
            loop = asyncio.get_running_loop()
            due = self._clock.monotonic()
            try:
                while True:
                    await loop.run_in_executor(thread, self._sweep, lines, spool)
                    # A late sweep does not make the next ones hurry: the period starts anew.
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
        except OSError as error:  # the next sweep tries again: a new segment begins with all names
            if not self._is_refused:
                _LOGGER.warning("metrics are lost: %s", error)
            self._is_refused = True
        else:
            self._is_refused = False

    def _new_spool(self, preamble: Callable[[], bytes] = bytes) -> Callable[[str, str], Spool]:
        loop, config = asyncio.get_running_loop(), self._config

        def on_dropped(collection: str, segment: str, size: int) -> None:
            # The intake's thread writes the spools, and the ledger belongs to the loop.
            loop.call_soon_threadsafe(self._on_dropped, collection, segment, size)

        def new(kind: str, name: str) -> Spool:
            return Spool(
                config.spool_directory, kind, name, cap_bytes=config.spool_cap_bytes, on_dropped=on_dropped,
                preamble=preamble, made_by=self._made_by,
            )  # fmt: skip

        return new

"""The simulated board at work: inferences at a steady rate, by a clock that is passed in."""

from __future__ import annotations

import asyncio
import logging
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from random import SystemRandom
from typing import TYPE_CHECKING, Callable, TypeVar

from profagentd.errors import DaemonError
from profagentd.simulate.npu import LOAD_US, Npu

if TYPE_CHECKING:
    from pathlib import Path

    from profagentd.loop import Clock
    from profagentd.simulate.options import SimulationOptions


START_US = 1_767_225_600_000_000
"""2026-01-01 00:00:00 UTC."""

_US_PER_S = 1_000_000


def write_job(
    root: Path,
    options: SimulationOptions,
    inferences: int,
    *,
    loads: int = 1,
    gaps: bool = True,
) -> Path:
    """Write a JOB under `root` as fast as the disk takes it, and return its directory.

    The model is loaded `loads` times, each time for so many `inferences`. The times in the files begin at START_US
    and go by the options' rate, or by the NPU where that is slower; `options.for_s` and `options.root` do not matter.
    Without `gaps` each layer leaves its record. Raises DaemonError for the options, OSError for the disk.
    """
    npu = Npu(replace(options, root=root), gaps=gaps)
    now_us = START_US
    for _ in range(loads):
        first_us = now_us = npu.load(now_us)
        for number in range(inferences):
            scheduled_us = first_us + round(number * _US_PER_S / options.rate)
            now_us = npu.infer(max(now_us, scheduled_us))
        now_us = npu.unload(now_us)
    if npu.directory is None:
        raise ValueError("loads must be 1 or more")
    return npu.directory


MAX_LAG_S = 0.1
"""How far the pretend NPU may be ahead of the clock that reads its results; a slow host holds it back."""


@dataclass
class Pace:
    """Inference k is due at `first + k / rate`, so nothing drifts; it begins when it is due and the NPU is free.

    `late` counts the inferences that were over more than one period after their time.
    """

    first: float
    rate: float
    free_at: float
    taken: int = 0
    late: int = 0
    max_late_us: int = 0

    @property
    def next_begin(self) -> float:
        """When the next inference begins."""
        return max(self._due(self.taken), self.free_at)

    def take(self, duration_s: float) -> float:
        """Count the next inference; when it ends."""
        self.free_at = self.next_begin + duration_s
        self.taken += 1
        return self.free_at

    def seen(self, now: float, duration_s: float) -> None:
        """The inference that was taken last has been over since its end, and is seen only now."""
        late_s = now - duration_s - self._due(self.taken - 1)
        if late_s > 1 / self.rate:
            self.late += 1
            self.max_late_us = max(self.max_late_us, round(late_s * _US_PER_S))
        self.free_at = max(self.free_at, now - MAX_LAG_S)

    def _due(self, number: int) -> float:
        return self.first + number / self.rate


_LOGGER = logging.getLogger(__name__)
_US_PER_MS = 1_000
_A = TypeVar("_A")
_T = TypeVar("_T")


@dataclass(frozen=True)
class SimulationReport:
    """What was run. `late` counts inferences that were over more than one period after their time.

    `lost_bytes` had no room on the disk.
    """

    job: Path | None
    inferences: int
    sampled: int
    aicore_records: int
    late: int
    max_late_us: int
    lost_bytes: int = 0

    def __str__(self) -> str:
        text = f"{self.inferences} inferences, {self.sampled} of them recorded, {self.aicore_records} aicore records"
        if self.late:
            text += f"; the rate was not kept: {self.late} came late, by up to {self.max_late_us / _US_PER_MS:.1f} ms"
        if self.lost_bytes:
            text += f"; the disk was full: {self.lost_bytes} bytes could not be written"
        return text


async def simulate(options: SimulationOptions, clock: Clock) -> SimulationReport:
    """Run the model until `options.for_s` is over or until it is cancelled; then unload it, which finishes the JOB.

    Raises DaemonError for the options and when the JOB cannot be written, CancelledError after the unload.
    """
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="simulated-npu") as thread:
            return await _Simulation(options, clock, thread).run()
    except OSError as error:
        raise DaemonError(
            f"the simulated board cannot write: {error}",
            hint=f"make {options.root} a writable directory with free space, or choose another --root",
        ) from error


class _Simulation:
    """One run.

    A single thread does all blocking work, so what is handed over is done in that order, even when the waiting for it
    is cancelled.
    """

    def __init__(self, options: SimulationOptions, clock: Clock, thread: ThreadPoolExecutor) -> None:
        self._options = options
        self._clock = clock
        self._thread = thread

    async def run(self) -> SimulationReport:
        # Like the runtime's, a JOB's name is not repeated: a host keeps JOBs of many runs side by side.
        npu = await self._blocking(lambda options: Npu(options, names=SystemRandom()), self._options)
        try:
            await self._blocking(npu.load, self._clock.wall_us() - LOAD_US)
            pace = await self._infer(npu)
        except asyncio.CancelledError:
            await self._unload_cancelled(npu)
            raise
        await self._blocking(npu.unload, self._clock.wall_us())
        return _report(npu, pace)

    async def _infer(self, npu: Npu) -> Pace:
        """Inferences until the time is over; their times in the files are those of the schedule."""
        first = self._clock.monotonic()
        pace = Pace(first, self._options.rate, free_at=first)
        until = first + (math.inf if self._options.for_s is None else self._options.for_s)
        while pace.next_begin < until:
            was_late = pace.late
            duration_s = npu.next_call_us / _US_PER_S
            end = pace.take(duration_s)
            await self._sleep_until(end)
            pace.seen(self._clock.monotonic(), duration_s)
            await self._blocking(npu.infer, self._wall_us_at(end - duration_s))
            if pace.late and not was_late:
                _LOGGER.warning("the simulated board cannot keep %g inferences a second", self._options.rate)
        await self._sleep_until(until)
        return pace

    def _wall_us_at(self, time: float) -> int:
        """The wall clock at a time of the monotonic clock."""
        return self._clock.wall_us() - round((self._clock.monotonic() - time) * _US_PER_S)

    async def _unload_cancelled(self, npu: Npu) -> None:
        try:
            await asyncio.shield(self._blocking(npu.unload, self._clock.wall_us()))
        except OSError:
            _LOGGER.exception("the simulated JOB stays unfinished")

    async def _sleep_until(self, end: float) -> None:
        await self._clock.sleep(max(0.0, end - self._clock.monotonic()))

    def _blocking(self, work: Callable[[_A], _T], argument: _A) -> asyncio.Future[_T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work, argument)


def _report(npu: Npu, pace: Pace) -> SimulationReport:
    return SimulationReport(
        npu.directory, npu.inferences, npu.sampled, npu.aicore_records, pace.late, pace.max_late_us, npu.lost_bytes
    )

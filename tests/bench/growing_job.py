"""A JOB that grows at a steady rate, written by a thread of the benchmark: it costs the daemon nothing."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from profagentd.simulate.npu import Npu

if TYPE_CHECKING:
    from profagentd.simulate.run import SimulationOptions

US_PER_S = 1_000_000


class GrowingJob:
    """A JOB with a backlog; inferences go on while it is entered, and `finish` unloads its model.

    An inference is known by its `current_pic_count`, which with one picture each is its number.
    """

    def __init__(self, root: Path, options: SimulationOptions, *, backlog: int = 0) -> None:
        self._npu = Npu(replace(options, root=root), gaps=False)
        self._period_s = 1 / options.rate
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._grow, name="growing-job")
        self.written: dict[int, float] = {}
        """When each inference that did not belong to the backlog was there, on the monotonic clock."""
        self._now_us = self._npu.load(time.time_ns() // 1000 - backlog * round(US_PER_S / options.rate))
        for _ in range(backlog):
            self._now_us = self._npu.infer(self._now_us)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    @property
    def directory(self) -> Path:
        """The JOB directory."""
        assert self._npu.directory is not None
        return self._npu.directory

    @property
    def inferences(self) -> int:
        """How many there are, with those of the backlog."""
        return self._npu.inferences

    def finish(self) -> None:
        """Stop, and unload the model, which finishes the JOB."""
        self._stopping.set()
        self._thread.join()
        self._npu.unload(time.time_ns() // 1000)

    def _grow(self) -> None:
        due = time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            number = self._npu.inferences
            self._npu.infer(time.time_ns() // 1000)
            self.written[number] = time.monotonic()
            due += self._period_s

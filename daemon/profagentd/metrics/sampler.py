"""Sweeps over the collectors, where one that fails or hangs stops no other, and their lines in a spool."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple

from profagentd.limits import SWEEP_S

if TYPE_CHECKING:
    from profagentd.metrics.collectors import Collector, Sample


_log = logging.getLogger(__name__)

# A collector that failed is called again after this.
RETRY_S = 60.0


class Sweep(NamedTuple):
    """Result of one sweep: its time (µs since 1970), its samples, and the collectors that began to fail."""

    time_us: int
    samples: list[Sample]
    problems: dict[str, str]  # collectors whose first failure this is, with reasons


class Sampler:
    """Sweeper that calls the collectors in a thread.

    One that hangs keeps that thread, and is left out until it returns.
    """

    def __init__(
        self, collectors: Mapping[str, Collector], board: Path = Path("/"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._collectors, self._board, self._clock = collectors, board, clock
        self._retry_at: dict[str, float] = {}  # monotonic time of the next call of a failed collector
        self.problems: dict[str, str] = {}  # collectors whose last call failed, with reasons
        self._logged: set[str] = set()  # collectors whose failure was logged; each once
        self._hanging: set[str] = set()  # collectors whose call has not returned
        self._calls: queue.SimpleQueue[Callable[[], bool]] | None = None  # to the collecting thread

    def sweep(self) -> Sweep:
        """Call every collector that is due; return the results. Blocks for at most SWEEP_S for each that hangs."""
        # One time for all samples of a sweep, so that they can be compared.
        result = Sweep(time.time_ns() // 1000, [], {})
        due = [name for name in self._collectors if self._is_due(name)]
        # Each round ends when all are done or one hangs; the ones behind it get the next round, in a new thread.
        while due:
            due = self._run(due, result)
        return result

    def _is_due(self, name: str) -> bool:
        return name not in self._hanging and self._clock() >= self._retry_at.get(name, 0)

    def _run(self, names: list[str], result: Sweep) -> list[str]:
        """Call these collectors in the thread; when one hangs, return those that were not called yet."""
        done: list[str] = []
        lock, is_abandoned, is_over = threading.Lock(), False, threading.Event()

        def work() -> bool:
            """Return True if the thread is to go on."""
            for name in names:
                samples, problem = self._call(name)
                with lock:
                    if is_abandoned:
                        self._hanging.discard(name)  # it has returned; its samples are too old
                        return False
                    done.append(name)
                    result.samples.extend(samples)
                    self._record_result(name, problem, result)
            is_over.set()
            return True

        # In another thread: a read of /proc that hangs must not hang the sweep.
        self._hand_over(work)
        is_over.wait(SWEEP_S)
        with lock:
            if len(done) == len(names):
                return []
            # Decided under the lock: a collector that returns just now either counts in full, or knows that it is
            # abandoned.
            is_abandoned, self._calls = True, None
            hung = names[len(done)]
            self._hanging.add(hung)
            self._record_result(hung, f"it did not answer within {SWEEP_S:g} s", result)
        return names[len(done) + 1 :]

    def _hand_over(self, work: Callable[[], bool]) -> None:
        if self._calls is None:
            self._calls = queue.SimpleQueue()
            threading.Thread(target=_run_calls, args=(self._calls,), name="collectors", daemon=True).start()
        self._calls.put(work)

    def close(self) -> None:
        """End the thread after its present call."""
        if self._calls is not None:
            self._calls.put(lambda: False)
            self._calls = None

    def _call(self, name: str) -> tuple[list[Sample], str]:
        try:
            return list(self._collectors[name](self._board)), ""
        except OSError as error:
            return [], f"{error.filename}: {error.strerror}"
        except (ValueError, LookupError) as error:
            return [], f"it cannot be read: {error}"

    def _record_result(self, name: str, problem: str, result: Sweep) -> None:
        if not problem:
            self._retry_at.pop(name, None)
            self.problems.pop(name, None)
            return
        self.problems[name] = problem
        self._retry_at[name] = self._clock() + RETRY_S
        if name not in self._logged:
            self._logged.add(name)
            result.problems[name] = problem
            _log.info("metrics of %s are not available: %s", name, problem)


def _run_calls(calls: queue.SimpleQueue[Callable[[], bool]]) -> None:
    while calls.get()():
        pass


class SweepLines:
    """Encoder of sweeps as lines of the spool `METRICS-board-…`; it numbers the names as they appear.

    n 3 % npu.hw_utilization         number, unit (`-`: none) and name; before its first value, and in each segment
    s 1700000000000000 3=12 4=7.5    a sweep: µs since 1970 by the board's clock, and its values
    e thermal No such file           a collector that failed for the first time, and the reason
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}  # by name
        self._names: list[str] = []  # the `n` lines, by number

    def of(self, sweep: Sweep) -> bytes:
        """Return the lines of a sweep: new names, problems, values."""
        known = len(self._names)
        values = [f"{self._number(each.name, each.unit)}={_shown(each.value)}" for each in sweep.samples]
        lines = self._names[known:]
        lines += [f"e {name} {' '.join(why.split())}\n" for name, why in sweep.problems.items()]
        if values:
            lines.append(f"s {sweep.time_us} {' '.join(values)}\n")
        return _encoded(lines)

    def names(self) -> bytes:
        """Return the lines of all names so far, which each segment begins with."""
        return _encoded(self._names)

    def _number(self, name: str, unit: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self._numbers)
            self._names.append(f"n {self._numbers[name]} {unit or '-'} {' '.join(name.split())}\n")
        return self._numbers[name]


def _encoded(lines: list[str]) -> bytes:
    return "".join(lines).encode("utf-8", "replace")  # a root's path may be any bytes


def _shown(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.6g}"

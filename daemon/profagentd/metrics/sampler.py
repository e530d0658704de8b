"""Sweeps over the collectors, where one that fails or hangs stops no other, and the lines that a spool has of them."""

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

RETRY_S = 60.0


class Sweep(NamedTuple):
    """What one round gave: its moment (µs since 1970), its samples, and what was learnt of collectors."""

    time_us: int
    samples: list[Sample]
    problems: dict[str, str]  # collectors that fail since this sweep, and why


class Sampler:
    """Sweeps over its collectors in a thread; one that hangs keeps its thread, and is left out until it is back."""

    def __init__(
        self, collectors: Mapping[str, Collector], board: Path = Path("/"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._collectors, self._board, self._clock = collectors, board, clock
        self._retry_at: dict[str, float] = {}
        self.problems: dict[str, str] = {}  # collectors that gave nothing when they were asked last, and why
        self._told: set[str] = set()
        self._hanging: set[str] = set()
        self._works: queue.SimpleQueue[Callable[[], bool]] | None = None  # of the thread that calls them

    def sweep(self) -> Sweep:
        """Call every collector that is due. Blocks for SWEEP_S at most for each that hangs."""
        result = Sweep(time.time_ns() // 1000, [], {})
        due = [name for name in self._collectors if self._is_due(name)]
        while due:
            due = self._run(due, result)
        return result

    def _is_due(self, name: str) -> bool:
        return name not in self._hanging and self._clock() >= self._retry_at.get(name, 0)

    def _run(self, names: list[str], result: Sweep) -> list[str]:
        """Call these in a thread; those that are left when one hangs."""
        done: list[str] = []
        lock, is_abandoned, is_over = threading.Lock(), False, threading.Event()

        def work() -> bool:
            """Whether the thread is to go on."""
            for name in names:
                samples, problem = self._called(name)
                with lock:
                    if is_abandoned:
                        self._hanging.discard(name)  # it is back; its samples are too old
                        return False
                    done.append(name)
                    result.samples.extend(samples)
                    self._judge(name, problem, result)
            is_over.set()
            return True

        self._hand_over(work)
        is_over.wait(SWEEP_S)
        with lock:
            if len(done) == len(names):
                return []
            is_abandoned, self._works = True, None
            hung = names[len(done)]
            self._hanging.add(hung)
            self._judge(hung, f"it did not answer within {SWEEP_S:g} s", result)
        return names[len(done) + 1 :]

    def _hand_over(self, work: Callable[[], bool]) -> None:
        if self._works is None:
            self._works = queue.SimpleQueue()
            threading.Thread(target=_work_on, args=(self._works,), name="collectors", daemon=True).start()
        self._works.put(work)

    def close(self) -> None:
        """Sweep no more."""
        if self._works is not None:
            self._works.put(lambda: False)
            self._works = None

    def _called(self, name: str) -> tuple[list[Sample], str]:
        try:
            return list(self._collectors[name](self._board)), ""
        except OSError as error:
            return [], f"{error.filename}: {error.strerror}"
        except (ValueError, LookupError) as error:
            return [], f"it cannot be read: {error}"

    def _judge(self, name: str, problem: str, result: Sweep) -> None:
        if not problem:
            self._retry_at.pop(name, None)
            self.problems.pop(name, None)
            return
        self.problems[name] = problem
        self._retry_at[name] = self._clock() + RETRY_S
        if name not in self._told:
            self._told.add(name)
            result.problems[name] = problem
            _log.info("no metrics of %s: %s", name, problem)


def _work_on(works: queue.SimpleQueue[Callable[[], bool]]) -> None:
    while works.get()():
        pass


class SweepLines:
    """Sweeps as lines of the spool `METRICS-board-…`; numbers the names as they come.

    n 3 % npu.hw_utilization         number, unit (`-`: none) and name; before its first value, and again in a segment
    s 1700000000000000 3=12 4=7.5    a sweep: µs since 1970 by the board's clock, and its values
    e thermal No such file           a collector gives nothing any more, and why
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def of(self, sweep: Sweep) -> bytes:
        """The lines of a sweep: new names, problems, values."""
        known = len(self._names)
        values = [f"{self._number(each.name, each.unit)}={_shown(each.value)}" for each in sweep.samples]
        lines = self._names[known:]
        lines += [f"e {name} {' '.join(why.split())}\n" for name, why in sweep.problems.items()]
        if values:
            lines.append(f"s {sweep.time_us} {' '.join(values)}\n")
        return _encoded(lines)

    def names(self) -> bytes:
        """All names so far: what a segment begins with."""
        return _encoded(self._names)

    def _number(self, name: str, unit: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self._numbers)
            self._names.append(f"n {self._numbers[name]} {unit or '-'} {' '.join(name.split())}\n")
        return self._numbers[name]


def _encoded(lines: list[str]) -> bytes:
    return "".join(lines).encode("utf-8", "replace")  # the name of a disk's root may be anything


def _shown(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.6g}"

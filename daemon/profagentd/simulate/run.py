"""The simulated board's options, and its inferences at a steady rate by an injected clock."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Callable, TypeVar

from profagentd.errors import DaemonError
from profagentd.loop import US_PER_S
from profagentd.simulate.network import chosen_facts
from profagentd.simulate.npu import LOAD_US, Npu, slow_stages

if TYPE_CHECKING:
    import argparse

    from profagentd.loop import DaemonClock
    from profagentd.simulate.board import SimulatedBoard


MAX_RATE = 10_000.0
_LIMITS = {
    "layers": (1, 10_000),
    "interval": (0, 9_999),  # the library's own (the-format.md 2.3)
    "busy": (0, 9_999),
    "pictures": (1, 1_024),
}


@dataclass(frozen=True)
class SimulationOptions:
    """Options of a model that runs at a steady rate. Raises DaemonError for a value out of range.

    `model` is a built-in name or a TOML file; `layers` cuts or repeats it to so many aicore runs; `rate` is inferences
    a second; `interval` as in the library; `pictures` go into each inference; `for_s` None runs until cancelled; each
    tenth sample keeps the writer `busy` for so many inferences; in every `slow_every[0]`-th inference the longest layer
    takes `slow_every[1]` times as long; `facts` are NAME=ALTERNATIVE, where the board differs from the likely
    behaviour. `run` is the directory of the daemon's FIFOs, `board` writes /proc. `contend` is a second model, MODEL or
    MODEL@SHARE, that has the NPU when a share of the inferences begin; `slow` are stages of the program that take
    longer, NAME=FACTOR or NAME=FACTOR@SHARE. In `time_lapse` simulated seconds one second passes: `rate` and `for_s`
    are in simulated seconds.
    """

    model: str = "yolov5s"
    layers: int | None = None
    rate: float = 10.0
    interval: int = 1
    pictures: int = 1
    for_s: float | None = None
    seed: int = 0
    root: Path = Path()
    busy: int = 0
    facts: tuple[str, ...] = ()
    slow_every: tuple[int, float] | None = None
    run: Path | None = None
    board: SimulatedBoard | None = None
    contend: str | None = None
    slow: tuple[str, ...] = ()
    time_lapse: float = 1.0

    def __post_init__(self) -> None:
        for name, (lowest, highest) in _LIMITS.items():
            value = getattr(self, name)
            if value is not None and not lowest <= value <= highest:
                raise _refused(f"--{name}", value, f"from {lowest} to {highest}")
        chosen_facts(self.facts)
        slow_stages(self.slow)
        _check_contender(self.contend)
        if not 0 < self.rate <= MAX_RATE:
            raise _refused("--rate", self.rate, f"above 0 and at most {MAX_RATE:g} inferences a second")
        if not 1 <= self.time_lapse <= MAX_RATE / self.rate:
            raise _refused("--time-lapse", self.time_lapse, f"from 1 to {MAX_RATE:g} divided by --rate")
        if self.for_s is not None and not 0 < self.for_s < math.inf:
            raise _refused("--for", self.for_s, "above 0 seconds; leave it out to run until stopped")


def _check_contender(text: str | None) -> None:
    """Raise DaemonError if the share of a second model is none."""
    _, separator, share = (text or "").partition("@")
    try:
        is_share = not separator or 0 < float(share) <= 1
    except ValueError:
        is_share = False
    if not is_share:
        raise DaemonError(
            f"--contend {text}: not understood", hint="--contend is MODEL or MODEL@SHARE, such as resnet50@0.3"
        )


def _refused(option: str, value: float, allowed: str) -> DaemonError:
    return DaemonError(f"{option} {value}: out of range", hint=f"{option} is {allowed}")


def add_simulation_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `profagentd --simulate` to the daemon's parser."""
    group = parser.add_argument_group("simulated board", "with --simulate; everything it shows is marked simulated")
    add, usual = group.add_argument, SimulationOptions()
    add("--model", metavar="NAME|FILE", default=usual.model, help="network (default: %(default)s)")
    add("--layers", metavar="N", type=int, help="cut or repeat the network to N NPU layers")
    lapse = "let FACTOR simulated seconds pass in a second: the times of records, calls and marks, --rate, --for (1)"
    add("--time-lapse", metavar="FACTOR", type=float, default=usual.time_lapse, help=lapse)
    add("--rate", metavar="INF_PER_S", type=float, default=usual.rate, help="inferences a second (%(default)s)")
    add("--interval", metavar="N", type=int, default=usual.interval, help="record each Nth inference; 0: the first")
    busy = "each tenth sample is being written while N inferences run, which postpones the next (%(default)s)"
    add("--busy", metavar="N", type=int, default=usual.busy, help=busy)
    add("--pictures", metavar="N", type=int, default=usual.pictures, help="pictures in each inference (%(default)s)")
    add("--seed", metavar="K", type=int, default=usual.seed, help="same seed, same bytes (%(default)s)")
    add("--for", metavar="S", dest="for_s", type=float, help="unload the model after S seconds")
    contend = "a second process has the NPU when SHARE of the inferences begin (0.5)"
    add("--contend", metavar="MODEL[@SHARE]", help=contend)
    slow = "a stage of the program takes FACTOR times as long in SHARE of the frames (1); may be repeated"
    add("--slow-stage", metavar="NAME=FACTOR[@SHARE]", dest="slow", action="append", default=[], help=slow)
    slow = "in each Nth inference the longest layer takes F times as long, such as 1000=10"
    add("--slow-every", metavar="N=F", type=_slow_every, help=slow)
    fact = "do otherwise what nobody knows of real boards, such as tick-unit=cycle; may be repeated"
    add("--fact", metavar="NAME=ALTERNATIVE", dest="facts", action="append", default=[], help=fact)


def _slow_every(text: str) -> tuple[int, float]:
    number, _, factor = text.partition("=")
    found = int(number), float(factor)
    if found[0] < 1 or not 0 < found[1] < math.inf:
        raise ValueError(text)
    return found


def options_from(args: argparse.Namespace) -> SimulationOptions:
    """Return the options of a parsed command line; the caller sets the root. Raises DaemonError out of range."""
    names = "model layers rate interval busy pictures seed for_s contend slow_every time_lapse"
    chosen = {name: getattr(args, name) for name in names.split()}
    return SimulationOptions(**chosen, facts=tuple(args.facts), slow=tuple(args.slow))


# Longest time by which the NPU's schedule may lag behind the clock; beyond it, lost time is not made up for.
MAX_LAG_S = 0.1

_LOGGER = logging.getLogger(__name__)
_A = TypeVar("_A")
_T = TypeVar("_T")


async def simulate(options: SimulationOptions, clock: DaemonClock) -> str:
    """Run the model until `options.for_s` is over or until cancelled, then unload it, which finishes the JOB.

    Return a summary of the run. Raises DaemonError for the options and when the JOB cannot be written, CancelledError
    after the unload.
    """
    try:
        # One thread does all blocking work, so calls run in the order of their submission, even after a cancellation.
        with ThreadPoolExecutor(1, thread_name_prefix="simulated-npu") as thread:
            return await _Simulation(options, clock, thread).run()
    except OSError as error:
        raise DaemonError(
            f"the simulated board cannot write: {error}",
            hint=f"make {options.root} a writable directory with free space, or choose another --root",
        ) from error


class LapseClock:
    """Clock that runs `factor` times as fast as another one, from now on."""

    def __init__(self, clock: DaemonClock, factor: float) -> None:
        self._clock, self._factor = clock, factor
        self._wall_us, self._monotonic = clock.wall_us(), clock.monotonic()  # of the beginning

    def wall_us(self) -> int:
        """Return microseconds since the Unix epoch."""
        return self._wall_us + round((self._clock.wall_us() - self._wall_us) * self._factor)

    def monotonic(self) -> float:
        """Return seconds of the monotonic clock."""
        return self._monotonic + (self._clock.monotonic() - self._monotonic) * self._factor

    async def sleep(self, delay_s: float) -> None:
        """Wait until this clock is `delay_s` seconds further."""
        await self._clock.sleep(delay_s / self._factor)


class _Simulation:
    def __init__(self, options: SimulationOptions, clock: DaemonClock, thread: ThreadPoolExecutor) -> None:
        self._options = options
        self._clock = LapseClock(clock, options.time_lapse)
        self._thread = thread

    async def run(self) -> str:
        # JOB names are random even with a seed, as a host keeps JOBs of many runs side by side.
        npu = await self._blocking(lambda options: Npu(options, names=SystemRandom()), self._options)
        try:
            await self._blocking(npu.load, self._clock.wall_us() - LOAD_US)
            late = await self._infer(npu)
        except asyncio.CancelledError:
            # Shielded: a second cancellation must not leave the JOB without its end.
            try:
                await asyncio.shield(self._blocking(npu.unload, self._clock.wall_us()))
            except OSError:
                _LOGGER.exception("the simulated JOB stays unfinished")
            raise
        await self._blocking(npu.unload, self._clock.wall_us())
        text = f"{npu.inferences} inferences, {npu.sampled} of them recorded, {npu.aicore_records} aicore records"
        text += f"; the rate was not kept: {late} came late" if late else ""
        return text + (f"; the disk was full: {npu.lost_bytes} bytes could not be written" if npu.lost_bytes else "")

    async def _infer(self, npu: Npu) -> int:
        rate, late = self._options.rate, 0
        first = free_at = self._clock.monotonic()
        until = first + (math.inf if self._options.for_s is None else self._options.for_s)
        for number in itertools.count():
            due, duration_s = first + number / rate, npu.next_call_us / US_PER_S  # without drift
            begin = max(due, free_at)
            if begin >= until:
                break
            await self._sleep_until(begin + duration_s)
            now = self._clock.monotonic()
            # Late by more than a period: the machine cannot keep the rate.
            if now - duration_s - due > 1 / rate:
                late += 1
                if late == 1:
                    _LOGGER.warning("the simulated board cannot keep up with %g inferences a second", rate)
            # The files have the times of the schedule, not those of this process's late wake-ups.
            await self._blocking(npu.infer, self._clock.wall_us() - round((now - begin) * US_PER_S))
            free_at = max(begin + duration_s, now - MAX_LAG_S * self._options.time_lapse)
        await self._sleep_until(until)
        return late

    async def _sleep_until(self, end: float) -> None:
        await self._clock.sleep(max(0.0, end - self._clock.monotonic()))

    def _blocking(self, work: Callable[[_A], _T], argument: _A) -> asyncio.Future[_T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work, argument)

"""What the simulated board is asked to do, from the command line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profagentd.errors import DaemonError
from profagentd.simulate.network import Facts

if TYPE_CHECKING:
    import argparse

MAX_RATE = 10_000.0
MAX_INTERVAL = 9_999
"""The library's own limit (format page 2.3)."""
MAX_LAYERS = 10_000
MAX_PICTURES = 1_024


@dataclass(frozen=True)
class SimulationOptions:
    """A model that runs at a steady rate. Raises DaemonError for a value out of range.

    `model` is a built-in name or a TOML file; `layers` cuts or repeats it to so many aicore runs; `rate` is inferences
    a second; `interval` as in the library; `pictures` go into each inference; `for_s` None runs until it is cancelled;
    each tenth sample keeps the writer `busy` for so many inferences; `facts` are NAME=ALTERNATIVE, where the board
    is to differ from what is likely.
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

    def __post_init__(self) -> None:
        if self.layers is not None:
            _check_number("--layers", self.layers, 1, MAX_LAYERS)
        _check_number("--interval", self.interval, 0, MAX_INTERVAL)
        _check_number("--busy", self.busy, 0, MAX_INTERVAL)
        _check_number("--pictures", self.pictures, 1, MAX_PICTURES)
        Facts(self.facts)
        if not 0 < self.rate <= MAX_RATE:
            raise _refused("--rate", self.rate, f"above 0 and at most {MAX_RATE:g} inferences a second")
        if self.for_s is not None and not 0 < self.for_s < math.inf:
            raise _refused("--for", self.for_s, "above 0 seconds; leave it out to run until stopped")


def add_simulation_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `profagentd --simulate` to the daemon's parser."""
    defaults = SimulationOptions()
    group = parser.add_argument_group("simulated board", "with --simulate; everything it shows is marked simulated")
    group.add_argument("--model", metavar="NAME|FILE", default=defaults.model, help="network (default: %(default)s)")
    group.add_argument("--layers", metavar="N", type=int, help="cut or repeat the network to N NPU layers")
    group.add_argument(
        "--rate", metavar="INF_PER_S", type=float, default=defaults.rate, help="inferences a second (%(default)s)"
    )
    group.add_argument(
        "--interval",
        metavar="N",
        type=int,
        default=defaults.interval,
        help="record each Nth inference; 0: the first",
    )
    group.add_argument(
        "--busy",
        metavar="N",
        type=int,
        default=defaults.busy,
        help="each tenth sample is being written while N inferences run, which postpones the next (%(default)s)",
    )
    group.add_argument(
        "--pictures", metavar="N", type=int, default=defaults.pictures, help="pictures in each inference (%(default)s)"
    )
    group.add_argument(
        "--fact",
        metavar="NAME=ALTERNATIVE",
        dest="facts",
        action="append",
        default=[],
        help="do otherwise what nobody knows of real boards, such as tick-unit=cycle; may be repeated",
    )
    group.add_argument("--for", metavar="S", dest="for_s", type=float, help="unload the model after S seconds")
    group.add_argument(
        "--seed", metavar="K", type=int, default=defaults.seed, help="same seed, same bytes (%(default)s)"
    )


def options_from(args: argparse.Namespace) -> SimulationOptions:
    """The options of a parsed command line; the root is the caller's to set. DaemonError for a value out of range."""
    return SimulationOptions(
        model=args.model,
        layers=args.layers,
        rate=args.rate,
        interval=args.interval,
        pictures=args.pictures,
        for_s=args.for_s,
        seed=args.seed,
        busy=args.busy,
        facts=tuple(args.facts),
    )


def _check_number(option: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise _refused(option, value, f"from {lowest} to {highest}")


def _refused(option: str, value: float, allowed: str) -> DaemonError:
    return DaemonError(f"{option} {value}: out of range", hint=f"{option} is {allowed}")

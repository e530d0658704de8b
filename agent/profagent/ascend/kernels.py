"""Executed operators as columns, and what they are gathered by: models, inferences, segments."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

PIPES = ("mac_busy", "vec_busy", "dstr", "dtrans", "dld")
NS_PER_US = 1000


class Kernels(NamedTuple):
    """Executed operators, as columns; -1 is a time that is not known. `pipes` has a column for each of PIPES."""

    name: Sequence[str]
    type: Sequence[str]
    start_ns: Sequence[int]
    duration_ns: Sequence[int]
    device: Sequence[str]
    stream: Sequence[str]
    model: Sequence[str]
    step: Sequence[str]
    pipes: NDArray[np.float64] | None = None

    def at(self, places: Sequence[int]) -> Kernels:
        """Those at these places."""
        columns = dict(zip(self._fields[:-1], self[:-1], strict=True))
        some: dict[str, Any] = {name: [column[place] for place in places] for name, column in columns.items()}
        return Kernels(**some, pipes=None if self.pipes is None else self.pipes[places])


class Called(NamedTuple):
    """All calls of a function together; times in µs."""

    name: str
    level: str
    times: int
    total: float
    mean: float
    most: float


class Model:
    """A model: its layers, and how often each device executed them."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.layers: dict[tuple[str, str], int] = {}
        self.times: dict[tuple[str, int], int] = defaultdict(int)


class Segment:
    """Kernels of one step on one stream."""

    def __init__(self, number: int, log: int, inference: Inference, net: int, start_ns: int) -> None:
        self.number, self.log, self.inference, self.net = number, log, inference, net
        self.begin_ns = start_ns // NS_PER_US * NS_PER_US
        self.end_ns = start_ns
        self.ticks = self.records = 0

    def add(self, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64], ticks: int) -> None:
        """Further kernels; a start of -1 is not known."""
        self.records += len(start_ns)
        self.ticks += ticks
        self.end_ns = max(self.end_ns, int(end_ns.max()))
        known = start_ns[start_ns >= 0]
        if len(known):
            first, inference = int(known.min()), self.inference
            inference.start_ns = first if inference.start_ns is None else min(inference.start_ns, first)


class Inference:
    """A step of a model on a device."""

    def __init__(self, number: int, model: int, device: int, step: int) -> None:
        self.number, self.model, self.device, self.step = number, model, device, step
        self.start_ns: int | None = None
        self.end_ns = 0

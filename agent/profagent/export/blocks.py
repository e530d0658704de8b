"""A trace's events as its writers take them: blocks of many, in columns, with times in ns after the trace's origin.

An event for itself would be an object, a dict and a call; a block is a few arrays, whatever the format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

NS_PER_US = 1000
NO_ARGS = "{}"
# What an arrow that leads from a call to what it executed is called.
FLOW = "execute"


class Label(NamedTuple):
    """What events have in common; `args` is a JSON object."""

    name: str
    category: str
    args: str = NO_ARGS


class Flow(NamedTuple):
    """An arrow's begin (s), waypoint (t) or end (f) at a slice's begin."""

    place: int
    kind: str
    number: int


class Values(NamedTuple):
    """Counters of a process that change as slices begin, a column for each name; NaN where one does not."""

    pid: int
    title: str
    names: tuple[str, ...]
    values: NDArray[np.float64]

    def part(self, chosen: slice) -> Values:
        """Some of the rows."""
        return self._replace(values=self.values[chosen])


class Slices(NamedTuple):
    """Slices by their start, those that hold others first; `label` is a place in `labels`."""

    labels: Sequence[Label]
    label: NDArray[np.int64]
    track: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    values: Values | None = None
    flows: tuple[Flow, ...] = ()

    def part(self, begin: int, end: int) -> Slices:
        """Some of them."""
        chosen = slice(begin, end)
        return Slices(
            self.labels,
            self.label[chosen],
            self.track[chosen],
            self.start_ns[chosen],
            self.end_ns[chosen],
            None if self.values is None else self.values.part(chosen),
            tuple(flow._replace(place=flow.place - begin) for flow in self.flows if begin <= flow.place < end),
        )

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.label)

    @property
    def events(self) -> int:
        """How many events of the Trace Event Format."""
        changes = 0 if self.values is None else int((~np.isnan(self.values.values)).any(axis=1).sum())
        return self.size + changes + len(self.flows)


class Instants(NamedTuple):
    """Points in time; `scope` is t for one of its track and g for one of all."""

    labels: Sequence[Label]
    label: NDArray[np.int64]
    track: NDArray[np.int64]
    at_ns: NDArray[np.int64]
    scope: str

    def part(self, begin: int, end: int) -> Instants:
        """Some of them."""
        chosen = slice(begin, end)
        return self._replace(label=self.label[chosen], track=self.track[chosen], at_ns=self.at_ns[chosen])

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.label)

    @property
    def events(self) -> int:
        """The same."""
        return self.size


class Series(NamedTuple):
    """A counter of a process. Several that are drawn as one have one title, and each a name."""

    pid: int
    title: str
    name: str
    unit: str = ""

    @property
    def shown(self) -> str:
        """The title, with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


class Counters(NamedTuple):
    """Counters that change by themselves; `kind` is a place in `series`, which are those of one event."""

    series: Sequence[tuple[Series, ...]]
    kind: NDArray[np.int64]
    at_ns: NDArray[np.int64]
    values: NDArray[np.float64]

    def part(self, begin: int, end: int) -> Counters:
        """Some of them."""
        chosen = slice(begin, end)
        return Counters(self.series, self.kind[chosen], self.at_ns[chosen], self.values[chosen])

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.kind)

    @property
    def events(self) -> int:
        """The same."""
        return self.size


Block = Slices | Instants | Counters


class Labels:
    """Gives the labels of a block their numbers."""

    def __init__(self) -> None:
        self.all: list[Label] = []
        self._places: dict[Label, int] = {}

    def of(self, label: Label) -> int:
        """Its number."""
        place = self._places.get(label)
        if place is None:
            place = self._places[label] = len(self.all)
            self.all.append(label)
        return place


def args_text(args: Mapping[str, object]) -> str:
    """A label's args."""
    return msgspec.json.encode(args).decode() if args else NO_ARGS


def integers(values: Sequence[int]) -> NDArray[np.int64]:
    """A column."""
    return np.array(values, np.int64)


class Clock:
    """Turns a board's µs into the trace's ns: after its origin, and by another clock where there is one."""

    def __init__(self, origin_us: float, offset_us: Callable[[float], float] | None = None) -> None:
        """`offset_us`: how much the board's clock is ahead at a moment of it."""
        self._origin_us = int(origin_us)
        self._offset_us = offset_us

    def ns(self, time_us: float) -> int:
        """Whole nanoseconds after the origin: a time since 1970 has more digits than a double."""
        whole = int(time_us)
        shift = 0 if self._offset_us is None else round(self._offset_us(time_us) * NS_PER_US)
        return (whole - self._origin_us) * NS_PER_US + round((time_us - whole) * NS_PER_US) - shift

    def column_ns(self, times_us: Sequence[float] | NDArray[np.float64]) -> NDArray[np.int64]:
        """The same of many."""
        times = np.array(times_us, np.float64)
        if not len(times):
            return np.empty(0, np.int64)
        whole = times.astype(np.int64)
        ns = (whole - self._origin_us) * NS_PER_US + np.rint((times - whole) * NS_PER_US).astype(np.int64)
        if self._offset_us is not None:
            ns -= np.rint(np.vectorize(self._offset_us, otypes=[np.float64])(times) * NS_PER_US).astype(np.int64)
        return ns

"""Events of a trace as blocks: many events in columns, with times in ns after the trace's origin.

An event by itself would cost an object, a dict and a call; a block costs a few arrays, whatever the format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from profagent.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

NO_ARGS = "{}"
# Name and category of the arrow that leads from a call to the inference that it executed.
FLOW = "execute"


class Label(NamedTuple):
    """Name, category and arguments that events share; `args` is the text of a JSON object."""

    name: str
    category: str
    args: str = NO_ARGS


class Flow(NamedTuple):
    """Start (s), waypoint (t) or end (f) of an arrow, at the start of the slice with index `place` in its block.

    Flows with one `number` are one arrow.
    """

    place: int
    kind: str
    number: int


class Values(NamedTuple):
    """Counters of a process that change as slices begin: a row for each slice, a column for each name.

    NaN leaves a counter unchanged.
    """

    pid: int
    title: str
    names: tuple[str, ...]
    values: NDArray[np.float64]

    def part(self, chosen: slice) -> Values:
        """Return the chosen rows."""
        return self._replace(values=self.values[chosen])


class Slices(NamedTuple):
    """Slices ordered by start, enclosing slices first; `label` holds indices into `labels`."""

    labels: Sequence[Label]
    label: NDArray[np.int64]
    track: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    values: Values | None = None
    flows: tuple[Flow, ...] = ()

    def part(self, begin: int, end: int) -> Slices:
        """Return the slices from index `begin` to before `end`, with their values and flows."""
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
        """Number of slices in the block."""
        return len(self.label)

    @property
    def events(self) -> int:
        """Number of events in the Trace Event Format: slices, changes of counters and flows."""
        changes = 0 if self.values is None else int((~np.isnan(self.values.values)).any(axis=1).sum())
        return self.size + changes + len(self.flows)


class Instants(NamedTuple):
    """Points in time; `scope` is t for instants of their track and g for instants of the whole trace."""

    labels: Sequence[Label]
    label: NDArray[np.int64]
    track: NDArray[np.int64]
    at_ns: NDArray[np.int64]
    scope: str

    def part(self, begin: int, end: int) -> Instants:
        """Return the instants from index `begin` to before `end`."""
        chosen = slice(begin, end)
        return self._replace(label=self.label[chosen], track=self.track[chosen], at_ns=self.at_ns[chosen])

    @property
    def size(self) -> int:
        """Number of instants in the block."""
        return len(self.label)

    @property
    def events(self) -> int:
        """Number of events in the Trace Event Format: one for each instant."""
        return self.size


class Series(NamedTuple):
    """Counter of a process. Counters that are drawn as one chart share a title, and each has a name."""

    pid: int
    title: str
    name: str
    unit: str = ""

    @property
    def shown(self) -> str:
        """Title of the chart with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


class Counters(NamedTuple):
    """Counters that change independently of slices.

    `kind` holds indices into `series`; each entry of `series` has the counters of one event, and each row of
    `values` has their values.
    """

    series: Sequence[tuple[Series, ...]]
    kind: NDArray[np.int64]
    at_ns: NDArray[np.int64]
    values: NDArray[np.float64]

    def part(self, begin: int, end: int) -> Counters:
        """Return the changes from index `begin` to before `end`."""
        chosen = slice(begin, end)
        return Counters(self.series, self.kind[chosen], self.at_ns[chosen], self.values[chosen])

    @property
    def size(self) -> int:
        """Number of changes in the block."""
        return len(self.kind)

    @property
    def events(self) -> int:
        """Number of events in the Trace Event Format: one for each change."""
        return self.size


Block = Slices | Instants | Counters


class Labels:
    """Collector of the distinct labels of a block."""

    def __init__(self) -> None:
        # All labels so far, in the order in which they came.
        self.all: list[Label] = []
        # Index in `all` of each label.
        self._places: dict[Label, int] = {}

    def of(self, label: Label) -> int:
        """Return the index of a label in `all`; a new label is appended."""
        place = self._places.get(label)
        if place is None:
            place = self._places[label] = len(self.all)
            self.all.append(label)
        return place


def args_text(args: Mapping[str, object]) -> str:
    """Return the arguments of a label as the text of a JSON object."""
    return msgspec.json.encode(args).decode() if args else NO_ARGS


def integers(values: Sequence[int]) -> NDArray[np.int64]:
    """Return a column of integers."""
    return np.array(values, np.int64)


class TraceClock:
    """Conversion of the board's µs to the trace's ns after its origin, on the host's clock where an offset is known."""

    def __init__(self, origin_us: float, offset_us: Callable[[float], float] | None = None) -> None:
        """Take the origin, and the offset: the µs by which the board's clock is ahead at a time of the board."""
        self._origin_us = int(origin_us)
        self._offset_us = offset_us

    def ns(self, time_us: float) -> int:
        """Return a time of the board as whole ns after the origin."""
        whole = int(time_us)
        # Whole µs and the rest are converted apart: a time since 1970 in ns has more digits than a double holds.
        shift = 0 if self._offset_us is None else round(self._offset_us(time_us) * NS_PER_US)
        return (whole - self._origin_us) * NS_PER_US + round((time_us - whole) * NS_PER_US) - shift

    def column_ns(self, times_us: Sequence[float] | NDArray[np.float64]) -> NDArray[np.int64]:
        """Return a column of times of the board as whole ns after the origin; see `ns`."""
        times = np.array(times_us, np.float64)
        if not len(times):
            return np.empty(0, np.int64)
        whole = times.astype(np.int64)
        ns = (whole - self._origin_us) * NS_PER_US + np.rint((times - whole) * NS_PER_US).astype(np.int64)
        if self._offset_us is not None:
            ns -= np.rint(np.vectorize(self._offset_us, otypes=[np.float64])(times) * NS_PER_US).astype(np.int64)
        return ns

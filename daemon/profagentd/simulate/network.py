"""A network as the simulated board runs it: segments, runs of fused layers, batches. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count, groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AICORE, AICPU = "aicore", "aicpu"


@dataclass(frozen=True)
class Layer:
    """One layer; the outputs of one Split share its id and name (format page 2.4)."""

    name: str
    type: str
    outputs: int = 1


@dataclass(frozen=True)
class Run:
    """Consecutive layers that are fused: one profiling record.

    `time_us` is for one picture; 0 is a record that the library drops. `counters` are fractions of the run's time, and
    for DDR bytes per microsecond. A batch layer runs once for all pictures of a batch (format page 3.1).
    """

    layers: tuple[Layer, ...]
    time_us: float
    is_batch: bool = False
    counters: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Segment:
    """Runs that one unit, `aicore` or `aicpu`, executes in one go, `loops` times."""

    unit: str
    runs: tuple[Run, ...]
    loops: int = 1


@dataclass(frozen=True)
class Network:
    """A compiled model: `batch_num` pictures at a time, chosen at run time when `online_batch` is set."""

    name: str
    segments: tuple[Segment, ...]
    batch_num: int = 1
    online_batch: bool = False


def resized(network: Network, layers: int) -> Network:
    """The network with exactly `layers` aicore runs.

    Fewer: it ends after so many. More: its own aicore runs come again, in order, in its last aicore segment, with
    the round's number at the end of each name.
    """
    present = sum(len(segment.runs) for segment in network.segments if segment.unit == AICORE)
    if layers < present:
        return replace(network, segments=tuple(_first(network.segments, layers)))
    return replace(network, segments=_extended(network.segments, layers - present))


def batch_sizes(batch_num: int, pictures: int) -> tuple[int, ...]:
    """Pictures in each batch run of one inference (format page 3.1)."""
    full, rest = divmod(pictures, batch_num)
    return (batch_num,) * full + ((rest,) if rest else ())


def run_order(is_batch: Sequence[bool], sizes: Sequence[int]) -> list[tuple[int, int]]:
    """The runs of a segment as they are executed: (index, pictures it works on), by format page 3.1.

    Runs between batch layers come once for each picture of a batch, a batch layer comes once.
    """
    order: list[tuple[int, int]] = []
    for size in sizes:
        for batch, group in groupby(range(len(is_batch)), key=is_batch.__getitem__):
            members = [(index, size if batch else 1) for index in group]
            order += members if batch else members * size
    return order


def _first(segments: Sequence[Segment], layers: int) -> list[Segment]:
    kept: list[Segment] = []
    for segment in segments:
        if layers == 0:
            break
        first = replace(segment, runs=segment.runs[:layers]) if segment.unit == AICORE else segment
        layers -= len(first.runs) if segment.unit == AICORE else 0
        kept.append(first)
    return kept


def _extended(segments: Sequence[Segment], missing: int) -> tuple[Segment, ...]:
    aicore = [number for number, segment in enumerate(segments) if segment.unit == AICORE]
    originals = [run for number in aicore for run in segments[number].runs]
    added: list[Run] = []
    for round_number in count(2):
        added += [_renamed(run, round_number) for run in originals[: missing - len(added)]]
        if len(added) == missing:
            break
    last = segments[aicore[-1]]
    longer = replace(last, runs=last.runs + tuple(added))
    return (*segments[: aicore[-1]], longer, *segments[aicore[-1] + 1 :])


def _renamed(run: Run, round_number: int) -> Run:
    return replace(run, layers=tuple(replace(layer, name=f"{layer.name}_{round_number}") for layer in run.layers))

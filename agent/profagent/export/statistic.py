"""The rows of op_statistic and acl_statistic: durations gathered by layer, and by API function."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from profagent.cli.table import UNKNOWN, Cell
from profagent.formats.records import ticks_to_us

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from profagent.store.queries import CallRow, LayerRow
    from profagent.store.selection import AicoreRow, AicpuRow, LayerTimes

__all__ = ["AA_CORE", "AA_CPU", "OpStatistic", "acl_statistic_rows"]

AA_CORE = "AA_CORE"
AA_CPU = "AA_CPU"


class Durations:
    """Durations in one unit; those that are not known are counted and in no other figure."""

    __slots__ = ("count", "known", "longest", "shortest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.known = 0
        self.total = 0.0
        self.longest = float("-inf")
        self.shortest = float("inf")

    def add(self, duration: float | None) -> None:
        """Take one duration in."""
        if duration is None:
            self.count += 1
        else:
            self.add_many(1, duration, duration, duration)

    def add_many(self, count: int, total: float, longest: float, shortest: float) -> None:
        """Take durations in that were gathered elsewhere."""
        self.count += count
        self.known += count
        self.total += total
        self.longest = max(self.longest, longest)
        self.shortest = min(self.shortest, shortest)


class _Figures(NamedTuple):
    """Durations of a row in µs; None where not known."""

    number: int
    total: float | None
    mean: float | None
    longest: float | None
    shortest: float | None

    def cells(self, total_of_all: float | None) -> tuple[Cell, ...]:
        """The last six columns of both statistics."""
        ratio = self.total / total_of_all * 100 if total_of_all and self.total is not None else None
        return (ratio, self.total, self.number, self.mean, self.longest, self.shortest)


def _figures(durations: Durations, us: float | None = 1.0) -> _Figures:
    """Durations whose unit is `us` µs long."""
    if us is None or not durations.known:
        return _Figures(durations.count, None, None, None, None)
    total = durations.total * us
    return _Figures(durations.count, total, total / durations.known, durations.longest * us, durations.shortest * us)


class OpStatistic:
    """Gathers the records of one inference, or of many, by unit and layer name."""

    def __init__(self, stream_id: int | None, frequency_mhz: int | None, layers: Mapping[int, LayerRow]) -> None:
        self._stream_id = stream_id
        self._us_per_tick = None if frequency_mhz is None else ticks_to_us(1, frequency_mhz)
        self._layers = layers
        self._found: dict[tuple[str, str], Durations] = {}

    def passing(self, records: Iterable[AicoreRow]) -> Iterator[AicoreRow]:
        """Gather aicore records while another reads them."""
        for record in records:
            self._of(AA_CORE, record.layer_index).add(record.ticks)
            yield record

    def add_aicpu(self, records: Iterable[AicpuRow]) -> None:
        """Gather aicpu records."""
        for record in records:
            self._of(AA_CPU, record.layer_index).add(record.duration_us)

    def add_layers(self, task_type: str, layers: Iterable[LayerTimes]) -> None:
        """Take in what was gathered by layer."""
        for layer in layers:
            self._of(task_type, layer.layer_index).add_many(layer.records, layer.total, layer.longest, layer.shortest)

    def rows(self) -> list[tuple[Cell, ...]]:
        """Rows of OP_STATISTIC, in the order in which the layers came; Task ID counts them from 0."""
        units = {AA_CORE: self._us_per_tick, AA_CPU: 1.0}
        figures = {key: _figures(durations, units[key[0]]) for key, durations in self._found.items()}
        total = _total(figures.values())
        return [
            (task, self._stream_id, name, task_type, *row.cells(total))
            for task, ((task_type, name), row) in enumerate(figures.items())
        ]

    def _of(self, task_type: str, layer_index: int | None) -> Durations:
        layer = None if layer_index is None else self._layers.get(layer_index)
        key = (task_type, UNKNOWN if layer is None else layer.name)
        durations = self._found.get(key)
        if durations is None:
            durations = self._found[key] = Durations()
        return durations


def acl_statistic_rows(calls: Iterable[CallRow]) -> list[tuple[Cell, ...]]:
    """Rows of ACL_STATISTIC by process, thread and name, in the order in which they first came.

    A call with an unknown begin is in Count, and in no time.
    """
    found: dict[tuple[int, int, str, str], Durations] = {}
    for call in calls:
        durations = found.setdefault((call.pid, call.tid, call.type, call.name), Durations())
        durations.add(None if call.begin_us is None else call.end_us - call.begin_us)
    figures = {key: _figures(durations) for key, durations in found.items()}
    # A row without any known time takes no share, and does not make the others' unknown.
    total = _total(row for row in figures.values() if row.total is not None)
    return [(*key, *row.cells(total)) for key, row in figures.items()]


def _total(figures: Iterable[_Figures]) -> float | None:
    """The sum; None when one is not known."""
    total = 0.0
    for row in figures:
        if row.total is None:
            return None
        total += row.total
    return total

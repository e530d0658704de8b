"""The rows of op_summary: a line for each aicore record of an inference, and the total layer (manual, 'AA Core')."""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING

from profagent.cli.table import DASH, Cell
from profagent.formats.durations import CYCLES_PER_TICK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from profagent.store.queries import LayerRow
    from profagent.store.selection import AicoreRow

__all__ = ["memory_bound", "op_summary_rows"]

# Where the counters begin in an AicoreRow, and how many of them are ratios.
FIRST_COUNTER = 3
RATIOS = 8
COUNTERS = 10


def memory_bound(ratios: Sequence[float | None]) -> float | None:
    """Manual: max(Dstr, DLD, WLD) / max(Mac Busy, Vec Ppen); None where one is not known or the denominator is 0.

    `ratios` are mac_busy, mac_ppen, vec_busy, vec_ppen, dstr, dtrans, dld and wld.
    """
    mac_busy, _, _, vec_ppen, dstr, _, dld, wld = ratios
    if mac_busy is None or vec_ppen is None or dstr is None or dld is None or wld is None:
        return None
    denominator = max(mac_busy, vec_ppen)
    return max(dstr, dld, wld) / denominator if denominator else None


def op_summary_rows(
    records: Iterable[AicoreRow], total_ticks: float, frequency_mhz: int | None, layers: Mapping[int, LayerRow]
) -> Iterator[tuple[Cell, ...]]:
    """Rows of OP_SUMMARY, the total row last; `total_ticks` is the sum over all records.

    The total's ratios are weighted by time and its bytes are sums; they are not known where one record's is not.
    """
    us_per_tick = None if frequency_mhz is None else CYCLES_PER_TICK / frequency_mhz
    total = _Total()
    for record in records:
        total.add(record)
        layer = None if record.layer_index is None else layers.get(record.layer_index)
        names: tuple[Cell, ...] = (None,) * 4 if layer is None else (layer.layer_id, None, layer.name, layer.type)
        yield (*names, *_figures(record.ticks, total_ticks, us_per_tick, record[FIRST_COUNTER:]))
    if total.has_records:
        yield (DASH, DASH, "total", DASH, *_figures(total.ticks, total_ticks, us_per_tick, total.counters()))


def _figures(
    ticks: float, total_ticks: float, us_per_tick: float | None, counters: Sequence[float | None]
) -> tuple[Cell, ...]:
    ratios = counters[:RATIOS]
    read, written = counters[RATIOS:]
    return (
        None if us_per_tick is None else ticks * us_per_tick,
        ticks / total_ticks * 100 if total_ticks else None,
        *(None if ratio is None else ratio * 100 for ratio in ratios),
        memory_bound(ratios),
        read,
        written,
        None if read is None or written is None else read + written,
    )


class _Total:
    """Sums over records; a counter's sum is None from the first record on that does not know it."""

    def __init__(self) -> None:
        self.has_records = False
        self.ticks = 0.0
        self._sums: list[float | None] = [0.0] * COUNTERS

    def add(self, record: AicoreRow) -> None:
        self.has_records = True
        self.ticks += record.ticks
        if self._sums.count(None) == COUNTERS:
            return
        weighted = (
            value if value is None or place >= RATIOS else value * record.ticks
            for place, value in enumerate(record[FIRST_COUNTER:])
        )
        self._sums = list(starmap(_sum_or_none, zip(self._sums, weighted, strict=True)))

    def counters(self) -> list[float | None]:
        return [
            value if value is None or place >= RATIOS else value / self.ticks if self.ticks else None
            for place, value in enumerate(self._sums)
        ]


def _sum_or_none(sum_so_far: float | None, value: float | None) -> float | None:
    return None if sum_so_far is None or value is None else sum_so_far + value

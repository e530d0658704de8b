"""Which numbers of the records, scaled, give a column of the vendor's table in every row within its rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from profagent.formats.countermap import COUNTERS_END, COUNTERS_START
from profagent.formats.records import CYCLES_PER_TICK

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

__all__ = ["TYPES", "Evidence", "Fit", "fits_of", "numbers_of", "values_of"]

TYPES = ("u16", "u32", "u64")
# Over ticks, 0.01 is cycles and 1, 0.0001 is cycles and 0.01: the same values.
_OVER_TIME = {1.0: ("ticks", 1.0), 0.01: ("cycles", 1.0), 0.0001: ("cycles", 0.01)}
# Of what is over no time: plain, hundredths, parts of a whole, and bytes counted in bursts.
_PLAIN = (1.0, 0.01, 0.001, 0.0001, *(2.0**-bits for bits in range(7, 17)), *(2.0**bits for bits in range(1, 13)))
_FORMS = [
    *((scale, *form) for scale, form in _OVER_TIME.items()),
    *((scale, "none", scale) for scale in _PLAIN),
]
TICKS_OFFSET = 0x04
# Rows that are looked at first; what survives is looked at in all.
SCREEN_ROWS = 48
# Beyond the rounding: the arithmetic of both sides.
SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Evidence:
    """Rows of a column of which the value and the time are known, each with its record.

    `records` has shape (rows, 256) and is bytes; `ticks` and `values` have shape (rows,), as has `half`, by which each
    value may be off.
    """

    records: npt.NDArray[np.uint8]
    ticks: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]
    half: npt.NDArray[np.float64]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.values)

    def chosen(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Evidence:
        """These rows of it."""
        return Evidence(self.records[rows], self.ticks[rows], self.values[rows], self.half[rows])

    def distinct(self, fit: Fit) -> Evidence:
        """The rows without those that repeat another for this fit: the same number over the same time is shown once."""
        over = np.zeros_like(self.ticks) if fit.denominator == "none" else self.ticks
        read = np.stack([numbers_of(fit, self.records), over, self.values])
        return self.chosen(np.unique(read, axis=1, return_index=True)[1])


@dataclass(frozen=True, slots=True)
class Fit:
    """The number at byte `offset`, times `scale`, over its `denominator`; it gives `agreeing` of the values."""

    offset: int
    type: str
    scale: float
    denominator: str
    agreeing: int

    @property
    def bytes(self) -> range:
        """Where its bytes are in a record."""
        return range(self.offset, self.offset + int(self.type[1:]) // 8)


def values_of(fit: Fit, records: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """What a fit gives for records (rows, 256), shape (rows,): 0 where there is no time to divide by."""
    values = numbers_of(fit, records) * fit.scale
    if fit.denominator == "none":
        return values
    over = numbers_at(records, "u32", TICKS_OFFSET) * (CYCLES_PER_TICK if fit.denominator == "cycles" else 1)
    return np.divide(values, over, out=np.zeros_like(values), where=over > 0)


def numbers_of(fit: Fit, records: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """The number that a fit reads of each record, shape (rows,)."""
    return numbers_at(records, fit.type, fit.offset)


def numbers_at(records: npt.NDArray[np.uint8], type_: str, offset: int) -> npt.NDArray[np.float64]:
    """The number of a type at a byte of each record, shape (rows,)."""
    size = int(type_[1:]) // 8
    found = np.ascontiguousarray(records[:, offset : offset + size]).view(f"<u{size}")[:, 0]
    return found.astype(np.float64)


def fits_of(evidence: Evidence, least_share: float) -> list[Fit]:
    """Every number, scale and denominator that gives at least this share of the values, the best first."""
    if not evidence.rows:
        return []
    screen = evidence.chosen(_telling_rows(evidence.values))
    # A share that all rows have, the rows of the screen need not have quite.
    enough = screen.rows * (2 * least_share - 1)
    needed = evidence.rows * least_share
    fits = []
    for type_, offset, form in _survivors(screen, enough):
        values = numbers_at(evidence.records, type_, offset)
        agreeing = int(_agree(_formed(values, evidence, form), evidence).sum())
        # Where nothing but zeros agree, nothing is shown.
        if agreeing >= needed and values.any():
            fits.append(Fit(offset, type_, form[2], form[1], agreeing))
    return sorted(fits, key=lambda fit: (-fit.agreeing, fit.offset, fit.type))


def _telling_rows(values: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Rows spread evenly over the values."""
    order = np.argsort(values, kind="stable")
    return order[np.unique(np.linspace(0, len(order) - 1, min(SCREEN_ROWS, len(order))).astype(np.intp))]


def _survivors(screen: Evidence, enough: float) -> Iterator[tuple[str, int, tuple[float, str, float]]]:
    for type_ in TYPES:
        values = _numbers(screen.records, type_)
        over_time = values / screen.ticks
        for form in _FORMS:
            counts = _agree((values if form[1] == "none" else over_time) * form[0], screen).sum(axis=1)
            yield from ((type_, COUNTERS_START + place, form) for place in np.flatnonzero(counts >= enough).tolist())


def _numbers(records: npt.NDArray[np.uint8], type_: str) -> npt.NDArray[np.float64]:
    """The number of a type at each byte between ticks and net, shape (offsets, rows)."""
    size = int(type_[1:]) // 8
    windows = np.lib.stride_tricks.sliding_window_view(records[:, COUNTERS_START:COUNTERS_END], size, axis=1)
    numbers = np.ascontiguousarray(windows.transpose(1, 0, 2)).view(f"<u{size}")[..., 0]
    return numbers.astype(np.float64)


def _formed(
    values: npt.NDArray[np.float64], evidence: Evidence, form: tuple[float, str, float]
) -> npt.NDArray[np.float64]:
    scale, denominator, _ = form
    return values * scale if denominator == "none" else values * scale / evidence.ticks


def _agree(values: npt.NDArray[np.float64], evidence: Evidence) -> npt.NDArray[np.bool_]:
    return np.abs(values - evidence.values) <= evidence.half + SLACK * (1 + np.abs(evidence.values))

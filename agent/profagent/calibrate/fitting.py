"""Search for the number in a record that gives a column of the vendor's table in every row within its rounding.

The verdict on a column is certain, likely, or not found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from profagent.formats.countermap import COUNTERS_END, COUNTERS_START
from profagent.formats.records import CYCLES_PER_TICK
from profagent.limits import LARGEST_FITTED_RATIO, LARGEST_LAYER_BYTES, LONGEST_TICKS, SCREEN_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt


TYPES = ("u16", "u32", "u64")
# Denominator and scale for each factor over ticks. A tick has 100 cycles, so a factor of 0.01 over ticks is 1 over
# cycles.
_OVER_TIME = {1.0: ("ticks", 1.0), 0.01: ("cycles", 1.0), 0.0001: ("cycles", 0.01)}
# Scales without a denominator: plain numbers, hundredths, parts of a power of two, and bytes counted in bursts.
_PLAIN = (1.0, 0.01, 0.001, 0.0001, *(2.0**-bits for bits in range(7, 17)), *(2.0**bits for bits in range(1, 13)))
_FORMS = [
    *((scale, *form) for scale, form in _OVER_TIME.items()),
    *((scale, "none", scale) for scale in _PLAIN),
]
TICKS_OFFSET = 0x04
# Relative error of the arithmetic of both sides, beyond the rounding.
SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Evidence:
    """Rows of a column with a known value and time, each with its record.

    `records` has shape (rows, 256) and is bytes; `ticks`, `values` and `half`, by which each value may be off, have
    shape (rows,).
    """

    records: npt.NDArray[np.uint8]
    ticks: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]
    half: npt.NDArray[np.float64]

    def chosen(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Evidence:
        """Return the chosen rows."""
        return Evidence(self.records[rows], self.ticks[rows], self.values[rows], self.half[rows])

    def distinct(self, fit: Fit) -> Evidence:
        """Return the rows without repetitions for this fit: the same number over the same time proves a value once."""
        over = np.zeros_like(self.ticks) if fit.denominator == "none" else self.ticks
        read = np.stack([fit.numbers(self.records), over, self.values])
        return self.chosen(np.unique(read, axis=1, return_index=True)[1])


@dataclass(frozen=True, slots=True)
class Fit:
    """Number at byte `offset`, times `scale`, over its `denominator`, which agrees with `agreeing` of the values."""

    offset: int
    type: str
    scale: float
    denominator: str
    agreeing: int

    @property
    def bytes(self) -> range:
        """Places of its bytes in a record."""
        return range(self.offset, self.offset + int(self.type[1:]) // 8)

    @property
    def limit(self) -> float:
        """Smallest number that does not fit into its type."""
        return 256.0 ** len(self.bytes)

    def numbers(self, records: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
        """Return the number in each record, shape (rows,)."""
        return numbers_at(records, self.type, self.offset)


def values_of(fit: Fit, records: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Return the values of a fit for records (rows, 256), shape (rows,): 0 where there is no time to divide by."""
    values = fit.numbers(records) * fit.scale
    if fit.denominator == "none":
        return values
    over = numbers_at(records, "u32", TICKS_OFFSET) * (CYCLES_PER_TICK if fit.denominator == "cycles" else 1)
    return np.divide(values, over, out=np.zeros_like(values), where=over > 0)


def numbers_at(records: npt.NDArray[np.uint8], type_: str, offset: int) -> npt.NDArray[np.float64]:
    """Return the number of a type at a byte of each record, shape (rows,)."""
    size = int(type_[1:]) // 8
    found = np.ascontiguousarray(records[:, offset : offset + size]).view(f"<u{size}")[:, 0]
    return found.astype(np.float64)


def fits_of(evidence: Evidence, least_share: float) -> list[Fit]:
    """Return every number, scale and denominator that gives at least this share of the values, the best first."""
    if not len(evidence.values):
        return []
    # Few rows rule out nearly all of the candidates, and the survivors are tried with all rows.
    screen = evidence.chosen(_spread_rows(evidence.values))
    # The screen is a sample of rows, so it demands a smaller share than all rows together must have.
    enough = len(screen.values) * (2 * least_share - 1)
    needed = len(evidence.values) * least_share
    fits = []
    for type_, offset, form in _survivors(screen, enough):
        values = numbers_at(evidence.records, type_, offset)
        scaled = values * form[0] if form[1] == "none" else values * form[0] / evidence.ticks
        agreeing = int(_agree(scaled, evidence).sum())
        # Zeros alone agree with every scale and prove nothing.
        if agreeing >= needed and values.any():
            fits.append(Fit(offset, type_, form[2], form[1], agreeing))
    return sorted(fits, key=lambda fit: (-fit.agreeing, fit.offset, fit.type))


def _spread_rows(values: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    # Rows spread evenly over the values separate the candidates best.
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
    """Return the numbers of a type at each byte between ticks and net, shape (offsets, rows)."""
    size = int(type_[1:]) // 8
    windows = np.lib.stride_tricks.sliding_window_view(records[:, COUNTERS_START:COUNTERS_END], size, axis=1)
    numbers = np.ascontiguousarray(windows.transpose(1, 0, 2)).view(f"<u{size}")[..., 0]
    return numbers.astype(np.float64)


def _agree(values: npt.NDArray[np.float64], evidence: Evidence) -> npt.NDArray[np.bool_]:
    return np.abs(values - evidence.values) <= evidence.half + SLACK * (1 + np.abs(evidence.values))


# Least share of agreeing rows: some rows may belong to other records.
LEAST_SHARE = 0.97
# A wrong number that differs by this factor in every row must have a chance below 1 in 1e9 to agree with all rows.
SEPARABLE = 1e-3
CERTAINTY = float(np.log(1e9))
# Least number of different rows: in fewer, a part of the counter may have had its whole value.
FEWEST_ROWS = 10
# Scales that are preferred among those that fit equally.
PLAIN_SCALES = (1.0, 0.01)
# Least scale of a counter of bytes, which are counted one by one or in bursts.
LEAST_BYTES_SCALE = 0.01


class CounterVerdict(StrEnum):
    """Degree of trust in a learnt counter."""

    CERTAIN = "certain"
    LIKELY = "likely"
    NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True)
class LearntCounter:
    """Result for a counter from `rows` of a table; `advice` says what would settle it, empty if nothing is open.

    `fit` is None if there is none, or if several fit equally; `rivals` has these.
    """

    counter: str
    verdict: CounterVerdict
    rows: int
    fit: Fit | None = None
    rivals: tuple[Fit, ...] = ()
    advice: str = ""


def find_counters(
    columns: Mapping[str, Evidence],
    records: npt.NDArray[np.uint8],
    shown: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[LearntCounter]:
    """Return the result for each column; `records` (rows, 256) are all known ones, of any inference.

    `shown` is called with the number of columns that are done, and of all columns.
    """
    findings: list[LearntCounter] = []
    for name, evidence in columns.items():
        shown(len(findings), len(columns))
        findings.append(_learn(name, evidence, records))
    return _without_shared_bytes(findings)


def _learn(counter: str, evidence: Evidence, records: npt.NDArray[np.uint8]) -> LearntCounter:
    finding = LearntCounter(counter, CounterVerdict.NOT_FOUND, len(evidence.values))
    if not len(evidence.values):
        return replace(finding, advice="a table that has values in this column")
    if not (evidence.values > evidence.half).any():
        return replace(finding, advice="a model that uses this unit: the column is 0 in every row")
    fits = fits_of(evidence, 1.0) or fits_of(evidence, LEAST_SHARE)
    if not fits:
        return replace(finding, advice="no single number gives this column: send the evidence")
    possible = [fit for fit in fits if _is_possible(counter, fit, records)]
    if not possible:
        return replace(finding, rivals=tuple(fits), advice="a table in which this column can be what it says")
    return _verdict_on(finding, possible, evidence, records)


def _verdict_on(
    finding: LearntCounter, fits: Sequence[Fit], evidence: Evidence, records: npt.NDArray[np.uint8]
) -> LearntCounter:
    most = max(fit.agreeing for fit in fits)
    best = [fit for fit in fits if fit.agreeing == most]
    plain, *others = sorted(best, key=lambda fit: (fit.scale not in PLAIN_SCALES, TYPES.index(fit.type)))
    if any(not _is_same(plain, other, records) for other in others):
        return replace(finding, rivals=tuple(best), advice="a table with more rows or decimals: rivals fit equally")
    widths = sorted((fit for fit in best if fit.offset == plain.offset), key=lambda fit: TYPES.index(fit.type))
    # The narrowest type with room for every possible layer is enough: wider ones read the same numbers.
    chosen = next((fit for fit in widths if _has_room(finding.counter, fit)), widths[-1])
    doubt = _doubt(chosen, best, evidence)
    rivals = tuple(fit for fit in fits if fit is not chosen)
    verdict = CounterVerdict.LIKELY if doubt else CounterVerdict.CERTAIN
    return replace(finding, verdict=verdict, fit=chosen, rivals=rivals, advice=doubt)


def _doubt(fit: Fit, fits: Sequence[Fit], evidence: Evidence) -> str:
    if missing := len(evidence.values) - fit.agreeing:
        return f"{missing} rows do not agree: are they of this JOB?"
    read = evidence.distinct(fit)
    if len(read.values) < FEWEST_ROWS or _improbability(read) < CERTAINTY:
        return "more rows or decimals: a number that nearly is this one would agree as well"
    if any(other.offset != fit.offset for other in fits):
        return f"a layer in which byte {fit.offset:#04x} is not 0: that it belongs to the count is not shown"
    if narrower := [other for other in fits if len(other.bytes) < len(fit.bytes)]:
        most = fit.numbers(evidence.records).max()
        limit = max(each.limit for each in narrower)
        return f"a layer that counts {limit:.0f} or more: here it is no more than {most:.0f}"
    return ""


def _has_room(counter: str, fit: Fit) -> bool:
    if counter.endswith("_bytes"):
        return fit.limit * fit.scale >= LARGEST_LAYER_BYTES
    over = {"none": 1.0, "ticks": LONGEST_TICKS, "cycles": LONGEST_TICKS * CYCLES_PER_TICK}[fit.denominator]
    return fit.limit * fit.scale > LARGEST_FITTED_RATIO * over


def _is_possible(counter: str, fit: Fit, records: npt.NDArray[np.uint8]) -> bool:
    if counter.endswith("_bytes"):
        return fit.denominator == "none" and fit.scale >= LEAST_BYTES_SCALE
    return bool((values_of(fit, records) <= LARGEST_FITTED_RATIO).all())


def _is_same(one: Fit, other: Fit, records: npt.NDArray[np.uint8]) -> bool:
    if one.denominator != other.denominator or not {*one.bytes} & {*other.bytes}:
        return False
    return np.allclose(values_of(one, records), values_of(other, records), rtol=1e-12, atol=0)


def _improbability(evidence: Evidence) -> float:
    """Return the negative logarithm of the chance that a number which is off by SEPARABLE agrees with every row."""
    with np.errstate(divide="ignore"):
        improbable = np.log(SEPARABLE * evidence.values / evidence.half)
    return float(np.maximum(improbable, 0.0).sum())


def _without_shared_bytes(findings: Sequence[LearntCounter]) -> list[LearntCounter]:
    """Return the results without fits of two counters to the same bytes: neither is found."""
    taken = [(finding.counter, {*finding.fit.bytes}) for finding in findings if finding.fit]
    results = []
    for finding in findings:
        own = {*finding.fit.bytes} if finding.fit else set[int]()
        if finding.fit and (others := [name for name, place in taken if name != finding.counter and place & own]):
            advice = f"a model in which it differs from {', '.join(others)}: the same bytes fit"
            rivals = (finding.fit, *finding.rivals)
            finding = replace(finding, verdict=CounterVerdict.NOT_FOUND, fit=None, rivals=rivals, advice=advice)  # noqa: PLW2901
        results.append(finding)
    return results

"""Counters of aicore records: their words in a record, their meaning for a layer, and the limits of their values.

Which word of a record is which PMU counter is data, not code (the-format.md 3.1): a counter map.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import numpy as np

from profagent.errors import FormatError
from profagent.formats.records import AICORE_DTYPE, CYCLES_PER_TICK
from profagent.limits import LARGEST_RATIO

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import numpy.typing as npt
    from numpy.typing import NDArray

    from profagent.formats.records import Records

# Counters that a counter map may name: shares of the time, and bytes. The values are their names for people.
_MAPPED_RATIOS = {
    "mac_busy": "cube busy",
    "mac_ppen": "cube effective",
    "vec_busy": "vector busy",
    "vec_ppen": "vector effective",
    "dstr": "storing (Dstr)",
    "dtrans": "transforming (Dtrans)",
    "dld": "loading maps (DLD)",
    "wld": "loading weights (WLD)",
}
_BYTES = {"ddr_read_bytes": "read from DDR", "ddr_write_bytes": "written to DDR"}
# Shares that only tools of other Ascend devices have.
_OTHER_RATIOS = {"scalar": "scalar unit busy"}
MAPPED_RATIOS = (*_MAPPED_RATIOS,)
MAPPED_NAMES = (*_MAPPED_RATIOS, *_BYTES)
RATIOS = (*_MAPPED_RATIOS, *_OTHER_RATIOS)
# All counters of a record: columns of `aicore` and of the view `op_records`.
COUNTERS = _MAPPED_RATIOS | _OTHER_RATIOS | _BYTES
COUNTER_NAMES = (*COUNTERS,)
# The bytes that the hardware writes: sequence and ticks are before them, the net behind.
COUNTERS_START = 0x08
COUNTERS_END = 0xFC
# SDK in a map that `calibrate` wrote without knowing it.
SDK_NOT_SAID = ("", "unknown")
FINGERPRINT_BYTES = 16
# Verdict of `calibrate` on a counter whose evidence has a gap.
LIKELY = "likely"
_TYPES: dict[str, np.dtype[Any]] = {"u16": np.dtype("<u2"), "u32": np.dtype("<u4"), "u64": np.dtype("<u8")}


class Counter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Counter: the unsigned integer `type` at byte `offset`, times `scale`, over its `denominator`.

    `verdict` says how far it can be trusted (`simulated` is the simulated board's own), `evidence` from what it was
    learnt.
    """

    offset: int
    type: Literal["u16", "u32", "u64"]
    scale: float
    denominator: Literal["ticks", "cycles", "none"]
    unit: Literal["fraction", "bytes"]
    verdict: Literal["certain", "likely", "simulated"]
    evidence: str

    def __post_init__(self) -> None:
        """Check what types cannot express. Raises ValueError."""
        last = COUNTERS_END - _TYPES[self.type].itemsize
        if not COUNTERS_START <= self.offset <= last:
            raise ValueError(f"an offset is from {COUNTERS_START:#04x} to {last:#04x}")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError("a scale is above 0")

    def values(self, records: Records, ticks: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the counter of each aicore record in its unit; NaN where the record's `ticks` are NaN."""
        value = records.view(_field(self.type, self.offset))["value"]
        # An overflow gives infinity, which the checks of counters report.
        with np.errstate(over="ignore"):
            scaled: npt.NDArray[np.float64] = value.astype(np.float64) * self.scale
        if self.denominator == "none":
            return scaled
        return scaled / (ticks * CYCLES_PER_TICK if self.denominator == "cycles" else ticks)


class CounterMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Known counters of the records of one SDK generation, by name; other counters have no values.

    `digest` is of the evidence from which they were learnt, empty for a map that was written by hand.
    """

    name: str
    sdk: str
    simulated: bool
    counters: dict[str, Counter]
    digest: str = ""

    def __post_init__(self) -> None:
        """Check what types cannot express. Raises ValueError."""
        for name, counter in self.counters.items():
            if name not in MAPPED_NAMES:
                raise ValueError(f"{name!r} is not a counter; the counters are {', '.join(MAPPED_NAMES)}")
            unit = "bytes" if name.endswith("_bytes") else "fraction"
            if counter.unit != unit:
                raise ValueError(f"the unit of {name} is {unit}")

    @property
    def fingerprint(self) -> str:
        """Digest of the map's effect on records: maps with the same one decode alike, whatever their names."""
        places = [
            (name, each.offset, each.type, each.scale, each.denominator)
            for name in MAPPED_NAMES
            if (each := self.counters.get(name)) is not None
        ]
        return hashlib.blake2b(repr(places).encode(), digest_size=FINGERPRINT_BYTES).hexdigest()

    @property
    def likely(self) -> tuple[str, ...]:
        """Counters that are likely, but not certain."""
        return tuple(name for name in MAPPED_NAMES if name in self.counters and self.counters[name].verdict == LIKELY)

    def fits_sdk(self, sdk: str) -> bool:
        """Return True if the map may be for a board's SDK: both are the same, or either is unknown."""
        return self.sdk == sdk or self.sdk in SDK_NOT_SAID or sdk in SDK_NOT_SAID

    def apply(self, records: Records) -> dict[str, npt.NDArray[np.float64]]:
        """Return the values of each known counter for aicore records, shape (records,), by its name.

        Ratios are fractions of the layer's time: ticks = word 0x04, a cycle is a hundredth of one. DDR is in bytes.
        """
        # A ratio over a time of 0 is unknown.
        ticks = np.where(records["ticks"] == 0, np.nan, records["ticks"])
        return {name: counter.values(records, ticks) for name, counter in self.counters.items()}


# msgspec inspects a type at its first use, and crashes if two threads do so at once: so it is used here, at import.
msgspec.json.Decoder(CounterMap)


@lru_cache
def _field(type_: str, offset: int) -> np.dtype[Any]:
    return np.dtype(
        {"names": ["value"], "formats": [_TYPES[type_]], "offsets": [offset], "itemsize": AICORE_DTYPE.itemsize}
    )


def parse_counter_map(text: str, file: str) -> CounterMap:
    """Return the map in a TOML text. Raises FormatError, which names the wrong key."""
    try:
        return msgspec.toml.decode(text, type=CounterMap)
    except (ValueError, RecursionError) as error:
        hint = "correct the counter map: docs/reference/counter-maps.md has its keys"
        raise FormatError(file, 0, "a counter map", str(error)[:200], hint=hint) from error


# Thresholds for what bounds a layer: the-format.md 11, and Memory Bound in the manual.
CUBE_IS_FINE = 0.7
VECTOR_IS_FINE = 0.5
SUSPECTS = (("Dstr", 4, 0.7), ("DLD", 6, 0.7), ("WLD", 7, 0.8))
UNEXPLAINED = 0.5


def mean_ratios(ratios: NDArray[np.float64], ticks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return means weighted by time of ratios, shape (records, ratios); NaN where one is not known."""
    (means,) = means_of_groups(ratios, ticks, np.zeros(len(ticks), np.intp), 1)
    return means  # type: ignore[no-any-return]


def means_of_groups(
    ratios: NDArray[np.float64], ticks: NDArray[np.float64], group: NDArray[np.integer], groups: int
) -> NDArray[np.float64]:
    """Return `mean_ratios` of each of several groups of records, shape (groups, ratios), by each record's group."""
    total = np.bincount(group, ticks, groups).astype(np.float64)  # without any record they are integers
    sums = [np.bincount(group, ticks * column, groups) for column in ratios.T]
    total[total == 0] = np.nan
    return np.stack(sums, axis=1) / total[:, np.newaxis]


def bound_mark(likely: Collection[str]) -> str:
    """Return `?` if the bound of layers rests on uncertain counters: on ratios, not on bytes."""
    return "?" if any(name in RATIOS for name in likely) else ""


def bound_by(ratios: NDArray[np.float64] | Sequence[float]) -> str | None:
    """Return what bounds a layer, by its MAPPED_RATIOS; further ratios belong to other devices and are ignored.

    None if a ratio is unknown or implausible. `cube` and `vector`: the unit is used well; `Dstr`, `DLD`, `WLD`: that
    transfer is above its threshold, of several the one furthest above; `unexplained`: nothing is above a half; else the
    transfer that takes most of the time where Memory Bound is above 1, or what else does: `mac`, `vec`, or transforming
    (`Dtrans`).
    """
    # For so few numbers Python's floats are faster than numpy.
    mapped = list(map(float, ratios[: len(MAPPED_RATIOS)]))
    if math.isnan(sum(mapped)) or min(mapped) < 0 or max(mapped) > LARGEST_RATIO:
        return None
    mac_busy, mac_ppen, _, vec_ppen = mapped[:4]
    if mac_ppen > CUBE_IS_FINE:
        return "cube"
    excess, suspect = max([(mapped[place] - threshold, name) for name, place, threshold in SUSPECTS])
    if excess > 0:
        return suspect
    if not mac_busy and vec_ppen > VECTOR_IS_FINE:
        return "vector"
    return "unexplained" if max(mapped) < UNEXPLAINED else _largest_of(mapped)


def largest_pipe(ratios: NDArray[np.float64] | Sequence[float]) -> str | None:
    """Return the pipe of another Ascend device that takes most of the time.

    It is `mac`, `vec`, `Dstr`, `Dtrans`, `DLD` or `scalar`; `unexplained` if none takes a half; None if none is known.
    The thresholds of the SS928 do not apply to such a device.
    """
    known = [(ratios[place], name) for name, place in _PIPES.items() if ratios[place] >= 0]
    if not known:
        return None
    most, name = max(known)
    return "unexplained" if most < UNEXPLAINED else name


def bound_in(family: str | None) -> Callable[[NDArray[np.float64] | Sequence[float]], str | None]:
    """Return the function that computes the bound of a layer from its ratios, for a family; None is the SS928's."""
    return bound_by if family is None else largest_pipe


_OF_PIPES = {"mac": "mac_busy", "vec": "vec_busy", "Dstr": "dstr", "Dtrans": "dtrans", "DLD": "dld", "scalar": "scalar"}
_PIPES = {name: RATIOS.index(counter) for name, counter in _OF_PIPES.items()}


def _largest_of(ratios: Sequence[float]) -> str:
    mac_busy, _, vec_busy, vec_ppen, dstr, dtrans, dld, wld = ratios
    most, transfer = max((dstr, "Dstr"), (dld, "DLD"), (wld, "WLD"))
    if most > max(mac_busy, vec_ppen):
        return transfer
    return max((mac_busy, "mac"), (vec_busy, "vec"), (dtrans, "Dtrans"))[1]


# Limits of counters, which hold for any layer: a wrong counter map must not go unnoticed. PART_SLACK is how far
# rounding may lift the effective share above the busy one, of which it is a part.
PART_SLACK = 0.01
# Bytes per second: LPDDR4X-4266 on 64 bits. No public document describes the SS928's; unverified.
PEAK_MEMORY_RATE = 34.1e9
# By check: the counter, and the counter of which it is a part; None for a part of the whole time.
SHARES: dict[str, tuple[str, str | None]] = {
    **{f"{name} <= 1": (name, None) for name in MAPPED_RATIOS},
    "mac_ppen <= mac_busy": ("mac_ppen", "mac_busy"),
    "vec_ppen <= vec_busy": ("vec_ppen", "vec_busy"),
}
RATES = {f"{name} rate": name for name in _BYTES}
# By how much an inference's layers may exceed the time in its `.done`, which is in whole µs (the-format.md 3.1).
LAYERS_SHARE, SLACK_US = 1.02, 2.0
TICKS = "ticks <= .done"


class RecordPlace(NamedTuple):
    """Place of a record in the order of time: the pictures before its inference, its log, its number in the log."""

    pictures: int
    path: str
    record: int


class Tally(NamedTuple):
    """Result of a check over `rows` rows: the number of implausible ones, the first of them, and the worst value."""

    rows: int = 0
    implausible: int = 0
    first: RecordPlace | None = None
    worst: float | None = None


def merged(one: Tally, other: Tally) -> Tally:
    """Return the sum of two tallies."""
    firsts = [each.first for each in (one, other) if each.first is not None]
    worsts = [each.worst for each in (one, other) if each.worst is not None]
    return Tally(
        one.rows + other.rows,
        one.implausible + other.implausible,
        min(firsts, default=None),
        max(worsts, default=None),
    )


def implausible_text(name: str, tally: Tally, peak_bytes_per_s: float = PEAK_MEMORY_RATE) -> str:
    """Return the line about a failed check: how many rows of how many, the worst value, the first place."""
    assert tally.first is not None
    assert tally.worst is not None
    what, worst, first = "records", f"{tally.worst:,.4g}", f"record {tally.first.record} of {tally.first.path}"
    if name == TICKS:
        odd = "layers take longer by their ticks than their inference by its .done"
        what, worst, first = "inferences", f"{worst} times", tally.first.path
    elif name in RATES:
        odd = f"{RATES[name]} is more than the memory can move"
        worst = f"{tally.worst / 1e9:,.1f} GB/s, and {peak_bytes_per_s / 1e9:g} can be"
    else:
        counter, whole = SHARES[name]
        odd = f"{counter} is above {whole or 1}"
    return f"{odd} in {tally.implausible:,} of {tally.rows:,} {what}, at worst {worst}; first {first}"

"""Counter maps: which word of an aicore record is which PMU counter is data, not code (format page 3.1)."""

from __future__ import annotations

import hashlib
import math
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from profagent.errors import FormatError
from profagent.formats.durations import CYCLES_PER_TICK
from profagent.formats.records import AICORE_DTYPE

if TYPE_CHECKING:
    import numpy.typing as npt

    from profagent.formats.records import Records

__all__ = ["COUNTER_NAMES", "Counter", "CounterMap", "parse_counter_map"]

COUNTER_NAMES = (
    "mac_busy",
    "mac_ppen",
    "vec_busy",
    "vec_ppen",
    "dstr",
    "dtrans",
    "dld",
    "wld",
    "ddr_read_bytes",
    "ddr_write_bytes",
)
# Sequence and ticks stand before, the net behind what the hardware writes.
COUNTERS_START = 0x08
COUNTERS_END = 0xFC
# Whole numbers below are exact in a float.
SCALE_INT_MAX = 2**53

_MAP_KEYS = {"name": str, "sdk": str, "simulated": bool, "digest": str, "counters": dict}
_COUNTER_KEYS = {
    "offset": int,
    "type": str,
    "scale": float,
    "denominator": str,
    "unit": str,
    "verdict": str,
    "evidence": str,
}
_TYPES: dict[str, np.dtype[Any]] = {"u16": np.dtype("<u2"), "u32": np.dtype("<u4"), "u64": np.dtype("<u8")}
_DENOMINATORS = ("ticks", "cycles", "none")
# What `calibrate` writes when nobody told it the SDK.
SDK_NOT_SAID = ("", "unknown")
FINGERPRINT_BYTES = 16
# The verdict of `calibrate` on a counter of which something is not shown.
LIKELY = "likely"
# Those that a counter of a map may have; `simulated` is of the simulated board's own.
_VERDICTS = ("certain", LIKELY, "simulated")


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter: the unsigned integer `type` at byte `offset`, times `scale`, over its `denominator`.

    `verdict` says how far it is to be trusted, `evidence` from what it was learnt.
    """

    name: str
    offset: int
    type: str
    scale: float
    denominator: str
    unit: str
    verdict: str
    evidence: str

    def values(self, records: Records, ticks: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Give the counter of each aicore record, in its unit, NaN where `ticks`, which are theirs, are NaN."""
        value = records.view(_field(self.type, self.offset))["value"]
        with np.errstate(over="ignore"):  # beyond any float, which the checks of what counters cannot be tell
            scaled: npt.NDArray[np.float64] = value.astype(np.float64) * self.scale
        if self.denominator == "none":
            return scaled
        return scaled / (ticks * CYCLES_PER_TICK if self.denominator == "cycles" else ticks)


@dataclass(frozen=True, slots=True)
class CounterMap:
    """The counters that are known for the records of one SDK generation; the others have no values.

    `digest` is of the evidence that they were learnt from, empty for a map that nobody learnt.
    """

    name: str
    sdk: str
    simulated: bool
    digest: str
    counters: tuple[Counter, ...]

    @property
    def fingerprint(self) -> str:
        """A digest of what it makes of records: maps that are alike in it decode alike, whatever they are called."""
        places = [(each.name, each.offset, each.type, each.scale, each.denominator) for each in self.counters]
        return hashlib.blake2b(repr(places).encode(), digest_size=FINGERPRINT_BYTES).hexdigest()

    @property
    def likely(self) -> tuple[str, ...]:
        """The counters that it is not certain of."""
        return tuple(each.name for each in self.counters if each.verdict == LIKELY)

    def fits_sdk(self, sdk: str) -> bool:
        """Whether it may be for a board's SDK: it names the same, or either is not known."""
        return self.sdk == sdk or self.sdk in SDK_NOT_SAID or sdk in SDK_NOT_SAID

    def apply(self, records: Records) -> dict[str, npt.NDArray[np.float64]]:
        """Give each known counter's values of aicore records, shape (records,), by its name.

        Ratios are fractions of the layer's time: ticks = word 0x04, a cycle is a hundredth of one. DDR is in bytes.
        """
        # A ratio over no time is not known.
        ticks = np.where(records["ticks"] == 0, np.nan, records["ticks"])
        return {counter.name: counter.values(records, ticks) for counter in self.counters}


@lru_cache
def _field(type_: str, offset: int) -> np.dtype[Any]:
    """One number of an aicore record, as a field of its own."""
    return np.dtype(
        {"names": ["value"], "formats": [_TYPES[type_]], "offsets": [offset], "itemsize": AICORE_DTYPE.itemsize}
    )


def parse_counter_map(text: str, file: str) -> CounterMap:
    """Read a map's TOML; raises FormatError that names the key which cannot be."""
    return _Reader(text, file).counter_map()


class _Reader:
    """Checks a map key by key, so that a mistyped one is told and not passed over."""

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file

    def counter_map(self) -> CounterMap:
        try:
            loaded = tomllib.loads(self._text)
        except (ValueError, RecursionError) as error:
            raise self._fault("", "TOML", str(error)) from error
        values = self._typed({"digest": "", **loaded}, _MAP_KEYS, "")
        tables = values["counters"]
        for name in tables:
            if name not in COUNTER_NAMES:
                raise self._fault(f"counters.{name}", f"a counter among {', '.join(COUNTER_NAMES)}", repr(name))
        counters = tuple(self._counter(name, tables[name]) for name in COUNTER_NAMES if name in tables)
        return CounterMap(values["name"], values["sdk"], values["simulated"], values["digest"], counters)

    def _counter(self, name: str, table: object) -> Counter:
        key = f"counters.{name}"
        if not isinstance(table, dict):
            raise self._fault(key, f"a table [{key}]", type(table).__name__)
        counter = Counter(name=name, **self._typed(table, _COUNTER_KEYS, key))
        unit = "bytes" if name.endswith("_bytes") else "fraction"
        if counter.type not in _TYPES:
            raise self._fault(key, f"type {', '.join(_TYPES)}", repr(counter.type))
        if counter.denominator not in _DENOMINATORS:
            raise self._fault(key, f"denominator {', '.join(_DENOMINATORS)}", repr(counter.denominator))
        if counter.unit != unit:
            raise self._fault(key, f"unit {unit!r}", repr(counter.unit))
        if not (math.isfinite(counter.scale) and counter.scale > 0):
            raise self._fault(key, "a scale above 0", str(counter.scale))
        if counter.verdict not in _VERDICTS:
            expected = f"verdict {', '.join(_VERDICTS)}: leave out what was not found"
            raise self._fault(key, expected, repr(counter.verdict))
        last = COUNTERS_END - _TYPES[counter.type].itemsize
        if not COUNTERS_START <= counter.offset <= last:
            raise self._fault(key, f"an offset from {COUNTERS_START:#04x} to {last:#04x}", f"{counter.offset:#04x}")
        return counter

    def _typed(self, table: dict[str, Any], keys: dict[str, type], where: str) -> dict[str, Any]:
        """Give a table that has exactly these keys, of these types."""
        for key in table:
            if key not in keys:
                raise self._fault(where or key, f"keys {', '.join(keys)}", repr(key))
        values = {}
        for key, wanted in keys.items():
            value = table.get(key)
            if wanted is float and type(value) is int and abs(value) < SCALE_INT_MAX:
                value = float(value)
            if type(value) is not wanted:
                raise self._fault(where, f"{key!r} of type {wanted.__name__}", type(value).__name__)
            values[key] = value
        return values

    def _fault(self, key: str, expected: str, found: str) -> FormatError:
        offset = len(self._text[: max(self._text.find(key), 0)].encode("utf-8", "surrogatepass"))
        hint = "correct the counter map: docs/reference/counter-maps.md has its keys"
        return FormatError(self._file, offset, expected, found[:80], hint=hint)

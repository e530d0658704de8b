"""The simulated board's counter map: which bytes of an aicore record hold which PMU counter."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profagentd.simulate.toml_file import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

MAP_FILE = Path(__file__).with_name("counter-map.toml")

WORDS_OFFSET_BYTES = 0x08
WORDS_BYTES = 0xFC - WORDS_OFFSET_BYTES
"""The hardware's own bytes of a record: between the duration and the segment's number (format page 3.1)."""

CYCLES_PER_TICK = 100

_FORMATS = {"u16": "<H", "u32": "<I", "u64": "<Q"}


@dataclass(frozen=True)
class Counter:
    """Where one counter stands: value = word x scale / denominator."""

    name: str
    offset: int
    form: str
    scale: float
    denominator: str

    def pack_into(self, words: bytearray, value: float, ticks: int) -> None:
        """Write `value` (a fraction of the time, or bytes) as the nearest word that its type can hold."""
        per_value = {"ticks": ticks, "cycles": ticks * CYCLES_PER_TICK, "none": 1}[self.denominator]
        limit = 256 ** struct.calcsize(self.form) - 1
        word = min(round(value * per_value / self.scale), limit)
        struct.pack_into(self.form, words, self.offset - WORDS_OFFSET_BYTES, word)


def load_counters() -> tuple[Counter, ...]:
    """The counters of the package's own map."""
    tables = read_toml(MAP_FILE)["counters"]
    return tuple(
        Counter(name, table["offset"], _FORMATS[table["type"]], table["scale"], table["denominator"])
        for name, table in tables.items()
    )


def pack_words(counters: tuple[Counter, ...], values: Mapping[str, float], ticks: int, rest: bytes) -> bytes:
    """The hardware's bytes of one record: `rest` with the counters written over it."""
    words = bytearray(rest)
    for counter in counters:
        counter.pack_into(words, values[counter.name], ticks)
    return bytes(words)

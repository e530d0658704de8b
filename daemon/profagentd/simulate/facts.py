"""What no public source tells of the runtime's files: the alternatives, and which one a simulated board does. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagentd.errors import DaemonError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FACTS: Mapping[str, tuple[str, ...]] = {
    "tick-unit": ("100-cycles", "cycle", "10-ns", "us"),
    "batch-number": ("on", "each-batch", "each-picture", "once"),
    "loop-number": ("on", "each-pass"),
    "name-nul": ("with", "without"),
    "net-start": ("items", "length", "container", "elsewhere"),
    "item-form": ("u32", "u16"),
    "file-prefix": ("library", "manual"),
}
"""The alternatives of each fact; the first is what the format page takes for likely."""

_NS_PER_US = 1_000


class Facts:
    """A choice among the alternatives: the likely ones, but for what is given. Raises DaemonError for another."""

    def __init__(self, given: Sequence[str] = ()) -> None:
        self._chosen = {name: alternatives[0] for name, alternatives in FACTS.items()}
        for text in given:
            name, _, alternative = text.partition("=")
            if alternative not in FACTS.get(name, ()):
                allowed = "; ".join(f"{each}={'|'.join(FACTS[each])}" for each in FACTS)
                raise DaemonError(f"--fact {text}: there is no such alternative", hint=f"there are {allowed}")
            self._chosen[name] = alternative

    def __getitem__(self, name: str) -> str:
        return self._chosen[name]

    def ticks_per_us(self, frequency_mhz: int) -> float:
        """How fast the counter of a record's time runs."""
        per_us = {"100-cycles": frequency_mhz / 100, "cycle": float(frequency_mhz), "10-ns": _NS_PER_US / 10, "us": 1.0}
        return per_us[self["tick-unit"]]

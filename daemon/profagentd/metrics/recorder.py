"""Writes what sweeps gave into the spool `METRICS-board-…`, a line of text for each sweep.

n 3 % npu.hw_utilization         number, unit (`-`: none) and name; before its first value, and again in a segment
s 1700000000000000 3=12 4=7.5    a sweep: µs since 1970 by the board's clock, and its values
e thermal No such file           a collector gives nothing any more, and why
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profagentd.metrics.sampler import Sweep


class Lines:
    """Sweeps as lines; numbers the names as they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def of(self, sweep: Sweep) -> bytes:
        """The lines of a sweep: new names, problems, values."""
        known = len(self._names)
        values = [f"{self._number(each.name, each.unit)}={_shown(each.value)}" for each in sweep.samples]
        lines = self._names[known:]
        lines += [f"e {name} {' '.join(why.split())}\n" for name, why in sweep.problems.items()]
        if values:
            lines.append(f"s {sweep.time_us} {' '.join(values)}\n")
        return "".join(lines).encode()

    def names(self) -> bytes:
        """All names so far: what a segment begins with."""
        return "".join(self._names).encode()

    def _number(self, name: str, unit: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self._numbers)
            self._names.append(f"n {self._numbers[name]} {unit or '-'} {' '.join(name.split())}\n")
        return self._numbers[name]


def _shown(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.6g}"

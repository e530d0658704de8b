"""A network as the simulated board runs it: segments, runs of fused layers, batches. Pure."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from typing import TYPE_CHECKING, Any

from profagentd.errors import DaemonError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_HINT = "docs/reference/simulated-board.md describes the file of a simulated network"


def read_toml(path: Path) -> dict[str, Any]:
    """The file's top table. DaemonError when it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DaemonError(f"{path}: {error.strerror}", hint="give --model a name or a readable file") from error
    except ValueError as error:
        raise DaemonError(f"{path}: not a TOML file: {error}", hint=_HINT) from error


class Table:
    """One table of a file. Each reader checks type and range; `finish` refuses keys that nobody read."""

    def __init__(self, file: Path, key: str, values: dict[str, Any]) -> None:
        self._file = file
        self._key = key
        self._values = values
        self._read: set[str] = set()

    def text(self, key: str) -> str:
        """A text that is not empty."""
        value = self._take(key, None)
        if not isinstance(value, str) or not value:
            raise self.error(key, "a text that is not empty")
        return value

    def integer(self, key: str, default: int | None, lowest: int, highest: int) -> int:
        """An integer within its bounds."""
        value = self._take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise self.error(key, f"an integer from {lowest} to {highest}")
        return value

    def number(self, key: str, default: float | None, highest: float) -> float:
        """A number from 0 up to its bound."""
        value = self._take(key, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= highest:
            raise self.error(key, f"a number from 0 to {highest:g}")
        return float(value)

    def flag(self, key: str) -> bool:
        """True or false; false where it is absent."""
        value = self._take(key, False)
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def texts(self, key: str) -> list[str]:
        """An array of one or more texts."""
        value = self._take(key, None)
        if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
            raise self.error(key, "an array of one or more texts")
        return value

    def tables(self, key: str) -> list[Table]:
        """An array of one or more tables."""
        value = self._take(key, None)
        if not isinstance(value, list) or not value or not all(isinstance(table, dict) for table in value):
            raise self.error(key, "an array of one or more tables")
        return [Table(self._file, f"{self._path(key)}[{number}]", table) for number, table in enumerate(value)]

    def named_tables(self, key: str) -> dict[str, Table]:
        """A table of tables; empty where it is absent."""
        value = self._take(key, {})
        if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
            raise self.error(key, "a table of tables")
        return {name: Table(self._file, f"{self._path(key)}.{name}", table) for name, table in value.items()}

    def finish(self) -> None:
        """Refuse what is in the table and was not read."""
        for key in self._values:
            if key not in self._read:
                raise DaemonError(f"{self._file}: {self._path(key)}: unknown key", hint=_HINT)

    def error(self, key: str, expected: str) -> DaemonError:
        """The error of a key that does not hold what it should."""
        found = repr(self._values[key]) if key in self._values else "nothing"
        return DaemonError(f"{self._file}: {self._path(key)}: expected {expected}, found {found}", hint=_HINT)

    def _take(self, key: str, default: object) -> object:
        self._read.add(key)
        return self._values.get(key, default)

    def _path(self, key: str) -> str:
        return f"{self._key}.{key}" if self._key else key


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

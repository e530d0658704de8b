"""Networks as the simulated board runs them, and their TOML files (docs/reference/simulated-board.md)."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field, replace
from itertools import count, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from profagentd.errors import DaemonError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


MODELS = Path(__file__).with_name("models")
AICORE, AICPU = "aicore", "aicpu"

MAX_NAME_BYTES = 200
"""Longer model names make the library's file names fail (format page 2.1)."""
MAX_BATCH = MAX_LOOPS = 1024
MAX_TIME_US = 10_000_000.0
MAX_BYTES_PER_US = 100_000.0

_HINT = "docs/reference/simulated-board.md describes the file of a simulated network"
_FRACTIONS = ("mac_busy", "mac_ppen", "vec_busy", "vec_ppen", "dstr", "dtrans", "dld", "wld")
_RATES = ("ddr_read_bytes", "ddr_write_bytes")
# Short enough for the TLV item's 8-bit length even as four bytes a letter and with a round's number behind it.
_LAYER = re.compile(r"([^:]{1,50}):([^:]{1,50})(?::([1-9][0-9]?))?")
# The library turns these into `_` in file names (format page 2.1).
_REPLACED = str.maketrans(" ./\\", "____")
_REQUIRED = object()

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


def chosen_facts(given: Sequence[str]) -> dict[str, str]:
    """An alternative of each fact: the likely ones, but for what is given as NAME=ALTERNATIVE. DaemonError."""
    chosen = {name: alternatives[0] for name, alternatives in FACTS.items()}
    for text in given:
        name, _, alternative = text.partition("=")
        if alternative not in FACTS.get(name, ()):
            allowed = "; ".join(f"{each}={'|'.join(FACTS[each])}" for each in FACTS)
            raise DaemonError(f"--fact {text}: there is no such alternative", hint=f"there are {allowed}")
        chosen[name] = alternative
    return chosen


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

    def batch_sizes(self, pictures: int) -> tuple[int, ...]:
        """Pictures in each batch run of one inference (format page 3.1)."""
        full, rest = divmod(pictures, self.batch_num)
        return (self.batch_num,) * full + ((rest,) if rest else ())


def resized(network: Network, layers: int) -> Network:
    """The network with exactly `layers` aicore runs.

    Fewer: it ends after so many. More: its own aicore runs come again, in order, in its last aicore segment, with
    the round's number at the end of each name.
    """
    segments = list(network.segments)
    aicore = [number for number, segment in enumerate(segments) if segment.unit == AICORE]
    originals = [run for number in aicore for run in segments[number].runs]
    if layers < len(originals):
        kept: list[Segment] = []
        while layers:
            segment = segments[len(kept)]
            first = replace(segment, runs=segment.runs[:layers]) if segment.unit == AICORE else segment
            layers -= len(first.runs) if segment.unit == AICORE else 0
            kept.append(first)
        return replace(network, segments=tuple(kept))
    again = (_renamed(run, number) for number in count(2) for run in originals)
    last = segments[aicore[-1]]
    segments[aicore[-1]] = replace(last, runs=(*last.runs, *islice(again, layers - len(originals))))
    return replace(network, segments=tuple(segments))


def _renamed(run: Run, number: int) -> Run:
    return replace(run, layers=tuple(replace(layer, name=f"{layer.name}_{number}") for layer in run.layers))


def run_order(is_batch: Sequence[bool], size: int) -> list[tuple[int, int]]:
    """The runs of a segment as a batch of so many pictures executes them: (index, pictures it works on).

    Runs between batch layers come once for each picture, a batch layer comes once (format page 3.1).
    """
    order: list[tuple[int, int]] = []
    for batch, group in groupby(range(len(is_batch)), key=is_batch.__getitem__):
        members = [(index, size if batch else 1) for index in group]
        order += members if batch else members * size
    return order


# The files


def builtin_models() -> tuple[str, ...]:
    """Names of the networks that come with the simulated board."""
    return tuple(sorted(path.stem for path in MODELS.glob("*.toml")))


def load_network(model: str) -> Network:
    """The built-in network of this name, else the one in this file. DaemonError names the file and the key."""
    file = MODELS / f"{model}.toml" if model in builtin_models() else Path(model)
    if not file.exists():
        names = ", ".join(builtin_models())
        raise DaemonError(f"--model {model}: no such network or file", hint=f"built in are {names}")
    top = _Table(file, "", read_toml(file))
    name = top.take("name", _is_name, f"a printable name of at most {MAX_NAME_BYTES} bytes")
    batch_num = top.integer("batch_num", MAX_BATCH)
    online_batch = top.flag("online_batch")
    counters = {table.name: _counters(table) for table in top.tables("counters", {})}
    segments = tuple(_segment(table, counters) for table in top.tables("segments"))
    if all(segment.unit == AICPU for segment in segments):
        raise top.error("segments", f"one segment or more with unit {AICORE!r}")
    top.finish()
    return Network(name.translate(_REPLACED), segments, batch_num, online_batch)


def read_toml(path: Path) -> dict[str, Any]:
    """The file's top table. DaemonError when it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DaemonError(f"{path}: {error.strerror}", hint="give --model a name or a readable file") from error
    except ValueError as error:
        raise DaemonError(f"{path}: not a TOML file: {error}", hint=_HINT) from error


class _Table:
    """One table of a file; `finish` refuses keys that nobody took. All raise DaemonError."""

    def __init__(self, file: Path, name: str, values: dict[str, Any], path: str = "") -> None:
        self.name = name
        self._file = file
        self._values = values
        self._path = path
        self._taken: set[str] = set()

    def take(self, key: str, is_right: Callable[[Any], bool], expected: str, default: object = _REQUIRED) -> Any:
        self._taken.add(key)
        value = self._values.get(key, default)
        if (value is not default and not is_right(value)) or value is _REQUIRED:
            raise self.error(key, expected)
        return value

    def integer(self, key: str, highest: int) -> int:
        expected = f"an integer from 1 to {highest}"
        return int(self.take(key, lambda value: type(value) is int and 1 <= value <= highest, expected, 1))

    def number(self, key: str, highest: float, default: object = _REQUIRED) -> float:
        expected = f"a number from 0 to {highest:g}"
        return float(
            self.take(key, lambda each: type(each) in (int, float) and 0 <= each <= highest, expected, default)
        )

    def flag(self, key: str) -> bool:
        return bool(self.take(key, lambda value: isinstance(value, bool), "true or false", False))

    def tables(self, key: str, default: object = _REQUIRED) -> list[_Table]:
        """The tables of an array, or of a table with their names."""
        found = self.take(key, _are_tables, "one or more tables", default)
        if isinstance(found, dict):
            return [_Table(self._file, name, values, f"{self._path}{key}.{name}.") for name, values in found.items()]
        return [_Table(self._file, "", values, f"{self._path}{key}[{at}].") for at, values in enumerate(found)]

    def finish(self) -> None:
        for key in self._values:
            if key not in self._taken:
                raise DaemonError(f"{self._file}: {self._path}{key}: unknown key", hint=_HINT)

    def error(self, key: str, expected: str) -> DaemonError:
        found = repr(self._values[key]) if key in self._values else "nothing"
        return DaemonError(f"{self._file}: {self._path}{key}: expected {expected}, found {found}", hint=_HINT)


def _are_tables(value: Any) -> bool:
    tables = value.values() if isinstance(value, dict) else value
    return isinstance(value, (dict, list)) and bool(value) and all(isinstance(each, dict) for each in tables)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.encode("utf-8")) <= MAX_NAME_BYTES and value.isprintable()


def _is_layer(value: Any) -> bool:
    return isinstance(value, str) and _LAYER.fullmatch(value) is not None


def _are_layers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_layer, value))


def _counters(table: _Table) -> Mapping[str, float]:
    values = {name: table.number(name, 1.0, 0.0) for name in _FRACTIONS}
    values.update({name: table.number(f"{name}_per_us", MAX_BYTES_PER_US, 0.0) for name in _RATES})
    table.finish()
    for unit in ("mac", "vec"):
        if values[f"{unit}_ppen"] > values[f"{unit}_busy"]:
            raise table.error(f"{unit}_ppen", f"at most {unit}_busy")
    return values


def _segment(table: _Table, counters: Mapping[str, Mapping[str, float]]) -> Segment:
    unit = table.take("unit", (AICORE, AICPU).__contains__, f"{AICORE!r} or {AICPU!r}")
    runs = tuple(_run(run, counters) for run in table.tables("runs"))
    loops = table.integer("loops", MAX_LOOPS)
    table.finish()
    return Segment(unit, runs, loops)


def _run(table: _Table, counters: Mapping[str, Mapping[str, float]]) -> Run:
    texts = table.take("layers", _are_layers, "texts 'name:type' or 'name:type:outputs', each part short")
    layers = tuple(Layer(name, kind, int(outputs or 1)) for name, kind, outputs in map(_parts, texts))
    idle = dict.fromkeys(_FRACTIONS + _RATES, 0.0)
    run = Run(layers, table.number("time_us", MAX_TIME_US), table.flag("batch"), counters.get(layers[0].type, idle))
    table.finish()
    return run


def _parts(layer: str) -> tuple[str, ...]:
    match = _LAYER.fullmatch(layer)
    assert match is not None, "the text was checked"
    return match.groups()

"""The networks of the simulated board, and their TOML files (docs/reference/simulated-board.md)."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field, replace
from itertools import count, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profagentd.errors import DaemonError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    # Rules of a table's values by key: the check, its description, and the default; None makes the key mandatory.
    _Rules = Mapping[str, tuple[Callable[[Any], bool], str, Any]]

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


MODELS = Path(__file__).with_name("models")
AICORE, AICPU = "aicore", "aicpu"

MAX_NAME_BYTES = 200  # longer model names make the library's file names fail (the-format.md 2.1)
MAX_BATCH = MAX_LOOPS = 1024
MAX_TIME_US = 10_000_000.0
MAX_BYTES_PER_US = 100_000.0

_HINT = "docs/reference/simulated-board.md describes the file of a simulated network"
_FRACTIONS = ("mac_busy", "mac_ppen", "vec_busy", "vec_ppen", "dstr", "dtrans", "dld", "wld")
# Bounded so that the TLV item's 8-bit length suffices, even with four bytes a letter and a round's number appended.
_LAYER = re.compile(r"([^:]{1,50}):([^:]{1,50})(?::([1-9][0-9]?))?")
# The library turns these into `_` in file names (the-format.md 2.1).
_REPLACED = str.maketrans(" ./\\", "____")

# Alternatives of facts that no public document settles; the first one is likely (the-format.md 8).
FACTS: Mapping[str, tuple[str, ...]] = {
    "tick-unit": ("100-cycles", "cycle", "10-ns", "us"),
    "batch-number": ("on", "each-batch", "each-picture", "once"),
    "loop-number": ("on", "each-pass"),
    "name-nul": ("with", "without"),
    "net-start": ("items", "length", "container", "elsewhere"),
    "item-form": ("u32", "u16"),
    "file-prefix": ("library", "manual"),
}


def chosen_facts(choices: Sequence[str]) -> dict[str, str]:
    """Return an alternative of each fact: the likely one, or that of NAME=ALTERNATIVE. Raises DaemonError."""
    chosen = {name: alternatives[0] for name, alternatives in FACTS.items()}
    for text in choices:
        name, _, alternative = text.partition("=")
        if alternative not in FACTS.get(name, ()):
            allowed = "; ".join(f"{each}={'|'.join(FACTS[each])}" for each in FACTS)
            raise DaemonError(f"--fact {text}: there is no such alternative", hint=f"there are {allowed}")
        chosen[name] = alternative
    return chosen


@dataclass(frozen=True)
class SimulatedLayer:
    """Layer of a network; the outputs of a Split share its id and name (the-format.md 2.4)."""

    name: str
    type: str
    outputs: int = 1


@dataclass(frozen=True)
class FusedRun:
    """Consecutive layers that are fused, and leave one record.

    `time_us` is for one picture; 0 makes a record that the library drops. `counters` are fractions of the run's time,
    and for DDR bytes per microsecond. A batch layer runs once for all pictures of a batch (the-format.md 3.1).
    """

    layers: tuple[SimulatedLayer, ...]
    time_us: float
    is_batch: bool = False
    counters: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class UnitSegment:
    """Runs that one unit, `aicore` or `aicpu`, executes without a break, `loops` times."""

    unit: str
    runs: tuple[FusedRun, ...]
    loops: int = 1


@dataclass(frozen=True)
class CompiledModel:
    """Compiled model for `batch_num` pictures at a time, which is chosen at run time with `online_batch`."""

    name: str
    segments: tuple[UnitSegment, ...]
    batch_num: int = 1
    online_batch: bool = False

    def batch_sizes(self, pictures: int) -> tuple[int, ...]:
        """Return the pictures in each batch of one inference (the-format.md 3.1)."""
        full, rest = divmod(pictures, self.batch_num)
        return (self.batch_num,) * full + ((rest,) if rest else ())


def resized(network: CompiledModel, layers: int) -> CompiledModel:
    """Return the network with exactly `layers` aicore runs.

    With fewer it ends after these. With more its aicore runs are repeated, in order, in its last aicore segment, with
    the round's number appended to each name.
    """
    segments = list(network.segments)
    aicore = [number for number, segment in enumerate(segments) if segment.unit == AICORE]
    originals = [run for number in aicore for run in segments[number].runs]
    if layers < len(originals):
        shortened: list[UnitSegment] = []
        while layers:
            segment = segments[len(shortened)]
            first = replace(segment, runs=segment.runs[:layers]) if segment.unit == AICORE else segment
            layers -= len(first.runs) if segment.unit == AICORE else 0
            shortened.append(first)
        return replace(network, segments=tuple(shortened))
    again = (_renamed(run, number) for number in count(2) for run in originals)
    last = segments[aicore[-1]]
    segments[aicore[-1]] = replace(last, runs=(*last.runs, *islice(again, layers - len(originals))))
    return replace(network, segments=tuple(segments))


def _renamed(run: FusedRun, number: int) -> FusedRun:
    return replace(run, layers=tuple(replace(layer, name=f"{layer.name}_{number}") for layer in run.layers))


def run_order(is_batch: Sequence[bool], size: int) -> list[tuple[int, int]]:
    """Return the runs of a segment as a batch of `size` pictures executes them: (index, pictures it works on).

    Runs between batch layers are executed for each picture, a batch layer once (the-format.md 3.1).
    """
    order: list[tuple[int, int]] = []
    for batch, group in groupby(range(len(is_batch)), key=is_batch.__getitem__):
        members = [(index, size if batch else 1) for index in group]
        order += members if batch else members * size
    return order


# The files


def builtin_models() -> tuple[str, ...]:
    """Return the names of the built-in networks."""
    return tuple(sorted(path.stem for path in MODELS.glob("*.toml")))


def load_network(model: str) -> CompiledModel:
    """Return the built-in network of this name, or the network of this file. Raises DaemonError with file and key."""
    file = MODELS / f"{model}.toml" if model in builtin_models() else Path(model)
    if not file.exists():
        names = ", ".join(builtin_models())
        raise DaemonError(f"--model {model}: no such network or file", hint=f"built in are {names}")
    try:
        return _network(read_toml(file))
    except ValueError as error:
        raise DaemonError(f"{file}: {error}", hint=_HINT) from error


def read_toml(path: Path) -> dict[str, Any]:
    """Return the file's top table. Raises DaemonError when it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DaemonError(f"{path}: {error.strerror}", hint="give --model a name or a readable file") from error
    except (ValueError, RecursionError) as error:
        raise DaemonError(f"{path}: not a TOML file: {error}", hint=_HINT) from error


def _network(table: dict[str, Any]) -> CompiledModel:
    found = _checked(table, _NETWORK, "")
    counters = {name: _counters(values, f"counters.{name}.") for name, values in found["counters"].items()}
    segments = tuple(_segment(each, counters, f"segments[{at}].") for at, each in enumerate(found["segments"]))
    if all(segment.unit == AICPU for segment in segments):
        raise ValueError(f"segments: expected one or more with unit {AICORE!r}")
    return CompiledModel(found["name"].translate(_REPLACED), segments, found["batch_num"], found["online_batch"])


def _counters(table: dict[str, Any], path: str) -> Mapping[str, float]:
    found = _checked(table, _COUNTERS, path)
    for unit in ("mac", "vec"):
        if found[f"{unit}_ppen"] > found[f"{unit}_busy"]:
            raise ValueError(f"{path}{unit}_ppen: expected at most {unit}_busy")
    return {name.replace("_per_us", ""): value for name, value in found.items()}


def _segment(table: dict[str, Any], counters: Mapping[str, Mapping[str, float]], path: str) -> UnitSegment:
    found = _checked(table, _SEGMENT, path)
    runs = tuple(_run(each, counters, f"{path}runs[{at}].") for at, each in enumerate(found["runs"]))
    return UnitSegment(found["unit"], runs, found["loops"])


def _run(table: dict[str, Any], counters: Mapping[str, Mapping[str, float]], path: str) -> FusedRun:
    found = _checked(table, _RUN, path)
    parts = (text.split(":") for text in found["layers"])
    layers = tuple(SimulatedLayer(name, kind, *map(int, outputs)) for name, kind, *outputs in parts)
    return FusedRun(layers, found["time_us"], found["batch"], counters.get(layers[0].type, _counters({}, "")))


def _checked(table: dict[str, Any], rules: _Rules, path: str) -> dict[str, Any]:
    """Return the table's values, with defaults for absent ones. Raises ValueError that names the wrong key."""
    values = {key: table.get(key, usual) for key, (_, _, usual) in rules.items()}
    for key, (is_right, expected, _) in rules.items():
        if not is_right(values[key]):
            raise ValueError(f"{path}{key}: expected {expected}, found {table.get(key, 'nothing')!r}")
    for key in table.keys() - rules.keys():
        raise ValueError(f"{path}{key}: unknown key")
    return values


def _integer(highest: int) -> tuple[Callable[[Any], bool], str, int]:
    return lambda value: type(value) is int and 1 <= value <= highest, f"an integer from 1 to {highest}", 1


def _number(highest: float, usual: float | None) -> tuple[Callable[[Any], bool], str, float | None]:
    expected = f"a number from 0 to {highest:g}"
    return lambda value: type(value) in (int, float) and 0 <= value <= highest, expected, usual


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.encode("utf-8")) <= MAX_NAME_BYTES and value.isprintable()


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _are_layers(value: Any) -> bool:
    texts = value if isinstance(value, list) else ()
    return bool(texts) and all(isinstance(each, str) and _LAYER.fullmatch(each) for each in texts)


_FLAG = (lambda value: isinstance(value, bool), "true or false", False)
_NETWORK: _Rules = {
    "name": (_is_name, f"a printable name of at most {MAX_NAME_BYTES} bytes", None),
    "batch_num": _integer(MAX_BATCH),
    "online_batch": _FLAG,
    "counters": (lambda value: isinstance(value, dict) and _are_tables([{}, *value.values()]), "tables", {}),
    "segments": (_are_tables, "one or more tables", None),
}
_SEGMENT: _Rules = {
    "unit": ((AICORE, AICPU).__contains__, f"{AICORE!r} or {AICPU!r}", None),
    "runs": (_are_tables, "one or more tables", None),
    "loops": _integer(MAX_LOOPS),
}
_RUN: _Rules = {
    "layers": (_are_layers, "texts 'name:type' or 'name:type:outputs', each part short", None),
    "time_us": _number(MAX_TIME_US, None),
    "batch": _FLAG,
}
_COUNTERS: _Rules = {
    **dict.fromkeys(_FRACTIONS, _number(1.0, 0.0)),
    **dict.fromkeys(("ddr_read_bytes_per_us", "ddr_write_bytes_per_us"), _number(MAX_BYTES_PER_US, 0.0)),
}

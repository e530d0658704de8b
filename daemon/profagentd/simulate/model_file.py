"""Networks from TOML files: the built-in ones and a user's own (docs/reference/simulated-board.md)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from profagentd.errors import DaemonError
from profagentd.simulate.network import AICORE, AICPU, Layer, Network, Run, Segment, Table, read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping

MODELS = Path(__file__).with_name("models")

MAX_NAME_BYTES = 200
"""Longer model names make the library's file names fail (format page 2.1)."""
MAX_TIME_US = 10_000_000.0
MAX_BATCH = 1024
MAX_LOOPS = 1024
MAX_BYTES_PER_US = 100_000.0

_FRACTIONS = ("mac_busy", "mac_ppen", "vec_busy", "vec_ppen", "dstr", "dtrans", "dld", "wld")
_RATES = ("ddr_read_bytes", "ddr_write_bytes")
# Short enough for the TLV item's 8-bit length even as four bytes a letter and with a round's number behind it.
_LAYER = re.compile(r"(?P<name>[^:]{1,50}):(?P<type>[^:]{1,50})(?::(?P<outputs>[1-9][0-9]?))?")
# The library turns these into `_` in file names (format page 2.1).
_REPLACED = str.maketrans(" ./\\", "____")


def builtin_models() -> tuple[str, ...]:
    """Names of the networks that come with the simulated board."""
    return tuple(sorted(path.stem for path in MODELS.glob("*.toml")))


def load_network(model: str) -> Network:
    """The built-in network of this name, else the one in this file. DaemonError names the file and the key."""
    if model in builtin_models():
        return _network(MODELS / f"{model}.toml")
    if not Path(model).exists():
        names = ", ".join(builtin_models())
        raise DaemonError(f"--model {model}: no such network or file", hint=f"built in are {names}")
    return _network(Path(model))


def _network(file: Path) -> Network:
    top = Table(file, "", read_toml(file))
    name = _file_name(top, "name")
    batch_num = top.integer("batch_num", 1, 1, MAX_BATCH)
    online_batch = top.flag("online_batch")
    counters = {kind: _counters(table) for kind, table in top.named_tables("counters").items()}
    segments = tuple(_segment(table, counters) for table in top.tables("segments"))
    if all(segment.unit == AICPU for segment in segments):
        raise top.error("segments", f"one segment or more with unit {AICORE!r}")
    top.finish()
    return Network(name, segments, batch_num, online_batch)


def _file_name(table: Table, key: str) -> str:
    name = table.text(key)
    if len(name.encode("utf-8")) > MAX_NAME_BYTES or not name.isprintable():
        raise table.error(key, f"a printable name of at most {MAX_NAME_BYTES} bytes")
    return name.translate(_REPLACED)


def _counters(table: Table) -> Mapping[str, float]:
    values = {name: table.number(name, 0.0, 1.0) for name in _FRACTIONS}
    values.update({name: table.number(f"{name}_per_us", 0.0, MAX_BYTES_PER_US) for name in _RATES})
    table.finish()
    for unit in ("mac", "vec"):
        if values[f"{unit}_ppen"] > values[f"{unit}_busy"]:
            raise table.error(f"{unit}_ppen", f"at most {unit}_busy")
    return values


def _segment(table: Table, counters: dict[str, Mapping[str, float]]) -> Segment:
    unit = table.text("unit")
    if unit not in (AICORE, AICPU):
        raise table.error("unit", f"{AICORE!r} or {AICPU!r}")
    runs = tuple(_run(run, counters) for run in table.tables("runs"))
    loops = table.integer("loops", 1, 1, MAX_LOOPS)
    table.finish()
    return Segment(unit, runs, loops)


def _run(table: Table, counters: dict[str, Mapping[str, float]]) -> Run:
    layers = tuple(_layer(table, text) for text in table.texts("layers"))
    idle = dict.fromkeys(_FRACTIONS + _RATES, 0.0)
    run = Run(
        layers, table.number("time_us", None, MAX_TIME_US), table.flag("batch"), counters.get(layers[0].type, idle)
    )
    table.finish()
    return run


def _layer(table: Table, text: str) -> Layer:
    match = _LAYER.fullmatch(text)
    if match is None:
        raise table.error("layers", "texts 'name:type' or 'name:type:outputs', each part short")
    return Layer(match["name"], match["type"], int(match["outputs"] or 1))

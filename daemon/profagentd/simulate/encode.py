"""Bytes of an SS928 JOB's files, as the runtime library writes them (format page, sections 2 and 3). Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profagentd.simulate.network import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from profagentd.simulate.network import Layer, Network, Segment


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


def load_counters() -> tuple[Counter, ...]:
    """The counters of the package's own map."""
    tables = read_toml(MAP_FILE)["counters"]
    return tuple(
        Counter(name, table["offset"], _FORMATS[table["type"]], table["scale"], table["denominator"])
        for name, table in tables.items()
    )


def pack_words(counters: tuple[Counter, ...], values: Mapping[str, float], ticks: int, rest: bytes) -> bytes:
    """The hardware's bytes of one record: `rest` with each counter's nearest word that its type can hold over it."""
    words = bytearray(rest)
    per_value = {"ticks": ticks, "cycles": ticks * CYCLES_PER_TICK, "none": 1}
    for counter in counters:
        limit = 256 ** struct.calcsize(counter.form) - 1
        word = min(round(values[counter.name] * per_value[counter.denominator] / counter.scale), limit)
        struct.pack_into(counter.form, words, counter.offset - WORDS_OFFSET_BYTES, word)
    return bytes(words)


AICORE_BYTES = 256

API_LOAD, API_UNLOAD, API_EXECUTE, API_AICPU = 0, 1, 2, 5
"""API ids of acl_api records (format page 3.3)."""

_API_MAGIC = 0x5A5A

_U8, _U16, _BYTES8, BYTES16, BYTES32 = 0x2000, 0x4000, 0x8000, 0xA000, 0xC000
"""The encoding bits of a TLV tag (format page 2.4)."""

_FORMS = {_U8: "<HB", _U16: "<HH", _BYTES8: "<HB", BYTES16: "<HH", BYTES32: "<HI"}

# The library cuts net.info four bytes into the first container: its tag and its 16-bit length (format page 2.4).
_CUT_HEAD_BYTES = 4
# A text that began before the file, and a number: what some compilers put before the containers (format page 2.4).
_CUT_ITEM = b"nfo\0" + struct.pack("<HB", _U8 | 0x00B, 2)


def aicore_record(sequence: int, ticks: int, words: bytes, segment: int) -> bytes:
    """One 256-byte aicore record (format page 3.1); `words` are the hardware's bytes from 0x08 on."""
    return struct.pack("<II244sI", sequence, ticks, words, segment)


def aicpu_record(sequence: int, layer_us: tuple[int, int], segment_us: tuple[int, int], segment: int) -> bytes:
    """One 128-byte aicpu record (format page 3.2); times are (begin, end) in microseconds since the epoch."""
    return struct.pack("<I4xQQQQ84xI", sequence, *layer_us, *segment_us, segment)


def api_record(api: int, begin_us: int, end_us: int, pid: int, tid: int) -> bytes:
    """One 32-byte acl_api record (format page 3.3)."""
    return struct.pack("<IIQQII", _API_MAGIC, api, begin_us, end_us, pid, tid)


def info_json(frequency_mhz: int) -> bytes:
    """`info.json.<dev>`: the clock is a string, and no newline ends it (format page 2.2)."""
    return b'{"DeviceInfo": [{"aic_frequency": "%d"}]}' % frequency_mhz


def done(file_len: int, span_us: tuple[int, int], **more: int) -> bytes:
    """A `.done` (format page 2.2); `more` are further lines, after the times."""
    lines = {"file_len": file_len, "start_time": span_us[0], "end_time": span_us[1], **more}
    return "".join(f"{key}:{value}\n" for key, value in lines.items()).encode("ascii")


def online_batch_num(sizes: Sequence[int]) -> bytes:
    """The last line of an aicore `.done` whose batches were chosen at run time: it has no newline."""
    return b"online_batch_num:" + ",".join(map(str, sizes)).encode("ascii") if sizes else b""


def layer_info(network: Network, *, form: int = BYTES32, with_nul: bool = True) -> bytes:
    """`.layer.info`: a container for each output of each layer, back to back (format page 2.4).

    `form` is that of the containers' length; `with_nul` says whether a NUL ends each name, counted in its length.
    """
    layer_id = 0
    containers = []
    for number, segment in enumerate(network.segments):
        for profile_id, run in enumerate(segment.runs):
            for layer in run.layers:
                nul = b"\0" * with_nul
                numbers = (layer_id, profile_id, number, int(run.is_batch))
                items = [_layer(layer, numbers, output, nul) for output in range(layer.outputs)]
                containers += [_bytes(form, 0x111, each) for each in items]
                layer_id += 1
    return b"".join(containers)


def net_info(network: Network, start: str = "items") -> bytes:
    """`.net.info`: a container for each segment (format page 2.4).

    It starts four bytes into the first one, where that one's `items` are, or the rest of its 32-bit `length`; or with
    the whole `container`; or `elsewhere`, in the middle of another item.
    """
    nets = [_bytes(BYTES16, 0x040, _net(number, segment)) for number, segment in enumerate(network.segments)]
    if start == "length":
        nets[0] = _bytes(BYTES32, 0x040, _net(0, network.segments[0]))
    if start == "elsewhere":
        return _CUT_ITEM + b"".join(nets)
    return b"".join(nets)[0 if start == "container" else _CUT_HEAD_BYTES :]


def _layer(layer: Layer, numbers: tuple[int, int, int, int], output: int, nul: bytes) -> bytes:
    """One layer's items; `numbers` are layer id, prof_layer_id, segment, and 1 for a batch layer."""
    layer_id, profile_id, segment, is_batch = numbers
    items = (
        _number(_U16, 0x112, layer_id),
        _bytes(_BYTES8, 0x114, layer.name.encode() + nul),
        _number(_U8, 0x121, is_batch),
        _bytes(_BYTES8, 0x152, layer.type.encode() + nul),
        _number(_U16, 0x157, profile_id),
        _number(_U16, 0x14B, segment),
        _number(_U16, 0x15B, output),
    )
    return b"".join(items)


def _net(number: int, segment: Segment) -> bytes:
    layers = sum(layer.outputs for run in segment.runs for layer in run.layers)
    items = (
        _number(_U16, 0x041, number),
        _number(_U8, 0x042, 1),
        _number(_U16, 0x207, layers),
        _number(_U16, 0x20C, len(segment.runs)),
        _number(_U16, 0x20D, sum(run.is_batch for run in segment.runs)),
        _number(_U16, 0x20E, segment.loops),
    )
    return b"".join(items)


def _number(form: int, item_id: int, value: int) -> bytes:
    return struct.pack(_FORMS[form], form | item_id, value)


def _bytes(form: int, item_id: int, value: bytes) -> bytes:
    return struct.pack(_FORMS[form], form | item_id, len(value)) + value

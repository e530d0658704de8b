"""JOBs as the runtime writes them: one write after another, in its order (the-format.md 1), generated or recorded."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import strategies as st

from profagent.errors import FormatError
from profagent.formats.board_files import parse_done
from profagent.formats.names import LogName, joined_unit, parse_log_name, split_unit
from profagentd.simulate.npu import JobWriter
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job
from tests.encoders import aicore_record, aicpu_record, api_record, done_text, layer_item, net_item

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

JOBS = Path(__file__).parents[1] / "data" / "jobs"
INFO_JSON = "info.json.0"
START_US = 1_795_230_382_000_000
AICORE_BYTES, AICPU_BYTES, API_BYTES = 256, 128, 32
SHORT_BYTES = 64 * AICORE_BYTES
TICKS_PER_US = 7  # at 700 MHz
RECORD_BYTES = {"aicore": AICORE_BYTES, "aicpu": AICPU_BYTES}
# What a table says of each net of a generated model.
LAYERS = 4


class Write(NamedTuple):
    """One write of the program: bytes at a file's end, or a file anew."""

    path: str
    data: bytes
    is_append: bool

    def __repr__(self) -> str:
        return f"{'+' if self.is_append else '='}{self.path}[{len(self.data)}]"


CLOCK = Write(INFO_JSON, b'{"DeviceInfo": [{"aic_frequency": "700"}]}', is_append=False)


class WrittenJob(NamedTuple):
    """A name for people, and the writes in order.

    `has_lesser_loads`: of each inference a load leaves fewer records than the one before.
    """

    name: str
    writes: tuple[Write, ...]
    has_lesser_loads: bool = False

    def __repr__(self) -> str:
        return f"{self.name}{list(self.writes)}"

    @property
    def files(self) -> dict[str, bytes]:
        """The JOB in the end."""
        files: dict[str, bytes] = {}
        for path, data, is_append in self.writes:
            files[path] = files.get(path, b"") + data if is_append else data
        return files


# Generated JOBs


class _Clock:
    """Times that go on, and durations of which none comes twice."""

    def __init__(self) -> None:
        self.us = START_US
        self.records = 0
        self.left: dict[str, int] = {}  # by the path of data, how many records the latest load has left

    def ticks(self) -> int:
        self.records += 1
        return 1000 + 13 * self.records * self.records

    def span(self) -> tuple[int, int]:
        self.records += 1
        begin, self.us = self.us, self.us + 50 + 7 * self.records * self.records
        return begin, self.us


class _Model(NamedTuple):
    name: str
    model_id: int
    units: tuple[str, ...]  # of its nets
    distance: int  # pictures from one sample to the next
    has_tables: bool
    has_calls: bool

    @property
    def tables(self) -> list[Write]:
        layers = [
            layer_item(
                number, f"{self.name}{number}".encode() + b"\0", prof_layer_id=1 + number, segment=number // LAYERS
            )
            for number in range(LAYERS * len(self.units))
        ]
        nets = [net_item(net, prof_layers=LAYERS) for net in range(len(self.units))]
        stem = f"data/{self.name}.{self.model_id}"
        return [
            Write(f"{stem}.net.info", b"".join(nets), is_append=False),
            Write(f"{stem}.layer.info", b"".join(layers), is_append=False),
        ]

    def path(self, unit: str, pictures: int) -> str:
        return f"data/{unit}.0.{self.name}.3.{self.model_id}.1.1.{pictures}"


# How the last inference of a load ends: as it should, with a short read, or with its last segment lost.
_ENDS = st.sampled_from(["whole", "whole", "whole", "short", "undone"])


@st.composite
def _models(draw: st.DrawFn, number: int) -> _Model:
    units = st.lists(st.sampled_from(["aicore", "aicore", "aicpu"]), min_size=1, max_size=3)
    return _Model(
        "mn"[number],
        number,
        tuple(draw(units)),
        draw(st.sampled_from([1, 1, 4])),
        draw(st.integers(0, 3)) > 0,
        draw(st.booleans()),
    )


@st.composite
def _counts(draw: st.DrawFn, model: _Model, before: Mapping[str, int], loads_left: int) -> list[int]:
    """How many records each net leaves: in all fewer on each unit than the load `before`.

    So whoever has a `.done` and a part of the next load's data sees that they do not belong together.
    """
    counts: list[int] = []
    for net, unit in enumerate(model.units):
        others = [at for at, each in enumerate(model.units) if each == unit and at != net]
        least = (1 if others else 2) + (loads_left if all(at > net for at in others) else 0)
        used = sum(counts[at] for at in others if at < net)
        most = before.get(unit, 99) - 1 - used - sum(at > net for at in others)
        counts.append(draw(st.integers(least, max(least, min(LAYERS, most)))))
    return counts


@st.composite
def _inference(draw: st.DrawFn, model: _Model, pictures: int, clock: _Clock, end: str, loads_left: int) -> list[Write]:
    """Some records of each net.

    Each unit's first record shows that another inference begins: its number, or its net's, is below the last one's.
    """
    records = {unit: clock.left[path] for unit in model.units if (path := model.path(unit, pictures)) in clock.left}
    counts = draw(_counts(model, records, loads_left))
    numbers = [[*range(count - 1), draw(st.integers(count - 1, LAYERS - 1))] for count in counts]
    return _written(model, pictures, clock, numbers, end)


def _written(model: _Model, pictures: int, clock: _Clock, nets: Sequence[Sequence[int]], end: str) -> list[Write]:
    """Segments in turn, each net's records by their numbers, then the `.done` of each unit."""
    writes: list[Write] = []
    lengths: dict[str, int] = {}
    spans: dict[str, tuple[int, int]] = {}
    for net, (unit, numbers) in enumerate(zip(model.units, nets, strict=True)):
        begin_us = clock.us
        if unit == "aicore":
            ticks = [clock.ticks() for _ in numbers]
            data = b"".join(aicore_record(number, each, net) for number, each in zip(numbers, ticks, strict=True))
            clock.us += sum(ticks) // TICKS_PER_US + 1
        else:
            spans_us = [clock.span() for _ in numbers]
            of_segment = (begin_us, clock.us)
            timed = zip(numbers, spans_us, strict=True)
            data = b"".join(aicpu_record(number, *span, of_segment, net) for number, span in timed)
        writes.append(Write(model.path(unit, pictures), data, is_append=True))
        lengths[unit] = lengths.get(unit, 0) + len(data)
        spans[unit] = (spans.get(unit, (begin_us, 0))[0], clock.us)
        clock.left[model.path(unit, pictures)] = lengths[unit] // RECORD_BYTES[unit]
    if end == "undone":
        return writes
    for unit in sorted(lengths):
        # More than the file has: of one that could be that of several loads nobody knows that it is not.
        announced = lengths[unit] + (SHORT_BYTES if end == "short" else 0)
        start_us, end_us = spans[unit]
        cache_counters = {"cache_hit": 3, "cache_mis": 1} if unit == "aicore" else {}
        text = done_text(file_len=announced, start_time=start_us, end_time=end_us, **cache_counters)
        writes.append(Write(model.path(unit, pictures) + ".done", text, is_append=False))
    return writes


def loaded_again(
    units: Sequence[str], *loads: Sequence[int], is_undone: bool = False, has_lesser_loads: bool = True
) -> WrittenJob:
    """One inference of each load, with so many records of each net; the last one may have no `.done`."""
    model, clock = _Model("m", 0, tuple(units), 1, has_tables=True, has_calls=False), _Clock()
    writes = [CLOCK]
    for number, counts in enumerate(loads, 1):
        end = "undone" if is_undone and number == len(loads) else "whole"
        writes += [*model.tables, *_written(model, 0, clock, [range(count) for count in counts], end)]
    return WrittenJob(f"{len(loads)} loads", tuple(writes), has_lesser_loads=has_lesser_loads)


@st.composite
def _loaded(draw: st.DrawFn, model: _Model, clock: _Clock) -> list[Write]:
    """All that a model writes: it is loaded, runs, is unloaded, and that again."""
    writes: list[Write] = []
    calls, called = f"data/acl_api.0.{model.name}.{model.model_id}", 0
    loads = draw(st.sampled_from([1, 1, 2, 3]))
    for load in range(loads):
        writes += model.tables if model.has_tables else []
        inferences = draw(st.integers(1, 3))
        for number in range(inferences):
            is_last = load == loads - 1 and number == inferences - 1
            end = draw(_ENDS) if is_last else "whole"
            if model.has_calls:
                writes.append(Write(calls, api_record(2, clock.us - 9, clock.us), is_append=True))
                called += API_BYTES
            writes += draw(_inference(model, number * model.distance, clock, end, loads - 1 - load))
        if model.has_calls:
            writes.append(Write(calls, api_record(1, clock.us, clock.us + 1), is_append=True))
            called += API_BYTES
            text = done_text(file_len=called, start_time=START_US, end_time=clock.us + 1, pid=7, tid=8)
            writes.append(Write(calls + ".done", text, is_append=False))
            called = 0
    return writes


@st.composite
def generated(draw: st.DrawFn) -> WrittenJob:
    """One or two models, side by side; the clock's file first, late, or never."""
    clock = _Clock()
    each = [draw(_loaded(draw(_models(number)), clock)) for number in range(draw(st.sampled_from([1, 1, 2])))]
    writes: list[Write] = []
    while any(each):
        writers = [one for one in each if one]
        chosen = writers[0] if len(writers) == 1 else writers[draw(st.integers(0, 1))]
        count = len(chosen) if len(writers) == 1 else draw(st.integers(1, len(chosen)))
        writes += chosen[:count]
        del chosen[:count]
    place = draw(st.sampled_from([0, 0, 0, len(writes), -1])) if draw(st.booleans()) else 0
    if place >= 0:
        writes.insert(place, CLOCK)
    return WrittenJob("generated", tuple(writes), has_lesser_loads=True)


# JOBs that the simulated board writes

_NETWORK = """
name = "s"
[[segments]]
unit = "aicore"
runs = [{ time_us = 10.0, layers = ["a:Convolution"] }, { time_us = 40.0, layers = ["b:Convolution"] }]
[[segments]]
unit = "aicpu"
runs = [{ time_us = 30.0, layers = ["one:Resize"] }, { time_us = 70.0, layers = ["two:Custom"] }]
[[segments]]
unit = "aicore"
runs = [{ time_us = 200.0, layers = ["last:Convolution"] }]
"""


@cache
def simulated(
    loads: int = 1, interval: int = 1, pictures: int = 1, inferences: int = 3, model: str | None = None
) -> WrittenJob:
    """What the simulated board writes; `model` None is a small one with layers on the CPU."""
    writes: list[Write] = []

    def write(writer: JobWriter, path: str, flags: int, content: bytes) -> None:
        name = str(Path(path).relative_to(writer.directory))
        writes.append(Write(name, content, is_append=bool(flags & os.O_APPEND)))

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        network = Path(folder) / "s.toml"
        network.write_text(_NETWORK, "utf-8")
        patch.setattr(JobWriter, "_write", write)
        options = SimulationOptions(model=model or str(network), interval=interval, pictures=pictures, seed=loads)
        write_job(Path(folder), options, inferences, loads=loads)
    return WrittenJob(f"simulated({loads}, {interval}, {pictures})", tuple(writes))


# JOBs that the runtime wrote: in which order it must have been


@cache
def recorded() -> dict[str, WrittenJob]:
    """The recorded JOBs by the names of their folders."""
    found = {}
    for directory in sorted(JOBS.rglob("JOB" + "?" * 29)):
        files = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
        name = directory.parent.name if directory.parent != JOBS else "small"
        found[name] = WrittenJob(name, tuple(_in_order(files)))
    return found


def _in_order(files: dict[str, bytes]) -> list[Write]:
    named = {path: parse_log_name(path) for path in files}
    calls = [path for path, name in named.items() if name is not None and name.is_data and name.inference is None]
    half = {path: len(files[path]) // API_BYTES // 2 * API_BYTES for path in calls}
    dones = [path + ".done" for path in calls if path + ".done" in files]
    data = {path for path, name in named.items() if name is not None and name.inference and name.kind != "cont"}
    # Tables and what is no file of the runtime come first.
    writes = [Write(path, files[path], is_append=False) for path in sorted({*files} - {*calls, *dones} - data)]
    writes += [Write(path, files[path][: half[path]], is_append=True) for path in calls if half[path]]
    for load, _, aicore in sorted({each for path in data for each in _inferences(files, path)}):
        writes += _of_inference(files, aicore, load)
    writes += [Write(path, files[path][half[path] :], is_append=True) for path in calls]
    return [*writes, *(Write(path, files[path], is_append=False) for path in dones)]


def _inferences(files: dict[str, bytes], path: str) -> list[tuple[int, int, str]]:
    """The inferences of a file: load, picture count, and the path of the data on the NPU."""
    name = parse_log_name(path)
    assert name is not None, "it is named as data"
    data = path.removesuffix(".done")
    aicore = data if name.kind == "aicore" else _beside(data)
    count = max(len(_loads(files, each)) for each in (aicore, _beside(aicore)))
    return [(load, name.current_pic_count or 0, aicore) for load in range(count)]


def _beside(path: str) -> str:
    """The same inference's data on the other unit."""
    spelling, rest = split_unit(path)
    other = spelling[:2] + ("cpu" if spelling.lower().endswith("core") else "core")
    return joined_unit(other.upper() if spelling.isupper() else other, rest)


def _loads(files: dict[str, bytes], path: str) -> list[bytes]:
    """The bytes that each load of the model has left in a file: the `.done` tells those of the last."""
    data, done = files.get(path), files.get(path + ".done")
    if data is None:
        return [] if done is None else [b""]
    name = parse_log_name(path + ".done")
    assert name is not None, "it is named as data"
    try:
        length = len(data) if done is None else parse_done(done, name.kind, path).file_len
    except FormatError:
        length = len(data)
    return [data[:-length], data[-length:]] if 0 < length < len(data) else [data]


def _of_inference(files: dict[str, bytes], aicore: str, load: int) -> list[Write]:
    """Segments by the number of their net, then the `.done`s; of an earlier load, one that says what it must have."""
    segments: list[tuple[int, str, bytes]] = []
    dones: list[Write] = []
    for path, size, net_at in ((aicore, AICORE_BYTES, 0xFC), (_beside(aicore), AICPU_BYTES, 0x7C)):
        loads = _loads(files, path)
        if load >= len(loads):
            continue
        data = loads[load]
        if path in files:
            segments += [(net, path, piece) for net, piece in _segments(data, size, net_at)] or [(0, path, b"")]
        if path + ".done" in files:
            is_last = load == len(loads) - 1
            earlier = _earlier_done(parse_log_name(path), len(data), load)
            dones.append(Write(path + ".done", files[path + ".done"] if is_last else earlier, is_append=False))
    segments.sort(key=lambda each: each[0])
    return [*(Write(path, data, is_append=True) for _, path, data in segments), *dones]


def _segments(data: bytes, size: int, net_at: int) -> list[tuple[int, bytes]]:
    """Bytes of consecutive records of one net, with its number."""
    places = [*range(0, len(data), size), len(data)]
    pieces = [data[at:until] for at, until in pairwise(places)]
    found: list[tuple[int, bytes]] = []
    for piece in pieces:
        net = int.from_bytes(piece[net_at : net_at + 4], "little") if len(piece) == size else found[-1][0]
        if found and found[-1][0] == net:
            found[-1] = (net, found[-1][1] + piece)
        else:
            found.append((net, piece))
    return found


def _earlier_done(name: LogName | None, length: int, load: int) -> bytes:
    assert name is not None, "only data is split by loads"
    counters = {"cache_hit": 2, "cache_mis": 1} if name.kind == "aicore" else {}
    start_us = START_US + load
    return done_text(file_len=length, start_time=start_us, end_time=start_us + 100, **counters)


def jobs() -> st.SearchStrategy[WrittenJob]:
    """Any of them."""
    by_simulation = st.builds(
        simulated, st.sampled_from([1, 2, 3]), st.sampled_from([0, 1, 2]), st.sampled_from([1, 2])
    )
    by_runtime = st.sampled_from(sorted(recorded())).map(lambda name: recorded()[name])
    return st.one_of(generated(), generated(), generated(), by_simulation, by_runtime)

"""A trace in the Trace Event Format (JSON), in files of a bounded size.

Texts that events have in common are made once; what differs is numbers, of which msgspec writes a column at a time.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from profagent.export.blocks import FLOW, NO_ARGS, NS_PER_US, Instants, Slices, woven
from profagent.files import written_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from profagent.export.blocks import Block, Counters, Label, Values
    from profagent.export.tracks import Tracks

LARGEST_PART_BYTES = 100_000_000
SEPARATOR = b",\n"
_encode = msgspec.json.Encoder().encode


class JsonTrace:
    """A trace that is cut into files of at most so many bytes; each can be opened by itself, and says what follows."""

    def __init__(
        self, file: Path, tracks: Tracks, metadata: dict[str, Any], largest_bytes: int = LARGEST_PART_BYTES
    ) -> None:
        self.files: list[Path] = []
        self._file, self._tracks, self._largest = file, tracks, largest_bytes
        self._metadata = metadata
        self._opened = ExitStack()
        self._named: set[tuple[int, int]] = set()
        self._size = 0

    def __enter__(self) -> Self:
        """Begin the first part."""
        self._begin_part()
        return self

    def __exit__(self, *error: object) -> None:
        """On an error, nothing of the part that is being written stays."""
        self._opened.__exit__(*error)  # type: ignore[arg-type]

    def write(self, block: Block) -> int:
        """Write events, behind the names of their processes and tracks in this part; how many."""
        data = _events(block, self._tracks)
        if self._size + len(data) <= self._largest or not (self._named or block.size > 1):
            self._put(self._names(block) + data)
        elif block.size > 1:
            middle = block.size // 2
            self.write(block.part(0, middle))
            self.write(block.part(middle, block.size))
        else:
            self._end_part(self._path(len(self.files) + 1).name)
            self._begin_part()
            self.write(block)
        return block.events

    def end(self, metadata: dict[str, Any]) -> None:
        """End the last part."""
        self._metadata = metadata
        self._end_part(None)

    def _names(self, block: Block) -> bytes:
        """Names of processes and tracks that this part does not have yet."""
        new = sorted(_places(block, self._tracks) - self._named)
        self._named.update(new)
        return b"".join(_name(self._tracks, *place) for place in new)

    def _path(self, number: int) -> Path:
        return self._file if number == 1 else self._file.with_suffix(f".{number}{self._file.suffix}")

    def _begin_part(self) -> None:
        path = self._path(len(self.files) + 1)
        self.files.append(path)
        self._out = self._opened.enter_context(written_atomically(path))
        self._named = set()
        self._before = b"\n"
        self._size = self._out.write(b'{"traceEvents":[')

    def _put(self, events: bytes) -> None:
        self._size += self._out.write(self._before + events.removesuffix(SEPARATOR))
        self._before = SEPARATOR

    def _end_part(self, goes_on_in: str | None) -> None:
        told = {**self._metadata, "part": len(self.files), "goes_on_in": goes_on_in}
        self._out.write(b'\n],"displayTimeUnit":"ms","metadata":' + _encode(told) + b"}\n")
        self._opened.close()


def _places(block: Block, tracks: Tracks) -> set[tuple[int, int]]:
    """Processes (with 0) and tracks of a block."""
    if isinstance(block, Slices | Instants):
        numbers = np.unique(block.track).tolist()
        found = {(tracks.pids[number], number) for number in numbers}
    else:
        found = {(series[0].pid, 0) for series in block.series}
    return found | {(pid, 0) for pid, _ in found}


def _name(tracks: Tracks, pid: int, track: int) -> bytes:
    what, name = ("thread_name", tracks.names[track]) if track else ("process_name", tracks.process_names[pid])
    tid = {"tid": track} if track else {}
    return _encode({"ph": "M", "name": what, "pid": pid, **tid, "args": {"name": name}}) + SEPARATOR


def _events(block: Block, tracks: Tracks) -> bytes:
    if isinstance(block, Slices):
        return _slices(block, tracks)
    return _instants(block, tracks) if isinstance(block, Instants) else _counters(block)


def _slices(block: Slices, tracks: Tracks) -> bytes:
    heads, tails = _by_label(block, tracks, "X")
    for flow in block.flows:
        track = int(block.track[flow.place])
        at = int(block.start_ns[flow.place]) / NS_PER_US
        event = {"ph": flow.kind, "name": FLOW, "pid": tracks.pids[track], "tid": track, "ts": at, "cat": FLOW}
        tails[flow.place] += _encode({**event, "id": flow.number, "bp": "e"}) + SEPARATOR
    starts = _microseconds(block.start_ns)
    durations = _microseconds(block.end_ns - block.start_ns)
    columns = [heads, starts, [b',"dur":'] * block.size, durations, tails]
    if block.values is not None:
        columns += _changes(block.values, starts)
    return woven(columns)


def _changes(values: Values, starts: Sequence[bytes]) -> list[list[bytes]]:
    """The counters of slices: the pieces of an event for each that has some, else nothing."""
    head = _encode({"ph": "C", "name": values.title, "pid": values.pid})[:-1] + b',"ts":'
    args: list[bytes | None] = [None] * len(starts)
    is_there = np.invert(np.isnan(values.values))
    # Which of the counters there are is nearly always the same in all that have some.
    kinds, kind = np.unique(is_there @ (1 << np.arange(len(values.names))), return_inverse=True)
    for place, bits in enumerate(kinds.tolist()):
        there = [at for at in range(len(values.names)) if bits >> at & 1]
        if there:
            rows = (kind == place).nonzero()[0]
            made = _args_type(tuple(values.names[at] for at in there))
            objects = [made(*row) for row in values.values[np.ix_(rows, there)].tolist()]
            for row, text in zip(rows.tolist(), _encode(objects)[2:-2].split(b"},{"), strict=True):
                args[row] = text
    there_are = [text is not None for text in args]
    return [
        [head if one else b"" for one in there_are],
        [at if one else b"" for at, one in zip(starts, there_are, strict=True)],
        [b',"args":{' if one else b"" for one in there_are],
        [text or b"" for text in args],
        [b"}}" + SEPARATOR if one else b"" for one in there_are],
    ]


@lru_cache
def _args_type(names: tuple[str, ...]) -> type[msgspec.Struct]:
    return msgspec.defstruct("Args", [(name, float) for name in names])


def _instants(block: Instants, tracks: Tracks) -> bytes:
    heads, tails = _by_label(block, tracks, "i", f',"s":"{block.scope}"'.encode())
    return woven([heads, _microseconds(block.at_ns), tails])


def _counters(block: Counters) -> bytes:
    heads = [
        _encode({"ph": "C", "name": series[0].shown, "pid": series[0].pid})[:-1] + b',"ts":' for series in block.series
    ]
    columns: list[Sequence[bytes]] = [_picked(heads, block.kind), _microseconds(block.at_ns)]
    texts = _numbers(block.values.ravel().tolist())
    width = block.values.shape[1]
    for at in range(width):
        opening = b"," if at else b',"args":{'
        names = [opening + _encode(series[at].name) + b":" for series in block.series]
        columns += [_picked(names, block.kind), texts[at::width]]
    return woven([*columns, [b"}}" + SEPARATOR] * block.size])


def _by_label(
    block: Slices | Instants, tracks: Tracks, phase: str, more: bytes = b""
) -> tuple[list[bytes], list[bytes]]:
    """What stands before and behind the numbers of each event: made once for each label and track."""
    pairs, place = np.unique(block.track * len(block.labels) + block.label, return_inverse=True)
    found = [(block.labels[pair % len(block.labels)], pair // len(block.labels)) for pair in pairs.tolist()]
    heads = [
        _encode({"ph": phase, "name": label.name, "pid": tracks.pids[track], "tid": track})[:-1] + b',"ts":'
        for label, track in found
    ]
    tails = [_tail(label, more) for label, _ in found]
    return _picked(heads, place), _picked(tails, place)


def _tail(label: Label, more: bytes) -> bytes:
    args = b"" if label.args == NO_ARGS else b',"args":' + label.args.encode()
    return b',"cat":' + _encode(label.category) + more + args + b"}" + SEPARATOR


def _picked(texts: Sequence[bytes], places: NDArray[np.int64]) -> list[bytes]:
    return np.array(texts, object)[places].tolist()  # type: ignore[no-any-return]


def _microseconds(ns: NDArray[np.int64]) -> list[bytes]:
    return _numbers((ns / NS_PER_US).tolist())


def _numbers(values: list[float]) -> list[bytes]:
    return _encode(values)[1:-1].split(b",")

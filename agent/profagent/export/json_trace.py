"""Writer of the Trace Event Format (JSON), in files of a bounded size.

`map` makes events from columns, and msgspec encodes all events of a block at once: no step runs Python code for an
event.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import lru_cache
from itertools import count, repeat, starmap
from os import SEEK_END
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from profagent.export.blocks import FLOW, NO_ARGS, Instants, Slices
from profagent.files import written_atomically
from profagent.limits import LARGEST_PART_BYTES
from profagent.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from profagent.export.blocks import Block, Counters, Flow, Label, Values
    from profagent.export.tracks import Tracks

BEGINNING = b'{"traceEvents":['
SEPARATOR = b",\n"
_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines
_Args = msgspec.Raw | msgspec.UnsetType


class _OnTrack(msgspec.Struct, tag_field="ph", gc=False):
    name: str
    pid: int
    tid: int
    ts: float


class _Slice(_OnTrack, tag="X", gc=False):
    dur: float
    cat: str
    args: _Args = msgspec.UNSET


class _InstantEvent(_OnTrack, tag="i", gc=False):
    cat: str
    s: str
    args: _Args = msgspec.UNSET


class _CounterChange(msgspec.Struct, tag_field="ph", tag="C", gc=False):
    name: str
    pid: int
    ts: float
    args: Any


class JsonTrace:
    """Trace in files of at most `largest_bytes` bytes; each file can be opened by itself, and names the next one."""

    def __init__(
        self, file: Path, tracks: Tracks, metadata: dict[str, Any], largest_bytes: int = LARGEST_PART_BYTES
    ) -> None:
        # Parts that were begun; the last one is open until `end`.
        self.files: list[Path] = []
        self._file, self._tracks, self._largest = file, tracks, largest_bytes
        self._metadata = metadata
        # Owner of the open part, which is renamed into place when the stack is closed.
        self._opened = ExitStack()
        # Processes and tracks whose names the open part has already.
        self._named: set[tuple[int, int]] = set()
        # Bytes written to the open part.
        self._size = 0

    def __enter__(self) -> Self:
        """Begin the first part."""
        self._begin_part()
        return self

    def __exit__(self, *error: object) -> None:
        """Close the open part; on an error, remove all parts."""
        if error[0]:
            for file in self.files[:-1]:
                file.unlink(missing_ok=True)
        self._opened.__exit__(*error)  # type: ignore[arg-type]

    def write(self, block: Block) -> int:
        """Write a block after the names of its processes and tracks; return the number of events.

        A block that is larger than the rest of the part is halved; one event always fits into an empty part.
        """
        data = _events(block, self._tracks)
        if self._size + len(data) <= self._largest or not (self._named or block.size > 1):
            self._put(self._new_names(block) + data)
        elif block.size > 1:
            # A block does not fit, but its halves may.
            middle = block.size // 2
            self.write(block.part(0, middle))
            self.write(block.part(middle, block.size))
        else:
            # A part that was renamed into place is not touched again, so its end must name its successor now.
            self._end_part(self._path(len(self.files) + 1).name)
            self._begin_part()
            self.write(block)
        return block.events

    def end(self, metadata: dict[str, Any]) -> None:
        """End the last part with the final metadata."""
        self._metadata = metadata
        self._end_part(None)
        # Parts of an earlier, longer trace of this name would be mistaken for parts of this one.
        for number in count(len(self.files) + 1):
            path = self._path(number)
            if not _is_part(path, number):
                return
            path.unlink()

    def _new_names(self, block: Block) -> bytes:
        new = sorted(_places(block, self._tracks) - self._named)
        self._named.update(new)
        return b"".join(_name_events(self._tracks, *place) for place in new)

    def _path(self, number: int) -> Path:
        return self._file if number == 1 else self._file.with_suffix(f".{number}{self._file.suffix}")

    def _begin_part(self) -> None:
        path = self._path(len(self.files) + 1)
        self.files.append(path)
        self._out = self._opened.enter_context(written_atomically(path))
        self._named = set()
        self._before = b"\n"
        self._size = self._out.write(BEGINNING)

    def _put(self, events: bytes) -> None:
        self._size += self._out.write(self._before) + self._out.write(memoryview(events)[: -len(SEPARATOR)])
        self._before = SEPARATOR

    def _end_part(self, goes_on_in: str | None) -> None:
        # The part number is the last key, because `_is_part` looks at the end of the file.
        metadata = {**self._metadata, "goes_on_in": goes_on_in, "part": len(self.files)}
        self._out.write(b'\n],"displayTimeUnit":"ms","metadata":' + _encode(metadata) + b"}\n")
        self._opened.close()


def _is_part(path: Path, number: int) -> bool:
    ending = b',"part":%d}}\n' % number
    if not path.is_file() or path.stat().st_size < len(ending):
        return False
    with path.open("rb") as file:
        file.seek(-len(ending), SEEK_END)
        return file.read() == ending


def _places(block: Block, tracks: Tracks) -> set[tuple[int, int]]:
    if isinstance(block, Slices | Instants):
        numbers = np.unique(block.track).tolist()
        found = {(tracks.pids[number], number) for number in numbers}
    else:
        found = {(series[0].pid, 0) for series in block.series}
    return found | {(pid, 0) for pid, _ in found}


def _name_events(tracks: Tracks, pid: int, track: int) -> bytes:
    if track:
        return _metadata("thread_name", pid, {"name": tracks.names[track]}, tid=track)
    # Viewers sort processes by name, unless a sort index gives their order.
    named = _metadata("process_name", pid, {"name": tracks.process_names[pid]})
    return named + _metadata("process_sort_index", pid, {"sort_index": pid})


def _metadata(name: str, pid: int, args: Mapping[str, object], **tid: int) -> bytes:
    return _encode({"ph": "M", "name": name, "pid": pid, **tid, "args": args}) + SEPARATOR


def _events(block: Block, tracks: Tracks) -> bytes:
    if isinstance(block, Slices):
        return _slices(block, tracks)
    return _instants(block, tracks) if isinstance(block, Instants) else _counters(block)


def _slices(block: Slices, tracks: Tracks) -> bytes:
    starts, durations = _microseconds(block.start_ns), _microseconds(block.end_ns - block.start_ns)
    names, pids, categories, args = _of_labels(block, tracks)
    events: list[Any] = [*map(_Slice, names, pids, block.track.tolist(), starts, durations, categories, args)]
    if block.values is None and not block.flows:
        return _lines(events)
    rows, changes = ([], []) if block.values is None else _changes(block.values, starts)
    arrows = [_arrow(flow, events[flow.place]) for flow in block.flows]
    # Each slice is followed by its arrows, then by the counters that it changes.
    places = range(block.size), [flow.place for flow in block.flows], rows
    order = np.concatenate([np.array(each, np.int64) * 3 + rank for rank, each in enumerate(places)]).argsort()
    events += arrows + changes
    return _lines(np.fromiter(events, object, len(events))[order].tolist())


def _arrow(flow: Flow, at: _Slice) -> dict[str, Any]:
    event = {"ph": flow.kind, "name": FLOW, "pid": at.pid, "tid": at.tid, "ts": at.ts, "cat": FLOW}
    return {**event, "id": flow.number, "bp": "e"}


def _changes(values: Values, starts: Sequence[float]) -> tuple[list[int], list[Any]]:
    found: list[int] = []
    changes: list[Any] = []
    is_there = np.invert(np.isnan(values.values))
    # Nearly all slices with counters have the same set of them: each set gets one class of arguments.
    kinds, kind = np.unique(is_there @ (1 << np.arange(len(values.names))), return_inverse=True)
    for place, bits in enumerate(kinds.tolist()):
        there = [at for at in range(len(values.names)) if bits >> at & 1]
        if there:
            rows = (kind == place).nonzero()[0].tolist()
            made = _args_type(tuple(values.names[at] for at in there))
            args = starmap(made, values.values[np.ix_(rows, there)].tolist())
            found += rows
            changes += map(
                _CounterChange, repeat(values.title), repeat(values.pid), map(starts.__getitem__, rows), args
            )
    return found, changes


@lru_cache
def _args_type(names: tuple[str, ...]) -> type[msgspec.Struct]:
    return msgspec.defstruct("Args", [(name, float) for name in names], gc=False)


def _instants(block: Instants, tracks: Tracks) -> bytes:
    names, pids, categories, args = _of_labels(block, tracks)
    scopes = repeat(block.scope)
    at = _microseconds(block.at_ns)
    return _lines([*map(_InstantEvent, names, pids, block.track.tolist(), at, categories, scopes, args)])


def _counters(block: Counters) -> bytes:
    series = [block.series[kind] for kind in block.kind.tolist()]
    columns = zip(series, _microseconds(block.at_ns), block.values.tolist(), strict=True)
    return _lines(
        [
            _CounterChange(
                each[0].shown, each[0].pid, at, {one.name: value for one, value in zip(each, row, strict=True)}
            )
            for each, at, row in columns
        ]
    )


def _of_labels(block: Slices | Instants, tracks: Tracks) -> tuple[list[Any], ...]:
    columns = zip(*((label.name, label.category, _args(label)) for label in block.labels), strict=True)
    names, categories, args = (_picked(column, block.label) for column in columns)
    return names, _picked(tracks.pids, block.track), categories, args


def _args(label: Label) -> _Args:
    # Another tool may have written its arguments in several lines, but `_lines` needs each event in one.
    return msgspec.UNSET if label.args == NO_ARGS else msgspec.Raw(label.args.replace("\n", " ").encode())


def _picked(values: Sequence[Any], places: NDArray[np.int64]) -> list[Any]:
    return np.fromiter(values, object, len(values))[places].tolist()  # type: ignore[no-any-return]


def _microseconds(ns: NDArray[np.int64]) -> list[float]:
    return (ns / NS_PER_US).tolist()  # type: ignore[no-any-return]


def _lines(events: Sequence[Any]) -> bytes:
    # JSON escapes the line feeds within texts, so each bare line feed ends an event.
    return _encode_lines(events).replace(b"\n", SEPARATOR)

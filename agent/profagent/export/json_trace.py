"""A trace in the Trace Event Format (JSON), in files of a bounded size.

Events are made from columns by `map`, and msgspec writes those of a block at once: no step of it is Python's own.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import lru_cache
from itertools import count, repeat, starmap
from os import SEEK_END
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from profagent.export.blocks import FLOW, NO_ARGS, NS_PER_US, Instants, Slices
from profagent.files import written_atomically
from profagent.limits import LARGEST_PART_BYTES

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


class _Instant(_OnTrack, tag="i", gc=False):
    cat: str
    s: str
    args: _Args = msgspec.UNSET


class _Change(msgspec.Struct, tag_field="ph", tag="C", gc=False):
    name: str
    pid: int
    ts: float
    args: Any


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
        """On an error, nothing of it stays."""
        if error[0]:
            for file in self.files[:-1]:
                file.unlink(missing_ok=True)
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
        # What a longer trace of this name left would be taken for parts of this one.
        for number in count(len(self.files) + 1):
            path = self._path(number)
            if not _is_part(path, number):
                return
            path.unlink()

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
        self._size = self._out.write(BEGINNING)

    def _put(self, events: bytes) -> None:
        self._size += self._out.write(self._before) + self._out.write(memoryview(events)[: -len(SEPARATOR)])
        self._before = SEPARATOR

    def _end_part(self, goes_on_in: str | None) -> None:
        # `_is_part` looks at the end.
        told = {**self._metadata, "goes_on_in": goes_on_in, "part": len(self.files)}
        self._out.write(b'\n],"displayTimeUnit":"ms","metadata":' + _encode(told) + b"}\n")
        self._opened.close()


def _is_part(path: Path, number: int) -> bool:
    ending = b',"part":%d}}\n' % number
    if not path.is_file() or path.stat().st_size < len(ending):
        return False
    with path.open("rb") as file:
        file.seek(-len(ending), SEEK_END)
        return file.read() == ending


def _places(block: Block, tracks: Tracks) -> set[tuple[int, int]]:
    """Processes (with 0) and tracks of a block."""
    if isinstance(block, Slices | Instants):
        numbers = np.unique(block.track).tolist()
        found = {(tracks.pids[number], number) for number in numbers}
    else:
        found = {(series[0].pid, 0) for series in block.series}
    return found | {(pid, 0) for pid, _ in found}


def _name(tracks: Tracks, pid: int, track: int) -> bytes:
    """Metadata events: of a process its place as well, for viewers sort processes by name."""
    if track:
        return _metadata("thread_name", pid, {"name": tracks.names[track]}, tid=track)
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
    # Behind each slice come its arrows, then the counters that it changes.
    places = range(block.size), [flow.place for flow in block.flows], rows
    order = np.concatenate([np.array(each, np.int64) * 3 + rank for rank, each in enumerate(places)]).argsort()
    events += arrows + changes
    return _lines(np.fromiter(events, object, len(events))[order].tolist())


def _arrow(flow: Flow, at: _Slice) -> dict[str, Any]:
    event = {"ph": flow.kind, "name": FLOW, "pid": at.pid, "tid": at.tid, "ts": at.ts, "cat": FLOW}
    return {**event, "id": flow.number, "bp": "e"}


def _changes(values: Values, starts: Sequence[float]) -> tuple[list[int], list[Any]]:
    """The slices that have counters, and these as an event for each."""
    found: list[int] = []
    changes: list[Any] = []
    is_there = np.invert(np.isnan(values.values))
    # Which of the counters there are is nearly always the same in all that have some.
    kinds, kind = np.unique(is_there @ (1 << np.arange(len(values.names))), return_inverse=True)
    for place, bits in enumerate(kinds.tolist()):
        there = [at for at in range(len(values.names)) if bits >> at & 1]
        if there:
            rows = (kind == place).nonzero()[0].tolist()
            made = _args_type(tuple(values.names[at] for at in there))
            args = starmap(made, values.values[np.ix_(rows, there)].tolist())
            found += rows
            changes += map(_Change, repeat(values.title), repeat(values.pid), map(starts.__getitem__, rows), args)
    return found, changes


@lru_cache
def _args_type(names: tuple[str, ...]) -> type[msgspec.Struct]:
    return msgspec.defstruct("Args", [(name, float) for name in names], gc=False)


def _instants(block: Instants, tracks: Tracks) -> bytes:
    names, pids, categories, args = _of_labels(block, tracks)
    scopes = repeat(block.scope)
    at = _microseconds(block.at_ns)
    return _lines([*map(_Instant, names, pids, block.track.tolist(), at, categories, scopes, args)])


def _counters(block: Counters) -> bytes:
    series = [block.series[kind] for kind in block.kind.tolist()]
    columns = zip(series, _microseconds(block.at_ns), block.values.tolist(), strict=True)
    return _lines(
        [
            _Change(each[0].shown, each[0].pid, at, {one.name: value for one, value in zip(each, row, strict=True)})
            for each, at, row in columns
        ]
    )


def _of_labels(block: Slices | Instants, tracks: Tracks) -> tuple[list[Any], ...]:
    """Columns of what labels and tracks tell: names, processes, categories and args."""
    columns = zip(*((label.name, label.category, _args(label)) for label in block.labels), strict=True)
    names, categories, args = (_picked(column, block.label) for column in columns)
    return names, _picked(tracks.pids, block.track), categories, args


def _args(label: Label) -> _Args:
    """A tool may have written them in several lines."""
    return msgspec.UNSET if label.args == NO_ARGS else msgspec.Raw(label.args.replace("\n", " ").encode())


def _picked(values: Sequence[Any], places: NDArray[np.int64]) -> list[Any]:
    return np.fromiter(values, object, len(values))[places].tolist()  # type: ignore[no-any-return]


def _microseconds(ns: NDArray[np.int64]) -> list[float]:
    return (ns / NS_PER_US).tolist()  # type: ignore[no-any-return]


def _lines(events: Sequence[Any]) -> bytes:
    """No event has a bare line feed."""
    return _encode_lines(events).replace(b"\n", SEPARATOR)

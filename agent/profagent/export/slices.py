"""The Trace Event Format: events, tracks on which slices lie within each other, and files of a bounded size."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from profagent.files import written_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

NS_PER_US = 1000
LARGEST_PART_BYTES = 100_000_000


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event, as the format has it; times are µs after the trace's origin."""

    ph: Literal["X", "M", "C", "i", "s", "t", "f"]
    name: str
    pid: int
    tid: int = 0
    ts: float | None = None
    dur: float | None = None
    cat: str = ""
    id: int = 0
    bp: str = ""
    s: str = ""
    args: dict[str, Any] = {}


class Clock:
    """Turns a board's µs into the trace's ns: after its origin, and by another clock where there is one."""

    def __init__(self, origin_us: float, offset_us: Callable[[float], float] | None = None) -> None:
        """`offset_us`: how much the board's clock is ahead at a moment of it."""
        self._origin_us = int(origin_us)
        self._offset_us = offset_us

    def ns(self, time_us: float) -> int:
        """Whole nanoseconds after the origin: a time since 1970 has more digits than a double."""
        whole = int(time_us)
        shift = 0 if self._offset_us is None else round(self._offset_us(time_us) * NS_PER_US)
        return (whole - self._origin_us) * NS_PER_US + round((time_us - whole) * NS_PER_US) - shift


@dataclass(slots=True)
class _Track:
    """Tracks of one title: a slice that is not within what its track holds, nor behind it, goes to the next one."""

    pid: int
    title: str
    tids: list[int] = field(default_factory=list)
    open_ends: list[list[int]] = field(default_factory=list)


class Tracks:
    """Gives processes and threads of the trace their numbers, and names them before their first event."""

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}
        self._tracks: dict[tuple[str, str], _Track] = {}
        self._tids = 0
        self._known: dict[tuple[int, int], Event] = {}

    def process(self, title: str) -> int:
        """The number of a group of tracks."""
        if title not in self._pids:
            self._pids[title] = len(self._pids) + 1
            self._name(self._pids[title], 0, "process_name", title)
        return self._pids[title]

    def first(self, process: str, title: str) -> tuple[int, int]:
        """The numbers of a group and of the first track of a title in it."""
        track = self._of(process, title)
        return track.pid, track.tids[0]

    def take(self, process: str, title: str, start_ns: int, end_ns: int) -> tuple[int, int]:
        """The numbers for a slice; slices come by their start, those that hold others first."""
        track = self._of(process, title)
        for tid, ends in zip(track.tids, track.open_ends, strict=True):
            while ends and ends[-1] <= start_ns:
                ends.pop()
            if not ends or end_ns <= ends[-1]:
                ends.append(end_ns)
                return track.pid, tid
        self._add(track)
        track.open_ends[-1].append(end_ns)
        return track.pid, track.tids[-1]

    def names(self, keys: Iterable[tuple[int, int]]) -> list[Event]:
        """The names of processes and tracks, by their numbers."""
        return [self._known[key] for key in sorted(keys) if key in self._known]

    def _of(self, process: str, title: str) -> _Track:
        track = self._tracks.get((process, title))
        if track is None:
            track = self._tracks[process, title] = _Track(self.process(process), title)
            self._add(track)
        return track

    def _add(self, track: _Track) -> None:
        self._tids += 1
        track.tids.append(self._tids)
        track.open_ends.append([])
        title = track.title if len(track.tids) == 1 else f"{track.title} ({len(track.tids)})"
        self._name(track.pid, self._tids, "thread_name", title)

    def _name(self, pid: int, tid: int, what: str, title: str) -> None:
        self._known[pid, tid] = Event("M", what, pid, tid, args={"name": title})


class PartedFile:
    """A trace that is cut into files of at most so many bytes; each can be opened by itself, and says what follows.

    Use as a context manager, with `end` as the last call in it.
    """

    def __init__(self, file: Path, tracks: Tracks, largest_bytes: int = LARGEST_PART_BYTES) -> None:
        self.files: list[Path] = []
        self.metadata: dict[str, Any] = {}
        self._file, self._tracks, self._largest = file, tracks, largest_bytes
        self._encode = msgspec.json.Encoder().encode
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

    def write(self, event: Event) -> None:
        """Write an event, behind the names of its process and track in this part."""
        data = self._encode(event)
        if self._named and self._size + len(data) > self._largest:
            self._end_part(self._path(len(self.files) + 1).name)
            self._begin_part()
        new = {(event.pid, 0), (event.pid, event.tid)} - self._named
        for name in self._tracks.names(new) if new else ():
            self._put(self._encode(name))
        self._named |= new
        self._put(data)

    def end(self) -> None:
        """End the last part."""
        self._end_part(None)

    def _path(self, number: int) -> Path:
        return self._file if number == 1 else self._file.with_suffix(f".{number}{self._file.suffix}")

    def _begin_part(self) -> None:
        path = self._path(len(self.files) + 1)
        self.files.append(path)
        self._out = self._opened.enter_context(written_atomically(path))
        self._named = set()
        self._separator = b"\n"
        self._size = self._out.write(b'{"traceEvents":[')

    def _put(self, data: bytes) -> None:
        self._size += self._out.write(self._separator + data)
        self._separator = b",\n"

    def _end_part(self, goes_on_in: str | None) -> None:
        told = {**self.metadata, "part": len(self.files), "goes_on_in": goes_on_in}
        self._out.write(b'\n],"displayTimeUnit":"ms","metadata":' + self._encode(told) + b"}\n")
        self._opened.close()

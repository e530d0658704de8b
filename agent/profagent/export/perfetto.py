"""A trace as Perfetto's own protobuf, in one file of any size.

A slice is two packets, its begin and its end; viewers sort packets by time, and those of one time as they stand in the
file. So a slice's end follows its begin, and slices come by their start, those that hold others first. Counters of a
layer stand in its begin. Each process has a packet sequence, with names that are told once and a number from then on.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from profagent.export import protobuf as pb
from profagent.export.blocks import Instants, Series, Slices, woven
from profagent.export.protobuf import WIDE_BYTES, wide_varints
from profagent.files import written_atomically

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from profagent.export.blocks import Block, Counters, Label, Values
    from profagent.export.tracks import Tracks

NS_PER_US = 1000
# Of a sequence; names that come later are written out.
MOST_NAMES = 4096
REALTIME, BOOTTIME = 1, 6
CLEARED, NEEDS_STATE = 1, 2
SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4
# Numbers of tracks are theirs here as well; processes and counters have others.
_PROCESSES, _COUNTERS = 1 << 40, 2 << 40
# A waypoint is as a begin.
_ARROWS = {"s": 1, "t": 1, "f": 2}
_ARROW_BYTES = len(pb.fixed64(47, 0))
_TIMED = len(pb.tag(8, pb.VARINT)) + WIDE_BYTES


class _Sequence:
    """What a sequence of packets has told so far."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.changes: tuple[int, ...] = ()
        self._names: dict[tuple[int, str], int] = {}
        self._new: list[bytes] = []
        self._is_begun = False

    def name(self, kind: int, text: str) -> int:
        """The number of a text among those of a kind (a field of InternedData); 0 where it has none."""
        found = self._names.get((kind, text))
        if found is None:
            if len(self._names) >= MOST_NAMES:
                return 0
            found = self._names[kind, text] = len(self._names) + 1
            self._new.append(pb.block(kind, pb.number(1, found) + pb.text(2, text)))
        return found

    def news(self, changes: tuple[int, ...]) -> bytes:
        """A packet that tells the names that are new, and which counters those in a slice are."""
        content = b""
        if changes and changes != self.changes:
            self.changes = changes
            content += pb.block(59, pb.block(11, b"".join(pb.number(45, track) for track in changes)))
        elif self._is_begun and not self._new:
            return b""
        content += pb.block(12, b"".join(self._new)) + pb.number(10, self.number)
        content += pb.number(13, NEEDS_STATE if self._is_begun else CLEARED)
        self._new, self._is_begun = [], True
        return pb.block(1, content)


class PerfettoTrace:
    """Writes one file; a writer as of `export_trace`."""

    def __init__(self, file: Path, tracks: Tracks, metadata: dict[str, Any]) -> None:
        self.files = [file]
        self._tracks, self._metadata = tracks, metadata
        self._opened = ExitStack()
        self._named: set[int] = set()
        self._counters: dict[Series, int] = {}
        self._sequences: dict[int, _Sequence] = {}

    def __enter__(self) -> Self:
        """Begin the file with the clocks."""
        self._out = self._opened.enter_context(written_atomically(self.files[0]))
        origin_ns = self._metadata["origin_us"] * NS_PER_US
        clocks = [pb.block(1, pb.number(1, REALTIME) + pb.number(2, origin_ns))]
        clocks.append(pb.block(1, pb.number(1, BOOTTIME) + pb.number(2, 0)))
        snapshot = pb.block(6, b"".join(clocks) + pb.number(2, BOOTTIME))
        self._out.write(pb.block(1, pb.number(8, 0) + snapshot))
        self._attributes(self._metadata)
        return self

    def __exit__(self, *error: object) -> None:
        """On an error, nothing stays."""
        self._opened.__exit__(*error)  # type: ignore[arg-type]

    def write(self, block: Block) -> int:
        """Write events, behind what has to be known of their tracks; how many."""
        if isinstance(block, Slices):
            self._slices(block)
        elif isinstance(block, Instants):
            self._instants(block)
        else:
            self._changes(block)
        return block.events

    def end(self, metadata: dict[str, Any]) -> None:
        """Tell once more what there is, with what is known only now; end the file."""
        self._attributes(metadata)
        self._opened.close()

    def _attributes(self, metadata: dict[str, Any]) -> None:
        first = metadata["sessions"][0]
        told = {name: first[name] for name in ("session", "board", "simulated", "complete")}
        if len(metadata["sessions"]) > 1:
            told = {}
        texts = {**told, "metadata": metadata}
        found = [
            pb.block(1, pb.text(1, f"profagent.{name}") + pb.text(3, _shown(value))) for name, value in texts.items()
        ]
        self._out.write(pb.block(1, pb.block(126, b"".join(found))))

    def _sequence(self, pid: int) -> _Sequence:
        """A process's sequence; the process is named before its first packet."""
        if pid not in self._sequences:
            self._sequences[pid] = _Sequence(pid)
            process = pb.number(1, pid) + pb.text(6, self._tracks.process_names[pid])
            self._describe(pb.number(1, _PROCESSES + pid) + pb.block(3, process))
        return self._sequences[pid]

    def _name_tracks(self, tracks: NDArray[np.int64]) -> int:
        """Name the tracks that are new; the process of all of them."""
        numbers = np.unique(tracks).tolist()
        pid: int = self._tracks.pids[numbers[0]]
        self._sequence(pid)
        for number in numbers:
            if number not in self._named:
                self._named.add(number)
                parent = pb.number(5, _PROCESSES + pid)
                self._describe(pb.number(1, number) + parent + pb.text(2, self._tracks.names[number]))
        return pid

    def _counter(self, series: Series) -> int:
        """The number of a counter's track, which is named before."""
        found = self._counters.get(series)
        if found is None:
            self._sequence(series.pid)
            found = _COUNTERS + len(self._counters)
            self._counters[series] = found
            name = series.title if series.name == "value" else f"{series.title} {series.name}"
            counter = pb.block(8, pb.text(6, series.unit) if series.unit else b"")
            parent = pb.number(5, _PROCESSES + series.pid)
            self._describe(pb.number(1, found) + parent + pb.text(2, name) + counter)
        return found

    def _describe(self, descriptor: bytes) -> None:
        self._out.write(pb.block(1, pb.block(60, descriptor)))

    def _slices(self, block: Slices) -> None:
        pid = self._name_tracks(block.track)
        sequence = self._sequence(pid)
        changes, has_changes, texts = self._changes_of(block.values, block.size)
        # An event is as its label, its track, whether it changes counters and what arrow is at it.
        kinds = has_changes.astype(np.int64)
        for flow in block.flows:
            kinds[flow.place] += _ARROWS[flow.kind] * 2
        pairs, place = _pairs(block, 6, kinds)
        begins = []
        change_bytes = len(texts[int(has_changes.argmax())]) if changes else 0
        for pair in pairs.tolist():
            label, track = _unpaired(pair // 6, block.labels)
            arrow, is_change = divmod(pair % 6, 2)
            more = change_bytes * is_change + (_ARROW_BYTES if arrow else 0)
            begins.append(_packet(sequence, _event(sequence, SLICE_BEGIN, track, label), more))
        heads, tails = _picked(begins, place)
        for flow in block.flows:
            tails[flow.place] += pb.fixed64(48 if flow.kind == "f" else 47, flow.number)
        tracks, of_track = np.unique(block.track, return_inverse=True)
        ends = [_packet(sequence, _event(sequence, SLICE_END, track, None), 0) for track in tracks.tolist()]
        end_heads, end_tails = _picked(ends, of_track)
        self._out.write(sequence.news(changes))
        columns = [heads, wide_varints(block.start_ns), tails]
        columns += [texts] if changes else []
        self._out.write(woven([*columns, end_heads, wide_varints(block.end_ns), end_tails]))

    def _changes_of(self, values: Values | None, size: int) -> tuple[tuple[int, ...], NDArray[np.bool_], list[bytes]]:
        """The counters that slices change, which of the slices, and with which bytes."""
        if values is None:
            return (), np.zeros(size, np.bool_), []
        is_there = np.invert(np.isnan(values.values))
        # Where a layer has some of its counters and not all, those of the others are told as not known (NaN).
        known, any_there = (np.asarray(is_there.any(axis=axis), np.bool_) for axis in (0, 1))
        names = [name for name, one in zip(values.names, known.tolist(), strict=True) if one]
        changes = tuple(self._counter(Series(values.pid, values.title, name)) for name in names)
        texts = pb.doubles(46, values.values[:, known])
        if not any_there.all():
            texts = [each if one else b"" for each, one in zip(texts, any_there.tolist(), strict=True)]
        return changes, any_there, texts

    def _instants(self, block: Instants) -> None:
        sequence = self._sequence(self._name_tracks(block.track))
        pairs, place = _pairs(block)
        found = [_unpaired(pair, block.labels) for pair in pairs.tolist()]
        packets = [_packet(sequence, _event(sequence, INSTANT, track, label), 0) for label, track in found]
        heads, tails = _picked(packets, place)
        self._out.write(sequence.news(()))
        self._out.write(woven([heads, wide_varints(block.at_ns), tails]))

    def _changes(self, block: Counters) -> None:
        """A packet for each value."""
        numbers = [[self._counter(each) for each in series] for series in block.series]
        sequence = self._sequence(block.series[0][0].pid)
        value_size = len(pb.double(44, 0.0))
        times, columns = wide_varints(block.at_ns), []
        for at in range(block.values.shape[1]):
            counters = [pb.number(9, COUNTER) + pb.number(11, tracks[at]) for tracks in numbers]
            heads, tails = _picked([_packet(sequence, each, value_size) for each in counters], block.kind)
            columns += [heads, times, tails, pb.doubles(44, block.values[:, at : at + 1])]
        self._out.write(sequence.news(()))
        self._out.write(woven(columns))


def _event(sequence: _Sequence, kind: int, track: int, label: Label | None) -> bytes:
    """A TrackEvent."""
    content = pb.number(9, kind) + pb.number(11, track)
    if label is not None:
        category, name = sequence.name(1, label.category), sequence.name(2, label.name)
        content += pb.number(3, category) if category else pb.text(22, label.category)
        content += pb.number(10, name) if name else pb.text(23, label.name)
        for key, value in msgspec.json.decode(label.args).items():
            content += pb.block(4, _annotation(sequence, key, value))
    return content


def _annotation(sequence: _Sequence, key: str, value: Any) -> bytes:
    """A DebugAnnotation."""
    number = sequence.name(3, key)
    content = pb.number(1, number) if number else pb.text(10, key)
    match value:
        case bool():
            return content + pb.number(2, value)
        case int() if value >= 2**63:
            return content + pb.number(3, value)
        case int():
            return content + pb.number(4, value)
        case float():
            return content + pb.double(5, value)
        case str():
            number = sequence.name(29, value)
            return content + (pb.number(17, number) if number else pb.text(6, value))
    return content + pb.text(9, msgspec.json.encode(value).decode())


def _packet(sequence: _Sequence, event: bytes, more_bytes: int) -> tuple[bytes, bytes]:
    """A packet of an event, what is before its time and what is behind; in the end, so many bytes more of the event."""
    inner = pb.number(10, sequence.number) + pb.number(13, NEEDS_STATE)
    inner += pb.tag(11, pb.BYTES) + pb.varint(len(event) + more_bytes) + event
    size = _TIMED + len(inner) + more_bytes
    return pb.tag(1, pb.BYTES) + pb.varint(size) + pb.tag(8, pb.VARINT), inner


def _pairs(
    block: Slices | Instants, width: int = 1, kinds: NDArray[np.int64] | int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each label, track and kind (below `width`) that there is, and which of these each event has."""
    pairs = (block.track * len(block.labels) + block.label) * width + kinds
    return np.unique(pairs, return_inverse=True)


def _unpaired(pair: int, labels: Sequence[Label]) -> tuple[Label, int]:
    return labels[pair % len(labels)], pair // len(labels)


def _picked(packets: Sequence[tuple[bytes, bytes]], places: NDArray[np.int64]) -> tuple[list[bytes], list[bytes]]:
    heads, tails = (np.array(column, object) for column in zip(*packets, strict=True))
    return heads[places].tolist(), tails[places].tolist()


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()

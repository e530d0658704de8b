"""Writer of Perfetto's own protobuf format, in one file of any size.

A slice is two packets, its begin and its end. Viewers sort packets by time, and keep the order of the file among
packets of one time; so a slice's end follows its begin, and slices come ordered by start, enclosing slices first.
Counters of a layer stand in its begin. Each process has a packet sequence, in which a name is defined once and referred
to by a number from then on.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from profagent.export import protobuf as pb
from profagent.export.blocks import Instants, Series, Slices
from profagent.export.protobuf import WIDE_BYTES, wide_varints
from profagent.files import written_atomically
from profagent.limits import MOST_INTERNED_NAMES
from profagent.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from profagent.export.blocks import Block, Counters, Label
    from profagent.export.tracks import Tracks

# Perfetto reads a zero as the end of a slice's counters, and would read the counters after it as 0 too.
ALMOST_ZERO = 5e-324
REALTIME, BOOTTIME = 1, 6
CLEARED, NEEDS_STATE = 1, 2
SLICE_BEGIN, SLICE_END, INSTANT, COUNTER = 1, 2, 3, 4
# A track keeps its number of `Tracks`; processes, counters and groups of counters have ranges above these.
_PROCESSES, _COUNTERS, _GROUPS = 1 << 40, 2 << 40, 3 << 40
_ARROW_BYTES = len(pb.fixed64(47, 0))
_TIMED = len(pb.tag(8, pb.VARINT)) + WIDE_BYTES


class _PacketSequence:
    """Packet sequence of a process, with the names that its packets have defined so far."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.changes: tuple[int, ...] = ()
        """Tracks of the counters that stand in its slices, as defined by the latest packet."""
        # Number of each defined text, by its kind.
        self._names: dict[tuple[int, str], int] = {}
        # Definitions that no packet has carried yet.
        self._new: list[bytes] = []
        self._is_begun = False

    def name(self, kind: int, text: str) -> int:
        """Return the number of a text among the texts of a kind (a field of InternedData), or 0 if it has none."""
        found = self._names.get((kind, text))
        if found is None:
            # Both this process and the viewer hold all defined names in memory; further names are written out at each
            # use.
            if len(self._names) >= MOST_INTERNED_NAMES:
                return 0
            found = self._names[kind, text] = len(self._names) + 1
            self._new.append(pb.block(kind, pb.number(1, found) + pb.text(2, text)))
        return found

    def take_definitions(self, changes: tuple[int, ...]) -> bytes:
        """Return a packet with the new names and with the counters that stand in slices; empty if neither changed."""
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
    """Trace in one file of Perfetto's format; a `Writer` for `export_trace`."""

    def __init__(self, file: Path, tracks: Tracks, metadata: dict[str, Any]) -> None:
        self.files = [file]
        self._tracks, self._metadata = tracks, metadata
        # Owner of the file, which is renamed into place when the stack is closed.
        self._opened = ExitStack()
        # Tracks that have a descriptor in the file already.
        self._named: set[int] = set()
        # Number of the track of each counter.
        self._counters: dict[Series, int] = {}
        # Number of the track of each group of counters, by process and title.
        self._groups: dict[tuple[int, str], int] = {}
        # Packet sequence of each process.
        self._sequences: dict[int, _PacketSequence] = {}

    def __enter__(self) -> Self:
        """Begin the file with a snapshot of the clocks, which gives the origin its date."""
        self._out = self._opened.enter_context(written_atomically(self.files[0]))
        origin_ns = self._metadata["origin_us"] * NS_PER_US
        clocks = [pb.block(1, pb.number(1, REALTIME) + pb.number(2, origin_ns))]
        clocks.append(pb.block(1, pb.number(1, BOOTTIME) + pb.number(2, 0)))
        snapshot = pb.block(6, b"".join(clocks) + pb.number(2, BOOTTIME))
        self._out.write(pb.block(1, pb.number(8, 0) + snapshot))
        self._attributes(self._metadata)
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file; on an error, remove it."""
        self._opened.__exit__(*error)  # type: ignore[arg-type]

    def write(self, block: Block) -> int:
        """Write a block after the descriptors of its tracks; return the number of events."""
        if isinstance(block, Slices):
            self._slices(block)
        elif isinstance(block, Instants):
            self._instants(block)
        else:
            self._changes(block)
        return block.events

    def end(self, metadata: dict[str, Any]) -> None:
        """Write the metadata again, with everything that was known only at the end, and close the file."""
        self._attributes(metadata)
        self._opened.close()

    def _attributes(self, metadata: dict[str, Any]) -> None:
        first = metadata["sessions"][0]
        attributes = {name: first[name] for name in ("session", "board", "simulated", "complete")}
        # Several sessions have no board in common; the metadata has the attributes of each.
        if len(metadata["sessions"]) > 1:
            attributes = {}
        texts = {**attributes, "metadata": metadata}
        found = [
            pb.block(1, pb.text(1, f"profagent.{name}") + pb.text(3, _text_of(value))) for name, value in texts.items()
        ]
        self._out.write(pb.block(1, pb.block(126, b"".join(found))))

    def _sequence(self, pid: int) -> _PacketSequence:
        if pid not in self._sequences:
            self._sequences[pid] = _PacketSequence(pid)
            process = pb.number(1, pid) + pb.text(6, self._tracks.process_names[pid])
            self._describe(pb.number(1, _PROCESSES + pid) + pb.block(3, process))
        return self._sequences[pid]

    def _name_tracks(self, tracks: NDArray[np.int64]) -> int:
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
        found = self._counters.get(series)
        if found is None:
            self._sequence(series.pid)
            found = _COUNTERS + len(self._counters)
            self._counters[series] = found
            # A counter with parts of several names is drawn as a group of tracks.
            is_alone = series.name == "value"
            parent = _PROCESSES + series.pid if is_alone else self._group(series)
            counter = pb.block(8, pb.text(6, series.unit) if series.unit else b"")
            name = pb.text(2, series.title if is_alone else series.name)
            self._describe(pb.number(1, found) + pb.number(5, parent) + name + counter)
        return found

    def _group(self, series: Series) -> int:
        found = self._groups.get(series[:2])
        if found is None:
            found = self._groups[series[:2]] = _GROUPS + len(self._groups)
            parent = pb.number(5, _PROCESSES + series.pid)
            self._describe(pb.number(1, found) + parent + pb.text(2, series.title))
        return found

    def _describe(self, descriptor: bytes) -> None:
        self._out.write(pb.block(1, pb.block(60, descriptor)))

    def _slices(self, block: Slices) -> None:
        sequence = self._sequence(self._name_tracks(block.track))
        counters, has_changes, values = self._changes_of(block)
        arrows = np.bincount([flow.place for flow in block.flows], minlength=block.size)
        # Events with the same label, track, number of arrows and presence of counters differ only in their own bytes:
        # they share a form.
        width = 2 * (int(arrows.max()) + 1)
        pairs, form = _pairs(block, width, arrows * 2 + has_changes)
        columns = [wide_varints(block.start_ns), wide_varints(block.end_ns), values, *_arrow_columns(block, arrows)]
        forms: list[pb.Form] = []
        for pair in pairs.tolist():
            label, track = _unpaired(pair // width, block.labels)
            count, is_change = divmod(pair % width, 2)
            own = [*range(3, 3 + count), *([2] if is_change else [])]
            more = sum(columns[column].shape[1] for column in own)
            head, tail = _packet(sequence, _track_event(sequence, SLICE_BEGIN, track, label), more)
            end_head, end_tail = _packet(sequence, _track_event(sequence, SLICE_END, track, None), 0)
            forms.append((head, 0, tail, *own, end_head, 1, end_tail))
        self._out.write(sequence.take_definitions(counters))
        self._out.write(pb.filled(forms, form, columns))

    def _changes_of(self, block: Slices) -> tuple[tuple[int, ...], NDArray[np.bool_], pb.Bytes]:
        """Return the tracks of the counters that slices change, the slices that change any, and their bytes."""
        if block.values is None:
            return (), np.zeros(block.size, np.bool_), np.empty((block.size, 0), np.uint8)
        values = block.values
        is_there = np.invert(np.isnan(values.values))
        # A packet has values for all counters of its sequence, so a layer with only some of them has NaN for the
        # others.
        known, any_there = (np.asarray(is_there.any(axis=axis), np.bool_) for axis in (0, 1))
        names = [name for name, one in zip(values.names, known.tolist(), strict=True) if one]
        counters = tuple(self._counter(Series(values.pid, values.title, name)) for name in names)
        shown = np.where(values.values == 0, ALMOST_ZERO, values.values)[:, known]
        return counters, any_there, pb.doubles(46, shown)

    def _instants(self, block: Instants) -> None:
        sequence = self._sequence(self._name_tracks(block.track))
        pairs, form = _pairs(block)
        forms: list[pb.Form] = []
        for pair in pairs.tolist():
            label, track = _unpaired(pair, block.labels)
            head, tail = _packet(sequence, _track_event(sequence, INSTANT, track, label), 0)
            forms.append((head, 0, tail))
        self._out.write(sequence.take_definitions(()))
        self._out.write(pb.filled(forms, form, [wide_varints(block.at_ns)]))

    def _changes(self, block: Counters) -> None:
        # A packet holds one value, so a change of several counters becomes a packet for each.
        numbers = [[self._counter(each) for each in series] for series in block.series]
        sequence = self._sequence(block.series[0][0].pid)
        values = [pb.doubles(44, column[:, None]) for column in block.values.T]
        forms: list[pb.Form] = []
        for tracks in numbers:
            found: list[bytes | int] = []
            for at, track in enumerate(tracks):
                counter = pb.number(9, COUNTER) + pb.number(11, track)
                head, tail = _packet(sequence, counter, values[at].shape[1])
                found += [head, 0, tail, 1 + at]
            forms.append(found)
        self._out.write(sequence.take_definitions(()))
        self._out.write(pb.filled(forms, block.kind, [wide_varints(block.at_ns), *values]))


def _arrow_columns(block: Slices, arrows: NDArray[np.int64]) -> list[pb.Bytes]:
    columns = [np.zeros((block.size, _ARROW_BYTES), np.uint8) for _ in range(arrows.max())]
    counts = [0] * block.size
    for flow in block.flows:
        field = pb.fixed64(48 if flow.kind == "f" else 47, flow.number)
        columns[counts[flow.place]][flow.place] = np.frombuffer(field, np.uint8)
        counts[flow.place] += 1
    return columns


def _track_event(sequence: _PacketSequence, kind: int, track: int, label: Label | None) -> bytes:
    content = pb.number(9, kind) + pb.number(11, track)
    if label is not None:
        category, name = sequence.name(1, label.category), sequence.name(2, label.name)
        content += pb.number(3, category) if category else pb.text(22, label.category)
        content += pb.number(10, name) if name else pb.text(23, label.name)
        for key, value in msgspec.json.decode(label.args).items():
            content += pb.block(4, _debug_annotation(sequence, key, value))
    return content


def _debug_annotation(sequence: _PacketSequence, key: str, value: Any) -> bytes:
    number = sequence.name(3, key)
    return (pb.number(1, number) if number else pb.text(10, key)) + _annotation_value(sequence, value)


def _annotation_value(sequence: _PacketSequence, value: Any) -> bytes:
    match value:
        case bool():
            found = pb.number(2, value)
        case int():
            found = pb.number(3 if value >= 2**63 else 4, value)
        case float():
            found = pb.double(5, value)
        case dict():
            found = b"".join(pb.block(11, _debug_annotation(sequence, key, each)) for key, each in value.items())
        case list():
            found = b"".join(pb.block(12, _annotation_value(sequence, each)) for each in value)
        case _:
            # Perfetto has no null, and a null in its JSON stops its reader; so null is written as a text.
            text = "null" if value is None else value
            number = sequence.name(29, text)
            found = pb.number(17, number) if number else pb.text(6, text)
    return found


def _packet(sequence: _PacketSequence, event: bytes, more_bytes: int) -> tuple[bytes, bytes]:
    """Return the bytes of an event's packet before its time, and those after it.

    `more_bytes` is the length of what the caller appends to the event.
    """
    inner = pb.number(10, sequence.number) + pb.number(13, NEEDS_STATE)
    inner += pb.tag(11, pb.BYTES) + pb.varint(len(event) + more_bytes) + event
    size = _TIMED + len(inner) + more_bytes
    return pb.tag(1, pb.BYTES) + pb.varint(size) + pb.tag(8, pb.VARINT), inner


def _pairs(
    block: Slices | Instants, width: int = 1, kinds: NDArray[np.int64] | int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct pairs of label and track with a kind (below `width`), and the index of each event's pair."""
    pairs = (block.track * len(block.labels) + block.label) * width + kinds
    return np.unique(pairs, return_inverse=True)


def _unpaired(pair: int, labels: Sequence[Label]) -> tuple[Label, int]:
    return labels[pair % len(labels)], pair // len(labels)


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()

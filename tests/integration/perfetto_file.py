"""A Perfetto file, read with the messages of Perfetto's own package, as a viewer understands it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages  # type: ignore[import-untyped]

from profagent.export.perfetto import ALMOST_ZERO

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
NAMES = {1: "event_categories", 2: "event_names", 3: "debug_annotation_names", 29: "debug_annotation_string_values"}


class Found(NamedTuple):
    """A slice, or an instant, which has no end; times are ns after the origin."""

    process: str
    track: str
    category: str
    name: str
    start_ns: int
    end_ns: int | None
    args: tuple[tuple[str, Any], ...]


@dataclass
class PerfettoFile:
    """What is in a file. `counters` are process, name, time and value, `flows` each arrow's slices by time."""

    slices: list[Found] = field(default_factory=list)
    instants: list[Found] = field(default_factory=list)
    counters: list[tuple[str, str, int, float]] = field(default_factory=list)
    flows: dict[int, list[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(list))
    attributes: dict[str, str] = field(default_factory=dict)
    clocks: dict[int, int] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)


class _Reader:
    def __init__(self) -> None:
        self.found = PerfettoFile()
        self._tracks: dict[int, Any] = {}
        self._names: dict[tuple[int, int, int], str] = {}
        self._extra: dict[int, list[int]] = {}
        self._open: dict[int, list[Any]] = defaultdict(list)

    def packet(self, packet: Any) -> Any:
        """Take what is told at once; a timed event is given back, with its names."""
        sequence = packet.trusted_packet_sequence_id
        if packet.HasField("clock_snapshot"):
            self.found.clocks = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
        for each in packet.trace_attributes.attribute:
            self.found.attributes[each.key] = each.string_value
        if packet.HasField("track_descriptor"):
            self._tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        assert not packet.sequence_flags & 1 or not any(key[0] == sequence for key in self._names)
        for kind, name in NAMES.items():
            for entry in getattr(packet.interned_data, name):
                text = entry.str.decode() if kind == 29 else entry.name
                self._names[sequence, kind, entry.iid] = text
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults.track_event_defaults
            self._extra[sequence] = list(defaults.extra_double_counter_track_uuids)
        if not packet.HasField("track_event"):
            return None
        event = packet.track_event
        values = [0.0 if value == ALMOST_ZERO else value for value in event.extra_double_counter_values]
        extra = [*zip(self._extra.get(sequence, ()), values, strict=False)]
        assert len(extra) == len(values)
        assert 0.0 not in event.extra_double_counter_values
        return packet.timestamp, event, self._label(sequence, event), extra

    def _label(self, sequence: int, event: Any) -> tuple[str, str, tuple[tuple[str, Any], ...]]:
        def name(kind: int, number: int) -> str:
            return self._names[sequence, kind, number]

        category = name(1, event.category_iids[0]) if event.category_iids else "".join(event.categories)
        title = name(2, event.name_iid) if event.name_iid else event.name

        def named(each: Any) -> tuple[str, Any]:
            return name(3, each.name_iid) if each.name_iid else each.name, valued(each)

        def valued(each: Any) -> Any:
            kind = each.WhichOneof("value")
            if kind is None:
                return dict(map(named, each.dict_entries)) or [*map(valued, each.array_values)]
            value = getattr(each, kind)
            return name(29, value) if kind == "string_value_iid" else value

        args = map(named, event.debug_annotations)
        return category, title, tuple(sorted(args))

    def event(self, at_ns: int, event: Any, label: Any, extra: list[tuple[int, float]]) -> None:
        """Take an event; they come by their time, and those of one time as in the file."""
        for track, value in extra:
            self._count(track, at_ns, value)
        for number in (*event.flow_ids, *event.terminating_flow_ids):
            self.found.flows[number].append((at_ns, number in event.terminating_flow_ids))
        if event.type == COUNTER:
            self._count(event.track_uuid, at_ns, event.double_counter_value)
        elif event.type == END:
            started, (category, name, args) = self._open[event.track_uuid].pop()
            place = self._place(event.track_uuid)
            self.found.slices.append(Found(*place, category, name, started, at_ns, args))
        elif event.type == BEGIN:
            self._open[event.track_uuid].append((at_ns, label))
        else:
            category, name, args = label
            self.found.instants.append(Found(*self._place(event.track_uuid), category, name, at_ns, None, args))

    def _count(self, uuid: int, at_ns: int, value: float) -> None:
        process, name = self._place(uuid)
        self.found.units[name] = self._tracks[uuid].counter.unit_name
        self.found.counters.append((process, name, at_ns, value))

    def _place(self, uuid: int) -> tuple[str, str]:
        """The process of a track, and its name behind those of the tracks that hold it."""
        track, names = self._tracks[uuid], list[str]()
        while not track.HasField("process"):
            names.insert(0, track.name)
            track = self._tracks[track.parent_uuid]
        return track.process.process_name, " ".join(names)

    def check_end(self) -> None:
        """Every slice has ended."""
        assert not any(self._open.values())


def read(file: Path) -> PerfettoFile:
    """All of a file."""
    trace = messages.Trace()
    trace.ParseFromString(file.read_bytes())
    reader = _Reader()
    for event in sorted(_events(reader, trace), key=lambda each: each[0]):
        reader.event(*event)
    reader.check_end()
    return reader.found


def _events(reader: _Reader, trace: Any) -> Iterator[Any]:
    for packet in trace.packet:
        if (found := reader.packet(packet)) is not None:
            yield found

"""What others take to write events of a trace: `json.dump` of an event each, and the builder of Perfetto's package.

python -m tests.bench.event_writers json|perfetto EVENTS FILE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder  # type: ignore[import-untyped]

ARGS = {"type": "Convolution+Relu"}


def write_json(events: int, file: Path) -> None:
    """Slices of a layer, as `export trace` has them."""
    with file.open("w") as out:
        out.write('{"traceEvents":[\n')
        for number in range(events):
            event = {"ph": "X", "name": f"layer{number % 100}", "pid": 1, "tid": 1, "ts": number * 1.003, "dur": 1.001}
            json.dump({**event, "cat": "layer", "args": ARGS}, out)
            out.write(",\n")
        out.write("{}]}")


def write_perfetto(events: int, file: Path) -> None:
    """The same slices: a packet for each begin and each end."""
    with file.open("wb") as out:
        builder = StreamingTraceProtoBuilder(out)
        for number in range(events):
            for kind, at in ((1, number * 1003), (2, number * 1003 + 1001)):
                packet = builder.create_packet()
                packet.timestamp = at
                packet.trusted_packet_sequence_id = 1
                packet.track_event.type = kind
                packet.track_event.track_uuid = 1
                if kind == 1:
                    packet.track_event.name = f"layer{number % 100}"
                    packet.track_event.categories.append("layer")
                    annotation = packet.track_event.debug_annotations.add()
                    annotation.name, annotation.string_value = "type", ARGS["type"]
                builder.write_packet(packet)


if __name__ == "__main__":
    {"json": write_json, "perfetto": write_perfetto}[sys.argv[1]](int(sys.argv[2]), Path(sys.argv[3]))

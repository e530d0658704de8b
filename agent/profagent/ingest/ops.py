"""Subscribed operators: a descriptor of 256 bytes, and a row, for each executed layer (the-format.md 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.ingest.source import DatedTable, DrawnEvents, Occurrence, Seen, Source, View
from profagent.ingest.spools import RecordReader, SpoolDecoder, rows_of, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.ingest.source import Names

DESCRIPTOR_BYTES = 256
NAME_BYTES = 32
_FIELDS = np.dtype(
    {
        "names": [
            "sequence",
            "ticks",
            "model_id",
            "type_bytes",
            "name_bytes",
            "start",
            "end",
            "duration",
            "type",
            "name",
        ],
        "formats": ["<u4", "<u4", "<u4", "<u4", "<u4", "<u8", "<u8", "<u8", "S32", "S32"],
        "offsets": [0x00, 0x04, 0x74, 0x78, 0x7C, 0x98, 0xA8, 0xB0, 0xB8, 0xD8],
        "itemsize": DESCRIPTOR_BYTES,
    }
)


class OperatorEvent(NamedTuple):
    """Executed layer. Times are microseconds since 1970 by the board's clock."""

    model_id: int
    op_type: str
    op_name: str
    start_us: int
    end_us: int
    duration_us: int
    sequence: int


def decode(data: bytes) -> tuple[list[OperatorEvent], int]:
    """Return the operators of complete descriptors, and the number of damaged ones, with a length above 32 bytes."""
    found = np.frombuffer(data, _FIELDS, count=len(data) // DESCRIPTOR_BYTES)
    # Nothing else of a descriptor can be checked: it has no magic number.
    good = (found["type_bytes"] <= NAME_BYTES) & (found["name_bytes"] <= NAME_BYTES)
    rows = found[good]
    events = [
        OperatorEvent(model, _text(kind, kind_bytes), _text(name, name_bytes), start, end, duration, sequence)
        for model, kind, kind_bytes, name, name_bytes, start, end, duration, sequence in zip(
            rows["model_id"].tolist(),
            rows["type"].tolist(),
            rows["type_bytes"].tolist(),
            rows["name"].tolist(),
            rows["name_bytes"].tolist(),
            rows["start"].astype(np.int64).tolist(),
            rows["end"].astype(np.int64).tolist(),
            rows["duration"].astype(np.int64).tolist(),
            rows["sequence"].tolist(),
            strict=True,
        )
    ]
    return events, int(len(found) - len(rows))


def _text(raw: bytes, length: int) -> str:
    # Names may contain a counted NUL; behind the length are old bytes of the record.
    return raw[:length].rstrip(b"\0").decode("utf-8", "replace")


_COLUMNS = """
            model_id    INTEGER NOT NULL,
            op_type     TEXT NOT NULL,
            op_name     TEXT NOT NULL,
            start_us    INTEGER NOT NULL,
            end_us      INTEGER NOT NULL,
            duration_us INTEGER NOT NULL,
            sequence    INTEGER NOT NULL"""


class OpsDecoder(SpoolDecoder[RecordReader]):
    """Decoder of `OPS-…` collections."""

    tables = ("op_event",)

    def reader(self, _path: str) -> RecordReader:
        """Return a reader for the start of a segment."""
        return RecordReader("op_event", DESCRIPTOR_BYTES, decode)


_SCHEMA = f"""
{table("op_event", _COLUMNS)}
-- Executed layers that a program subscribed to.
--   source       the subscription
--   op_type      at most 32 bytes
--   op_name      at most 32 bytes
--   sequence, start_us, end_us, duration_us
CREATE VIEW IF NOT EXISTS op_events AS
SELECT t.session, b.identity AS board, substr(j.name, 5, length(j.name) - 24) AS source, t.model_id, t.op_type,
       t.op_name, t.start_us, t.end_us, t.duration_us, t.sequence
FROM {rows_of("op_event", "OPS")};
"""  # noqa: S608 - constants


def _see(rows: Sequence[tuple[Any, ...]], _names: Names) -> Seen:
    events = (OperatorEvent._make(row) for _, *row in rows)
    return Seen(occurrences=[Occurrence(each.start_us, each.end_us) for each in events])


SOURCE = Source(
    decoder=OpsDecoder,
    schema=_SCHEMA,
    views=(
        View(
            name="op_events",
            whole=frozenset({"model_id", "sequence"}),
            counted_as="ops",
            events=DrawnEvents(
                noun="subscribed operators",
                process="'subscription ' || source",
                track="'model ' || model_id",
                order="source, model_id",
                name="op_name",
                category="'op'",
                lane="'operators ' || source",
                arguments={"type": "op_type", "sequence": "sequence"},
            ),
        ),
    ),
    dated=(DatedTable("op_event", "end_us"),),
    see=_see,
)

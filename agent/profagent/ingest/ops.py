"""Subscribed operators: a row for each executed layer."""

from __future__ import annotations

from profagent.formats.operators import DESCRIPTOR_BYTES, decode
from profagent.ingest.spools import Reader, RecordReader, SpoolDecoder, rows_of, table

_COLUMNS = """
            model_id    INTEGER NOT NULL,
            op_type     TEXT NOT NULL,
            op_name     TEXT NOT NULL,
            start_us    INTEGER NOT NULL,
            end_us      INTEGER NOT NULL,
            duration_us INTEGER NOT NULL,
            sequence    INTEGER NOT NULL"""


class OpsDecoder(SpoolDecoder):
    """Decodes `OPS-…` collections."""

    tables = ("op_event",)
    schema = f"""
{table("op_event", _COLUMNS)}
-- One row for each layer that a program subscribed to.
--   source       name of the subscription
--   op_type      type of the layer, 32 bytes at most
--   op_name      name of the layer, 32 bytes at most
--   start_us     begin of the layer
--   end_us       its end
--   duration_us  as the runtime tells it
--   sequence     sequence number in the segment
CREATE VIEW IF NOT EXISTS op_events AS
SELECT t.session, b.identity AS board, substr(j.name, 5, length(j.name) - 24) AS source, t.model_id, t.op_type,
       t.op_name, t.start_us, t.end_us, t.duration_us, t.sequence
FROM {rows_of("op_event", "OPS")};
"""  # noqa: S608 - constants

    def reader(self, _path: str) -> Reader:
        """One for a segment's start."""
        return RecordReader("op_event", DESCRIPTOR_BYTES, decode)

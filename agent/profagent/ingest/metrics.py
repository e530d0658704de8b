"""System metrics: a row for each value; what values are called is told once in each segment."""

from __future__ import annotations

from profagent.formats.metrics import Names, decode
from profagent.ingest.spools import Reader, Rows, SpoolDecoder, rows_of, table

_SAMPLE_COLUMNS = """
            name    INTEGER NOT NULL,   -- number of its metric_name
            time_us INTEGER NOT NULL,
            value   REAL NOT NULL"""
_NAME_COLUMNS = """
            name TEXT NOT NULL,
            unit TEXT NOT NULL"""


class MetricsDecoder(SpoolDecoder):
    """Decodes `METRICS-…` collections."""

    tables = ("metric_name", "metric")
    names_table = "metric_name"
    schema = f"""
{table("metric_name", _NAME_COLUMNS)}
{table("metric", _SAMPLE_COLUMNS)}
-- One row for each sample of a system metric.
--   collector  what read it on the board
--   name       collector and thing, as `npu.hw_utilization`
--   unit       `%`, `B`, `B/s`, `/s`, `C`, `mV`, `us` or empty
--   time_us    when it was read
--   value      the value
CREATE VIEW IF NOT EXISTS metrics AS
SELECT t.session, b.identity AS board, substr(n.name, 1, instr(n.name || '.', '.') - 1) AS collector, n.name, n.unit,
       t.time_us, t.value
FROM {rows_of("metric", "METRICS")} JOIN metric_name n ON n.log = t.log AND n.number = t.name;
"""  # noqa: S608 - constants

    def reader(self, _path: str) -> Reader:
        """One for a segment's start."""
        return _MetricReader()


class _MetricReader:
    def __init__(self) -> None:
        self.torn = b""
        self.bad = 0
        self._names: Names = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._rows = 0

    def read(self, data: bytes) -> Rows:
        """The rows of whole lines."""
        whole, end, rest = data.rpartition(b"\n")
        if not end:
            self.torn += data
            return {}
        found = decode(self.torn + whole + end, self._names)
        self.torn, self.bad = rest, self.bad + found.bad
        known = len(self._numbers)
        samples = [
            (self._numbers.setdefault((each.name, each.unit), len(self._numbers)), each.time_us, each.value)
            for each in found.samples
        ]
        first, self._rows = self._rows, self._rows + len(samples)
        names = [(number, *name) for name, number in self._numbers.items() if number >= known]
        rows: Rows = {"metric_name": names, "metric": [(number, *row) for number, row in enumerate(samples, first)]}
        return {table: found for table, found in rows.items() if found}

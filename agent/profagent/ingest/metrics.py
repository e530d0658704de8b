"""System metrics: lines of names, sweeps and problems; a row for each value, names once in each segment."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.ingest.source import CounterValue, DatedTable, DrawnCounters, Headline, Seen, Source, View
from profagent.ingest.spools import Rows, SpoolDecoder, rows_of, table
from profagent.limits import LARGEST_TIME_US

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.ingest.source import Names

# A full disk may cut a line, which then continues with the next one. Most such lines have no readable number.
_SWEEP = re.compile(r"s \d+ \d+=")
# A program's metric has its pid in the name, so each start would begin another series.
_PROCESS = re.compile(r"(program\..+)-\d+(?=\.[a-z_]+$)")


class MetricSample(NamedTuple):
    """Value of a metric; the time is microseconds since 1970 by the board's clock."""

    name: str
    unit: str
    time_us: int
    value: float


_Numbered = dict[str, tuple[str, str]]  # a number's name and unit


def decode(data: bytes, names: _Numbered) -> tuple[list[MetricSample], int]:
    """Return the samples of complete lines, and the number of damaged lines.

    `names` has the names of the segment's earlier lines, and gets those of these.
    """
    samples: list[MetricSample] = []
    bad = 0
    for line in data.decode("utf-8", "replace").split("\n")[:-1]:
        try:
            samples += _read(line, names)
        except (ValueError, KeyError):
            bad += 1
    return samples, bad


def _read(line: str, names: _Numbered) -> list[MetricSample]:
    kind, _, rest = line.partition(" ")
    if kind in ("n", "e") and _SWEEP.search(rest):
        raise ValueError(line)
    if kind == "n":
        number, unit, name = rest.split(" ", 2)
        names[number] = name, "" if unit == "-" else unit
        return []
    if kind == "e":
        return []
    if kind != "s":
        raise ValueError(kind)
    text, *values = rest.split(" ")
    time_us = int(text)
    pairs = [each.split("=", 1) for each in values]
    samples = [MetricSample(*names[number], time_us, float(value)) for number, value in pairs]
    if not 0 <= time_us < LARGEST_TIME_US or not all(math.isfinite(each.value) for each in samples):
        raise ValueError(line)
    return samples


class _MetricReader:
    def __init__(self) -> None:
        # Beginning of a line whose rest has not come.
        self.torn = b""
        # Lines that are no sample of a metric.
        self.bad = 0
        # Names and units by the numbers of this segment.
        self._names: _Numbered = {}
        # Numbers of the rows of `metric_name`: the segment's own numbers may be reused for another name.
        self._numbers: dict[tuple[str, str], int] = {}
        # The number of the next row of `metric`.
        self._rows = 0

    def read(self, data: bytes) -> Rows:
        """Return the rows of complete lines."""
        # Bytes end anywhere; a line is read once its end has come.
        whole, end, rest = data.rpartition(b"\n")
        if not end:
            self.torn += data
            return {}
        found, bad = decode(self.torn + whole + end, self._names)
        self.torn, self.bad = rest, self.bad + bad
        known = len(self._numbers)
        samples = [
            (self._numbers.setdefault((each.name, each.unit), len(self._numbers)), each.time_us, each.value)
            for each in found
        ]
        first, self._rows = self._rows, self._rows + len(samples)
        names = [(number, *name) for name, number in self._numbers.items() if number >= known]
        rows: Rows = {"metric_name": names, "metric": [(number, *row) for number, row in enumerate(samples, first)]}
        return {table: each for table, each in rows.items() if each}


_SAMPLE_COLUMNS = """
            name    INTEGER NOT NULL,   -- number of its metric_name
            time_us INTEGER NOT NULL,
            value   REAL NOT NULL"""
_NAME_COLUMNS = """
            name TEXT NOT NULL,
            unit TEXT NOT NULL"""


class MetricsDecoder(SpoolDecoder[_MetricReader]):
    """Decoder of `METRICS-…` collections."""

    tables = ("metric_name", "metric")
    names_table = "metric_name"

    def reader(self, _path: str) -> _MetricReader:
        """Return a reader for the start of a segment."""
        return _MetricReader()


# Samples of a session in one log, behind a number: number, time in µs, name and value.
NEW_SAMPLES = (
    "SELECT t.number, t.time_us, n.name, t.value"
    " FROM metric t JOIN metric_name n ON n.log = t.log AND n.number = t.name"
    " WHERE t.session = ?1 AND t.number > ?2 AND t.log = ?3"
)
# Mean of each metric of a session, without those of programs: their names have the process, and each start another.
METRIC_MEANS = (
    "SELECT name, unit, avg(value) FROM metrics WHERE session = ? AND name NOT LIKE 'program.%' GROUP BY name, unit"
)
_SCHEMA = f"""
{table("metric_name", _NAME_COLUMNS, is_of_log=True)}
{table("metric", _SAMPLE_COLUMNS)}
-- Samples of system metrics.
--   name       collector and thing, as `npu.hw_utilization`: [all of them](metrics.md)
--   unit       its [unit](metrics.md#units)
--   collector, time_us, value
CREATE VIEW IF NOT EXISTS metrics AS
SELECT t.session, b.identity AS board, substr(n.name, 1, instr(n.name || '.', '.') - 1) AS collector, n.name, n.unit,
       t.time_us, t.value
FROM {rows_of("metric", "METRICS")} JOIN metric_name n ON n.log = t.log AND n.number = t.name;
"""  # noqa: S608 - constants


def _see(rows: Sequence[tuple[Any, ...]], names: Names) -> Seen:
    series = {number: (name, unit, _PROCESS.sub(r"\1", name)) for number, (name, unit) in names.items()}
    return Seen(
        [
            CounterValue(time_us, *series[number][:2], value, series[number][2])
            for _, number, time_us, value in rows
            if number in series
        ]
    )


SOURCE = Source(
    decoder=MetricsDecoder,
    schema=_SCHEMA,
    views=(
        View(
            name="metrics",
            fractions=frozenset({"value"}),
            counted_as="samples",
            is_own=False,
            counters=DrawnCounters(process="'metrics'"),
        ),
    ),
    dated=(DatedTable("metric", "time_us", names="metric_name"),),
    see=_see,
    headlines={
        "npu_utilization": Headline(("npu.hw_utilization",), "NPU {}", "{:g}%"),
        "temperature": Headline(("power.temperature", "thermal."), "{} C", "{:.1f}"),
        "daemon_cpu": Headline(("daemon.cpu",), "profagentd {}", "{:.1f}%"),
    },
    prominent=("utilization", "temperature", "thermal.", "cpu.all", "memory", "mem.", "daemon.cpu"),
)

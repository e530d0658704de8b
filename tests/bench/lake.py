"""A lake under kills, and questions to 50 M rows of 100 boards and 30 nights; `make bench-lake`. Takes 3 GB of disk."""

from __future__ import annotations

import functools
import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from profagent.lake.aggregates import GAMMA, Bucket, LayerFigures
from profagent.lake.lake import Lake, Push
from profagent.lake.push import TABLES, rows_of
from tests.bench.measure import PROFAGENT, Child, environment, report, report_table, run, size_text, started
from tests.integration.board import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

KILLS, READINGS = 100, 1000
ROWS = int(os.environ.get("BENCH_LAKE_ROWS", "50_000_000"))
BOARDS, NIGHTS, LAYERS = 100, 30, 100
BUCKETS = 60
COUNTERS = ("mac_busy", "mac_ppen", "vec_busy", "vec_ppen", "dstr", "dtrans", "dld", "wld")
QUESTIONS: dict[str, tuple[str, ...]] = {
    "fleet stats": ("stats",),
    "fleet trend": ("trend",),
    "fleet boards": ("boards",),
    "fleet losses": ("losses",),
    "sums of records by layer and night": (
        "sql",
        "SELECT date, layer_name, count(*) AS number, sum(duration_us) AS us FROM records GROUP BY 1, 2",
    ),
    "p90 of a layer, by night": (
        "sql",
        "SELECT date, percentile_cont(0.9) WITHIN GROUP (ORDER BY ticks) FROM records WHERE layer_index = 7 GROUP BY 1",
    ),
}


def test_race(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.faults.lake_race", str(tmp_path), str(KILLS), str(READINGS)]
    found = json.loads(subprocess.run(command, env=environment(), stdout=subprocess.PIPE, check=True).stdout)
    report("lake: writers killed beside readers (0 readings may be wrong)", {name: str(found[name]) for name in found})
    assert (found["wrong"], found["missing"], found["left_over"]) == ([], [], 0)


def test_questions(tmp_path: Path) -> None:
    assert shutil.disk_usage(tmp_path).free > 60 * ROWS, f"needs {size_text(60 * ROWS)} of free space in TMPDIR"
    address = tmp_path / "lake"
    # Another process makes it: what it takes would count as the peak of all that this one starts.
    made = run(sys.executable, "-m", "tests.bench.lake", address)
    size = sum(file.stat().st_size for file in address.glob("records/*/*.parquet"))
    rate = f"{ROWS / made.cpu_s / 1000:,.0f} thousand rows/s of processor time, drawing them included"
    report("lake: made", {"rows": f"{ROWS:,}", "records": size_text(size), "rate": rate})
    lines = []
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    with started(Path(sys.executable).with_name("sail"), "spark", "server", "--port", str(port)) as sail:
        assert eventually(lambda: _is_open(port))
        for name, arguments in QUESTIONS.items():
            call: list[str | Path] = [*PROFAGENT, "fleet", *arguments, "--lake", address, "--json"]
            own = run(*call)
            other = run(*call, "--engine", f"sc://127.0.0.1:{port}")
            peaks = size_text(own.peak_bytes), size_text(Child(sail.pid).peak_bytes())
            lines.append([name, f"{own.wall_s:.1f} s", peaks[0], f"{other.wall_s:.1f} s", peaks[1]])
            report_table("lake: questions (Sail: the peak of its server until then)", COLUMNS, lines)


def _is_open(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _make(lake: Lake) -> None:
    for night in range(NIGHTS):
        _append(lake, night)


COLUMNS = ["question", "DuckDB", "peak RSS", "Sail", "peak RSS"]


def _append(lake: Lake, night: int) -> None:
    """Append a night of all boards: one commit a table, as if it had been joined."""
    day = (date(2026, 1, 1) + timedelta(night)).isoformat()
    boards = [f"board{number:03}" for number in range(BOARDS)]
    push = Push(f"{day} all", f"session {day}")
    owners = {board: _owners(day, board) for board in boards}
    each = ROWS // BOARDS // NIGHTS
    schema = _records(owners[boards[0]], 1, 0).schema
    batches = (_records(owners[board], each, night * BOARDS + place) for place, board in enumerate(boards))
    lake.append("records", push, schema, functools.partial(_once, batches))
    for table in TABLES[1:]:
        batch = pa.Table.from_batches([_figures(table, owners[board], each) for board in boards]).combine_chunks()
        lake.append(table, push, batch.schema, functools.partial(iter, batch.to_batches()))


def _once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _owners(day: str, board: str) -> dict[str, str]:
    return {"date": day, "board": board, "session": f"{day} of {board}", "push": f"{day} {board}"}


def _records(owners: dict[str, str], number: int, seed: int) -> pa.RecordBatch:
    """Records as a push has them: layers in turn, durations and counters to the tick."""
    drawn, place = np.random.default_rng(seed), np.arange(number)
    layer = place % LAYERS
    ticks = (1000 * (1 + layer) * drawn.lognormal(0, 0.05, number)).astype(np.int64)
    columns: dict[str, Any] = {name: _text([value], np.zeros(number, np.int32)) for name, value in owners.items()}
    columns["date"] = pa.repeat(owners["date"], number)
    columns |= {
        "source_view": _text(["op_records"], np.zeros(number, np.int32)),
        "model_name": _text(["net"], np.zeros(number, np.int32)),
        "layer_name": _text([f"conv{each}" for each in range(LAYERS)], layer.astype(np.int32)),
        "layer_index": pa.array(layer),
        "sequence": pa.array(place),
        "start_us": pa.array(1_700_000_000_000_000 + np.cumsum(ticks) // 100),
        "ticks": pa.array(ticks),
        "duration_us": pa.array(ticks / 100),
        **{name: pa.array(np.round(drawn.random(number), 3)) for name in COUNTERS},
        "ddr_read_bytes": pa.array(64 * drawn.integers(1, 1 << 16, number)),
        "ddr_write_bytes": pa.array(64 * drawn.integers(1, 1 << 16, number)),
    }
    return pa.RecordBatch.from_pydict(columns)


def _text(values: list[str], places: np.ndarray[Any, Any]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(places), values)


def _figures(table: str, owners: dict[str, str], number: int) -> pa.RecordBatch:
    """Rows of a board's session in the other tables."""
    found = _template(table, number)
    columns = {name: pa.repeat(value, len(found)) for name, value in owners.items()}
    return pa.RecordBatch.from_pydict(columns | dict(zip(found.schema.names, found.columns, strict=True)))


@functools.cache
def _template(table: str, number: int) -> pa.RecordBatch:
    names = [*(("layer", "net", f"conv{each}", "Conv", "AI_CORE", "us") for each in range(LAYERS))]
    keys: list[tuple[str | None, ...]] = [*names, ("latency", "net", None, None, None, "us")]
    each, least = number // LAYERS, int(np.log(10.0) / np.log(GAMMA))
    if table == "layers":
        figures = (each, 10.0 * each, 10.0, 10.0, 0.3, 11.0, 11.5, 12.0, 9.0, 0.01, 1.0, None)
        return rows_of(LayerFigures, [LayerFigures._make((*key, *figures)) for key in keys], {})
    if table == "histograms":
        rows = [Bucket._make((*key, least + at, max(1, each // BUCKETS))) for key in keys for at in range(BUCKETS)]
        return rows_of(Bucket, rows, {})
    told: dict[str, Any] = {"source_view": "coverage", "standing": "covered", "duration_us": 5e6}
    if table == TABLES[-1]:
        told = {"labels": "rack=1", "complete": 1, "losses": 0, "notes": 1}
        told |= dict.fromkeys(("inferences", "sampled", "due"), each)
    return pa.RecordBatch.from_pylist([told])


if __name__ == "__main__":
    _make(Lake(sys.argv[1]))

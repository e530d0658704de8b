"""Bytes on the wire for each record, and what gRPC's compression saves of them and costs both sides."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from tests.bench.boards import COMPRESSIONS, board, finished_job
from tests.bench.captures import Capture, capture
from tests.bench.measure import Child, report_table, spread
from tests.bench.relay import counting

LAYERS, INFERENCES, REPEATS = 100, 1000, 3
COMPARED = [*COMPRESSIONS]
RECORD_BYTES = 256
COLUMNS = [
    "compression",
    "to the host, bytes a record",
    "to the board, bytes a record",
    "daemon, µs a record",
    "`record`, µs a record",
    "thousand records/s",
]


@dataclass(frozen=True, slots=True)
class Passed:
    """One capture through the relay."""

    capture: Capture
    down: float
    up: float
    daemon_s: float


async def test_bytes_on_the_wire(root: Path) -> None:
    job = finished_job(root / "board", INFERENCES, layers=LAYERS, model="yolov5s")
    lines, records = [], LAYERS * INFERENCES
    for name in COMPARED:
        passed = [await _passed(root, name, number) for number in range(REPEATS)]
        lines.append(
            [
                name,
                spread([each.down / records for each in passed]),
                spread([each.up / records for each in passed]),
                spread([1e6 * each.daemon_s / records for each in passed]),
                spread([1e6 * each.capture.process.cpu_s / records for each in passed]),
                spread([each.capture.rate / 1000 for each in passed]),
            ]
        )
    on_disk = sum(path.stat().st_size for path in job.rglob("*") if path.is_file())
    title = f"wire: {records:,} aicore records of {RECORD_BYTES} bytes, {on_disk / records:.1f} bytes of files for each"
    report_table(title, COLUMNS, lines)


async def _passed(root: Path, compression: str, number: int) -> Passed:
    with board(root / "board", compression=compression) as daemon:
        process = Child(daemon.process.pid)
        async with counting(daemon.address) as counted:
            before_s = process.cpu_s()
            captured = await asyncio.to_thread(
                capture, [counted.address], root / f"{compression}-{number}", LAYERS * INFERENCES
            )
            return Passed(captured, counted.down, counted.up, process.cpu_s() - before_s)

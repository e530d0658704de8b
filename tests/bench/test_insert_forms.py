"""Whether another SQLite library in a process of its own, fewer columns or a columnar form are worth it.

Part of `make bench`; its processes run in `.venv-bench`, as the libraries bring a SQLite of their own.
"""

from __future__ import annotations

import os
import pickle
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np

from tests.bench.insert_forms import COUNTERS, FORMS, INTEGERS, RECORDS
from tests.bench.measure import CHECKOUT, report_table, spread

SCRIPT = Path(__file__).with_name("insert_forms.py")
# The suite has no other libraries: it shows that the forms of Python's own still run.
PYTHON = CHECKOUT / ".venv-bench/bin/python"
COMPARED = [*FORMS]
FILES_A_BATCH, BATCHES, REPEATS = 100, 30, 3
COLUMNS = [
    "form",
    "thousand records/s",
    "beside the first",
    "its processor time, µs a record",
    "database, bytes a record",
]


def test_forms_of_the_store(root: Path) -> None:
    batches = [_batch(number) for number in range(BATCHES)]
    records = BATCHES * FILES_A_BATCH * RECORDS
    begin_s = time.process_time()
    pickled = [pickle.dumps(batch, pickle.HIGHEST_PROTOCOL) for batch in [*batches, None]]
    handing_us = 1e6 * (time.process_time() - begin_s) / records
    lines: list[list[str]] = []
    first = 0.0
    for form in COMPARED:
        took = [_took(form, root / f"{len(lines)}-{repeat}.db", pickled) for repeat in range(REPEATS)]
        rates = [records / wall_s / 1000 for wall_s, _ in took]
        first = first or statistics.median(rates)
        size = (root / f"{len(lines)}-0.db").stat().st_size
        lines.append(
            [
                form,
                spread(rates, digits=0),
                f"{statistics.median(rates) / first:.2f} times",
                spread([1e6 * cpu_s / records for _, cpu_s in took], digits=2),
                f"{size / records:.0f}",
            ]
        )
    title = f"{records:,} records in {BATCHES} durable transactions, a process of its own for each form"
    report_table(f"{title}; handing a batch over costs the sender {handing_us:.2f} µs a record", COLUMNS, lines)


def _batch(number: int) -> dict[str, np.ndarray]:
    """What decoding gives for FILES_A_BATCH files."""
    random = np.random.default_rng(number)
    count = FILES_A_BATCH * RECORDS
    in_file = np.arange(count) % RECORDS
    segment = number * FILES_A_BATCH + np.arange(count) // RECORDS + 1
    ticks = random.integers(20, 3000, count)
    integers = (segment * (1 << 24) + in_file, segment, in_file, in_file, ticks, np.cumsum(ticks))
    return dict(zip(INTEGERS, integers, strict=True)) | {name: random.random(count) for name in COUNTERS}


def _took(form: str, database: Path, pickled: list[bytes]) -> tuple[float, float]:
    """Seconds and processor seconds that a process of its own took for all batches."""
    assert PYTHON.exists(), "make .venv-bench/ready makes the environment of this benchmark"
    process = subprocess.Popen(
        [PYTHON, SCRIPT, form, database],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    for batch in pickled:
        process.stdin.write(batch)
    process.stdin.flush()
    output, _ = process.communicate()
    assert process.returncode == 0
    wall_s, cpu_s = map(float, output.split())
    return wall_s, cpu_s

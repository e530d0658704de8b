"""Import of a JOB of 1,000,000 aicore records in 10,000 files."""

from __future__ import annotations

from pathlib import Path

from tests.bench.conftest import INFERENCES, LAYERS
from tests.bench.measure import PROFAGENT, report, run, size_text, spread

REPEATS = 3


def test_import_of_a_million_records(million_job: Path) -> None:
    runs = [run(*PROFAGENT, "import", "-dir", million_job) for _ in range(REPEATS)]
    records = LAYERS * INFERENCES
    files = sum(1 for _ in (million_job / "data").iterdir())
    database = (million_job / "sqlite" / "profagent.db").stat().st_size
    report(
        f"import: {records} aicore records, {files} files in all",
        {
            "wall clock": spread([each.wall_s for each in runs], "s"),
            "processor time": spread([each.cpu_s for each in runs], "s"),
            "aicore records": spread([records / each.wall_s / 1000 for each in runs], "thousand/s"),
            "peak RSS": size_text(max(each.peak_bytes for each in runs)),
            "database": size_text(database),
        },
    )

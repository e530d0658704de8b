"""Exports from the database of a JOB of 1,000,000 aicore records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.measure import PROFAGENT, report, run, size_text, spread

REPEATS = 3


@pytest.mark.parametrize("arguments", [("timeline",), ("summary", "--aggregate")], ids=" ".join)
def test_export_of_a_million_records(arguments: tuple[str, ...], imported_job: Path) -> None:
    runs = [run(*PROFAGENT, "export", *arguments, "-dir", imported_job) for _ in range(REPEATS)]
    files = [path for path in (imported_job / arguments[0]).iterdir() if path.is_file()]
    report(
        f"export {' '.join(arguments)}: 1,000,000 aicore records",
        {
            "wall clock": spread([each.wall_s for each in runs], "s"),
            "processor time": spread([each.cpu_s for each in runs], "s"),
            "peak RSS": size_text(max(each.peak_bytes for each in runs)),
            "written": f"{len(files)} files, {size_text(sum(path.stat().st_size for path in files))}",
        },
    )

"""Traces from the database of a JOB of 1,000,000 aicore records."""

from __future__ import annotations

import sys
from contextlib import chdir
from typing import TYPE_CHECKING

from tests.bench.measure import CHECKOUT, PROFAGENT, Run, report, run, size_text, spread

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

REPEATS = 3
EVENTS_OF_OTHERS = 200_000


def test_traces_of_a_million_records_beside_other_writers(imported_job: Path, root: Path) -> None:
    """Events are those of the Trace Event Format: with a counter map, two for a layer. Others write 200,000 slices."""
    figures: dict[str, str] = {}
    events = 0
    for name in ("trace", "perfetto"):
        file = root / name
        more = ("--part-size", "100000") if name == "trace" else ()
        runs = [run(*PROFAGENT, "export", name, imported_job, "--output", file, *more) for _ in range(REPEATS)]
        events = events or _events(file)
        figures |= _speeds(f"export {name}", events, runs)
        figures[f"export {name}: peak RSS"] = size_text(max(each.peak_bytes for each in runs))
        figures[f"export {name}: written"] = size_text(file.stat().st_size)
    for name, what in {"json": "json.dump", "perfetto": "perfetto's StreamingTraceProtoBuilder"}.items():
        command = (sys.executable, "-m", "tests.bench.event_writers", name, str(EVENTS_OF_OTHERS), root / "other")
        with chdir(CHECKOUT):
            figures |= _speeds(what, EVENTS_OF_OTHERS, [run(*command) for _ in range(REPEATS)])
    report(f"traces: 1,000,000 aicore records, {events:,} events, from the database to the file", figures)


def _events(file: Path) -> int:
    """The events of a JSON trace, each of which is a line; names of tracks are none."""
    with file.open("rb") as lines:
        return sum(line.startswith(b'{"ph":') and b'"ph":"M"' not in line for line in lines)


def _speeds(what: str, events: int, runs: Sequence[Run]) -> dict[str, str]:
    """Thousands of events a second, by the clock and by processor time, with the start of the process."""
    return {
        f"{what}: by the clock": spread([events / each.wall_s / 1000 for each in runs], "thousand events/s", 0),
        f"{what}: by processor time": spread([events / each.cpu_s / 1000 for each in runs], "thousand events/s", 0),
    }

"""One `record` of 1, 4 and 16 boards: how fast it copies what they hold, and how soon it has what they write."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from pathlib import Path

from tests.bench.boards import board, finished_job
from tests.bench.captures import capture
from tests.bench.commits import committed_inferences, delays_ms
from tests.bench.measure import PROFAGENT, Child, percentile, report_table, size_text, spread, started
from tests.bench.programs import AICORE_ONLY, program

LAYERS, RATE = 100, 10.0
BOARDS = [1, 4, 16]
# Shared among the boards.
INFERENCES, REPEATS = 1600, 2
MEASURED_S = 6.0
COLUMNS = [
    "boards",
    "flat out, thousand records/s",
    "of that with one",
    f"latency at {RATE * LAYERS:,.0f} records/s each, p50, p95, p99",
    "`record` then, share of a core",
    "RSS of `record`, peak",
]


async def test_several_boards(root: Path) -> None:
    lines, first = [], 0.0
    for boards in BOARDS:
        rates = _flat_out(root / f"flat-{boards}", boards)
        first = first or statistics.median(rates)
        delays, share, peak_bytes = await _live(root / f"live-{boards}", boards)
        percents = ", ".join(f"{percentile(delays, percent):.0f}" for percent in (50, 95, 99))
        lines.append(
            [
                str(boards),
                spread([rate / 1000 for rate in rates]),
                f"{statistics.median(rates) / first:.0%}",
                f"{percents} ms (n={len(delays)})",
                f"{share:.0%}",
                size_text(peak_bytes),
            ]
        )
    report_table("one `record` of several boards", COLUMNS, lines)


def _flat_out(root: Path, boards: int) -> list[float]:
    """Records a second of finished JOBs, in each repeat."""
    rates = []
    with ExitStack() as stack:
        addresses = []
        for number in range(boards):
            finished_job(root / str(number), INFERENCES // boards, layers=LAYERS, model=AICORE_ONLY)
            addresses.append(stack.enter_context(board(root / str(number), identity=f"bench-{number}")).address)
        for repeat in range(REPEATS):
            captured = capture(addresses, root / f"workspace-{repeat}", INFERENCES // boards * boards * LAYERS)
            rates.append(captured.rate)
    return rates


async def _live(root: Path, boards: int) -> tuple[list[float], float, int]:
    """Milliseconds from writes to rows; of the record, its share of a core meanwhile, and its peak memory."""
    identities = [f"bench-{number}" for number in range(boards)]
    roots = [root / identity for identity in identities]
    workspace = root / "workspace"
    with ExitStack() as stack:
        arguments: list[str] = []
        for files, identity in zip(roots, identities, strict=True):
            files.mkdir(parents=True)
            arguments += ["--board", stack.enter_context(board(files, identity=identity)).address]
        seen = stack.enter_context(committed_inferences(workspace / "profagent.db"))
        record = Child(stack.enter_context(started(*PROFAGENT, "record", *arguments, "--workspace", workspace)).pid)
        with program(roots, rate=RATE, layers=LAYERS) as profiled:
            share = record.share_of_a_core()
            delays = await delays_ms(profiled, identities, lambda: seen, MEASURED_S)
            return delays, share(), record.peak_bytes()

"""What the daemon costs the board, without a client and with one record."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.bench.measure import MIB, PROFAGENT, Child, report, size_text, spread, started
from tests.bench.programs import program
from tests.daemon.daemon_process import running

if TYPE_CHECKING:
    from pathlib import Path

RATE, LAYERS = 100.0, 100
# Every round has both, so that whatever else runs on the machine meets them alike.
ROUNDS, WINDOW_S = 3, 5.0
# Until files are followed steadily.
SETTLING_S = 1.5
TARGET_PERCENT, TARGET_BYTES = 4, 48 * MIB


def test_cost_of_the_daemon(root: Path) -> None:
    percents: dict[str, list[float]] = defaultdict(list)
    bytes_of: dict[str, list[int]] = defaultdict(list)
    for number in range(ROUNDS):
        board = root / str(number) / "board"
        board.mkdir(parents=True)
        with ExitStack() as stack:
            daemon = stack.enter_context(running("--root", board, "--log-level", "warning"))
            process = Child(daemon.process.pid)
            bytes_of["idle"].append(process.rss_bytes())
            percents["alone"] += _percents(board, [process])
            command = (*PROFAGENT, "record", "--board", daemon.address, "--workspace", board.with_name("workspace"))
            record = Child(stack.enter_context(started(*command)).pid)
            time.sleep(SETTLING_S)
            for name, percent in zip(("daemon", "record"), _percents(board, [process, record]), strict=True):
                percents[name].append(percent)
            bytes_of["daemon"].append(process.peak_bytes())
            bytes_of["record"].append(record.peak_bytes())
    report(
        f"daemon at {RATE * LAYERS:,.0f} records/s in {2 * RATE:g} files/s",
        {
            "daemon without a client": spread(percents["alone"], "% of a core"),
            f"daemon with one record (target: {TARGET_PERCENT} %)": spread(percents["daemon"], "% of a core"),
            "that record": spread(percents["record"], "% of a core"),
            "RSS of the daemon without a client": size_text(max(bytes_of["idle"])),
            f"RSS of the daemon with one, peak (target: {size_text(TARGET_BYTES)})": size_text(max(bytes_of["daemon"])),
            "RSS of the record, peak": size_text(max(bytes_of["record"])),
        },
    )


def _percents(board: Path, processes: list[Child]) -> list[float]:
    """Run the program; percents of one core that the processes took meanwhile."""
    with program(board, rate=RATE, layers=LAYERS) as profiled:
        time.sleep(SETTLING_S)
        shares = [each.share_of_a_core() for each in processes]
        time.sleep(WINDOW_S)
        percents = [100 * share() for share in shares]
        profiled.stop()
    return percents

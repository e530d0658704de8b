"""What the daemon costs the board, and the program that is profiled, without a client and with one record."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.bench.measure import MIB, PROFAGENT, Child, report, size_text, spread, started
from tests.bench.programs import AICORE_ONLY, Program, program
from tests.daemon.daemon_process import running

Begin = Callable[[Path], AbstractContextManager[Program]]

RATE = 100.0
MODELS = [("yolov5s", "4 files an inference"), (AICORE_ONLY, "2 files an inference")]
# Every round has each phase once, so that whatever else runs on the machine meets all of them alike.
ROUNDS, WINDOW_S = 3, 5.0
# Until a phase's files are followed steadily.
SETTLING_S = 1.5
TARGET_PERCENT, TARGET_BYTES = 4, 48 * MIB
PHASES = ("no daemon", "a daemon", "a daemon and its client")


@dataclass(slots=True)
class Cost:
    """What was seen in all rounds; shares are percents of one core, work is microseconds an inference."""

    without: list[float] = field(default_factory=list)
    followed: list[float] = field(default_factory=list)
    record: list[float] = field(default_factory=list)
    idle_bytes: list[int] = field(default_factory=list)
    followed_bytes: list[int] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    record_bytes: list[int] = field(default_factory=list)
    work_us: dict[str, list[float]] = field(default_factory=lambda: {phase: [] for phase in PHASES})


@pytest.mark.parametrize(("model", "files"), MODELS)
@pytest.mark.parametrize("layers", [100, 200])
def test_cost_of_the_daemon(layers: int, model: str | Path, files: str, root: Path) -> None:
    cost = Cost()
    for number in range(ROUNDS):
        _round(root / str(number), partial(program, rate=RATE, layers=layers, model=model), cost)
    figures = {
        "daemon without a client": spread(cost.without, "% of a core"),
        f"daemon with one record (target at 10,000 records/s: {TARGET_PERCENT} %)": spread(
            cost.followed, "% of a core"
        ),
        "that record": spread(cost.record, "% of a core"),
        "RSS of the daemon without a client": size_text(max(cost.idle_bytes)),
        "RSS of the daemon with one": size_text(max(cost.followed_bytes)),
        f"RSS of the daemon with one, peak (target: {size_text(TARGET_BYTES)})": size_text(max(cost.peak_bytes)),
        "RSS of the record, peak": size_text(max(cost.record_bytes)),
    }
    report(
        f"daemon at {RATE:g} inferences/s of {layers} aicore records ({RATE * layers:,.0f} records/s), {files}",
        figures | _felt(cost.work_us),
    )


def _round(root: Path, begin: Begin, cost: Cost) -> None:
    board = root / "board"
    board.mkdir(parents=True)
    _phase(board, begin, [], cost.work_us["no daemon"])
    with ExitStack() as stack:
        daemon = stack.enter_context(running("--root", board, "--log-level", "warning"))
        process = Child(daemon.process.pid)
        cost.idle_bytes.append(process.rss_bytes())
        cost.without += _phase(board, begin, [process], cost.work_us["a daemon"])
        command = (*PROFAGENT, "record", "--board", daemon.address, "--workspace", root / "workspace")
        record = Child(stack.enter_context(started(*command)).pid)
        time.sleep(SETTLING_S)
        shares = _phase(board, begin, [process, record], cost.work_us["a daemon and its client"])
        cost.followed.append(shares[0])
        cost.record.append(shares[1])
        cost.followed_bytes.append(process.rss_bytes())
        cost.peak_bytes.append(process.peak_bytes())
        cost.record_bytes.append(record.peak_bytes())


def _phase(board: Path, begin: Begin, processes: list[Child], work_us: list[float]) -> list[float]:
    """Run the program; percents of one core that the processes took meanwhile."""
    with begin(board) as profiled:
        time.sleep(SETTLING_S)
        since, before_s = time.monotonic(), [each.cpu_s() for each in processes]
        time.sleep(WINDOW_S)
        until, after_s = time.monotonic(), [each.cpu_s() for each in processes]
        profiled.stop()
    work_us += profiled.work_us(since, until)
    return [100 * (after - before) / (until - since) for before, after in zip(before_s, after_s, strict=True)]


def _felt(work_us: dict[str, list[float]]) -> dict[str, str]:
    """The program's own work for an inference: making its records and writing its files, without its pacing."""
    figures: dict[str, str] = {}
    alone = statistics.median(work_us[PHASES[0]])
    for phase, took in work_us.items():
        lower, median, upper = statistics.quantiles(took, n=4)
        figures[f"the program's own loop, {phase}"] = (
            f"{median:.0f} µs (middle half {lower:.0f}–{upper:.0f}, n={len(took)})"
        )
        if phase != PHASES[0]:
            figures[f"what it feels of {phase}"] = f"{median - alone:+.0f} µs ({median / alone - 1:+.1%})"
    return figures

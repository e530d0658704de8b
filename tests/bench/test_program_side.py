"""What the program pays for a mark, the daemon for descriptors and marks, and the board for its metrics."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from profagent_app import mark, marks, span
from tests.bench.measure import Child, report, spread
from tests.daemon.daemon_process import running

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

CALLS, REPEATS = 20_000, 5
TARGET_US = 3
RATE, SECONDS = 20_000, 5
WINDOW_S = 20.0
TARGET_PERCENT = 0.5
DESCRIPTOR = bytes(256)
HEADER = Path(marks.__file__).parent
C_LOOP = r"""
#include "profagent_mark.h"
#include <stdio.h>
int main(void)
{
    clock_t begin = clock();
    int written = 0;
    for (int at = 0; at < 20000; at++) written += profagent_span("infer", profagent_now());
    printf("%d %.3f\n", written, (double)(clock() - begin) / CLOCKS_PER_SEC / 20000 * 1e6);
    return 0;
}
"""


def _spool_options(root: Path, kinds: str) -> tuple[str | Path, ...]:
    (root / "jobs").mkdir(parents=True)
    return "--root", root / "jobs", "--run", root / "run", "--spools", kinds, "--log-level", "warning"


def _waited_for(path: Path) -> Path:
    while not path.exists():
        time.sleep(0.01)
    return path


def _call_us(call: Callable[[], None]) -> float:
    begin = time.thread_time()  # what others do on the machine meanwhile does not count
    for _ in range(CALLS):
        call()
    return (time.thread_time() - begin) / CALLS * 1e6


def _spanned() -> None:
    with span("infer"):
        pass


def _marked() -> None:
    mark("frame", id=7)


async def _tasks_us() -> float:
    return _call_us(_spanned)


def test_cost_of_a_mark(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(*_spool_options(root, "marks")):
        _waited_for(root / "run" / "marks")
        monkeypatch.setenv("PROFAGENT_RUN", str(root / "run"))
        monkeypatch.setattr(marks, "WRITER", marks.MarkWriter())
        (root / "loop.c").write_text(C_LOOP)
        compiler = ("gcc", "-O2", "-std=c99", "-pthread", f"-I{HEADER}", "-o", root / "loop")
        subprocess.run([*compiler, root / "loop.c"], check=True)
        told = [
            subprocess.run([root / "loop"], capture_output=True, text=True, check=True).stdout for _ in range(REPEATS)
        ]
        figures = {
            f"`with span` (target: {TARGET_US} µs)": spread([_call_us(_spanned) for _ in range(REPEATS)], "µs", 2),
            f"`mark` with an attribute (target: {TARGET_US} µs)": spread(
                [_call_us(_marked) for _ in range(REPEATS)], "µs", 2
            ),
            "`with span` in an asyncio task": spread([asyncio.run(_tasks_us()) for _ in range(REPEATS)], "µs", 2),
            "`profagent_span` in C": spread([float(each.split()[1]) for each in told], "µs", 2),
        }
    report(f"processor time of a mark that the daemon takes in, {CALLS:,} in a row", figures)


def test_cost_of_a_subscription(root: Path) -> None:
    with running(*_spool_options(root, "ops")) as daemon:
        fifo = os.open(_waited_for(root / "run" / "ops.program"), os.O_WRONLY)
        share = Child(daemon.process.pid).share_of_a_core()
        late_ms, begin = [], time.monotonic()
        for number in range(RATE * SECONDS):
            due = begin + number / RATE
            while (now := time.monotonic()) < due:
                time.sleep(0)
            late_ms.append(1000 * (now - due))
            os.write(fifo, DESCRIPTOR)
        took_s, percent = time.monotonic() - begin, 100 * share()
        os.close(fifo)
    figures = {
        "descriptors a second, as they were taken": f"{RATE * SECONDS / took_s:,.0f}",
        "the daemon": f"{percent:.1f} % of a core",
        "behind the schedule, p50 and most": f"{statistics.median(late_ms):.3f}, {max(late_ms):.0f} ms",
    }
    report(f"subscription: {RATE:,} descriptors/s for {SECONDS} s, no host", figures)


def test_cost_of_the_metrics(root: Path) -> None:
    shares = {}
    for kinds in ("", "metrics"):
        with running(*_spool_options(root / (kinds or "none"), kinds)) as daemon:
            time.sleep(2)
            process, seen = Child(daemon.process.pid), []
            for _ in range(3):
                share = process.share_of_a_core()
                time.sleep(WINDOW_S)
                seen.append(100 * share())
            shares[kinds] = seen
    figures = {
        "daemon without metrics": spread(shares[""], "% of a core", 2),
        f"with all of them at 1 Hz (target: {TARGET_PERCENT} % more)": spread(shares["metrics"], "% of a core", 2),
    }
    report("all collectors of this machine", figures)

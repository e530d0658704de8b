"""What bounds a flat-out capture: where py-spy finds the threads of `record`, and of the daemon, at work."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from aiosqlite import core

from profagentd.loop import _Pool
from tests.bench.boards import board, finished_job
from tests.bench.captures import RECORD_ALL
from tests.bench.measure import CHECKOUT, PROFAGENT, environment, report
from tests.bench.programs import AICORE_ONLY

PY_SPY = CHECKOUT / ".venv-bench/bin/py-spy"
LAYERS, INFERENCES = 100, 3000
SAMPLES_A_SECOND = "250"
SHOWN = 12


def _waits_at(function: Callable[..., object], call: str) -> int:
    """The line of a function at which its thread waits in a call."""
    lines, first = inspect.getsourcelines(function)
    return first + next(place for place, line in enumerate(lines) if call in line)


# Threads that wait for work stand here; py-spy does not know all of them as idle.
WAITING = (
    f"_connection_worker_thread (aiosqlite/core.py:{_waits_at(core._connection_worker_thread, 'tx.get()')})",
    f"_Pool._work (profagentd/loop.py:{_waits_at(_Pool._work, '.get(')})",
    "_worker (concurrent",
    "select (selectors",
    "_poll_wrapper",
    "wait (threading",
    "run (threading",
    "_bootstrap",
)
# By the first of these that the path of a frame holds, from the innermost frame outwards.
PARTS = {
    "profagent/store/": "rows into SQLite",
    "aiosqlite/": "rows into SQLite",
    "profagent/ingest/mirror.py": "files of the mirror",
    "profagent/files.py": "files of the mirror",
    "profagent/ingest/": "decoding",
    "profagent/formats/": "decoding",
    "profagent/link/": "messages",
    "profagent/record/capture.py": "messages",
    "profagent/record/": "between the parts",
    "profagentd/": "the daemon's own modules",
    "grpc/": "gRPC's own Python",
    "asyncio/": "the event loop",
    "importlib": "importing modules",
}


@pytest.mark.parametrize("side", ["record", "daemon"])
def test_where_the_time_goes(side: str, root: Path) -> None:
    assert PY_SPY.exists(), "make .venv-bench/ready makes the environment of this benchmark"
    finished_job(root / "board", INFERENCES, layers=LAYERS, model=AICORE_ONLY)
    samples = root / "samples"
    spy = [str(PY_SPY), "record", "--rate", SAMPLES_A_SECOND, "--threads", "--format", "raw", "--output", str(samples)]
    with board(root / "board") as daemon:
        command = [*PROFAGENT, "record", "--board", daemon.address, *RECORD_ALL, "--workspace", str(root / "workspace")]
        if side == "record":
            subprocess.run([*spy, "--", *command], env=environment(), check=True, stdout=sys.stderr)
        else:
            with subprocess.Popen([*spy, "--pid", str(daemon.process.pid)], stdout=sys.stderr) as watching:
                subprocess.run(command, env=environment(), check=True, stdout=sys.stderr)
                daemon.process.terminate()
                watching.wait()
    stacks = [line.rpartition(" ") for line in samples.read_text().splitlines()]
    working = {tuple(stack.split(";")): int(count) for stack, _, count in stacks if not _waits(stack)}
    report(f"flat out, {LAYERS * INFERENCES:,} records: where {side} works", _shares(Counter(working)))


def _waits(stack: str) -> bool:
    innermost = stack.rpartition(";")[2]
    return any(waiting in innermost for waiting in WAITING)


def _shares(stacks: Counter[tuple[str, ...]]) -> dict[str, str]:
    parts: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for frames, count in stacks.items():
        parts[_part(frames)] += count
        own = next((frame for frame in reversed(frames) if "profagent" in frame), frames[-1])
        functions[own] += count
    total = sum(parts.values())
    shares = {part: f"{count / total:.0%}" for part, count in parts.most_common()}
    return shares | {f"`{name}`": f"{count / total:.1%}" for name, count in functions.most_common(SHOWN)}


def _part(frames: tuple[str, ...]) -> str:
    found = (part for frame in reversed(frames) for path, part in PARTS.items() if path in frame)
    return next(found, "everything else")

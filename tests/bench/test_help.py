"""How long `profagent --help` takes, beside the interpreter that it needs."""

from __future__ import annotations

import statistics
import sys

from tests.bench.measure import PROFAGENT, report, run, spread

REPEATS = 20
COMMANDS = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "python -c 'import click'": (sys.executable, "-c", "import click"),
    "profagent --help": (*PROFAGENT, "--help"),
}


def test_help() -> None:
    walls_ms: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(REPEATS):
        # Taken in turn, so that whatever else runs on the machine meets all three alike.
        for name, command in COMMANDS.items():
            walls_ms[name].append(run(*command).wall_s * 1000)
    medians = {name: statistics.median(walls) for name, walls in walls_ms.items()}
    figures = {name: spread(walls, "ms", 0) for name, walls in walls_ms.items()}
    for name in list(COMMANDS)[:-1]:
        figures[f"profagent --help / {name}"] = f"{medians['profagent --help'] / medians[name]:.1f} times"
    report("profagent --help", figures)

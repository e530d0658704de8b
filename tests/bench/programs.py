"""A profiled program that runs in a process of its own, and what it has to tell in the end."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tests.bench.measure import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).with_name("board_program.py")
# Its inferences have aicore records only, so two files each: data and `.done`.
AICORE_ONLY = Path(__file__).with_name("aicore_network.toml")


class Program:
    """A running program; `stop` unloads its model, which finishes its JOB."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.written: dict[int, float] = {}
        """When each inference was there, on the monotonic clock; known after `stop`."""

    def stop(self) -> None:
        """End it well."""
        output, _ = self._process.communicate()
        self.written = msgspec.json.decode(output, type=dict[int, float])


@contextmanager
def program(
    *roots: Path, rate: float, layers: int, model: str | Path = AICORE_ONLY, backlog: int = 0
) -> Iterator[Program]:
    """A program that has run `backlog` inferences, and runs `rate` more a second, below each root."""
    options = {"roots": list(map(str, roots)), "model": str(model), "layers": layers, "rate": rate, "backlog": backlog}
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), msgspec.json.encode(options).decode()],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Program(process)
    finally:
        process.kill()
        process.communicate()

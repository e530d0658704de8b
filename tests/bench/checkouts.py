"""Measuring this checkout and, with --against, another one in turns, each with its own code."""

from __future__ import annotations

import os
import statistics
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from tests.bench.measure import CHECKOUT, Child, Run, report_table, run, spread
from tests.daemon.daemon_process import serving
from tests.fakes.ports import own_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")
TURNS = 3
ROOTS = ("protos", "daemon", "agent")


@dataclass(frozen=True, slots=True)
class Checkout:
    """A clone of the repository, with a `.venv` of its own."""

    name: str
    path: Path

    @property
    def variables(self) -> dict[str, str]:
        """Variables with which a child process runs this code, which is compiled once."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**variables, "PYTHONPATH": os.pathsep.join(str(self.path / root) for root in ROOTS)}

    def command(self, *arguments: str | Path) -> list[str | Path]:
        """The command line of its `profagent`."""
        return [self._python, "-c", "from profagent.cli.main import main; main()", *arguments]

    def profagent(self, *arguments: str | Path) -> Run:
        """Run its `profagent` to the end; it must end well."""
        return run(*self.command(*arguments), variables=self.variables)

    @contextmanager
    def daemon(self, root: Path) -> Iterator[tuple[str, Child]]:
        """Run its daemon over a directory, as a board of its own: the address, and the process."""
        with tempfile.TemporaryDirectory(prefix="profagentd-state-") as state:
            where = ("--listen", f"127.0.0.1:{own_port()}", "--state", state, "--identity", str(uuid4()))
            command = (self._python, "-m", "profagentd", "--spools=", *where, "--root", root, "--log-level", "warning")
            with serving(command, self.variables) as daemon:
                yield daemon.address, Child(daemon.process.pid)

    @property
    def _python(self) -> Path:
        return self.path / ".venv" / "bin" / "python"


THIS = Checkout("this", CHECKOUT)


def in_turns(checkouts: Sequence[Checkout], measure: Callable[[Checkout], T], turns: int = TURNS) -> list[list[T]]:
    """Measure each checkout so many times; the order alternates, as the machine's speed changes within minutes."""
    found: list[list[T]] = [[] for _ in checkouts]
    for number in range(turns):
        for place in range(len(checkouts))[:: -1 if number % 2 else 1]:
            found[place].append(measure(checkouts[place]))
    return found


def report_compared(
    title: str, checkouts: Sequence[Checkout], rows: Mapping[str, Sequence[Sequence[float]]], digits: int = 2
) -> None:
    """Print a line for each figure: median, least and most of each checkout, and the ratio of the medians."""
    ratios = [f"{checkouts[0].name} / {other.name}" for other in checkouts[1:]]
    lines = []
    for name, values in rows.items():
        middle, *others = map(statistics.median, values)
        cells = [spread(each, digits=digits) for each in values]
        lines.append([name, *cells, *(f"{middle / other:.3f}" for other in others)])
    report_table(title, ["", *(each.name for each in checkouts), *ratios], lines)

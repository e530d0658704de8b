"""Fixtures of the benchmarks: a line about the machine, and JOBs that several of them use."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagentd.simulate.run import SimulationOptions
from tests.bench.captures import ShapedJobs
from tests.bench.checkouts import THIS, Checkout
from tests.bench.measure import PROFAGENT, machine, report, run
from tests.daemon.simulated_job import write_job

if TYPE_CHECKING:
    from collections.abc import Iterator

LAYERS, INFERENCES = 100, 10_000
MEMORY = Path("/dev/shm")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against", type=Path, help="another clone, whose .venv is made, to measure in turns with this one"
    )


@pytest.fixture(scope="session")
def checkouts(request: pytest.FixtureRequest) -> list[Checkout]:
    """Return this checkout, and the one that it is compared with."""
    against: Path | None = request.config.getoption("--against")
    return [THIS, *([Checkout("against", against.resolve())] if against else [])]


@pytest.fixture(scope="session", autouse=True)
def _machine(tmp_path_factory: pytest.TempPathFactory) -> None:
    report("machine", machine(tmp_path_factory.getbasetemp()))


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    """Removed when the last benchmark has ended: right after many files were deleted, making others takes longer."""
    with tempfile.TemporaryDirectory(prefix="profagent-bench-") as directory:
        yield Path(directory)


@pytest.fixture
def root(scratch: Path) -> Path:
    """A directory of a benchmark's own."""
    return Path(tempfile.mkdtemp(dir=scratch))


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in memory: what the disk takes for a file changes more than what is measured."""
    with tempfile.TemporaryDirectory(prefix="profagent-bench-", dir=MEMORY) as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def shaped_jobs() -> Iterator[ShapedJobs]:
    """Finished JOBs with more or fewer records a file."""
    with tempfile.TemporaryDirectory(prefix="profagent-bench-") as directory:
        yield ShapedJobs(Path(directory))


@pytest.fixture(scope="session")
def million_job() -> Iterator[Path]:
    """A finished JOB of 1,000,000 aicore records in 10,000 files."""
    with tempfile.TemporaryDirectory(prefix="profagent-bench-") as directory:
        options = SimulationOptions(layers=LAYERS, rate=100.0)
        yield write_job(Path(directory), options, INFERENCES, gaps=False)


@pytest.fixture(scope="session")
def imported_job(million_job: Path) -> Path:
    """The same JOB with its database."""
    run(*PROFAGENT, "import", "-dir", million_job)
    return million_job

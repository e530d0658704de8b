"""An import into a workspace survives SIGKILL as a recording does: run again, it completes what was begun."""

from __future__ import annotations

import itertools
import random
import signal
from pathlib import Path

import pytest

from profagent.record.recording import Step
from tests.fakes.dumps import Dump, dump, files_of, imported, write_files
from tests.fakes.small_job import SMALL_JOB
from tests.faults.forked import exit_code, forked, kill_after
from tests.faults.importer import main
from tests.faults.scripted_board import JOB
from tests.integration.rows import query

KILLS = 16
# A flight recorder alone takes the other steps.
OF_A_BATCH = (Step.MIRRORED, Step.SYNCED, Step.COMMITTED, Step.ACKNOWLEDGED)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Dump:
    return imported(tmp_path_factory.mktemp("imported") / JOB, SMALL_JOB)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_files(tmp_path / JOB, SMALL_JOB)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


def run(workspace: Path, job: Path, when: str = "-") -> int:
    return exit_code(forked(main, workspace, job, when))


def check_the_end(workspace: Path, job: Path, expected: Dump) -> None:
    """The mirror is the JOB, untouched; the rows are those of an import into the JOB; one session, ended."""
    assert files_of(job) == files_of(workspace / "mirror" / "import" / JOB) == SMALL_JOB
    assert dump(workspace / "profagent.db") == expected
    database = workspace / "profagent.db"
    assert query(database, "SELECT count(*), count(ended_us) FROM session") == [(1, 1)]
    assert query(database, "SELECT DISTINCT generation FROM log") == [(1,)]
    assert query(database, "SELECT 1 FROM ledger_entry WHERE origin = 'link'") == []


@pytest.mark.parametrize("step", OF_A_BATCH)
@pytest.mark.parametrize("batch", [0, 4])
def test_a_kill_at_a_step_of_a_batch(workspace: Path, job: Path, expected: Dump, batch: int, step: Step) -> None:
    assert run(workspace, job, f"{batch}:{step.value}") == -signal.SIGKILL
    dump(workspace / "profagent.db")  # it does not contradict itself
    assert run(workspace, job) == 0
    check_the_end(workspace, job, expected)


@pytest.mark.long
def test_kills_at_every_step_one_after_the_other(workspace: Path, job: Path, expected: Dump) -> None:
    batches = random.Random(11)
    for _, step in zip(range(KILLS), itertools.cycle(OF_A_BATCH), strict=False):
        assert run(workspace, job, f"{batches.randrange(3)}:{step.value}") == -signal.SIGKILL
        dump(workspace / "profagent.db")
    assert run(workspace, job) == 0
    check_the_end(workspace, job, expected)


def test_kills_at_any_moment(workspace: Path, job: Path, expected: Dump) -> None:
    moments = random.Random(12)
    for _ in range(8):
        kill_after(forked(main, workspace, job, "-"), moments.uniform(0.05, 0.5))
    assert run(workspace, job) == 0
    check_the_end(workspace, job, expected)

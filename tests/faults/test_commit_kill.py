"""Before anything else it survives SIGKILL: nothing is lost, nothing is there twice, whichever step it died at."""

from __future__ import annotations

import itertools
import random
import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from profagent.record.recording import Step
from tests.fakes.dumps import Dump, check, dump, files_of, imported, without_states
from tests.fakes.small_job import SMALL_JOB
from tests.faults.forked import exit_code, forked, kill_after
from tests.faults.recorder import main
from tests.faults.scripted_board import IDENTITIES, JOB
from tests.integration.rows import query, so_far

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

KILLS = 24
# A flight recorder alone takes the other steps.
OF_A_BATCH = (Step.MIRRORED, Step.SYNCED, Step.COMMITTED, Step.ACKNOWLEDGED)
LOGS = "SELECT identity, path, generation, offset, complete FROM log JOIN job USING (job) JOIN board USING (board)"
RECORD_BYTES = {"aicore": 256, "aicpu": 128}
# An import of the mirror has the same; it cannot tell which files went before their end.
ROWS = ("layers", "segments", "inferences", "op_records", "aicpu_records", "api_records")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Dump:
    """What both boards have: the same JOB."""
    once = imported(tmp_path_factory.mktemp("imported") / JOB, SMALL_JOB)
    return {table: sorted(rows * len(IDENTITIES), key=repr) for table, rows in once.items()}


def recorded(workspace: Path, seed: int, when: str = "-", gone: Iterable[str] = ()) -> int:
    """Run a recorder; its exit code, which is negative for a signal."""
    return exit_code(forked(main, workspace, seed, when, [*gone]))


def check_what_is_left(workspace: Path) -> None:
    """What was acknowledged is in the database, and what is in the database is in the mirror."""
    with closing(sqlite3.connect(workspace / "profagent.db")) as connection:
        check(connection)
        logs = {(board, path): row for board, path, *row in connection.execute(LOGS)}
        for line in (workspace / "acknowledged").read_text("utf-8").splitlines():
            board, path, generation, offset, _ = line.split(" ")
            assert (logs[board, path][0], logs[board, path][1]) >= (int(generation), int(offset))
        for (board, path), (generation, offset, _) in logs.items():
            copy = workspace / "mirror" / board / JOB / path
            aside = workspace / "superseded" / board / JOB / f"{path}.{generation}"
            sizes = [file.stat().st_size for file in (copy, aside) if file.exists()]
            assert max(sizes, default=0) >= offset, f"{path}, generation {generation}"
        for unit, size in RECORD_BYTES.items():
            whole = "SELECT count(*) FROM log WHERE kind = ?"
            (records,) = connection.execute(f"SELECT count(*) FROM {unit}").fetchone()
            (held,) = connection.execute(
                whole.replace("count(*)", f"ifnull(sum(offset / {size}), 0)"), (unit,)
            ).fetchone()
            assert records == held


def ended_sessions(workspace: Path) -> dict[str, int]:
    """How many sessions each board has whose sessions are all over: the next process begins another for it."""
    counts = "SELECT identity, count(*) FROM session JOIN board USING (board) GROUP BY board"
    return dict(so_far(workspace / "profagent.db", f"{counts} HAVING count(*) = count(ended_us)"))


def check_the_end(workspace: Path, expected: Dump, sessions: Mapping[str, int] | None = None) -> None:
    """Each mirror is its board's, and the rows are those of an import, in at most so many `sessions` (1).

    Of a file that was made anew it is told where bytes of the earlier one were held.
    """
    for board in IDENTITIES:
        mirror = workspace / "mirror" / board / JOB
        held = {str(path.relative_to(mirror)): path.read_bytes() for path in mirror.rglob("*") if path.is_file()}
        assert held == SMALL_JOB
    assert dump(workspace / "profagent.db") == expected
    counts = "SELECT identity, count(*), count(ended_us) FROM session JOIN board USING (board) GROUP BY board"
    for identity, begun, ended in query(workspace / "profagent.db", counts):
        assert begun == ended
        assert begun <= (sessions or {}).get(identity, 1)
    assert told_on_the_way(workspace) <= {"recreated"}


def told_on_the_way(workspace: Path) -> set[str]:
    reasons = "SELECT reason FROM ledger_entry WHERE origin = 'link'"
    return {reason for (reason,) in query(workspace / "profagent.db", reasons)}


def test_a_recording_that_nobody_kills(tmp_path: Path, expected: Dump) -> None:
    assert recorded(tmp_path, 0) == 0
    check_what_is_left(tmp_path)
    check_the_end(tmp_path, expected)
    assert told_on_the_way(tmp_path) == {"recreated"}


@pytest.mark.parametrize("step", OF_A_BATCH)
@pytest.mark.parametrize("batch", [0, 7, 16])
def test_a_kill_at_a_step_of_a_batch(tmp_path: Path, expected: Dump, batch: int, step: Step) -> None:
    assert recorded(tmp_path, batch, f"{batch}:{step.value}") == -signal.SIGKILL
    check_what_is_left(tmp_path)
    assert recorded(tmp_path, batch + 100) == 0
    check_the_end(tmp_path, expected)


@pytest.mark.parametrize(("batch", "step"), [(3, Step.MIRRORED), (9, Step.SYNCED), (16, Step.COMMITTED)])
def test_what_goes_from_the_board_after_a_kill_is_the_same_in_mirror_and_rows(
    tmp_path: Path, batch: int, step: Step
) -> None:
    """Data that was never committed is a loss, and stands aside; a `.done` and its like came whole, and is taken."""
    workspace = tmp_path / "workspace"
    assert recorded(workspace, batch, f"{batch}:{step.value}") == -signal.SIGKILL
    arrived = {board: files_of(workspace / "mirror" / board / JOB) for board in IDENTITIES}
    gone = {path for files in arrived.values() for path in files}
    # What one finds that dies at once, the next one finds as well.
    assert recorded(workspace, 1, "0:mirrored", gone) == -signal.SIGKILL
    assert recorded(workspace, 2, "-", gone) == 0
    rows: Dump = {}
    for board, files in arrived.items():
        mirrored = files_of(workspace / "mirror" / board / JOB)
        assert SMALL_JOB.keys() - gone <= mirrored.keys()
        for path in files.keys() - mirrored.keys():
            assert ("loss", "removed-unread") in told_of(workspace, board, path)
            assert (workspace / "superseded" / board / JOB / f"{path}.uncommitted").read_bytes() == files[path]
        for table, of_board in without_states(imported(tmp_path / board / JOB, mirrored)).items():
            rows[table] = sorted(rows.get(table, []) + of_board, key=repr)
    found = without_states(dump(workspace / "profagent.db"))
    assert {table: found[table] for table in ROWS} == {table: rows[table] for table in ROWS}


def told_of(workspace: Path, board: str, path: str) -> list[tuple[str, str]]:
    """Grades and reasons of the entries of a board's file."""
    sql = "SELECT grade, reason FROM ledger JOIN sessions USING (session) WHERE board = ? AND log = ?"
    return query(workspace / "profagent.db", sql, board, path)


@pytest.mark.long
def test_kills_at_every_step_one_after_the_other(tmp_path: Path, expected: Dump) -> None:
    """Every process goes on where the one before it died."""
    batches = random.Random(7)
    for seed, step in zip(range(KILLS), itertools.cycle(OF_A_BATCH), strict=False):
        code = recorded(tmp_path, seed, f"{batches.randrange(6)}:{step.value}")
        assert code == -signal.SIGKILL, "what is held is told again, so there are always batches"
        check_what_is_left(tmp_path)
    assert recorded(tmp_path, KILLS) == 0
    check_the_end(tmp_path, expected)


def test_a_kill_at_any_moment(tmp_path: Path, expected: Dump) -> None:
    """A board whose session was over before the kill may have one more; any other goes on with its own."""
    moments = random.Random(4)
    sessions: dict[str, int] = {}
    for seed in range(8):
        kill_after(forked(main, tmp_path, seed, "-", []), moments.uniform(0.05, 0.5))
        if (tmp_path / "acknowledged").exists() and (tmp_path / "acknowledged").stat().st_size:
            check_what_is_left(tmp_path)
        ended = ended_sessions(tmp_path)
        sessions |= {identity: count + 1 for identity, count in ended.items()}
        if len(ended) == len(IDENTITIES):
            break
    else:
        assert recorded(tmp_path, 99) == 0
    check_the_end(tmp_path, expected, sessions)

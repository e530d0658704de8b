"""JOBs of other programs on the board are not taken for those of the program that `collect` runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.link.boards_file import BoardEntry, BoardsFile
from tests.board.busybox_path import login_settings
from tests.board.sshd import Sshd, running_sshd
from tests.integration.board import content, running
from tests.integration.host import profagent, started

if TYPE_CHECKING:
    from tests.board.bench import Bench


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A board whose Python is the tests' own."""
    folder = tmp_path_factory.mktemp("sshd")
    with running_sshd(folder, settings=login_settings(folder, "gnu")) as server:
        yield server


def assert_only_its_own(bench: Bench, *more: str | Path) -> None:
    ended = bench.collect("--interval", "1", "--json", *more)
    assert ended.code == 0, ended.err
    document = ended.document
    assert (len(document["jobs"]), document["causes"]) == (1, []), document
    session = document["session"]
    assert (len(session["jobs"]), session["ledger"]["loss"], session["earlier"]) == (1, {}, []), session
    (job,), (board_job,) = bench.jobs, bench.board_jobs
    assert content(job) == content(board_job)


@pytest.mark.parametrize("still_served", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_job_that_a_record_left_open(bench: Bench, home: Path, tmp_path: Path, still_served: bool) -> None:
    """The board has it still: the daemon that serves the run knows of it, or serves another directory."""
    for folder in (tmp_path / "other", bench.remote):
        folder.mkdir()
    with running("--simulate", "--rate", "5", "--root", tmp_path / "other", "--root", bench.remote) as daemon:
        record = ("record", "--board", daemon.address, "--workspace", bench.workspace, "--inferences", "2")
        assert profagent(*record, **bench.variables).code == 0
        if still_served:
            entry = BoardEntry("euler", daemon.address, ssh=bench.friend.target)
            BoardsFile(home / ".config" / "profagent" / "boards.toml").put(entry)
        assert_only_its_own(bench, *(("--board", "euler") if still_served else ()))


@pytest.mark.long
def test_two_jobs_of_which_nobody_can_tell_which_is_the_programs(served: Bench) -> None:
    """The other one goes on growing."""
    with started(*served.arguments("--json", "--release", "--", "20", "0.1", "unload"), **served.variables) as host:
        host.err.until("inference 3")
        output = served.remote / "profiling"
        with running("--simulate", "--rate", "2", "--root", output):
            ended = host.ended()
    assert ended.code == 0, ended.err
    first, second = [cause["text"] for cause in ended.document["causes"]][:2]
    names = sorted(path.name for path in served.board_jobs)
    assert len(names) == 2
    assert all(name in first for name in names)
    assert "which of them are its own cannot be told" in first
    assert "was written to after the program had ended" in second

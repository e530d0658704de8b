"""Whoever is killed, at whatever moment: after a restart nothing is lost and nothing is there twice."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.board import GrowingJob, content, eventually, mirrored, running, simulated
from tests.integration.host import profagent, started
from tests.integration.rows import imported_rows, link_ledger, query, rows_of

if TYPE_CHECKING:
    from tests.daemon.daemon_process import Daemon

# Many starts of a process, on a machine that has much else to do.
pytestmark = pytest.mark.timeout(300)
# After each loss of its link a host waits longer.
KILLS = 2
RATE = 50


@contextmanager
def simulating(root: Path) -> Iterator[Daemon]:
    """A simulated board that serves its own JOB."""
    arguments = ("--simulate", "--rate", str(RATE), "--for", "300", "--model", "mobilenetv2", "--layers", "20")
    with running("--root", root, *arguments) as daemon:
        assert eventually(lambda: any(root.iterdir()))
        yield daemon


def _has_recorded(root: Path, inferences: int) -> bool:
    """Wait until the simulated board has left so many."""
    return eventually(lambda: len(list(root.glob("JOB*/data/aicore*.done"))) > inferences)


def _is_followed(workspace: Path) -> bool:
    """Wait until records have come: a JOB that ends before is not waited for."""
    return eventually(lambda: len(list(workspace.glob("mirror/*/JOB*/data/aicore*.done"))) > 3)


def _check(root: Path, workspace: Path, inferences: float) -> None:
    """One JOB, the same on the board, in the mirror and in the rows; and enough of it to mean something."""
    (job,) = root.iterdir()
    assert mirrored(workspace) == content(job)
    rows = rows_of(workspace / "profagent.db", job.name)
    assert rows == imported_rows(job, workspace / "imported")
    assert len(rows["inferences"]) > inferences


def test_a_job_that_finished_while_nobody_recorded_is_fetched_by_the_session_that_began_it(
    root: Path, tmp_path: Path
) -> None:
    with (
        simulating(root) as npu,
        running("--root", root) as board,
        started("watch", "--board", board.address, "--from-start") as watcher,
    ):
        arguments = ("--board", board.address, "--workspace", tmp_path / "workspace")
        with started("record", *arguments) as host:
            assert _is_followed(tmp_path / "workspace")
            host.process.kill()
        assert _has_recorded(root, RATE)
        assert npu.stop() == 0
        watcher.out.until("is finished")
        ended = profagent("record", *arguments, "--until-finished", "--json")
    assert (ended.code, ended.document["session"]) == (0, 1)
    _check(root, tmp_path / "workspace", RATE)


def test_a_file_made_anew_whose_notice_died_with_the_process_is_told_after_the_restart(
    root: Path, tmp_path: Path
) -> None:
    """As a kill leaves it between the mirror and the rows: the earlier file set aside, a part of the new one there."""
    job, workspace = simulated(root, 3), tmp_path / "workspace"
    log = next(path for path in sorted((job / "data").glob("aicore*")) if path.suffix != ".done")
    with running("--root", root, "--quiet-after", "1") as board:
        arguments = ("--board", board.address, "--workspace", workspace, "--backlog", "--until-finished", "--json")
        assert profagent("record", *arguments).code == 0
        (mirror,) = workspace.glob(f"mirror/*/{job.name}")
        aside = workspace / "superseded" / mirror.parent.name / job.name / "data" / f"{log.name}.1"
        aside.parent.mkdir(parents=True)
        (mirror / "data" / log.name).rename(aside)
        whole = log.read_bytes()
        log.unlink()
        log.write_bytes(whole[256:] + whole[:256])
        (mirror / "data" / log.name).write_bytes(log.read_bytes()[:300])
        ended = profagent("record", *arguments)
    assert ended.code == 0, ended.err
    assert mirrored(workspace) == content(job)
    assert rows_of(workspace / "profagent.db", job.name) == imported_rows(job, tmp_path / "imported")
    assert ("data/" + log.name, "note", "different") in link_ledger(workspace / "profagent.db", job.name)
    assert aside.read_bytes() == whole


def test_a_job_that_is_removed_while_nobody_records_is_told_and_waited_for_no_longer(
    root: Path, tmp_path: Path
) -> None:
    job = GrowingJob(simulated(tmp_path / "source"), root, 3)
    for _ in job.grow(job.paths("data/aicore*")[:1]):
        pass
    with running("--root", root) as board:
        arguments = ("--board", board.address, "--workspace", tmp_path / "workspace")
        with started("record", *arguments) as host:
            assert eventually(lambda: len(list(tmp_path.glob("workspace/mirror/*/*/data/aicore*"))) == 1)
            host.process.kill()
        shutil.rmtree(job.directory)
        ended = profagent("record", *arguments, "--until-finished", "--json")
    assert (ended.code, ended.document["session"]) == (4, 1)
    assert ended.document["ledger"]["loss"] == {"removed-open": 1}


def test_a_begun_log_that_is_removed_while_nobody_records_is_a_loss(root: Path, tmp_path: Path) -> None:
    source = simulated(tmp_path / "source")
    job = GrowingJob(source, root, 3)
    begun = job.paths("data/aicore*")[0]
    for _ in job.grow([begun], until={begun: 256}):
        pass
    workspace = tmp_path / "workspace"
    with running("--root", root) as board:
        arguments = ("--board", board.address, "--workspace", workspace)
        with started("record", *arguments) as host:
            assert eventually(lambda: [copy.stat().st_size for copy in workspace.glob("mirror/*/*/data/aic*")] == [256])
            committed = "SELECT offset FROM log WHERE kind = 'aicore'"
            assert eventually(lambda: query(workspace / "profagent.db", committed) == [(256,)])
            host.process.kill()
        (job.directory / begun).unlink()
        for path in {*job.paths("*"), *job.paths("data/*"), *job.paths("data/*.done")} - {begun, f"{begun}.done"}:
            job.write(path)
        ended = profagent("record", *arguments, "--until-finished", "--json")
    assert (ended.code, ended.document["session"]) == (4, 1)
    assert ended.document["ledger"]["loss"] == {"removed-unread": 1}
    assert link_ledger(workspace / "profagent.db", source.name) == [(begun, "loss", "removed-unread")]


def test_both_are_killed_and_go_on(root: Path, tmp_path: Path) -> None:
    workspace, moments = tmp_path / "workspace", random.Random(22)
    with simulating(root) as board, running("--root", root) as first:
        arguments = ("--board", first.address, "--workspace", workspace)
        first.process.kill()
        first.process.wait()
        for kill in range(KILLS):
            with running("--root", root, listen=first.address) as daemon, started("record", *arguments) as host:
                host.err.until("recording")
                time.sleep(moments.uniform(0.0, 0.6))
                # One goes before the other, which is killed when the context is left.
                (daemon if kill % 2 else host).process.kill()
        with running("--root", root, listen=first.address):
            # Asked to end, the simulated board finishes its JOB first.
            assert board.stop() == 0
            ended = profagent("record", *arguments, "--until-finished", "--json")
    assert ended.code == 0, ended.err
    assert (ended.document["session"], ended.document["complete"]) == (1, True)
    assert query(workspace / "profagent.db", "SELECT count(*), count(ended_us) FROM session") == [(1, 1)]
    _check(root, workspace, RATE)

"""The board's wall clock is set while its JOB is captured: nothing is lost or hangs, and what it showed is kept."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path

from tests.daemon.daemon_process import Daemon, environment, serving
from tests.faults.captures import Link, recording
from tests.faults.proxy import Ending, Way
from tests.integration.board import content, eventually, mirrored
from tests.integration.rows import imported_rows, link_ledger, query, rows_of

DAY_US = 86_400_000_000
YEAR_US = 365 * DAY_US
# By how much a sample may be off on a machine that has much else to do.
SLACK_US = 5_000_000


def clocked(ahead: Path, *arguments: str | Path) -> AbstractContextManager[Daemon]:
    """A daemon that reads its wall clock with what a file says."""
    started = [sys.executable, "-m", "tests.faults.clocked_daemon", ahead, "--listen", "127.0.0.1:0", *arguments]
    return serving(started, environment("protos", "daemon", "."))


def set_clock(ahead: Path, by_us: int) -> None:
    """At once, as a clock is set."""
    new = ahead.with_suffix(".new")
    new.write_text(str(by_us), "ascii")
    new.rename(ahead)


def has_samples(database: Path, count: int) -> bool:
    return eventually(lambda: query(database, "SELECT count(*) FROM clock_sample") == [(count,)])


def goes_on(link: Link, linked: int) -> None:
    """Bytes still come; another link is made, and another sample of the clocks with it."""
    link.proxy.wait_for(lambda: link.proxy.carried[Way.DOWN] > 0)
    link.carries(30_000)
    link.proxy.cut(Ending.RST)
    link.linked(linked)
    link.carries(30_000)


def test_the_boards_wall_clock_is_set_back_a_day_and_forward_a_year(tmp_path: Path) -> None:
    ahead, root, workspace = tmp_path / "ahead", tmp_path / "root", tmp_path / "workspace"
    set_clock(ahead, 0)
    root.mkdir()
    database = workspace / "profagent.db"
    state = ("--state", tmp_path / "state")
    simulated = ("--simulate", "--rate", "20", "--model", "mobilenetv2", "--layers", "40", "--state", tmp_path / "npu")
    with clocked(ahead, "--root", root, *simulated) as npu, clocked(ahead, "--root", root, *state) as board:
        assert eventually(lambda: any(root.iterdir()))
        (job,) = root.iterdir()
        with recording(board.address, workspace) as link:
            assert has_samples(database, 1)
            for linked, ahead_us in enumerate((-DAY_US, YEAR_US), 2):
                set_clock(ahead, ahead_us)
                goes_on(link, linked)
                assert has_samples(database, linked)
                assert query(database, "SELECT state FROM job WHERE name LIKE 'JOB%'") == [("open",)]
            npu.stop()
            ended = link.host.ended()
    assert ended.code == 0, ended.err
    assert mirrored(workspace) == content(job)
    rows = rows_of(database, job.name)
    assert rows == imported_rows(job, tmp_path / "imported")
    assert link_ledger(database, job.name) == []
    samples = [offset_us for (offset_us,) in query(database, "SELECT offset_us FROM clock_sample ORDER BY rowid")]
    expected = (0, -DAY_US, YEAR_US)
    assert all(abs(offset - set_to) < SLACK_US for offset, set_to in zip(samples, expected, strict=True)), samples

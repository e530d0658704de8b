"""A `collect` from a board whose programs are BusyBox's; a daemon runs there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.board.busybox_path import login_settings
from tests.board.sshd import Sshd, running_sshd
from tests.integration.board import content, eventually
from tests.integration.host import started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.board.bench import Bench


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A board without GNU's programs."""
    folder = tmp_path_factory.mktemp("sshd")
    with running_sshd(folder, settings=login_settings(folder, "busybox")) as server:
        yield server


def test_a_job_lands_and_ctrl_c_is_heard(served: Bench) -> None:
    run = ("--interval", "1", "--", "1000", "0.1", "unload")
    with started(*served.arguments(*run), **served.variables) as host:
        host.out.until("inference 3")
        ended = host.interrupt()
    assert ended.code == 0, ended.err
    (job,), (board_job,) = served.jobs, served.board_jobs
    assert content(job) == content(board_job)
    assert eventually(served.is_tidy)
    released = served.collect("--release")
    assert released.code == 0, released.err
    # No daemon can be brought without a Python.
    assert "the board's own daemon serves, and what has come is deleted at the end" in released.err
    assert served.board_jobs == [board_job]

"""Several logs in one go, up to a message's size."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from profagentd.clock import Moment
from profagentd.events import Chunk, Loss
from profagentd.following import CHUNK_BYTES
from profagentd.log import Log
from profagentd.logs import LogKind
from profagentd.opening import Place
from profagentd.turns import Turn, take_turns
from tests.daemon.daemon_process import make_job
from tests.daemon.test_opening import open_descriptors

NOW = Moment(100.0, 0)


def turn(job: Path, name: str, content: bytes) -> Turn:
    path = job / "data" / name
    path.write_bytes(content)
    log = Log(1, 1, b"data/" + name.encode(), LogKind.DATA, 0, 0.0)
    log.hold(0, 0, b"")
    return Turn(log, Place(os.fsencode(job.parent), os.fsencode(job.name)), check=False)


def test_logs_of_several_jobs_have_their_turns_in_order(tmp_path: Path) -> None:
    turns = [turn(make_job(tmp_path, number % 2 + 5 * number), "a", b"%d" % number) for number in range(3)]
    steps = take_turns(turns, NOW)
    data = [event.data for step in steps for event in step.events if isinstance(event, Chunk)]
    assert data == [b"0", b"1", b"2"]


def test_no_more_is_read_than_a_message_holds(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    turns = [turn(job, name, bytes(CHUNK_BYTES // 2)) for name in "abcd"]
    assert len(take_turns(turns, NOW)) == 2
    assert [each.log.sent for each in turns] == [CHUNK_BYTES // 2] * 2 + [0, 0]


def test_an_unread_log_of_a_removed_job_goes_with_it(tmp_path: Path) -> None:
    unread = turn(make_job(tmp_path), "a", b"x")._replace(is_removed=True)
    unread.log.come_unasked()
    (step,) = take_turns([unread], NOW)
    assert [event.reason.value for event in step.events if isinstance(event, Loss)] == ["removed-unseen"]


def test_everything_is_closed_again(tmp_path: Path) -> None:
    turns = [turn(make_job(tmp_path, number), "a", b"x") for number in range(3)]
    gc.collect()  # what earlier tests left open is not closed meanwhile
    before = open_descriptors()
    take_turns(turns, NOW)
    assert open_descriptors() == before

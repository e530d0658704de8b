"""What retention deleted: known by series and picture count, for as long as the JOB stands, over restarts."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import pytest

from profagentd.board import Board
from profagentd.changes import Touch
from profagentd.custody import Custody
from profagentd.deleted import FILE_NAME, JOBS_LIMIT, LOST_LIMIT, SERIES_LIMIT, Deleted
from profagentd.events import StartReason
from profagentd.kept_deliveries import KeptDeliveries
from profagentd.log import Log
from profagentd.logs import LogKind
from profagentd.losses import KeptLosses
from profagentd.opening import Place
from profagentd.retention import Policy
from profagentd.roots import Roots
from tests.daemon.clocks import FakeClock

PLACE, OTHER = Place(b"/r", b"JOBA"), Place(b"/r", b"JOBB")
CALLS = b"data/acl_api.0.m.3"


def path(count: int, model: int = 3) -> bytes:
    return b"data/aicore.0.m.%d.0.1.1.%d" % (model, count)


async def test_a_series_is_known_up_to_the_highest_count_that_went() -> None:
    deleted = Deleted(None)
    deleted.note(PLACE, [path(7), path(7) + b".done", path(2)])
    assert [deleted.has(PLACE, path(count)) for count in (0, 7, 8)] == [True, True, False]
    assert not deleted.has(PLACE, path(0, model=4))
    assert not deleted.has(OTHER, path(0))


async def test_a_log_of_calls_is_a_series_of_its_own() -> None:
    deleted = Deleted(None)
    deleted.note(PLACE, [CALLS])
    assert deleted.has(PLACE, CALLS)
    assert not deleted.has(PLACE, b"data/acl_api.0.m.2")


async def test_it_is_known_after_a_restart_also_of_names_that_are_no_text(tmp_path: Path) -> None:
    odd = b"data/aicore.0.\xff.3.0.1.1.5"

    earlier, deleted = Deleted(tmp_path / "state"), Deleted(tmp_path / "state")
    earlier.note(PLACE, [odd, CALLS])
    await earlier.save()
    await deleted.load()
    assert deleted.has(PLACE, odd)
    assert deleted.has(PLACE, CALLS)
    assert not deleted.has(PLACE, path(0))


async def test_what_cannot_be_read_or_kept_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for text in ("[1]", '{"a": {"b": "c"}}', "{"):
        (tmp_path / FILE_NAME).write_text(text, "ascii")
        await Deleted(tmp_path).load()
    assert len(caplog.records) == 3
    caplog.clear()
    (tmp_path / "file").touch()
    deleted = Deleted(tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        for count in range(2):
            deleted.note(PLACE, [path(count)])
            await deleted.save()
    assert [record.message for record in caplog.records] == [
        f"{tmp_path / 'file'}: File exists: deletions are known in memory only"
    ]
    assert deleted.has(PLACE, path(1))


async def test_a_job_that_was_deleted_itself_is_forgotten_also_after_a_restart(tmp_path: Path) -> None:
    deleted, later = Deleted(tmp_path), Deleted(tmp_path)
    for place in (PLACE, OTHER):
        deleted.note(place, [path(0)])
    await deleted.save()
    deleted.forget(PLACE)
    await deleted.save()
    await later.load()
    for known in (deleted, later):
        assert [known.has(place, path(0)) for place in (PLACE, OTHER)] == [False, True]


async def test_losses_are_known_file_by_file_until_they_prove_to_stand() -> None:
    deleted = Deleted(None)
    deleted.lose(PLACE, [path(0), path(0) + b".done", path(1)])
    assert [deleted.lost(PLACE, each) for each in (path(0), path(0) + b".done", path(2))] == [True, True, False]
    assert not deleted.lost(OTHER, path(0))
    deleted.keep(PLACE, [path(0)])
    assert [deleted.lost(PLACE, path(count)) for count in (0, 1)] == [False, True]
    deleted.lose(PLACE, [path(count) for count in range(2, LOST_LIMIT + 2)])
    assert [deleted.lost(PLACE, path(count)) for count in (1, 2)] == [False, True]


@pytest.mark.parametrize("is_sure", [True, False])
async def test_of_a_file_that_is_made_under_the_name_of_a_lost_one_no_loss_is_kept(*, is_sure: bool) -> None:
    deleted, clock = Deleted(None), FakeClock()
    board = Board(clock, 60.0)
    Custody(Policy(), Roots(()), clock, board, KeptLosses(None), deleted, KeptDeliveries(None), has_npu=False)
    board.found(PLACE, 1, 1, is_scanned=False)
    for place in (PLACE, OTHER):
        deleted.lose(place, [path(0), path(1)])
    board.changed(PLACE, {path(0): Touch.MADE | Touch.WRITTEN, path(1): Touch.DELETED})
    if not is_sure:
        board.unsure(PLACE)
    assert [deleted.lost(PLACE, path(count)) for count in (0, 1)] == [False, is_sure]
    assert deleted.lost(OTHER, path(0))


async def test_it_is_bounded() -> None:
    deleted = Deleted(None)
    for number in range(JOBS_LIMIT + 1):
        deleted.note(Place(b"/r", b"JOB%d" % number), [path(0)])
    assert [deleted.has(Place(b"/r", b"JOB%d" % number), path(0)) for number in (0, 1)] == [False, True]
    # One that goes on is not the earliest.
    deleted.note(Place(b"/r", b"JOB1"), [path(1)])
    deleted.note(OTHER, [path(0)])
    assert [deleted.has(Place(b"/r", b"JOB%d" % number), path(0)) for number in (1, 2)] == [True, False]
    deleted.note(PLACE, [path(0, model) for model in range(SERIES_LIMIT + 1)])
    assert [deleted.has(PLACE, path(0, model)) for model in (0, 1)] == [False, True]


async def test_a_log_that_begins_anew_tells_whether_another_was_deleted() -> None:
    for was_deleted in (True, False):
        log = Log(1, 1, path(0), LogKind.DATA, 10, 0.0)
        log.was_deleted = partial(bool, was_deleted)
        assert log.start(2, StartReason.DIFFERENT, 0.0).after_deletion is was_deleted
        assert log.start(3, StartReason.RECREATED, 0.0).after_deletion is was_deleted
        assert not log.start(4, StartReason.REWRITTEN, 0.0).after_deletion
    assert not Log(1, 1, path(0), LogKind.DATA, 10, 0.0).start(2, StartReason.DIFFERENT, 0.0).after_deletion

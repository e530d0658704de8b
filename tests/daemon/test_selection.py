"""What is told of names that are no logs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profagentd.budget import Budgets
from profagentd.changes import Touch
from profagentd.logs import tables_of
from profagentd.opening import Place
from profagentd.selection import ODD_LIMIT, TABLES_LIMIT, Selection
from profagentd.walk import Page
from tests.daemon.daemon_process import make_job


@pytest.fixture
def selection() -> Selection:
    made = Selection(3, Place(b"/r", b"JOB"), Budgets().names.share())
    made.changes.take_walk()
    return made


def details(selection: Selection, page: Page) -> list[str]:
    return [loss.detail for loss in selection.losses(page, {})]


def test_a_name_that_is_no_file_is_told_once(selection: Selection) -> None:
    (loss,) = selection.losses(Page(odd=[b"data/link\xff"]), {})
    assert (loss.handle, loss.job, loss.reason.value) == (0, 3, "not-a-file")
    assert "data/link" in loss.detail
    assert details(selection, Page(odd=[b"data/link\xff"])) == []


def test_very_many_such_names_are_summed_up(selection: Selection) -> None:
    told = details(selection, Page(odd=[b"%d" % number for number in range(ODD_LIMIT + 50)]))
    assert len(told) == ODD_LIMIT + 1
    assert "more than" in told[-1]
    assert details(selection, Page(odd=[b"another"])) == []


def test_an_unreadable_directory_is_told_once_until_it_is_readable(selection: Selection) -> None:
    assert len(details(selection, Page(unreadable="Permission denied"))) == 1
    assert details(selection, Page(unreadable="Permission denied")) == []
    assert details(selection, Page()) == []
    assert len(details(selection, Page(unreadable="Permission denied"))) == 1


def test_an_ended_selection_tells_what_nobody_looked_at_and_then_wants_nothing(selection: Selection) -> None:
    selection.changes.note(b"a", Touch.WRITTEN)
    selection.end()
    assert selection.is_over
    names = selection.next_names(10)
    page = Page(missing=[b"a"])
    selection.looked(names, page)
    told = [(loss.reason.value, loss.detail) for loss in selection.losses(page, names.touches)]
    assert told == [("removed-unseen", "a was removed before it was read")]
    assert not selection.wants_look
    assert selection.is_looked_at


def test_touched_names_are_looked_at(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    (job / "a").write_bytes(b"abc")
    selection = Selection(1, Place(os.fsencode(tmp_path), os.fsencode(job.name)), Budgets().names.share())
    selection.changes.note(b"a", Touch.WRITTEN)
    selection.changes.note(b"b", Touch.WRITTEN)
    page = selection.next_names(10).look()
    assert [(each.path, each.size) for each in page.logs] == [(b"a", 3)]
    assert page.missing == [b"b"]
    names = selection.next_names(10)
    assert {each.path for each in names.look().logs} == {b"a", b"info.json.0"}


def test_data_that_is_made_while_the_walk_goes_on_brings_its_done(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    name = "aicore.0.m.3.0.1.1.7"
    selection = Selection(1, Place(os.fsencode(tmp_path), os.fsencode(job.name)), Budgets().names.share())
    (job / "data" / f"{name}.done").write_bytes(b"")
    walked = selection.next_names(1)
    selection.looked(walked, walked.look())
    (job / "data" / name).write_bytes(b"abc")
    selection.note(b"data/" + name.encode(), Touch.MADE | Touch.WRITTEN)
    found = selection.next_names(100).look()
    logs = [each.path for each in found.logs]
    assert logs == [b"info.json.0", b"data/" + name.encode(), b"data/" + name.encode() + b".done"]
    assert b"data/aicpu.0.m.3.0.1.1.7" in found.missing
    assert list(selection.losses(found, {})) == []


LOG = b"data/aicore.0.m.3.0.1.1.7"


def test_a_done_that_is_put_back_is_looked_at_alone(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    for path in (LOG, LOG + b".done"):
        (job / path.decode()).write_bytes(b"")
    selection = Selection(1, Place(os.fsencode(tmp_path), os.fsencode(job.name)), Budgets().names.share())
    selection.put_back({LOG + b".done": Touch.MADE})
    names = selection.next_names(10)
    assert [each.path for each in names.look().logs] == [LOG + b".done"]


def test_data_wait_for_a_look_until_their_tables_were_looked_at(selection: Selection) -> None:
    present, *absent = tables_of(LOG)
    selection.note(LOG, Touch.MADE)
    assert selection.take_made(10) == []
    names = selection.next_names(10)
    selection.note(LOG + b".done", Touch.MADE)
    selection.note(absent[0], Touch.MADE)  # while the look did not find it
    selection.looked(names, Page())
    selection.note_tables([present], absent)
    selection.note(b"data/aicpu.0.m.3.0.1.1.7", Touch.MADE)
    assert selection.take_made(10) == [LOG + b".done"]
    selection.note_tables([], absent)
    assert selection.take_made(10) == []
    selection.next_names(1)
    selection.note_tables([], absent)
    assert selection.next_names(0).told == {present}
    assert selection.take_made(10) == [b"data/aicpu.0.m.3.0.1.1.7"]


@pytest.mark.parametrize("is_all", [False, True])
def test_of_a_table_that_may_stand_by_now_nothing_is_known(selection: Selection, *, is_all: bool) -> None:
    selection.note_tables([], tables_of(LOG))
    if is_all:
        selection.find()
        selection.note_tables([], tables_of(LOG)[1:])
    else:
        selection.note(tables_of(LOG)[0], Touch.MADE)
        selection.changes.take(1)
    selection.note(LOG, Touch.MADE)
    assert selection.take_made(10) == []


def test_very_many_tables_are_looked_at_again(selection: Selection) -> None:
    selection.note_tables([b"data/m.%d.net.info" % number for number in range(TABLES_LIMIT + 1)], [])
    selection.note_tables(tables_of(LOG), [])
    assert selection.next_names(1).told == set(tables_of(LOG))


def test_a_done_waits_for_data_that_waits_or_that_only_a_walk_finds(selection: Selection) -> None:
    selection.note_tables(tables_of(LOG), [])
    touches = {b"data/aicpu.0.m.3.0.1.1.7": Touch.HINT, LOG: Touch.MADE, LOG + b".done": Touch.MADE}
    selection.put_back(touches)
    assert selection.take_made(10) == [LOG]
    selection.forget()
    selection.note(LOG + b".done", Touch.MADE)
    assert selection.take_made(0) == []
    assert selection.take_made(10) == [LOG + b".done"]
    selection.find()
    selection.note_tables(tables_of(LOG), [])
    for path, touch in touches.items():
        selection.note(path, touch)
    assert selection.take_made(10) == [LOG]
    assert LOG + b".done" in selection.next_names(10).touches


def test_logs_that_were_made_need_no_look_unless_their_job_is_over_or_missed(selection: Selection) -> None:
    selection.note_tables([], tables_of(LOG))
    log = LOG
    made = [log, log + b".done", b"data/n.0.layer.info", b"data/other.done"]
    for path in made:
        selection.note(path, Touch.MADE)
    selection.miss()
    assert selection.take_made(10) == []
    selection.is_missed = False
    assert selection.take_made(10) == made[:2]
    assert [*selection.next_names(10).touches] == made[2:]
    selection.note(log, Touch.MADE)
    selection.end()
    assert selection.take_made(10) == []

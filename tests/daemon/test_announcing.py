"""Which names of a JOB become announced logs, and which come unasked; what is lost before it is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from profagentd.announcing import LOOK_LOGS, PAGE_ENTRIES, UNSEEN_LOGS
from profagentd.changes import Touch
from profagentd.following import Step
from profagentd.log import Log, Phase, new_digest
from profagentd.selection import Names
from profagentd.walk import Page
from tests.daemon.talk import DATA, FULL, INFO, NOW, Talk, is_caught_up, page

if TYPE_CHECKING:
    from profagentd.stream import Stream


@pytest.fixture
def talk() -> Talk:
    made = Talk(DATA)
    made.follow(made.logs[0])
    return made


# Looks


def test_logs_are_announced_with_handles_that_count_up() -> None:
    talk = Talk(INFO, DATA)
    assert [(log.handle, log.job, log.path) for log in talk.logs] == [(1, 1, INFO), (2, 1, DATA)]


def test_a_log_is_not_announced_twice(talk: Talk) -> None:
    talk.stream.anything_changed(talk.job)
    assert talk.look(page(DATA, INFO))[0].path == INFO


def test_a_log_that_changes_while_it_is_looked_at_has_a_turn(talk: Talk) -> None:
    """Its change came when nobody knew it, and the look ended when it was known already."""
    talk.stream.names_changed(talk.job, {INFO: Touch.WRITTEN})
    first = talk.stream.announcer.next_names(NOW.monotonic)
    talk.stream.names_changed(talk.job, {INFO: Touch.WRITTEN})
    second = talk.stream.announcer.next_names(NOW.monotonic)
    assert first is not None
    assert second is not None
    (log,), _ = talk.stream.announcer.looked(first, page(INFO), NOW)
    talk.follow(log)
    assert talk.stream.announcer.looked(second, page(INFO), NOW) == ([], [])
    assert talk.ready() == [log]


def test_a_walk_goes_on_page_by_page() -> None:
    talk = Talk()
    talk.stream.anything_changed(talk.job)
    names = talk.stream.announcer.next_names(NOW.monotonic)
    assert names is not None
    talk.stream.announcer.looked(names, page(DATA, is_last=False), NOW)
    again = talk.stream.announcer.next_names(NOW.monotonic)
    assert again is not None
    assert again.walk is names.walk
    talk.stream.announcer.looked(again, page(INFO), NOW)
    assert talk.stream.announcer.next_names(NOW.monotonic) is None


def test_changed_names_come_before_the_rest_of_a_walk() -> None:
    talk = Talk()
    talk.stream.anything_changed(talk.job)
    names = talk.stream.announcer.next_names(NOW.monotonic)
    assert names is not None
    talk.stream.announcer.looked(names, page(DATA, is_last=False), NOW)
    talk.stream.names_changed(talk.job, {INFO: Touch.WRITTEN})
    changed = talk.stream.announcer.next_names(NOW.monotonic)
    assert changed is not None
    assert list(changed.touches) == [INFO]


def test_a_full_window_lets_names_wait() -> None:
    talk = Talk(*(b"data/aicore.0.m.3.0.1.1.%d" % number for number in range(FULL)))
    talk.stream.names_changed(talk.job, {INFO: Touch.WRITTEN})
    assert talk.stream.announcer.next_names(NOW.monotonic) is None
    assert talk.stream.announcer.is_short_of_room
    talk.stream.window.forget(talk.logs[0])
    names = talk.stream.announcer.next_names(NOW.monotonic)
    assert names is not None
    assert names.limit == 1
    assert not talk.stream.announcer.is_short_of_room


def test_idle_logs_give_way_when_names_wait_and_the_client_is_told_first() -> None:
    talk = Talk(*(b"data/aicore.0.m.3.0.1.1.%d" % number for number in range(FULL)))
    talk.follow(talk.logs[5])
    talk.logs[5].acknowledged = 3
    talk.stream.names_changed(talk.job, {INFO: Touch.WRITTEN})
    assert talk.stream.announcer.next_names(NOW.monotonic) is None
    assert talk.stream.window.take_released(10) == [talk.logs[5].handle]
    assert talk.stream.announcer.next_names(NOW.monotonic) is not None


def test_a_look_takes_at_most_a_page(talk: Talk) -> None:
    talk.stream.names_changed(talk.job, {b"%d" % number: Touch.MADE for number in range(PAGE_ENTRIES + 1)})
    names = talk.stream.announcer.next_names(NOW.monotonic)
    assert names is not None
    assert len(names.touches) == PAGE_ENTRIES


def test_names_of_a_look_are_those_of_the_jobs_place(talk: Talk) -> None:
    talk.stream.anything_changed(talk.job)
    names = talk.stream.announcer.next_names(NOW.monotonic)
    assert isinstance(names, Names)
    assert names.place == talk.job.place


def test_names_for_which_others_took_the_room_are_looked_at_again(talk: Talk) -> None:
    """The room of a root that is late is others' until it answers."""
    paths = [b"data/aicore.0.model.3.0.%d.1.0" % number for number in range(2, 5)]
    for path in paths:
        talk.stream.names_changed(talk.job, {path: Touch.MADE})
    names = talk.stream.announcer.next_names(NOW.monotonic)
    assert names is not None
    taken = talk.stream.window.room - 1 + names.limit
    talk.stream.logs.take(taken)
    logs, _ = talk.stream.announcer.looked(names, page(*paths), NOW)
    assert [log.path for log in logs] == paths[:1]
    talk.stream.logs.give_back(taken)
    again = talk.stream.announcer.next_names(NOW.monotonic)
    assert again is not None
    assert again.touches == dict.fromkeys(paths[1:], Touch.MADE)


def test_a_done_for_which_there_was_no_room_is_looked_at_without_its_data(talk: Talk) -> None:
    """Else they would be announced again and again, and take its room."""
    path = b"data/aicore.0.m.3.0.1.1.0"
    talk.stream.names_changed(talk.job, {path: Touch.WRITTEN, path + b".done": Touch.WRITTEN})
    names = talk.stream.announcer.next_names(NOW.monotonic)
    assert names is not None
    talk.stream.logs.take(taken := talk.stream.window.room + names.limit - 1)
    talk.stream.announcer.looked(names, page(path, path + b".done"), NOW)
    talk.stream.logs.give_back(taken)
    again = talk.stream.announcer.next_names(NOW.monotonic)
    assert again is not None
    assert again.touches == {path + b".done": Touch.WRITTEN | Touch.COVERED}


def test_what_is_brought_is_announced_in_messages_of_the_wires_size(talk: Talk) -> None:
    paths = [b"data/aicore.0.m.3.0.1.1.%d" % number for number in range(PAGE_ENTRIES + 1)]
    talk.stream.anything_changed(talk.job)
    assert len(talk.look(page(*paths))) == PAGE_ENTRIES
    assert [log.path for log in talk.look(page(paths[-1]))] == paths[-1:]


def test_what_was_brought_and_is_known_has_no_turn(talk: Talk) -> None:
    talk.stream.names_changed(talk.job, {INFO: Touch.WRITTEN})
    found = page(DATA, INFO)
    found.brought = {DATA}
    assert [log.path for log in talk.look(found)] == [INFO]
    assert talk.ready() == []


# Losses


def lost(touch: Touch, talk: Talk) -> list[str]:
    talk.stream.names_changed(talk.job, {INFO: touch})
    talk.look(Page(missing=[INFO]))
    return [loss.reason.value for loss in talk.losses]


@pytest.mark.parametrize("touch", [Touch.MADE | Touch.DELETED, Touch.WRITTEN, Touch.MADE])
def test_what_came_and_went_unseen_is_a_loss(talk: Talk, touch: Touch) -> None:
    assert lost(touch, talk) == ["removed-unread"]


@pytest.mark.parametrize(("path", "reasons"), [(DATA, ["removed-unread"]), (INFO, [])])
def test_what_was_gone_before_another_was_made_is_a_loss_of_data(path: bytes, reasons: list[str]) -> None:
    """Of what is rewritten whole, the last state counts."""
    talk = Talk()
    talk.stream.names_changed(talk.job, {path: Touch.MADE | Touch.WRITTEN | Touch.DELETED})
    talk.stream.names_changed(talk.job, {path: Touch.MADE})
    assert [log.path for log in talk.look(page(path))] == [path]
    assert [loss.reason.value for loss in talk.losses] == reasons


def test_an_unasked_log_that_waits_for_its_turn_was_made_before_it_is_made_again() -> None:
    talk = Talk()
    talk.stream.names_changed(talk.job, {DATA: Touch.MADE})
    (log,) = talk.stream.announcer.take_made(NOW.monotonic)
    talk.stream.names_changed(talk.job, {DATA: Touch.DELETED | Touch.MADE})
    assert log.news & Touch.REMADE


def test_what_a_kept_loss_counts_is_not_lost_once_more(talk: Talk) -> None:
    talk.stream.announcer.was_lost = lambda place, path: (place, path) == (talk.job.place, INFO)
    assert lost(Touch.MADE | Touch.DELETED, talk) == []


@pytest.mark.parametrize("touch", [Touch.MADE | Touch.MOVED, Touch.HINT])
def test_what_was_moved_or_may_have_changed_is_no_loss(talk: Talk, touch: Touch) -> None:
    assert lost(touch, talk) == []


@pytest.mark.parametrize("touch", [Touch.DELETED, Touch.MOVED])
def test_what_was_merely_removed_is_not_looked_for(talk: Talk, touch: Touch) -> None:
    talk.stream.names_changed(talk.job, {INFO: touch, DATA + b".done": touch})
    assert talk.stream.announcer.next_names(NOW.monotonic) is None


def test_a_missing_log_that_is_announced_tells_itself(talk: Talk) -> None:
    talk.stream.anything_changed(talk.job)
    talk.ready()
    talk.look(Page(missing=[DATA]))
    assert talk.losses == []
    assert talk.ready() == talk.logs


# Logs that come unasked


@pytest.fixture
def unasked() -> Talk:
    """A stream in which a log that was made has come unasked, and three bytes of it."""
    made = Talk()
    made.stream.names_changed(made.job, {DATA: Touch.MADE})
    made.logs = made.stream.announcer.take_made(NOW.monotonic)
    (turn,) = made.stream.take_turns(1, NOW.monotonic)
    assert turn.log.comparison is not None
    turn.log.go_on(turn.log.comparison, new_digest())
    turn.log.took(b"abc")
    made.stream.window.stepped(turn.log, Step())
    return made


def hold(stream: Stream, *, skip: bool = False, generation: int = 0) -> None:
    stream.hold(1, skip=skip, generation=generation, offset=0, prefix_digest=b"")


def test_a_log_that_was_made_is_announced_and_sent_without_a_look_or_an_answer(unasked: Talk) -> None:
    (log,) = unasked.logs
    assert (log.handle, log.job, log.path, log.sent, log.unasked) == (1, 1, DATA, 3, True)
    assert unasked.stream.announcer.next_names(NOW.monotonic) is None
    assert unasked.stream.announcer.is_answered
    assert is_caught_up(unasked.stream)


@pytest.mark.parametrize(
    ("path", "touch"),
    [
        (INFO, Touch.MADE),
        (DATA, Touch.WRITTEN),
        (DATA, Touch.MADE | Touch.DELETED),
    ],
    ids=["no data log", "not made", "deleted"],
)
def test_others_are_looked_at_and_asked_about(path: bytes, touch: Touch) -> None:
    talk = Talk()
    talk.stream.names_changed(talk.job, {path: touch})
    assert talk.stream.announcer.take_made(NOW.monotonic) == []
    (log,) = talk.look(page(path))
    assert not log.unasked
    assert talk.ready() == []


def made(talk: Talk) -> list[bytes]:
    return [log.path for log in talk.stream.announcer.take_made(NOW.monotonic)]


def test_of_logs_that_were_made_as_many_come_unasked_as_there_is_room_for() -> None:
    talk = Talk()
    paths = [b"data/aicore.0.m.3.0.1.1.%d" % number for number in range(3)]
    talk.stream.names_changed(talk.job, dict.fromkeys(paths, Touch.MADE))
    taken = talk.stream.window.room - LOOK_LOGS - 1
    talk.stream.logs.take(taken)
    assert made(talk) == paths[:1]
    assert made(talk) == []
    talk.stream.logs.give_back(taken)
    assert made(talk) == paths[1:]


def test_a_file_that_is_made_anew_before_it_is_told_that_another_is_gone_comes(unasked: Talk) -> None:
    (log,) = unasked.logs
    log.phase = Phase.OVER  # a look has found it to be gone, and that is not told yet
    unasked.stream.names_changed(unasked.job, {DATA: Touch.MADE})
    unasked.stream.window.forget(log)
    assert made(unasked) == [DATA]


def test_a_job_is_caught_up_once_more_though_a_contested_log_had_its_turn_at_that_moment(
    unasked: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_caught_up(unasked.stream)
    monkeypatch.setattr(Log, "contest", Log.begin_again)
    monkeypatch.setattr(unasked.logs[0], "unasked", True)
    hold(unasked.stream, generation=4)
    assert unasked.ready() == unasked.logs
    assert is_caught_up(unasked.stream)


def test_where_many_logs_wait_for_their_turn_others_that_were_made_are_looked_at() -> None:
    talk = Talk()
    paths = [b"data/aicore.0.m.3.0.1.1.%d" % number for number in range(UNSEEN_LOGS + 2)]
    talk.stream.names_changed(talk.job, dict.fromkeys(paths, Touch.MADE))
    assert made(talk) == paths[:UNSEEN_LOGS]
    assert made(talk) == []
    (asked,) = talk.look(page(paths[-1]))
    assert (asked.unasked, talk.stream.window.lag_bytes) == (False, 10)


def test_a_log_that_was_made_while_a_look_found_it_is_announced_once() -> None:
    talk = Talk()
    talk.stream.anything_changed(talk.job)
    names = talk.stream.announcer.next_names(NOW.monotonic)
    assert names is not None
    talk.stream.names_changed(talk.job, {DATA: Touch.MADE})
    (log,), _ = talk.stream.announcer.looked(names, page(DATA), NOW)
    assert talk.stream.announcer.take_made(NOW.monotonic) == []
    assert talk.stream.window.of_job(1) == [log]
    talk.follow(log)
    assert talk.stream.announcer.take_made(NOW.monotonic) == []


def test_a_job_is_caught_up_once_more_after_a_log_was_contested_though_it_is_open(unasked: Talk) -> None:
    assert is_caught_up(unasked.stream)
    hold(unasked.stream, generation=4)
    assert not is_caught_up(unasked.stream)
    assert unasked.ready() == unasked.logs
    assert is_caught_up(unasked.stream)


@pytest.mark.parametrize("skip", [True, False])
def test_a_job_is_not_caught_up_anew_when_nothing_comes_again(unasked: Talk, *, skip: bool) -> None:
    assert is_caught_up(unasked.stream)
    hold(unasked.stream, skip=skip)
    assert unasked.ready() == []
    assert not is_caught_up(unasked.stream)


def test_what_is_no_file_is_looked_at_and_its_handle_is_over(unasked: Talk) -> None:
    unasked.stream.announcer.look_at(unasked.logs[0])
    assert unasked.stream.window.take_released(10) == [1]
    assert unasked.look(Page(odd=[DATA])) == []
    assert [(loss.handle, loss.reason.value) for loss in unasked.losses] == [(0, "not-a-file")]
    unasked.stream.announcer.look_at(unasked.logs[0])
    assert unasked.stream.announcer.next_names(NOW.monotonic) is None

"""One client's stream without any I/O: what it is told, what it may ask, what is due next."""

from __future__ import annotations

import pytest

from profagentd.budget import Budgets
from profagentd.changes import Touch
from profagentd.following import Step
from profagentd.log import Phase, new_digest
from profagentd.refusal import Fault, Refusal
from profagentd.state import JobState
from profagentd.stream import Stream
from profagentd.walk import Page
from tests.daemon.daemon_process import job_name
from tests.daemon.talk import DATA, INFO, NOW, Talk, is_caught_up, new_job, page


@pytest.fixture
def talk() -> Talk:
    made = Talk(DATA)
    made.follow(made.logs[0])
    return made


# JOBs


def test_a_job_is_told_once_for_each_state() -> None:
    stream, job = Stream(Budgets()), new_job()
    stream.job_changed_state(job)
    assert [view.handle for view in stream.take_statuses()] == [1]
    assert stream.take_statuses() == []
    stream.job_changed_state(job)
    assert [view.handle for view in stream.take_statuses()] == [1]


def test_jobs_have_handles_in_their_order() -> None:
    stream = Stream(Budgets())
    for number in range(3):
        stream.job_changed_state(new_job(number))
    assert [(view.handle, view.job.name) for view in stream.take_statuses()] == [
        (number + 1, job_name(number)) for number in range(3)
    ]


@pytest.mark.parametrize("handle", [0, 2])
def test_a_job_that_never_was_is_refused(handle: int) -> None:
    stream = Stream(Budgets())
    stream.job_changed_state(new_job())
    with pytest.raises(Refusal) as refusal:
        stream.select([handle], [])
    assert refusal.value.fault is Fault.INVALID
    with pytest.raises(Refusal):
        stream.select([], [handle])


def test_nothing_is_looked_at_before_a_job_is_selected() -> None:
    stream, job = Stream(Budgets()), new_job()
    stream.job_changed_state(job)
    stream.names_changed(job, {DATA: Touch.WRITTEN})
    stream.anything_changed(job)
    stream.names_removed(job)
    assert stream.announcer.next_names(0.0) is None
    assert not is_caught_up(stream)


def test_selecting_twice_changes_nothing(talk: Talk) -> None:
    talk.stream.select([1], [])
    assert talk.stream.announcer.next_names(NOW.monotonic) is None


def test_the_first_look_is_a_walk_and_then_names_that_changed(talk: Talk) -> None:
    talk.stream.names_changed(talk.job, {INFO: Touch.MADE, b"x": Touch.WRITTEN})
    names = talk.stream.announcer.next_names(NOW.monotonic)
    assert names is not None
    assert dict(names.touches) == {INFO: Touch.MADE, b"x": Touch.WRITTEN}
    assert names.walk is None


def test_unfollowing_releases_all_logs_and_forgets_what_was_to_be_looked_at(talk: Talk) -> None:
    talk.stream.names_changed(talk.job, {INFO: Touch.MADE})
    talk.stream.select([], [1])
    assert talk.stream.window.take_released(10) == [talk.logs[0].handle]
    assert talk.stream.announcer.next_names(NOW.monotonic) is None
    assert talk.logs[0].phase is Phase.OVER


def test_a_look_that_ends_after_its_job_was_given_up_announces_nothing(talk: Talk) -> None:
    talk.stream.names_changed(talk.job, {INFO: Touch.MADE})
    names = talk.stream.announcer.next_names(NOW.monotonic)
    assert names is not None
    talk.stream.select([], [1])
    assert talk.stream.announcer.looked(names, page(INFO), NOW) == ([], [])


def test_a_removed_job_is_told_after_its_logs(talk: Talk) -> None:
    talk.job.state = JobState.REMOVED
    talk.stream.job_changed_state(talk.job)
    assert talk.stream.take_statuses() == []
    (turn,) = talk.stream.take_turns(1, NOW.monotonic)
    turn.log.phase = Phase.OVER
    talk.stream.window.stepped(turn.log, Step())
    assert [view.handle for view in talk.stream.take_statuses()] == [1]
    talk.stream.select([1], [])
    assert talk.stream.announcer.next_names(NOW.monotonic) is None


def removed(talk: Talk) -> None:
    talk.job.state = JobState.REMOVED
    talk.stream.job_changed_state(talk.job)


def told(talk: Talk) -> list[str]:
    return [f"{loss.reason.value}: {loss.detail}" for loss in talk.losses]


def test_names_that_nobody_looked_at_are_lost_with_their_job_which_is_told_after_them() -> None:
    talk = Talk()
    paths = [DATA, b"data/aicore.0.model.3.0.2.1.0"]
    talk.stream.names_changed(talk.job, {**dict.fromkeys(paths, Touch.MADE), INFO: Touch.DELETED})
    removed(talk)
    assert talk.stream.take_statuses() == []
    talk.look(Page(missing=paths))
    assert told(talk) == [f"removed-unseen: {path.decode()} was removed before it was read" for path in paths]
    assert [view.handle for view in talk.stream.take_statuses()] == [1]


def test_names_that_are_looked_at_while_their_job_goes_are_lost() -> None:
    talk = Talk()
    talk.stream.names_changed(talk.job, {DATA: Touch.WRITTEN, INFO: Touch.MADE})
    names = talk.stream.announcer.next_names(NOW.monotonic)
    removed(talk)
    assert names is not None
    assert talk.stream.take_statuses() == []
    found = page(DATA)
    found.missing.append(INFO)
    logs, talk.losses = talk.stream.announcer.looked(names, found, NOW)
    assert logs == []
    assert told(talk) == [f"removed-unseen: {path.decode()} was removed before it was read" for path in (INFO, DATA)]
    assert [view.handle for view in talk.stream.take_statuses()] == [1]


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_job_that_goes_before_all_of_it_was_walked_is_a_loss(*, is_begun: bool) -> None:
    talk = Talk()
    talk.stream.anything_changed(talk.job)
    if is_begun:
        talk.follow(talk.look(page(DATA, is_last=False))[0])
    removed(talk)
    talk.look(Page())
    assert told(talk) == ["removed-unseen: the JOB was removed before all of it was looked at"]
    assert talk.stream.announcer.next_names(NOW.monotonic) is None


def test_what_stands_where_a_job_was_is_another_ones() -> None:
    talk = Talk()
    talk.stream.names_changed(talk.job, {DATA: Touch.WRITTEN})
    removed(talk)
    assert talk.look(page(DATA)) == []
    assert talk.losses == []


def test_a_job_whose_logs_were_all_announced_goes_without_a_loss(talk: Talk) -> None:
    talk.stream.names_changed(talk.job, {DATA: Touch.DELETED, b"data/released": Touch.DELETED})
    removed(talk)
    assert talk.stream.announcer.next_names(NOW.monotonic) is None


def test_a_job_made_again_has_another_handle(talk: Talk) -> None:
    talk.stream.window.forget(talk.logs[0])
    talk.job.state = JobState.REMOVED
    talk.stream.job_changed_state(talk.job)
    talk.stream.take_statuses()
    talk.stream.job_changed_state(new_job())
    assert [view.handle for view in talk.stream.take_statuses()] == [2]


# What clients say of logs


def test_a_log_has_its_first_turn_after_its_holding() -> None:
    talk = Talk(DATA)
    assert talk.ready() == []
    talk.stream.names_changed(talk.job, {DATA: Touch.WRITTEN})
    assert talk.ready() == []
    talk.stream.hold(1, skip=False, generation=0, offset=0, prefix_digest=b"")
    assert talk.ready() == talk.logs


def test_a_skipped_log_is_over_and_not_told() -> None:
    talk = Talk(DATA)
    talk.stream.hold(1, skip=True, generation=0, offset=0, prefix_digest=b"")
    assert talk.stream.window.take_released(10) == []
    talk.stream.names_changed(talk.job, {DATA: Touch.WRITTEN})
    assert talk.look(page(DATA))[0].handle == 2


def test_a_second_holding_is_refused(talk: Talk) -> None:
    with pytest.raises(Refusal):
        talk.stream.hold(1, skip=False, generation=0, offset=0, prefix_digest=b"")


def test_an_offset_without_a_generation_is_refused() -> None:
    talk = Talk(DATA)
    with pytest.raises(Refusal):
        talk.stream.hold(1, skip=False, generation=0, offset=1, prefix_digest=bytes(16))


def test_words_about_a_log_that_is_over_are_passed_over(talk: Talk) -> None:
    talk.stream.window.forget(talk.logs[0])
    talk.stream.hold(1, skip=False, generation=9, offset=9, prefix_digest=b"")
    talk.stream.window.acknowledge(1, generation=9, offset=9, complete=True)


@pytest.mark.parametrize(("generation", "offset"), [(1, 4), (2, 0), (2, 3)])
def test_acknowledging_what_was_not_sent_is_refused(talk: Talk, generation: int, offset: int) -> None:
    with pytest.raises(Refusal):
        talk.stream.window.acknowledge(1, generation=generation, offset=offset, complete=False)


def test_acknowledging_an_earlier_generation_is_passed_over(talk: Talk) -> None:
    talk.logs[0].generation = 2
    talk.stream.window.acknowledge(1, generation=1, offset=99, complete=True)
    assert talk.logs[0].acknowledged == 0


def test_acknowledging_a_completion_that_was_not_told_is_refused(talk: Talk) -> None:
    with pytest.raises(Refusal):
        talk.stream.window.acknowledge(1, generation=1, offset=3, complete=True)


def test_acknowledgements_never_go_back(talk: Talk) -> None:
    talk.stream.window.acknowledge(1, generation=1, offset=3, complete=False)
    talk.stream.window.acknowledge(1, generation=1, offset=1, complete=False)
    assert talk.logs[0].acknowledged == 3


def test_a_verified_completion_releases_the_log(talk: Talk) -> None:
    talk.logs[0].complete()
    talk.stream.window.acknowledge(1, generation=1, offset=3, complete=True)
    assert talk.stream.window.take_released(10) == [1]


def test_a_completion_verified_after_more_was_sent_releases_nothing(talk: Talk) -> None:
    talk.logs[0].complete()
    talk.logs[0].digest = new_digest(b"abc")  # as it was compared again
    talk.logs[0].took(b"d")
    talk.stream.window.acknowledge(1, generation=1, offset=3, complete=True)
    assert talk.stream.window.take_released(10) == []


# Changes


def test_a_changed_log_has_a_turn(talk: Talk) -> None:
    talk.stream.names_changed(talk.job, {DATA: Touch.WRITTEN})
    assert talk.ready() == talk.logs
    assert not talk.logs[0].doubted


def test_a_done_gives_its_data_a_turn(talk: Talk) -> None:
    talk.stream.names_changed(talk.job, {DATA + b".done": Touch.MADE})
    assert talk.ready() == talk.logs
    assert not talk.logs[0].doubted


def test_a_done_of_data_that_was_released_lets_it_be_looked_at(talk: Talk) -> None:
    talk.stream.window.release(talk.logs[0])
    talk.stream.names_changed(talk.job, {DATA + b".done": Touch.MADE})
    names = talk.stream.announcer.next_names(NOW.monotonic)
    assert names is not None
    assert dict(names.touches) == {DATA + b".done": Touch.MADE, DATA: Touch.HINT}


def test_a_data_log_made_anew_is_doubted(talk: Talk) -> None:
    talk.stream.names_changed(talk.job, {DATA: Touch.MADE})
    assert talk.logs[0].doubted
    assert talk.logs[0].news is Touch.MADE


def test_removed_names_give_every_log_a_turn(talk: Talk) -> None:
    talk.stream.names_removed(talk.job)
    assert talk.ready() == talk.logs
    assert not talk.logs[0].doubted


def test_when_anything_may_have_changed_logs_are_doubted_and_the_job_walked(talk: Talk) -> None:
    for _ in range(2):
        talk.stream.anything_changed(talk.job)
    assert talk.ready() == talk.logs
    assert talk.logs[0].doubted
    assert talk.logs[0].news is Touch.UNSURE
    names = talk.stream.announcer.next_names(NOW.monotonic)
    assert names is not None
    assert names.walk is not None


# Caught up


def test_a_job_is_caught_up_when_nothing_is_due(talk: Talk) -> None:
    assert is_caught_up(talk.stream)
    assert not is_caught_up(talk.stream)


def test_a_client_follows_all_when_it_has_chosen_each_job() -> None:
    stream = Stream(Budgets())
    assert stream.follows_all
    for number in range(2):
        stream.job_changed_state(new_job(number))
    stream.take_statuses()
    stream.select([1], [])
    assert not stream.follows_all
    stream.select([2], [1])
    assert stream.follows_all


def test_a_job_is_not_caught_up_before_its_walk() -> None:
    stream = Stream(Budgets())
    stream.job_changed_state(new_job())
    stream.take_statuses()
    stream.select([1], [])
    assert not is_caught_up(stream)


def test_a_job_is_not_caught_up_while_a_holding_is_missing() -> None:
    assert not is_caught_up(Talk(DATA).stream)


def test_a_job_is_not_caught_up_while_a_log_waits(talk: Talk) -> None:
    talk.stream.window.stepped(talk.logs[0], Step(due=200.0))
    assert not is_caught_up(talk.stream)


def test_an_open_job_is_caught_up_once(talk: Talk) -> None:
    assert is_caught_up(talk.stream)
    talk.stream.names_changed(talk.job, {DATA: Touch.WRITTEN})
    talk.ready()
    assert not is_caught_up(talk.stream)


@pytest.mark.parametrize("state", [JobState.FINISHED, JobState.QUIET])
def test_each_state_is_caught_up_anew_and_again_after_a_doubt(talk: Talk, state: JobState) -> None:
    assert is_caught_up(talk.stream)
    talk.job.state = state
    talk.stream.job_changed_state(talk.job)
    assert not is_caught_up(talk.stream)
    talk.stream.take_statuses()
    assert is_caught_up(talk.stream)
    talk.stream.anything_changed(talk.job)
    talk.ready()
    talk.look(page(DATA))
    talk.ready()
    assert is_caught_up(talk.stream)

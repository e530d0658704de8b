"""One client's stream without any I/O: what it is told, what it may ask, what is due next."""

from __future__ import annotations

import pytest

from profagentd.board import Job
from profagentd.budget import Budgets
from profagentd.changes import Touch
from profagentd.clock import Moment
from profagentd.following import Step
from profagentd.log import Log, Phase, new_digest
from profagentd.logs import kind_of
from profagentd.opening import Place
from profagentd.refusal import Fault, Refusal
from profagentd.selection import Names
from profagentd.state import Activity, JobState
from profagentd.stream import LOOK_LOGS, PAGE_ENTRIES, UNASKED_MINOR, UNSEEN_LOGS, Stream
from profagentd.walk import Page, Sighting
from profagentd.window import WINDOW_LOGS
from tests.daemon.daemon_process import job_name

NOW = Moment(100.0, 1_000_000_000)
DATA = b"data/aicore.0.model.3.0.1.1.0"
INFO = b"data/model.0.layer.info"


def new_job(number: int = 0) -> Job:
    return Job(Place(b"/r", job_name(number).encode()), 1, 1, Activity(100.0, 60.0), is_scanned=False)


def page(*paths: bytes, is_last: bool = True) -> Page:
    return Page(
        [Sighting(path, kind_of(path), 10, 0) for path in paths],
        is_last=is_last,
    )


# Logs that one stream may have announced while there is no other.
FULL = min(WINDOW_LOGS, Budgets().logs.share().room)


class Talk:
    """A stream that follows one JOB whose first walk is done."""

    def __init__(self, *paths: bytes) -> None:
        self.stream = Stream(Budgets())
        self.job = new_job()
        self.stream.job_changed_state(self.job)
        self.stream.take_statuses()
        self.stream.select([1], [])
        self.logs = self.look(page(*paths))

    def look(self, found: Page) -> list[Log]:
        names = self.stream.next_names(NOW.monotonic)
        assert names is not None
        logs, self.losses = self.stream.looked(names, found, NOW)
        return logs

    def follow(self, log: Log) -> None:
        """The client's Holding is in, three bytes were sent, nothing is due."""
        self.stream.hold(log.handle, skip=False, generation=0, offset=0, prefix_digest=b"")
        (turn,) = self.stream.take_turns(1, NOW.monotonic)
        assert turn.log is log
        assert log.comparison is not None
        log.go_on(log.comparison, new_digest())
        log.took(b"abc")
        self.stream.window.stepped(log, Step())

    def ready(self) -> list[Log]:
        """Logs that have a turn now."""
        logs = [turn.log for turn in self.stream.take_turns(100, NOW.monotonic)]
        for log in logs:
            self.stream.window.stepped(log, Step())
        return logs


@pytest.fixture
def talk() -> Talk:
    made = Talk(DATA)
    made.follow(made.logs[0])
    return made


def is_caught_up(stream: Stream) -> bool:
    return bool(stream.take_caught_up())


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
    assert stream.next_names(0.0) is None
    assert not is_caught_up(stream)


def test_selecting_twice_changes_nothing(talk: Talk) -> None:
    talk.stream.select([1], [])
    assert talk.stream.next_names(NOW.monotonic) is None


def test_the_first_look_is_a_walk_and_then_names_that_changed(talk: Talk) -> None:
    talk.stream.names_changed(talk.job, {INFO: Touch.MADE, b"x": Touch.WRITTEN})
    names = talk.stream.next_names(NOW.monotonic)
    assert names is not None
    assert dict(names.touches) == {INFO: Touch.MADE, b"x": Touch.WRITTEN}
    assert names.walk is None


def test_unfollowing_releases_all_logs_and_forgets_what_was_to_be_looked_at(talk: Talk) -> None:
    talk.stream.names_changed(talk.job, {INFO: Touch.MADE})
    talk.stream.select([], [1])
    assert talk.stream.window.take_released(10) == [talk.logs[0].handle]
    assert talk.stream.next_names(NOW.monotonic) is None
    assert talk.logs[0].phase is Phase.OVER


def test_a_look_that_ends_after_its_job_was_given_up_announces_nothing(talk: Talk) -> None:
    talk.stream.names_changed(talk.job, {INFO: Touch.MADE})
    names = talk.stream.next_names(NOW.monotonic)
    assert names is not None
    talk.stream.select([], [1])
    assert talk.stream.looked(names, page(INFO), NOW) == ([], [])


def test_a_removed_job_is_told_after_its_logs(talk: Talk) -> None:
    talk.job.state = JobState.REMOVED
    talk.stream.job_changed_state(talk.job)
    assert talk.stream.take_statuses() == []
    (turn,) = talk.stream.take_turns(1, NOW.monotonic)
    turn.log.phase = Phase.OVER
    talk.stream.window.stepped(turn.log, Step())
    assert [view.handle for view in talk.stream.take_statuses()] == [1]
    talk.stream.select([1], [])
    assert talk.stream.next_names(NOW.monotonic) is None


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
    names = talk.stream.next_names(NOW.monotonic)
    removed(talk)
    assert names is not None
    assert talk.stream.take_statuses() == []
    found = Page([Sighting(DATA, kind_of(DATA), 10, 0)], missing=[INFO])
    logs, talk.losses = talk.stream.looked(names, found, NOW)
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
    assert talk.stream.next_names(NOW.monotonic) is None


def test_what_stands_where_a_job_was_is_another_ones() -> None:
    talk = Talk()
    talk.stream.names_changed(talk.job, {DATA: Touch.WRITTEN})
    removed(talk)
    assert talk.look(page(DATA)) == []
    assert talk.losses == []


def test_a_job_whose_logs_were_all_announced_goes_without_a_loss(talk: Talk) -> None:
    talk.stream.names_changed(talk.job, {DATA: Touch.DELETED, b"data/released": Touch.DELETED})
    removed(talk)
    assert talk.stream.next_names(NOW.monotonic) is None


def test_a_job_made_again_has_another_handle(talk: Talk) -> None:
    talk.stream.window.forget(talk.logs[0])
    talk.job.state = JobState.REMOVED
    talk.stream.job_changed_state(talk.job)
    talk.stream.take_statuses()
    talk.stream.job_changed_state(new_job())
    assert [view.handle for view in talk.stream.take_statuses()] == [2]


# Announcing


def test_logs_are_announced_with_handles_that_count_up() -> None:
    talk = Talk(INFO, DATA)
    assert [(log.handle, log.job, log.path) for log in talk.logs] == [(1, 1, INFO), (2, 1, DATA)]


def test_a_log_is_not_announced_twice(talk: Talk) -> None:
    talk.stream.anything_changed(talk.job)
    assert talk.look(page(DATA, INFO))[0].path == INFO


def test_a_log_that_changes_while_it_is_looked_at_has_a_turn(talk: Talk) -> None:
    """Its change came when nobody knew it, and the look ended when it was known already."""
    talk.stream.names_changed(talk.job, {INFO: Touch.WRITTEN})
    first = talk.stream.next_names(NOW.monotonic)
    talk.stream.names_changed(talk.job, {INFO: Touch.WRITTEN})
    second = talk.stream.next_names(NOW.monotonic)
    assert first is not None
    assert second is not None
    (log,), _ = talk.stream.looked(first, page(INFO), NOW)
    talk.follow(log)
    assert talk.stream.looked(second, page(INFO), NOW) == ([], [])
    assert talk.ready() == [log]


def test_a_walk_goes_on_page_by_page() -> None:
    talk = Talk()
    talk.stream.anything_changed(talk.job)
    names = talk.stream.next_names(NOW.monotonic)
    assert names is not None
    talk.stream.looked(names, page(DATA, is_last=False), NOW)
    again = talk.stream.next_names(NOW.monotonic)
    assert again is not None
    assert again.walk is names.walk
    talk.stream.looked(again, page(INFO), NOW)
    assert talk.stream.next_names(NOW.monotonic) is None


def test_changed_names_come_before_the_rest_of_a_walk() -> None:
    talk = Talk()
    talk.stream.anything_changed(talk.job)
    names = talk.stream.next_names(NOW.monotonic)
    assert names is not None
    talk.stream.looked(names, page(DATA, is_last=False), NOW)
    talk.stream.names_changed(talk.job, {INFO: Touch.WRITTEN})
    changed = talk.stream.next_names(NOW.monotonic)
    assert changed is not None
    assert list(changed.touches) == [INFO]


def test_a_full_window_lets_names_wait() -> None:
    talk = Talk(*(b"data/aicore.0.m.3.0.1.1.%d" % number for number in range(FULL)))
    talk.stream.names_changed(talk.job, {INFO: Touch.WRITTEN})
    assert talk.stream.next_names(NOW.monotonic) is None
    assert talk.stream.is_short_of_room
    talk.stream.window.forget(talk.logs[0])
    names = talk.stream.next_names(NOW.monotonic)
    assert names is not None
    assert names.limit == 1
    assert not talk.stream.is_short_of_room


def test_idle_logs_give_way_when_names_wait_and_the_client_is_told_first() -> None:
    talk = Talk(*(b"data/aicore.0.m.3.0.1.1.%d" % number for number in range(FULL)))
    talk.follow(talk.logs[5])
    talk.logs[5].acknowledged = 3
    talk.stream.names_changed(talk.job, {INFO: Touch.WRITTEN})
    assert talk.stream.next_names(NOW.monotonic) is None
    assert talk.stream.window.take_released(10) == [talk.logs[5].handle]
    assert talk.stream.next_names(NOW.monotonic) is not None


def test_a_look_takes_at_most_a_page(talk: Talk) -> None:
    talk.stream.names_changed(talk.job, {b"%d" % number: Touch.MADE for number in range(PAGE_ENTRIES + 1)})
    names = talk.stream.next_names(NOW.monotonic)
    assert names is not None
    assert len(names.touches) == PAGE_ENTRIES


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


# Logs that come unasked


def talk_of(minor: int) -> Talk:
    """One with a client of this minor version."""
    made = Talk()
    made.stream.client_minor = minor
    return made


@pytest.fixture
def unasked() -> Talk:
    """A stream in which a log that was made has come unasked, and three bytes of it."""
    made = talk_of(UNASKED_MINOR)
    made.stream.names_changed(made.job, {DATA: Touch.MADE})
    made.logs = made.stream.take_made(NOW.monotonic)
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
    assert unasked.stream.next_names(NOW.monotonic) is None
    assert unasked.stream.is_answered
    assert is_caught_up(unasked.stream)


@pytest.mark.parametrize(
    ("minor", "path", "touch"),
    [
        (UNASKED_MINOR - 1, DATA, Touch.MADE),
        (UNASKED_MINOR, INFO, Touch.MADE),
        (UNASKED_MINOR, DATA, Touch.WRITTEN),
        (UNASKED_MINOR, DATA, Touch.MADE | Touch.DELETED),
    ],
    ids=["older client", "no data log", "not made", "deleted"],
)
def test_others_are_looked_at_and_asked_about(minor: int, path: bytes, touch: Touch) -> None:
    talk = talk_of(minor)
    talk.stream.names_changed(talk.job, {path: touch})
    assert talk.stream.take_made(NOW.monotonic) == []
    (log,) = talk.look(page(path))
    assert not log.unasked
    assert talk.ready() == []


def made(talk: Talk) -> list[bytes]:
    return [log.path for log in talk.stream.take_made(NOW.monotonic)]


def test_of_logs_that_were_made_as_many_come_unasked_as_there_is_room_for() -> None:
    talk = talk_of(UNASKED_MINOR)
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
    talk = talk_of(UNASKED_MINOR)
    paths = [b"data/aicore.0.m.3.0.1.1.%d" % number for number in range(UNSEEN_LOGS + 2)]
    talk.stream.names_changed(talk.job, dict.fromkeys(paths, Touch.MADE))
    assert made(talk) == paths[:UNSEEN_LOGS]
    assert made(talk) == []
    (asked,) = talk.look(page(paths[-1]))
    assert (asked.unasked, talk.stream.window.lag_bytes) == (False, 10)


def test_a_log_that_was_made_while_a_look_found_it_is_announced_once() -> None:
    talk = talk_of(UNASKED_MINOR)
    talk.stream.anything_changed(talk.job)
    names = talk.stream.next_names(NOW.monotonic)
    assert names is not None
    talk.stream.names_changed(talk.job, {DATA: Touch.MADE})
    (log,), _ = talk.stream.looked(names, page(DATA), NOW)
    assert talk.stream.take_made(NOW.monotonic) == []
    assert talk.stream.window.of_job(1) == [log]
    talk.follow(log)
    assert talk.stream.take_made(NOW.monotonic) == []


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
    unasked.stream.look_at(unasked.logs[0])
    assert unasked.stream.window.take_released(10) == [1]
    assert unasked.look(Page(odd=[DATA])) == []
    assert [(loss.handle, loss.reason.value) for loss in unasked.losses] == [(0, "not-a-file")]
    unasked.stream.look_at(unasked.logs[0])
    assert unasked.stream.next_names(NOW.monotonic) is None


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
    names = talk.stream.next_names(NOW.monotonic)
    assert names is not None
    assert dict(names.touches) == {DATA + b".done": Touch.MADE, DATA: Touch.HINT}


def test_a_data_log_made_anew_is_doubted(talk: Talk) -> None:
    talk.stream.names_changed(talk.job, {DATA: Touch.MADE})
    assert talk.logs[0].doubted


def test_removed_names_give_every_log_a_turn(talk: Talk) -> None:
    talk.stream.names_removed(talk.job)
    assert talk.ready() == talk.logs
    assert not talk.logs[0].doubted


def test_when_anything_may_have_changed_logs_are_doubted_and_the_job_walked(talk: Talk) -> None:
    talk.stream.anything_changed(talk.job)
    assert talk.ready() == talk.logs
    assert talk.logs[0].doubted
    names = talk.stream.next_names(NOW.monotonic)
    assert names is not None
    assert names.walk is not None


# Losses


def lost(touch: Touch, talk: Talk) -> list[str]:
    talk.stream.names_changed(talk.job, {INFO: touch})
    talk.look(Page(missing=[INFO]))
    return [loss.reason.value for loss in talk.losses]


@pytest.mark.parametrize("touch", [Touch.MADE | Touch.DELETED, Touch.WRITTEN, Touch.MADE])
def test_what_came_and_went_unseen_is_a_loss(talk: Talk, touch: Touch) -> None:
    assert lost(touch, talk) == ["removed-unread"]


@pytest.mark.parametrize("touch", [Touch.MADE | Touch.MOVED, Touch.HINT])
def test_what_was_moved_or_may_have_changed_is_no_loss(talk: Talk, touch: Touch) -> None:
    assert lost(touch, talk) == []


@pytest.mark.parametrize("touch", [Touch.DELETED, Touch.MOVED])
def test_what_was_merely_removed_is_not_looked_for(talk: Talk, touch: Touch) -> None:
    talk.stream.names_changed(talk.job, {INFO: touch, DATA + b".done": touch})
    assert talk.stream.next_names(NOW.monotonic) is None


def test_a_missing_log_that_is_announced_tells_itself(talk: Talk) -> None:
    talk.stream.anything_changed(talk.job)
    talk.ready()
    talk.look(Page(missing=[DATA]))
    assert talk.losses == []
    assert talk.ready() == talk.logs


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


def test_names_of_a_look_are_those_of_the_jobs_place(talk: Talk) -> None:
    talk.stream.anything_changed(talk.job)
    names = talk.stream.next_names(NOW.monotonic)
    assert isinstance(names, Names)
    assert names.place == talk.job.place


def test_names_for_which_others_took_the_room_are_looked_at_again(talk: Talk) -> None:
    """The room of a root that is late is others' until it answers."""
    paths = [b"data/aicore.0.model.3.0.%d.1.0" % number for number in range(2, 5)]
    for path in paths:
        talk.stream.names_changed(talk.job, {path: Touch.MADE})
    names = talk.stream.next_names(NOW.monotonic)
    assert names is not None
    taken = talk.stream.window.room - 1 + names.limit
    talk.stream.logs.take(taken)
    logs, _ = talk.stream.looked(names, page(*paths), NOW)
    assert [log.path for log in logs] == paths[:1]
    talk.stream.logs.give_back(taken)
    again = talk.stream.next_names(NOW.monotonic)
    assert again is not None
    assert again.touches == dict.fromkeys(paths[1:], Touch.MADE)

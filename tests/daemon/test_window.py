"""Logs take turns, wait, and give way."""

from __future__ import annotations

import pytest

from profagentd import window as module
from profagentd.budget import Budget
from profagentd.events import StartReason
from profagentd.following import Step
from profagentd.log import Log, Phase, new_digest
from profagentd.logs import LogKind
from profagentd.refusal import Refusal
from profagentd.walk import Sighting
from profagentd.window import IDLE_S, SLOT_S, Window

JOB = 1


@pytest.fixture
def window() -> Window:
    return Window(Budget(sure=0, common=module.WINDOW_LOGS).share())


def add(window: Window, path: bytes = b"a", job: int = JOB, changed: float = 0.0) -> Log:
    return window.add(job, Sighting(path, LogKind.DATA, 10, 0), changed)


def follow(window: Window, path: bytes = b"a", changed: float = 0.0) -> Log:
    """A log of which all three bytes were sent, and nothing is due."""
    log = add(window, path, changed=changed)
    log.hold(0, 0, b"")
    assert log.comparison is not None
    log.go_on(log.comparison, new_digest())
    log.took(b"abc")
    return log


def test_logs_are_found_by_handle_and_by_path(window: Window) -> None:
    one, other = add(window, b"a", 1), add(window, b"a", 2)
    assert window.get(one.handle) is one
    assert window.at(1, b"a") is one
    assert window.at(2, b"a") is other
    assert window.at(3, b"a") is None
    assert window.of_job(2) == [other]


@pytest.mark.parametrize("handle", [0, 2, -1])
def test_a_handle_that_never_was_is_refused(window: Window, handle: int) -> None:
    add(window)
    with pytest.raises(Refusal):
        window.get(handle)


def test_a_handle_that_is_over_is_no_log_and_is_not_used_again(window: Window) -> None:
    first = add(window)
    window.forget(first)
    assert window.get(first.handle) is None
    assert window.at(JOB, b"a") is None
    assert window.of_job(JOB) == []
    assert add(window).handle == first.handle + 1


def test_the_room_is_bounded(window: Window) -> None:
    for number in range(module.WINDOW_LOGS):
        add(window, b"%d" % number)
    assert window.room == 0


def test_turns_come_in_order_and_once(window: Window) -> None:
    logs = [follow(window, path) for path in (b"a", b"b", b"c")]
    for log in (logs[1], logs[0], logs[1], logs[2]):
        window.queue(log)
    assert window.take_ready(2, 0.0) == [logs[1], logs[0]]
    assert window.take_ready(2, 0.0) == [logs[2]]


def test_what_had_no_turn_stays_first(window: Window) -> None:
    logs = [follow(window, path) for path in (b"a", b"b", b"c")]
    for log in logs:
        window.queue(log)
    taken = window.take_ready(2, 0.0)
    window.put_back(taken)
    assert window.take_ready(3, 0.0) == logs


def test_a_log_with_more_to_do_has_another_turn(window: Window) -> None:
    log = follow(window)
    window.queue(log)
    window.take_ready(1, 0.0)
    window.stepped(log, Step(again=True))
    assert window.take_ready(1, 0.0) == [log]


def test_a_log_that_changed_during_its_turn_has_another(window: Window) -> None:
    log = follow(window)
    window.queue(log)
    window.take_ready(1, 0.0)
    window.queue(log)
    assert window.take_ready(1, 0.0) == []
    window.stepped(log, Step())
    assert window.take_ready(1, 0.0) == [log]
    window.stepped(log, Step())
    assert window.take_ready(1, 0.0) == []


def test_a_log_waits_until_its_time(window: Window) -> None:
    log = follow(window)
    window.queue(log)
    window.take_ready(1, 0.0)
    window.stepped(log, Step(due=5.0))
    assert window.next_due() == 5.0
    assert window.take_ready(1, 4.9) == []
    assert not log.is_settled
    assert window.take_ready(1, 5.0) == [log]


def test_a_log_that_is_queued_does_not_wait_as_well(window: Window) -> None:
    log = follow(window)
    window.stepped(log, Step(due=5.0))
    window.queue(log)
    window.take_ready(1, 0.0)
    window.stepped(log, Step())
    assert window.take_ready(1, 5.0) == []


def test_a_removed_log_is_forgotten_and_told(window: Window) -> None:
    log = follow(window)
    log.phase = Phase.OVER
    events = Step(()).events
    assert window.stepped(log, Step(events)) == events
    assert window.get(log.handle) is None
    assert window.take_released(10) == []


def test_what_a_log_says_after_it_was_given_up_is_not_told(window: Window) -> None:
    log = follow(window)
    window.release(log)
    assert window.stepped(log, Step(("anything",))) == ()  # type: ignore[arg-type]


def test_a_queued_log_that_was_given_up_has_no_turn(window: Window) -> None:
    log = follow(window)
    window.queue(log)
    window.release(log)
    assert window.take_ready(1, 0.0) == []


def test_a_delivered_log_is_released(window: Window) -> None:
    log = follow(window)
    window.release_delivered(log)
    assert window.take_released(10) == []
    log.complete()
    log.verified = log.completed
    window.release_delivered(log)
    assert window.take_released(10) == [log.handle]
    assert window.take_released(10) == []


def test_idle_logs_give_way_the_longest_unchanged_first(window: Window) -> None:
    logs = [follow(window, path, changed) for path, changed in ((b"a", 30.0), (b"b", 10.0), (b"c", 20.0))]
    for log in logs:
        log.acknowledged = 3
    window.release_idle(100.0, 2)
    assert window.take_released(10) == [logs[1].handle, logs[2].handle]


def test_busy_and_undurable_logs_do_not_give_way(window: Window) -> None:
    fresh, undurable, queued = (follow(window, path) for path in (b"a", b"b", b"c"))
    announced = add(window, b"d")
    fresh.acknowledged = queued.acknowledged = 3
    fresh.changed = 100.0 - IDLE_S + 0.1
    window.queue(queued)
    window.release_idle(100.0, 10)
    assert [window.get(log.handle) for log in (fresh, undurable, queued, announced)] == [
        fresh,
        undurable,
        queued,
        announced,
    ]


def test_a_log_that_comes_again_before_its_release_was_told_is_known(window: Window) -> None:
    first = follow(window)
    window.release(first)
    again, other = add(window), add(window, b"b")
    assert window.is_leaving(again)
    assert not window.is_leaving(other)
    window.take_released(10)
    assert not window.is_leaving(again)


def test_of_two_handles_of_a_log_the_newer_is_leaving_until_it_is_told(window: Window) -> None:
    window.release(follow(window))
    window.release(follow(window))
    again = add(window)
    window.take_released(1)
    assert window.is_leaving(again)
    window.take_released(1)
    assert not window.is_leaving(again)


def test_room_is_free_when_the_client_knows(window: Window) -> None:
    log = follow(window)
    window.release(log)
    assert window.room == module.WINDOW_LOGS - 1
    assert window.has_released
    window.take_released(10)
    assert window.room == module.WINDOW_LOGS
    assert not window.has_released


def test_logs_that_wait_until_about_the_same_time_wake_together(window: Window) -> None:
    logs = [follow(window, path) for path in (b"a", b"b")]
    for log, due in zip(logs, (5 + 0.02 * SLOT_S, 5 + 0.98 * SLOT_S)):
        window.stepped(log, Step(due=due))
    assert window.take_ready(2, 5 + 0.6 * SLOT_S) == []
    assert window.take_ready(2, 5 + SLOT_S + 1e-6) == logs


def test_released_handles_are_told_in_pages(window: Window) -> None:
    logs = [follow(window, b"%d" % number) for number in range(5)]
    for log in logs:
        window.release(log)
    assert len(window.take_released(3)) == 3
    assert len(window.take_released(3)) == 2


def test_the_lag_adds_up(window: Window) -> None:
    follow(window, b"a")
    add(window, b"b")
    assert window.lag_bytes == 7 + 10


# What the client says of a log that comes unasked


def test_that_nothing_is_held_of_an_unasked_log_changes_nothing(window: Window) -> None:
    log = follow(window)
    log.unasked = True
    window.answered(log, skip=False, generation=0, offset=0, prefix_digest=b"")
    assert (log.contested, log.queued, log.sent) == (None, False, 3)
    assert window.take_released(10) == []


def test_an_unasked_log_of_which_something_is_held_has_a_turn(window: Window) -> None:
    log = follow(window)
    log.unasked = True
    window.answered(log, skip=False, generation=4, offset=100, prefix_digest=b"digest")
    assert log.contested == (4, 100, b"digest")
    assert window.take_ready(1, 0.0) == [log]


def test_an_unasked_log_that_is_not_wanted_is_released(window: Window) -> None:
    log = follow(window)
    log.unasked = True
    window.queue(log)
    window.answered(log, skip=True, generation=0, offset=0, prefix_digest=b"")
    assert window.take_ready(1, 0.0) == []
    assert window.take_released(10) == [log.handle]


def test_an_empty_unasked_log_does_not_give_way_before_the_client_has_said_anything_of_it(window: Window) -> None:
    log = add(window)
    log.come_unasked()
    log.start(1, StartReason.NEW, 0.0)
    window.release_idle(100.0, 1)
    assert not window.has_released
    window.acknowledge(log.handle, generation=1, offset=0, complete=False)
    window.release_idle(100.0, 1)
    assert window.take_released(10) == [log.handle]


@pytest.mark.parametrize("generation", [0, 4, None])
def test_a_holding_of_an_unasked_log_that_was_answered_or_acknowledged_is_refused(
    window: Window, generation: int | None
) -> None:
    log = follow(window)
    log.unasked = True
    if generation is None:
        window.acknowledge(log.handle, generation=1, offset=1, complete=False)
    else:
        window.answered(log, skip=False, generation=generation, offset=0, prefix_digest=b"")
    with pytest.raises(Refusal, match="has its Holding already"):
        window.answered(log, skip=False, generation=4, offset=0, prefix_digest=b"")


def test_an_offset_of_an_unasked_log_needs_a_generation(window: Window) -> None:
    log = follow(window)
    log.unasked = True
    with pytest.raises(Refusal, match="without a generation"):
        window.answered(log, skip=False, generation=0, offset=1, prefix_digest=bytes(16))

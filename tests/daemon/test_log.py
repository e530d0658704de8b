"""What a log's state says about it."""

from __future__ import annotations

import pytest

from profagentd.events import StartReason
from profagentd.log import Comparison, Log, Phase, new_digest
from profagentd.logs import LogKind
from tests.daemon.wire_client import digest


@pytest.fixture
def log() -> Log:
    """A log of which three bytes were sent."""
    made = Log(1, 1, b"data/x", LogKind.DATA, 10, 0.0)
    made.hold(0, 0, b"")
    assert made.comparison is not None
    made.go_on(made.comparison, new_digest())
    made.took(b"abc")
    return made


def test_digests_are_blake2b_of_sixteen_bytes() -> None:
    assert new_digest(b"abc").digest() == digest(b"abc")
    assert len(new_digest().digest()) == 16


def test_an_announced_log_is_neither_settled_nor_idle() -> None:
    log = Log(1, 1, b"x", LogKind.DATA, 10, 0.0)
    assert log.phase is Phase.ANNOUNCED
    assert not log.is_settled
    assert not log.is_idle
    assert log.lag_bytes == 10


def test_a_comparison_is_agreed_when_all_of_the_prefix_was_read() -> None:
    comparison = Comparison(2, 6, digest(b"abcdef"), StartReason.SAME, StartReason.DIFFERENT)
    comparison.took(b"abc")
    assert not comparison.is_done
    comparison.took(b"def")
    assert comparison.is_done
    assert comparison.agreed() is not None


def test_a_comparison_of_other_bytes_is_not_agreed() -> None:
    comparison = Comparison(2, 3, digest(b"abc"), StartReason.SAME, StartReason.DIFFERENT)
    comparison.took(b"abd")
    assert comparison.agreed() is None


def test_the_lag_is_what_is_known_and_not_sent(log: Log) -> None:
    assert log.lag_bytes == 7
    log.size = 2
    assert log.lag_bytes == 0


def test_what_was_sent_is_known_by_its_bytes(log: Log) -> None:
    assert log.was_sent(b"abc")
    assert not log.was_sent(b"abd")
    assert not log.was_sent(b"ab")


def goes_on(log: Log) -> None:
    """A complete log grows: what was sent is compared, and more is sent."""
    log.compare_again()
    assert log.comparison is not None
    log.comparison.took(b"abc")
    agreed = log.comparison.agreed()
    assert agreed is not None
    assert log.go_on(log.comparison, agreed) is None
    log.took(b"d")


def test_it_is_complete_until_more_is_sent(log: Log) -> None:
    assert log.complete().digest == digest(b"abc")
    assert log.is_complete
    goes_on(log)
    assert not log.is_complete
    assert log.complete().digest == digest(b"abcd")


def test_a_complete_log_keeps_its_digest_and_no_more(log: Log) -> None:
    log.complete()
    assert log.digest == digest(b"abc")
    assert log.was_sent(b"abc")


def test_an_empty_log_that_is_complete_goes_on() -> None:
    log = Log(1, 1, b"data/x", LogKind.DATA, 0, 0.0)
    log.start(1, StartReason.NEW, 0.0)
    log.complete()
    log.took(b"a")
    assert log.complete().digest == digest(b"a")


def test_it_is_delivered_when_its_completion_was_verified(log: Log) -> None:
    log.complete()
    assert not log.is_delivered
    log.verified = log.completed
    assert log.is_delivered
    goes_on(log)
    assert not log.is_delivered


@pytest.mark.parametrize(("name", "value"), [("queued", True), ("waits_until", 5.0)])
def test_it_is_not_delivered_while_something_is_due(log: Log, name: str, value: object) -> None:
    log.complete()
    log.verified = log.completed
    setattr(log, name, value)
    assert not log.is_delivered
    assert not log.is_idle


def test_it_is_idle_when_all_that_was_sent_is_durable(log: Log) -> None:
    assert not log.is_idle
    log.acknowledged = 3
    assert log.is_idle


def test_a_new_generation_forgets_what_was_of_the_old_one(log: Log) -> None:
    log.complete()
    log.acknowledged = 3
    log.start(2, StartReason.RECREATED, 5.0)
    assert (log.generation, log.sent, log.acknowledged, log.begun) == (2, 0, 0, 5.0)
    assert not log.is_complete
    assert not log.has_content


def test_nothing_that_was_not_sent_is_compared_again() -> None:
    log = Log(1, 1, b"x", LogKind.DATA, 10, 0.0)
    log.compare_again()
    assert log.comparison is None


def test_what_was_sent_is_compared_again_once_at_a_time(log: Log) -> None:
    log.compare_again()
    first = log.comparison
    assert first is not None
    assert (first.generation, first.offset, first.same) == (1, 3, None)
    log.compare_again()
    assert log.comparison is first


def test_an_unasked_log_is_followed_as_one_of_which_nothing_is_held() -> None:
    log = Log(1, 1, b"data/x", LogKind.DATA, 0, 0.0)
    log.come_unasked()
    assert log.phase is Phase.FOLLOWING
    assert (log.unasked, log.is_unseen) == (True, True)
    assert log.comparison is not None
    started = log.go_on(log.comparison, new_digest())
    assert started is not None
    assert (started.generation, started.offset, started.reason) == (1, 0, StartReason.NEW)
    assert not started.is_answer


def test_a_contested_log_begins_again_with_what_is_held(log: Log) -> None:
    log.complete()
    log.acknowledged, log.verified, log.grew = 3, log.completed, True
    log.contest(4, 100, b"digest")
    assert (log.generation, log.sent) == (1, 3)  # until its next turn
    log.begin_again(4, 100, b"digest")
    assert (log.generation, log.sent, log.acknowledged, log.checked) == (0, 0, 0, 0)
    assert (log.contested, log.completed, log.verified, log.digest, log.grew) == (None, None, None, None, False)
    assert log.comparison is not None
    assert (log.comparison.generation, log.comparison.offset) == (4, 100)
    assert log.start(5, StartReason.DIFFERENT, 1.0).is_answer
    assert not log.start(6, StartReason.RECREATED, 2.0).is_answer

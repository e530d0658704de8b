"""Messages become large where the link has shown that it takes them, and small again where it does no longer."""

from __future__ import annotations

import pytest

from profagentd.follow.reading import JUDGED_BYTES, LARGE_BYTES, QUICK_BYTES_PER_S, SMALL_BYTES, MessageSize

QUICK, SLOW = 1 / (2 * QUICK_BYTES_PER_S), 2 / QUICK_BYTES_PER_S  # seconds for a byte


def after(*spans: tuple[int, float]) -> int:
    """The limit after so many bytes each, at so many seconds for a byte, in messages of the size that is allowed."""
    size = MessageSize()
    for total, seconds in spans:
        left = total
        while left:
            message = min(left, size.limit)
            size.sent(message, message * seconds)
            left -= message
    return size.limit


def test_a_link_is_not_trusted_before_it_has_shown_anything() -> None:
    assert after() == SMALL_BYTES
    assert after((JUDGED_BYTES - 1, QUICK)) == SMALL_BYTES


def test_a_quick_link_gets_large_messages() -> None:
    assert after((JUDGED_BYTES, QUICK)) == LARGE_BYTES
    assert after((JUDGED_BYTES, 0.0)) == LARGE_BYTES


def test_a_slow_link_keeps_small_ones() -> None:
    assert after((10 * JUDGED_BYTES, SLOW)) == SMALL_BYTES


@pytest.mark.parametrize("seconds", [SLOW, 1 / 10_000])
def test_a_link_that_becomes_slow_gets_small_ones_again(seconds: float) -> None:
    assert after((JUDGED_BYTES, QUICK), (2 * JUDGED_BYTES, seconds)) == SMALL_BYTES


def test_at_ten_kilobytes_a_second_one_large_message_is_enough_to_know() -> None:
    assert after((JUDGED_BYTES, QUICK), (LARGE_BYTES, 1 / 10_000)) == SMALL_BYTES


def test_what_takes_long_counts_though_little_was_sent() -> None:
    size = MessageSize()
    size.sent(JUDGED_BYTES, 0.0)
    size.sent(1, 5.0)
    assert size.limit == SMALL_BYTES

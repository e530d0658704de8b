"""The life of a data log: what follows on each event in each state."""

from __future__ import annotations

import pytest

from profagent.ingest.logs import (
    EARLY,
    FRESH,
    GROWING,
    GROWING_FRESH,
    GROWING_STALE,
    RESTING,
    STALE,
    DataLogState,
    LogEvent,
    LogStates,
)

# What is true in each state: bytes are to come; the `.done` may be an earlier one; it came in this stream.
FACTS = {
    RESTING: (False, False, False),
    FRESH: (False, False, True),
    STALE: (False, True, False),
    GROWING: (True, False, False),
    GROWING_FRESH: (True, False, True),
    GROWING_STALE: (True, True, False),
}
STATES = {facts: state for state, facts in FACTS.items()}


def follows(state: DataLogState, event: LogEvent) -> DataLogState | None:
    """Return the state that follows by the rules for each fact; None where the event cannot happen."""
    growing, stale, fresh = FACTS[state]
    match event:
        case LogEvent.ANNOUNCED:
            growing, stale = True, not fresh
        case LogEvent.BEGUN:
            growing = True
        case LogEvent.WENT_ON if not growing:
            growing, stale, fresh = True, True, False
        case LogEvent.COMPLETED:
            growing = False
        case LogEvent.DONE_REWRITTEN if not growing and not stale:
            return EARLY
        case LogEvent.DONE_CAME | LogEvent.DONE_REWRITTEN:
            stale, fresh = False, True
        case LogEvent.JUDGED if growing or stale:
            return None
        case LogEvent.JUDGED | LogEvent.STREAM_BEGUN:
            fresh = False
        case LogEvent.SETTLED | LogEvent.CAME_WHOLE:
            growing, stale, fresh = False, False, fresh and event is LogEvent.SETTLED
    return STATES[growing, stale, fresh]


def follows_early(event: LogEvent) -> DataLogState | None:
    """Return the state after EARLY: as of bytes that are to come; a `.done` or a stream changes nothing."""
    stays = event in (LogEvent.DONE_CAME, LogEvent.DONE_REWRITTEN, LogEvent.STREAM_BEGUN)
    return EARLY if stays else follows(GROWING_FRESH, event)


def test_a_state_says_what_may_be_asked_of_it() -> None:
    for state, (growing, stale, _) in FACTS.items():
        assert (state.is_growing, state.is_stale, state.is_open) == (growing, stale, growing or stale)
    assert (EARLY.is_growing, EARLY.is_stale, EARLY.is_open) == (False, False, True)


@pytest.mark.parametrize("event", LogEvent)
def test_each_event_has_a_next_state_or_is_refused(event: LogEvent) -> None:
    for state in DataLogState:
        states = in_state(state)
        after = follows_early(event) if state is EARLY else follows(state, event)
        if after is None:
            with pytest.raises(AssertionError, match=f"{event.value} while {state.value}"):
                states.note("a", event)
        else:
            assert states.note("a", event) is state
            assert states.of("a") is after


def test_a_stream_that_begins_is_noted_for_all_logs() -> None:
    states = LogStates()
    for path in ("a", "b"):
        states.note(path, LogEvent.DONE_CAME)
    states.note("b", LogEvent.BEGUN)
    states.begin_stream()
    assert [states.of(path) for path in ("a", "b")] == [RESTING, GROWING]


def test_of_more_logs_than_fit_the_first_one_rests() -> None:
    states = LogStates(2)
    for path in ("a", "b", "c"):
        states.note(path, LogEvent.BEGUN)
    states.note("b", LogEvent.COMPLETED)
    states.note("d", LogEvent.ANNOUNCED)
    assert [states.of(path) for path in "abcd"] == [RESTING, RESTING, GROWING, GROWING_STALE]


def in_state(state: DataLogState) -> LogStates:
    """Return states in which the log "a" came to `state` by events."""
    ways = {
        RESTING: (),
        FRESH: (LogEvent.DONE_CAME,),
        STALE: (LogEvent.ANNOUNCED, LogEvent.COMPLETED),
        GROWING: (LogEvent.BEGUN,),
        GROWING_FRESH: (LogEvent.DONE_CAME, LogEvent.ANNOUNCED),
        GROWING_STALE: (LogEvent.ANNOUNCED,),
        EARLY: (LogEvent.DONE_REWRITTEN,),
    }
    states = LogStates()
    for event in ways[state]:
        states.note("a", event)
    return states

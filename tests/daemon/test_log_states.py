"""The states of a followed log: each arrow of the table, and no other."""

from __future__ import annotations

import itertools

import pytest

from profagentd.follow.log import TRANSITIONS, Log, LogState
from profagentd.sources.source import LogKind
from profagentd.sources.walk import Sighting


def log_in(state: LogState) -> Log:
    log = Log(1, 1, Sighting(b"data/aicore.0.m.3.0.1.1.0", LogKind.DATA, 0, 0), 0.0)
    log.state = state
    return log


@pytest.mark.parametrize(("before", "after"), list(itertools.product(LogState, LogState)))
def test_a_log_goes_on_as_the_table_says(before: LogState, after: LogState) -> None:
    log = log_in(before)
    if before in (after, LogState.OVER):
        log.set_state(after)
        assert log.state is before
    elif after in TRANSITIONS[before]:
        log.set_state(after)
        assert log.state is after
    else:
        with pytest.raises(AssertionError, match=f"{before.value} → {after.value}"):
            log.set_state(after)

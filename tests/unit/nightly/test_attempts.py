"""How often a night tries a board, and how far apart."""

from __future__ import annotations

import asyncio

import pytest

from profagent.nightly.run import LONGEST_WAIT_S, Attempts, Captured
from profagent.nightly.settings import Board, Nightly, Record
from profagent.nightly.verdict import Outcome

AWAY = Captured(None, "cannot reach it", is_away=True)
LOST = Captured(1, "it was restarted", is_lost=True)
GOOD = Captured(2)
ATTEMPT_S = 10.0


class Night:
    """A clock that moves by attempts and waits only; `results` are the attempts', the last one's ever again."""

    def __init__(self, *results: Captured) -> None:
        self.now_s, self.waits, self.lines = 1000.0, list[float](), list[str]()
        self.stops_in_wait = False
        self._results = list(results)

    def clock(self) -> float:
        return self.now_s

    async def wait(self, delay_s: float, stop: asyncio.Event) -> None:
        self.waits.append(delay_s)
        self.now_s += delay_s
        if self.stops_in_wait:
            stop.set()

    async def attempt(self, _deadline: float) -> Captured:
        self.now_s += ATTEMPT_S
        return self._results.pop(0) if len(self._results) > 1 else self._results[0]

    async def played(self, attempts: int, time_limit: str = "24h") -> tuple[Captured, Outcome]:
        outcome = Outcome("lab1")
        settings = Nightly([Board("lab1", record=Record("1s"))], attempts=attempts, wait="1m", time_limit=time_limit)
        tried = Attempts(settings, self.lines.append, self.clock, self.wait)
        return await tried.made(outcome, self.attempt, asyncio.Event()), outcome


async def test_each_wait_is_twice_as_long_up_to_a_quarter_of_an_hour() -> None:
    night = Night(AWAY)
    found, outcome = await night.played(attempts=7)
    assert (found, outcome.attempts) == (AWAY, 7)
    assert night.waits == [60, 120, 240, 480, LONGEST_WAIT_S, LONGEST_WAIT_S]
    assert night.lines[1] == "lab1: cannot reach it; the next attempt is in 120 s"


@pytest.mark.parametrize(("results", "attempts"), [((GOOD,), 1), ((AWAY, LOST, GOOD), 3)])
async def test_a_board_that_is_reached_is_tried_no_more(results: tuple[Captured, ...], attempts: int) -> None:
    found, outcome = await Night(*results).played(attempts=5)
    assert (found, outcome.attempts) == (GOOD, attempts)


async def test_the_last_wait_ends_with_the_board_s_time() -> None:
    night = Night(AWAY)
    _, outcome = await night.played(attempts=9, time_limit="2m")
    assert (outcome.attempts, night.waits) == (3, [60, 40])


async def test_a_night_that_is_stopped_in_a_wait_tries_no_more() -> None:
    night = Night(AWAY)
    night.stops_in_wait = True
    found, outcome = await night.played(attempts=9)
    assert (found.problem, outcome.attempts) == ("the night was stopped before it was this board's turn", 1)

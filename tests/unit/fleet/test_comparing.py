"""What `fleet diff` makes of the nights of boards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from profagent.diff.significance import FEWEST_ROWS
from profagent.fleet.comparing import Nights, apart_line, compared, headline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BOARDS = ("a", "b", "c", "d", "e", "f")
DAYS = tuple(f"2026-11-{day:02}" for day in range(1, 21))
LABELS = [(board, json.dumps({"rack": "1" if board in "ab" else "2", "night": "each"})) for board in BOARDS]


def rows(factor: Callable[[str, str], float], boards: str = "abcdef") -> Iterator[tuple[str | float | None, ...]]:
    """A layer takes about 100 us on boards, times a factor; None where a board was away."""
    for board in boards:
        drawn = np.random.default_rng(ord(board)).normal(100, 1, len(DAYS))
        for day, time in zip(DAYS, drawn.tolist(), strict=True):
            if found := factor(board, day):
                yield (board, "net", "conv", "Conv", "AA_CORE", "us", day, time * found)


@pytest.mark.parametrize(
    ("on", "boards", "where"),
    [
        ("abcdef", "abcdef", "all 6 boards"),
        ("ab", "abcdef", "rack=1: 2 of 2 boards; others 0 of 4"),
        ("cde", "abcdef", "rack=2: 3 of 4 boards; others 0 of 2"),
        ("ac", "abcdef", "a, c: 2 of 6 boards"),
        ("a", "a", "a, the only board"),
    ],
)
def test_boards_are_told_by_what_they_share(on: str, boards: str, where: str) -> None:
    found = compared(rows(lambda board, day: 1.2 if board in on and day >= DAYS[14] else 1.0, boards), LABELS, None)
    (change,) = found.changes or []
    assert (change.where, change.since, change.what, change.boards) == (where, DAYS[14], "slower", [*on])
    assert change.percent == pytest.approx(20, abs=2)


def test_what_is_faster_comes_after_what_is_slower() -> None:
    def factor(board: str, day: str) -> float:
        return {"a": 0.8, "b": 1.1}.get(board, 1.0) if day >= DAYS[13] else 1.0

    found = compared(rows(factor), [], None)
    assert [(each.what, each.boards) for each in found.changes or ()] == [("slower", ["b"]), ("faster", ["a"])]
    assert headline(found).endswith("1 slower, 1 faster")


def test_noise_is_no_change() -> None:
    assert compared(rows(lambda _board, _day: 1.0), LABELS, None).changes == []


def test_a_board_that_is_away_is_not_compared() -> None:
    found = compared(rows(lambda board, day: 0.0 if board == "a" and day > DAYS[13] else 1.0), LABELS, None)
    assert (found.boards, found.changes) == (5, [])


@pytest.mark.parametrize("at", [DAYS[0], DAYS[FEWEST_ROWS - 1], DAYS[1 - FEWEST_ROWS], "2027-01-01"])
def test_of_few_nights_nothing_is_told(at: str) -> None:
    found = compared(rows(lambda _board, _day: 1.0), LABELS, at)
    assert found.changes is None
    assert headline(found).startswith("cannot tell: ")


def test_nights_that_are_not_comparable_are_left_out_and_named() -> None:
    """From the tenth night on the clock of board a is another, and so are all its times."""

    def clock(board: str, day: str) -> str:
        return "800 MHz" if board == "a" and day >= DAYS[10] else "1000 MHz"

    facts = [
        (board, day, json.dumps({"run": {"npu-clock": [clock(board, day)]}, "pictures": {}}))
        for board in BOARDS
        for day in DAYS
    ]
    slower = [*rows(lambda board, day: 1.2 if clock(board, day) == "800 MHz" else 1.0)]
    found = compared(slower, LABELS, None, Nights(facts))
    assert (found.boards, found.changes) == (5, [])
    assert found.apart == [f"a {day}: npu-clock 1000 MHz" for day in DAYS[:10]]
    assert apart_line(found).startswith(f"not compared: a {DAYS[0]}: npu-clock 1000 MHz; ")
    assert apart_line(found).endswith("; and 7 more")
    found = compared(slower, LABELS, None, Nights(facts), ["npu-clock"])
    assert [change.boards for change in found.changes or ()] == [["a"]]
    assert not found.apart

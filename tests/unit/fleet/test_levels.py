"""Columns of `fleet trend` and the chart of `fleet report`: levels, their changes, and what changed with them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from profagent.fleet.comparing import FleetDiff
from profagent.fleet.levels import COLUMNS, facts_by_night, with_levels
from profagent.fleet.page import fleet_page
from profagent.lake.engines import Answer

DAYS = tuple(f"2026-11-{day:02}" for day in range(1, 11))
NAMES = ("date", "model", "layer", "type", "unit", "measure", "boards", "number", "total", "mean", "median", "p95")
NOTHING = Answer((), [])


def night(day: str, model: str, median: float | None) -> tuple[Any, ...]:
    return (day, model, None, None, None, "us", 2, 20, 2000.0, 100.0, median, 120.0)


def answer() -> Answer:
    """Model `slow` is 10 % slower from the fifth night on, of which the third is not known; `same` stays."""
    noise = (0.1, -0.2, 0.1, 0.2, -0.1) * 2
    slow = [None if at == 2 else 100.0 + noise[at] + (10 if at >= 4 else 0) for at in range(len(DAYS))]
    rows = [night(day, "slow", median) for day, median in zip(DAYS, slow, strict=True)]
    return Answer(NAMES, rows[::-1] + [night(day, "same", 50 + off) for day, off in zip(DAYS, noise, strict=True)])


def sessions() -> list[tuple[Any, ...]]:
    """Two boards, of which one has another SDK from the fifth night on, and both another build a night later."""
    return [
        (
            day,
            json.dumps({"build": "b" if at >= 5 else "a", "nightly": day}),
            json.dumps({"run": {"sdk": ["1.1" if at >= 4 and board else "1.0"]}, "pictures": {}}),
        )
        for at, day in enumerate(DAYS)
        for board in range(2)
    ]


def test_the_night_of_a_change_says_how_large_it_is_and_what_changed_too() -> None:
    found = with_levels(answer(), facts_by_night(("date", "labels_json", "facts_json"), sessions()))
    assert found.names == (*NAMES, *COLUMNS)
    slow = {row[0]: row[-4:] for row in found.rows if row[1] == "slow"}
    assert slow[DAYS[0]] == (pytest.approx(100, abs=0.2), None, None, None)
    assert slow[DAYS[2]] == (None, None, None, None)
    level, percent, uncertainty, causes = slow[DAYS[4]]
    assert level == pytest.approx(110, abs=0.2)
    assert percent == pytest.approx(10, abs=0.2)
    assert 0 < uncertainty < 0.6
    assert causes == f"sdk: 1.0 -> 1.0+1.1, label build: a -> b ({DAYS[5]})"
    assert slow[DAYS[9]] == (level, None, None, None)
    assert {row[-4:] for row in found.rows if row[1] == "same"} == {(None, None, None, None)}


def test_a_lake_without_facts_has_levels_all_the_same() -> None:
    found = with_levels(answer(), facts_by_night(("date",), [(day,) for day in DAYS]))
    assert [row[-1] for row in found.rows if row[-1]] == ["nothing that is known"]


def test_the_page_shows_levels() -> None:
    changes = FleetDiff([], [], 0, None)
    page = fleet_page(answer(), changes, NOTHING, NOTHING, is_simulated=False)
    assert page.count("<line ") == 2
    assert f"; since {DAYS[4]} +10.0 ± 0." in page

"""How often a night tries a board."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.nightly import run
from profagent.nightly.night import Board, Nightly, Record
from profagent.nightly.run import Ended, NightRun
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

AWAY = Ended(3, None, "cannot reach it")
FAILED = Ended(1, None, "it crashed")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Ended]:
    """What the commands of a night come to, one after the other."""
    found: list[Ended] = []

    async def played(
        _call: Sequence[str], _limit_s: float, _stop: asyncio.Event, _tell: Callable[[str], None]
    ) -> Ended:
        return found.pop(0)

    monkeypatch.setattr(run, "run_command", played)
    return found


def night(name: str, told: list[str], tmp_path: Path, **more: object) -> NightRun:
    settings = Nightly([Board(name, record=Record("1s"))], wait="0.01s", **more)  # type: ignore[arg-type]
    return NightRun(settings, tmp_path, Workspace(tmp_path), "now", [], told.append)


async def test_a_board_that_is_away_is_tried_again(answers: list[Ended], tmp_path: Path) -> None:
    answers += [AWAY, AWAY, FAILED]
    told: list[str] = []
    (outcome,) = await night("127.0.0.1:1", told, tmp_path).boards(asyncio.Event())
    assert (outcome.attempts, outcome.problems, outcome.is_away) == (3, ["it crashed"], False)
    assert told[1] == "127.0.0.1:1: cannot reach it; the next attempt is in 0 s"


async def test_it_is_tried_no_more_often_than_is_said(answers: list[Ended], tmp_path: Path) -> None:
    answers += [AWAY, AWAY]
    (outcome,) = await night("127.0.0.1:1", [], tmp_path, attempts=2).boards(asyncio.Event())
    assert (outcome.attempts, outcome.is_away) == (2, True)


async def test_a_night_that_was_stopped_begins_no_board(answers: list[Ended], tmp_path: Path) -> None:
    stop = asyncio.Event()
    stop.set()
    (outcome,) = await night("127.0.0.1:1", [], tmp_path).boards(stop)
    assert outcome.problems == ["the night was stopped before it was this board's turn"]

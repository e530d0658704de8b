"""`profagent.watch` and `profagent.record` in Python, of one simulated board side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import profagent
from tests.integration.board import running

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_board_is_watched_and_recorded_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "board").mkdir()
    with running("--simulate", "--root", tmp_path / "board") as daemon:
        labels = {"build": "1234"}
        async with (
            profagent.record(daemon.address, workspace=tmp_path / "lab", inferences=3, labels=labels) as recording,
            profagent.watch(daemon.address) as events,
        ):
            with pytest.raises(profagent.UsageError, match="the capture still runs"):
                recording.session()
            async for event in events:
                if event.kind == "inference" and event["layers_us"] is not None:
                    break
            await recording.wait()
    assert (event.simulated, event["model"], events.lost) == (True, "yolov5s", 0)
    assert event["layers_us"] > 0
    with pytest.raises(KeyError, match="duration"):
        event["duration"]
    session = recording.session()
    assert len(session.inferences()) >= 3
    assert recording.summary["session"] == session.number == 1
    assert (session.provenance.simulated, session.provenance.complete) == (True, True)
    assert len(profagent.open(tmp_path / "lab").session("build=1234").layers()) > 0


async def test_a_board_that_is_not_there_is_told_at_the_end_of_the_block(tmp_path: Path) -> None:
    async def watched() -> None:
        async with profagent.watch("127.0.0.1:1") as events:
            async for event in events:
                raise AssertionError(event)

    with pytest.raises(profagent.UnreachableError):
        await watched()

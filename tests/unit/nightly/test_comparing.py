"""With which nights a night is compared, and what comes of that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from profagent.nightly.run import PastBoard, compared, measure
from profagent.nightly.settings import Board, Nightly, Record
from profagent.store.workspace import Workspace
from tests.unit.store.database import START_US, DatabaseBuilder

if TYPE_CHECKING:
    from pathlib import Path

BOARD = Board("lab1", record=Record(until_finished=True))


def past(*verdicts: str) -> list[PastBoard]:
    """Nights of the board, newest first; the oldest is session 1."""
    return [PastBoard("then", BOARD.name, verdict, len(verdicts) - at) for at, verdict in enumerate(verdicts)]


@pytest.mark.parametrize(
    ("nights", "expected"),
    [
        ([], None),
        (past("good", "good"), 2),
        (past("slower", "incomplete", "failed", "good"), 1),
        (past("undecided", "slower", "good", "undecided"), 2),
        (past("slower", "undecided", "undecided"), 2),
        ([PastBoard("then", "lab2", "good", 7), PastBoard("then", BOARD.name, "good", None), *past("good")], 1),
    ],
)
def test_a_night_is_measured_by_the_last_good_one_else_by_an_undecided_one(
    nights: list[PastBoard], expected: int | None
) -> None:
    assert measure(BOARD.name, nights) == expected


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Sessions of a layer: 6 inferences; 3; 6 that are slower, beside a model that others do not have."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    for name, count, us, models in (("A", 6, 100, ("net",)), ("B", 3, 100, ("net",)), ("C", 6, 110, ("net", "more"))):
        session = builder.session()
        for at, model in enumerate(models):
            number = builder.model(
                builder.job(session, name=f"JOB{name}{at}", frequency_mhz=700), model, layers=("conv",)
            )
            for pic in range(count):
                inference = builder.inference(session, number, pic, start_us=START_US + pic)
                builder.aicore(inference, builder.new_part(session, number, "aicore"), [7 * us])
    builder.close()
    return Workspace(tmp_path)


async def test_a_layer_that_is_slower_is_named(workspace: Workspace) -> None:
    settings = Nightly([BOARD], fail_if=["layer.median>+5%", "layer[conv22].median>+5%"])
    (found,) = await compared(settings, BOARD, workspace, 3, past("undecided"))
    assert (found.session, [each.what for each in found.slower]) == (1, ["layer conv"])
    assert found.untold == ("layer[conv22].median>+5%: not in both runs: layer conv22",)
    assert "model more is only in NEW" in found.unfair


async def test_too_few_inferences_tell_nothing(workspace: Workspace) -> None:
    (found,) = await compared(Nightly([BOARD], fail_if=["total.median>+3%"]), BOARD, workspace, 2, past("undecided"))
    assert (found.session, found.can_tell, found.untold) == (1, False, ())

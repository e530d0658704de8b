"""`profagent trend`: nights of two boards, of which one is slower from the second night on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profagent.cli.main import run
from profagent.errors import UsageError
from profagent.stats.cli import since_us
from tests.unit.store.database import START_US, DatabaseBuilder

DAY_US = 86_400_000_000
NIGHTS = 4


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Board 1 is as it was; board 2 is 6 % slower from its second night on, when its build and interval changed."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    builder.insert("board", identity="0ddba12", hostname="gauss", model="SS928")
    for night in range(NIGHTS):
        for board in (1, 2):
            at_us = START_US + night * DAY_US
            session = builder.session(board=board, source="record", started_us=at_us, ended_us=at_us + 1, simulated=1)
            slower = board == 2 and night
            builder.insert("session_label", session=session, key="build", value="b" if slower else "a")
            builder.insert("session_label", session=session, key="nightly", value=f"night {night}")
            job = builder.job(session, name=f"JOB{board}{night}")
            model = builder.model(job, layers=("conv0", "pool0"))
            builder.insert("sample", model=model, current_pic_count=0, input_pic_num=1, kept=1)
            builder.insert("sampling", model=model, sampled=12, passed_over=0, interval=2 if slower else 1)
            for pic in range(12):
                inference = builder.inference(session, model, pic, start_us=at_us + pic)
                part = builder.new_part(session, model, "aicore")
                builder.aicore(inference, part, [7000 + pic % 3, 7420 if slower else 7000])
    builder.close()
    return tmp_path


def trend(workspace: Path, *arguments: str) -> int:
    return run(["trend", "--workspace", str(workspace), *arguments])


def test_the_board_and_the_night_are_told(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trend(workspace, "--model", "yolo") == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert first.startswith("euler: median of yolo  *** simulated")
    assert "the level did not change in 4 sessions" in first
    assert second.startswith("gauss: median of yolo")
    assert "▁███" in second
    assert "from session 4 (2023-11-15 22:13) on: 2000.143 -> 2060.143 us, +3.0 %;" in second
    assert "changed with it: interval: 1 -> 2, label build: a -> b" in second
    assert "night 1" not in second, "each night's own name explains nothing"


def test_of_a_layer(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trend(workspace, "--model", "yolo", "--layer", "pool0", "--where", "board=gauss", "--json") == 0
    (board,) = json.loads(capsys.readouterr().out)
    (change,) = board["changes"]
    assert (change["session"], change["is_confirmed"]) == (4, True)
    assert change["after"] / change["before"] == pytest.approx(1.06)
    assert trend(workspace, "--model", "yolo", "--layer", "conv0") == 0
    assert capsys.readouterr().out.count("the level did not change") == 2


def test_a_level_is_another_beyond_what_medians_are_uncertain_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Medians of 25 values with a MAD of 20 us are uncertain by 7.4 us: three times as much is 22 us."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    for night in range(3):
        session = builder.session(started_us=START_US + night * DAY_US)
        model = builder.model(builder.job(session, name=f"JOB{night}"), layers=("within", "beyond"))
        for pic in range(25):
            inference = builder.inference(session, model, pic, start_us=START_US + pic)
            us = [1000 + 20 * (pic % 5 - 2) + (off if night else 0) for off in (16, 30)]
            builder.aicore(inference, builder.new_part(session, model, "aicore"), [7 * each for each in us])
    builder.close()
    changes = []
    for layer in ("within", "beyond"):
        assert trend(tmp_path, "--model", "yolo", "--layer", layer, "--json") == 0
        changes.append(len(json.loads(capsys.readouterr().out)[0]["changes"]))
    assert changes == [0, 1]


def test_figures_that_outlived_their_records_count_as_well(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trend(workspace, "--model", "yolo", "--json") == 0
    before = json.loads(capsys.readouterr().out)
    assert run(["gc", "--workspace", str(workspace), "--keep-last", "2"]) == 0
    capsys.readouterr()
    assert trend(workspace, "--model", "yolo", "--json") == 0
    assert json.loads(capsys.readouterr().out) == before


def test_what_is_not_there_is_told(workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trend(workspace, "--model", "resnet") == 2
    assert "no session has resnet" in capsys.readouterr().err
    assert trend(workspace, "--model", "yolo", "--layer", "fc") == 2
    assert "layer fc of yolo" in capsys.readouterr().err
    assert trend(tmp_path / "none", "--model", "yolo") == 2


def test_a_day_or_an_age() -> None:
    assert since_us("1970-01-02") == DAY_US
    assert since_us("1d") > START_US
    with pytest.raises(UsageError, match="no day and no age"):
        since_us("yesterday")

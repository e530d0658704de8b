"""`stats --by step`: steps are what a Profiler calls so, and the outermost ranges of each thread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.cli.main import run
from profagent.cli.provenance import SIMULATED_MARK
from profagent_app.marks import Kind
from tests.fakes.spooled import MARKS, START_US, mark, spooled

if TYPE_CHECKING:
    import pytest


def rows_of(directory: Path, capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, str], tuple[int, float, float]]:
    """Number, total and share by step and range."""
    assert run(["stats", str(directory), "--by", "step", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    return {(row["step"], row["range"]): (row["count"], row["total"], round(row["share"], 2)) for row in found}


def test_what_was_made_up_has_the_mark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = str(spooled(tmp_path / MARKS, mark(Kind.SPAN, "frame", *at(0, 800))))
    (tmp_path / MARKS / "simulated").write_text("")
    assert run(["stats", directory, "--by", "step", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["simulated"] is True
    for command in (["stats", directory, "--by", "step"], ["show", "-dir", directory]):
        assert run(command) == 0
        assert SIMULATED_MARK in capsys.readouterr().out


def at(begin: int, end: int) -> tuple[int, int]:
    return START_US + begin, START_US + end


def test_ranges_belong_to_the_outermost_of_their_thread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        # As they end: what is within comes first.
        *(mark(Kind.SPAN, "decode", *at(1000 * n + 100, 1000 * n + 300)) for n in range(3)),
        *(mark(Kind.RANGE, "copy", *at(1000 * n + 400, 1000 * n + 500), lane=9) for n in range(3)),
        *(mark(Kind.SPAN, "frame", *at(1000 * n, 1000 * n + 800)) for n in range(3)),
        mark(Kind.SPAN, "upload", *at(100, 300), tid=8),
        # The board's clock was set back within it: nobody knows how long it took.
        mark(Kind.SPAN, "upload", *at(400, 350), tid=8),
        mark(Kind.MARK, "start", *at(0, 0)),
    ]
    assert rows_of(spooled(tmp_path / MARKS, b"".join(records)), capsys) == {
        ("frame", ""): (3, 2400, round(2400 / 2600 * 100, 2)),
        ("frame", "decode"): (3, 600, 25),
        ("frame", "copy"): (3, 300, 12.5),
        ("upload", ""): (1, 200, round(200 / 2600 * 100, 2)),
    }


def test_a_profiler_s_step_holds_every_thread_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        mark(Kind.SPAN, "decode", *at(100, 300)),
        mark(Kind.SPAN, "upload", *at(100, 200), tid=8),
        mark(Kind.STEP, "step", *at(0, 1000)),
        mark(Kind.STEP, "step", *at(1000, 1500)),
        mark(Kind.SPAN, "decode", *at(1000, 1400)),
        mark(Kind.SPAN, "straddling", *at(1400, 1600)),
    ]
    assert rows_of(spooled(tmp_path / MARKS, b"".join(records)), capsys) == {
        ("step", ""): (2, 1500, round(1500 / 1700 * 100, 2)),
        ("step", "decode"): (2, 600, 40),
        ("step", "upload"): (1, 100, round(100 / 15, 2)),
        ("straddling", ""): (1, 200, round(200 / 1700 * 100, 2)),
    }


def test_a_session_without_a_job_has_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, workspace = spooled(tmp_path / MARKS, mark(Kind.SPAN, "frame", *at(0, 800))), str(tmp_path / "workspace")
    assert run(["import", "-dir", str(directory), "--workspace", workspace]) == 0
    capsys.readouterr()
    assert run(["stats", "1", "--by", "step", "--json", "--workspace", workspace]) == 0
    assert [row["step"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["frame"]


def test_it_says_where_there_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = spooled(tmp_path / MARKS, mark(Kind.MARK, "start", *at(0, 0)))
    run(["stats", str(directory), "--by", "step"])
    said = capsys.readouterr().out
    assert "nothing was recorded that could be told by step: marks alone are no steps" in said
    assert run(["stats", str(directory), "--by", "step", "--skip", "1"]) == 2

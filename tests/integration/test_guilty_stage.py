"""Pairs of simulated boards, one with a planted guilty stage: objectives name the stage, and nothing on the other."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.board import running
from tests.integration.host import profagent

RUNS = 50
GUILTY = ("preprocess", "infer", "postprocess", "wait for other")
NETWORK = """
name = "{name}"
[[segments]]
unit = "aicore"
runs = [{{ time_us = {time_us}.0, layers = ["conv:Convolution"] }}]
"""
# 200 frames in 2 s.
RATE, TIME_LAPSE, FOR_S = "5", "20", "40"
BUDGET = "frame.p99 < 5.2ms"
# Half of the frames are longer, by noise alone.
WITHIN_NOISE = "frame.median < 4.25ms"


def board(folder: Path, name: str, seed: int, *planted: str) -> Any:
    """A board whose program has a stage before and after an inference of 3 ms."""
    root = folder / name
    root.mkdir()
    network = folder / "yolo.toml"
    network.write_text(NETWORK.format(name="yolo", time_us=3000), "utf-8")
    options = ["--simulate", "--time-lapse", TIME_LAPSE, "--rate", RATE, "--for", FOR_S, "--seed", str(seed)]
    options += ["--spools", "marks", "--identity", name, "--log-level", "error", *planted]
    return running(*options, "--model", network, "--root", root, "--run", folder / f"run-{name}")


def contending(folder: Path, time_us: int, share: float) -> list[str]:
    """Options of a board on which another model has the NPU at the begin of a share of the inferences."""
    network = folder / f"other-{time_us}.toml"
    network.write_text(NETWORK.format(name="other", time_us=time_us), "utf-8")
    return ["--contend", f"{network}@{share}"]


def planted(folder: Path, guilty: str) -> list[str]:
    """Options of a board on which a tenth of the frames is late by more than a millisecond."""
    if guilty.startswith("wait"):
        return contending(folder, 4000, 0.15)
    factor = {"preprocess": 4, "infer": 1.8, "postprocess": 8}[guilty]
    return ["--slow-stage", f"{guilty}={factor}@0.1", *contending(folder, 400, 0.3)]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(RUNS))
def test_the_planted_stage_is_named_and_none_on_a_clean_board(seed: int, tmp_path: Path) -> None:
    guilty, is_shared = GUILTY[seed % len(GUILTY)], seed % 2 == 0
    with ExitStack() as stack:
        late = stack.enter_context(board(tmp_path, "late", seed, *planted(tmp_path, guilty)))
        more = contending(tmp_path, 400, 0.3) if is_shared else []
        clean = stack.enter_context(board(tmp_path, "clean", RUNS + seed, *more))
        boards = ("--board", late.address, "--board", clean.address)
        ended = profagent("record", *boards, "--backlog", "--until-finished", "--json", "--workspace", tmp_path / "ws")
    assert ended.code == 0, ended.err
    sessions = {each["session"]["board"]: str(each["session"]["session"]) for each in ended.document["boards"]}

    def verdict(name: str, objective: str) -> dict[str, Any]:
        where = (sessions[name], "--workspace", tmp_path / "ws", "--by", "frame", "--json")
        (judged,) = profagent("stats", *where, "--slo", objective).document["slo"]
        (case,) = judged["cases"]
        return dict(case)

    of_late, of_clean = verdict("late", BUDGET), verdict("clean", BUDGET)
    assert (of_late["verdict"], of_late["guilty"]) == ("exceeded", guilty)
    assert (of_clean["verdict"], of_clean["guilty"]) == ("holds", None)
    if not is_shared:
        tight = verdict("clean", WITHIN_NOISE)
        assert (tight["verdict"], tight["guilty"]) == ("exceeded", None)

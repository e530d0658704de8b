"""Pairs of simulated boards, one with a planted guilty stage: objectives name the stage, and nothing on the other."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job
from tests.integration.board import eventually, running
from tests.integration.host import profagent

if TYPE_CHECKING:
    from collections.abc import Sequence

RUNS = 50
GUILTY = ("preprocess", "infer", "postprocess", "wait for other")
LAYERS = 30
NETWORK = """
name = "{name}"
[[segments]]
unit = "aicore"
runs = [{layers}]
"""
# Their marks fit into the FIFO, whenever the daemon reads it.
FRAMES = 200
BUDGET = "frame.p99 < 5.2ms"


def network(folder: Path, name: str, time_us: float) -> str:
    """The file of a network whose layers take so long together."""
    layer = '{{ time_us = {}, layers = ["conv{}:Convolution"] }}'
    layers = ", ".join(layer.format(round(time_us / LAYERS, 2), number) for number in range(LAYERS))
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.toml"
    file.write_text(NETWORK.format(name=name, layers=layers), "utf-8")
    return str(file)


def board(folder: Path, seed: int, slow: Sequence[str] = (), contend: str | None = None) -> SimulationOptions:
    """A board whose program has a stage before and after an inference of 3 ms."""
    root = folder / "root"
    root.mkdir(parents=True, exist_ok=True)
    model = network(folder, "yolo", 3000.0)
    return SimulationOptions(
        model, seed=seed, rate=30.0, root=root, run=folder / "run", slow=tuple(slow), contend=contend
    )


def guilty_board(folder: Path, seed: int, guilty: str) -> SimulationOptions:
    """A board on which about a tenth of the frames is late by more than a millisecond."""
    if guilty.startswith("wait"):
        return board(folder, seed, contend=f"{network(folder, 'other', 4000.0)}@0.15")
    factor = {"preprocess": 4, "infer": 1.8, "postprocess": 8}[guilty]
    return board(folder, seed, [f"{guilty}={factor}@0.1"], f"{network(folder, 'other', 400.0)}@0.3")


def clean_board(folder: Path, seed: int, *, is_shared: bool) -> SimulationOptions:
    """A board on which no frame is late; if it is shared, another model has the NPU for a short time."""
    return board(folder, seed, contend=f"{network(folder, 'other', 400.0)}@0.3" if is_shared else None)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(RUNS))
def test_the_planted_stage_is_named_and_none_on_a_clean_board(seed: int, tmp_path: Path) -> None:
    guilty, is_shared = GUILTY[seed % len(GUILTY)], seed % 2 == 0
    boards = {
        "late": guilty_board(tmp_path / "late", seed, guilty),
        "clean": clean_board(tmp_path / "clean", RUNS + seed, is_shared=is_shared),
    }
    arguments: list[str | Path] = ["--backlog", "--until-finished", "--json", "--workspace", tmp_path / "ws"]
    with ExitStack() as stack:
        for name, options in boards.items():
            assert options.run is not None
            where = ("--root", options.root, "--run", options.run, "--spools", "marks", "--quiet-after", "0.3")
            daemon = stack.enter_context(running(*where, "--identity", name, "--log-level", "warning"))
            arguments += ["--board", daemon.address]
            # Programs that begin before the daemon has its FIFO lose their first marks.
            assert eventually((options.run / "marks").exists)
            write_job(options.root, options, FRAMES)
        ended = profagent("record", *arguments)
    assert ended.code == 0, ended.err
    sessions = {each["session"]["board"]: str(each["session"]["session"]) for each in ended.document["boards"]}

    def verdict(name: str, objective: str) -> dict[str, Any]:
        where = (sessions[name], "--workspace", tmp_path / "ws", "--by", "frame", "--json")
        (judged,) = profagent("stats", *where, "--slo", objective).document["slo"]
        (case,) = judged["cases"]
        assert case["count"] == FRAMES
        return dict(case)

    late, clean = verdict("late", BUDGET), verdict("clean", BUDGET)
    assert (late["verdict"], late["guilty"]) == ("exceeded", guilty)
    assert (clean["verdict"], clean["guilty"]) == ("holds", None)
    if not is_shared:
        # About half of the frames are longer, by noise alone.
        tight = verdict("clean", f"frame.median < {verdict('clean', 'frame.median < 1s')['value'] - 1:.0f}us")
        assert (tight["verdict"], tight["guilty"], tight["why"]) == ("exceeded", None, "no single part explains it")

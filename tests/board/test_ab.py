"""`profagent ab` through a real OpenSSH server: two programs in turns, of which one is slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.host import profagent

if TYPE_CHECKING:
    from pathlib import Path

    from tests.board.bench import Bench

SLOWER = """
from profagentd.simulate.draw import Drawing
usual = Drawing._time_us
Drawing._time_us = lambda *given: 1.1 * usual(*given)
npu = """

ROUNDS, DRIFT = 40, 0.02
# Each run is slower than the one before it, and draws other times.
DRIFTING = """
from profagentd.simulate.draw import Drawing
runs = Path({runs!r})
run = int(runs.read_text())
runs.write_text(str(run + 1))
usual = Drawing._time_us
Drawing._time_us = lambda *given: {factor} * (1 + {drift} * run / {last}) * usual(*given)
options = SimulationOptions(seed=run, """


def test_two_programs_run_in_turns_and_are_compared(served: Bench) -> None:
    slow = served.project / "slow"
    slow.write_text((served.project / "main").read_text("utf-8").replace("\nnpu = ", SLOWER), "utf-8")
    slow.chmod(0o755)
    where = ("--project", served.project, "--remote-dir", served.remote, "--workspace", served.workspace)
    run = ("--", "8", "0", "unload")
    words = ("ab", "--board", served.board, "-m", "slow", "--against", "main", "--rounds", "1", "--json", *where)
    ended = profagent(*words, *run, **served.variables)
    assert ended.code == 4, ended.err
    document = ended.document
    assert (document["a"]["sessions"], document["b"]["sessions"]) == ([1], [2])
    assert document["verdict"].startswith("cannot tell: there are too few rounds, 1")
    assert (document["comparability"]["verdict"], document["complete"], document["stopped"]) == (
        "comparable",
        True,
        None,
    )
    (model,) = document["models"]
    assert model["sum_of_layers"]["percent"] == pytest.approx(10, abs=2)
    assert model["latency"]["percent"] == pytest.approx(9, abs=4)
    assert (model["latency"]["p"], model["drift_percent"], document["temperature"]) == (
        None,
        None,
        {"begin": None, "end": None},
    )
    where_a = ("--where", f"label=ab={document['label']}", "--where", "label=side=a", "--json")
    listed = profagent("sessions", *where_a, "--workspace", served.workspace, **served.variables).document
    assert [(each["session"], each["labels_by_key"]["round"]) for each in listed] == [(1, "1")]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_one_percent_is_found_under_a_drift_of_two_percent(served: Bench, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.write_text("0", "utf-8")
    for name, factor in (("slow", 1.01), ("usual", 1.0)):
        drifting = DRIFTING.format(runs=str(runs), factor=factor, drift=DRIFT, last=2 * ROUNDS - 1)
        program = (served.project / "main").read_text("utf-8").replace("\noptions = SimulationOptions(", drifting)
        (served.project / name).write_text(program, "utf-8")
        (served.project / name).chmod(0o755)
    where = ("--project", served.project, "--remote-dir", served.remote, "--workspace", served.workspace)
    words = ("ab", "--board", served.board, "-m", "slow", "--against", "usual", "--rounds", str(ROUNDS), "--json")
    ended = profagent(*words, *where, "--", "32", "0", "unload", **served.variables)
    assert ended.code == 1, ended.err
    (model,) = ended.document["models"]
    # The time that no layer explains is the same on both sides.
    assert model["sum_of_layers"]["percent"] == pytest.approx(1, abs=0.2)
    assert model["latency"]["low"] > 0.5
    assert model["drift_percent"] == pytest.approx(100 * DRIFT, abs=0.5)

"""What makes runs hard to compare."""

from __future__ import annotations

from typing import Any

import numpy as np

from profagent.diff.diff import Facts, facts_of, unfair
from profagent.diff.model_runs import ModelRun

JOB: dict[str, Any] = {
    "simulated": False,
    "hostname": "euler",
    "board": "u-1",
    "frequency_mhz": 700,
    "sdk_version": "1.0",
    "counter_map": None,
    "sampling": {"interval": 10},
    "ledger": {"loss": {}, "note": {"sequence-gap": 3}},
}


def _facts(**other: Any) -> Facts:
    return facts_of([{**JOB, **other}])


def test_equal_runs_are_fair() -> None:
    assert unfair(_facts(), _facts(), []) == []


def test_what_differs_is_told() -> None:
    others = {"simulated": True, "hostname": "gauss", "frequency_mhz": 594, "sdk_version": "2.0", "counter_map": "x"}
    assert unfair(_facts(), _facts(**others, sampling={"interval": 1}), []) == [
        "figures: measured in BASE, simulated in NEW",
        "board: euler in BASE, gauss in NEW",
        "frequency: 700 MHz in BASE, 594 MHz in NEW",
        "interval: 10 in BASE, 1 in NEW",
        "sdk: 1.0 in BASE, 2.0 in NEW",
        "counter map: none in BASE, x in NEW",
    ]


def test_losses_and_what_is_not_known_are_told() -> None:
    lossy = _facts(ledger={"loss": {"torn-record": 2, "removed": 700}, "note": {}})
    assert unfair(lossy, _facts(), []) == ["BASE is incomplete: its ledger has losses of 702"]
    assert unfair(_facts(), facts_of([]), []) == ["NEW does not tell: figures, frequency, interval"]


def test_jobs_of_a_run_that_differ_are_told_together() -> None:
    mixed = facts_of([JOB, {**JOB, "frequency_mhz": 594}])
    assert unfair(mixed, _facts(), []) == ["frequency: 594 MHz, 700 MHz in BASE, 700 MHz in NEW"]


def test_other_pictures_are_told() -> None:
    base, new = (ModelRun("m", (), np.empty((0, 0)), frozenset({(batch, 4)})) for batch in (1, 2))
    assert unfair(_facts(), _facts(), [(base, new)]) == ["batch and pictures of m: 1 and 4 in BASE, 2 and 4 in NEW"]
    unknown = ModelRun("m", (), np.empty((0, 0)))
    assert unfair(_facts(), _facts(), [(base, unknown)]) == []

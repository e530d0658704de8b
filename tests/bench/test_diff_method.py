"""False alarms and finds of the method of `diff`, over many pairs of runs with noise of several kinds.

200 pairs without a change are to alarm in at most 5 %; with noise of 2 % a layer that is 5 % slower is to be found in
95 % of pairs over 30 inferences.
"""

from __future__ import annotations

import pytest

from tests.bench.measure import report_table
from tests.unit.diff import noisy_runs

PAIRS = 200
LAYERS = 83
INFERENCES = (30, 100)
KINDS = ("independent", "repeating", "alike", "drifting", "wandering", "spiking")


@pytest.mark.parametrize("name", KINDS)
def test_alarms_and_finds(name: str) -> None:
    noise = getattr(noisy_runs, name)
    rows = []
    for inferences in INFERENCES:
        alarms = noisy_runs.share_of_alarms(noise, PAIRS, inferences=inferences, layers=LAYERS)
        found = noisy_runs.share_found(noise, PAIRS, inferences=inferences, layers=LAYERS)
        rows.append([str(inferences), f"{alarms:.1%}", f"{found:.1%}"])
    about = (noise.__doc__ or "Noise of 2 %, each value on its own.").splitlines()[0]
    report_table(f"{about} {PAIRS} pairs of {LAYERS} layers", ["inferences", "false alarms", "5 % slower found"], rows)

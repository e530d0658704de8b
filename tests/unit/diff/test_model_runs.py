"""A JOB as runs of its models."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.diff.runs import LayerName, ModelRun, joined_runs, model_runs
from tests.unit.stats.series import Rows, inferences, job

TWO: Rows = [(0, 0, 0, 10), (0, 1, 0, 20), (0, 0, 1, 5), (1, 1, 0, 21), (1, -1, 0, 2)]
CPU: Rows = [(0, 2, 2, 3), (1, 2, 2, 5)]


def _run(times: list[list[float]], *names: str, model: str = "m") -> ModelRun:
    layers = tuple(LayerName(name, "T", "AA_CORE") for name in names)
    return ModelRun(model, layers, np.array(times), counters={len(names) - 1: np.full((1, 10), 0.5)})


def test_records_of_a_layer_are_added_up_and_missing_ones_are_not_known() -> None:
    (run,) = model_runs(job(inferences(2), TWO, CPU, us_per_tick=2.0), 0)
    names = [(layer.name, layer.unit) for layer in run.layers]
    assert names == [("conv0", "AA_CORE"), ("conv1", "AA_CORE"), ("nms", "AA_CPU"), ("N/A", "AA_CORE")]
    np.testing.assert_array_equal(run.times, [[30, 40, 3, np.nan], [np.nan, 42, 5, 4]])
    assert run.pictures == {(1, 1)}
    assert run.totals().tolist() == [77, 81]


def test_runs_of_one_model_are_joined_also_where_one_lacks_a_layer() -> None:
    (run,) = joined_runs([_run([[1, 3]], "a", "c"), _run([[4, 5, 6]], "a", "b", "c"), _run([[7, 8, 9]], "a", "b", "c")])
    assert [layer.name for layer in run.layers] == ["a", "b", "c"]
    np.testing.assert_array_equal(run.times, [[4, 5, 6], [7, 8, 9], [1, np.nan, 3]])
    assert run.counters[2].shape == (3, 10)


@pytest.mark.parametrize("other", [_run([[1]], "x"), _run([[1, 2]], "b", "a"), _run([[1, 2]], "a", "b", model="n")])
def test_runs_of_other_layers_or_models_stay_apart(other: ModelRun) -> None:
    assert len(joined_runs([_run([[1, 2, 3]], "a", "b", "c"), other])) == 2

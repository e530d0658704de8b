"""The pretend NPU: one JOB from load to unload."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagentd.errors import DaemonError
from profagentd.simulate.npu import LOAD_US, UNLOAD_US, Npu
from profagentd.simulate.options import SimulationOptions
from tests.daemon.simulated_job import BATCHED, contents, only_job, write_network


def test_nothing_is_written_before_the_load(tmp_path: Path) -> None:
    npu = Npu(SimulationOptions(root=tmp_path))
    assert npu.directory is None
    assert npu.unload(5) == 5
    assert list(tmp_path.iterdir()) == []


def test_a_load_makes_the_job_with_its_clock_and_the_mark_of_simulation(tmp_path: Path) -> None:
    npu = Npu(SimulationOptions(root=tmp_path, layers=7, rate=2.5, interval=3, seed=4))
    assert npu.load(1_000) == 1_000 + LOAD_US
    files = contents(only_job(tmp_path))
    assert files["info.json.0"] == b'{"DeviceInfo": [{"aic_frequency": "700"}]}'
    assert files["simulated"].decode() == (
        "made by profagentd --simulate --model yolov5s --layers 7 --rate 2.5 --interval 3 --pictures 1 --seed 4\n"
    )


def test_it_counts_what_it_ran(tmp_path: Path) -> None:
    npu = Npu(SimulationOptions(root=tmp_path, layers=7, interval=2), gaps=False)
    now_us = npu.load(0)
    for _ in range(5):
        duration_us = npu.next_call_us
        assert npu.infer(now_us) == now_us + duration_us
        now_us += duration_us
    assert npu.unload(now_us) == now_us + UNLOAD_US
    assert (npu.inferences, npu.sampled, npu.aicore_records) == (5, 3, 21)


def test_more_run_time_batches_than_a_done_can_hold_are_refused(tmp_path: Path) -> None:
    model = write_network(tmp_path / "batched.toml", BATCHED)
    Npu(SimulationOptions(model=model, pictures=16, root=tmp_path))
    with pytest.raises(DaemonError) as caught:
        Npu(SimulationOptions(model=model, pictures=17, root=tmp_path))
    assert "--pictures 17" in str(caught.value)
    assert "16 pictures" in caught.value.hint


def test_an_inference_of_too_many_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DaemonError, match="too large"):
        Npu(SimulationOptions(layers=10_000, pictures=6, root=tmp_path))

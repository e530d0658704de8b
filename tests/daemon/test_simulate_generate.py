"""Whole JOBs that are written at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagentd.simulate import SimulationOptions, write_job
from profagentd.simulate.run import START_US
from tests.daemon.simulated_job import THREE_SEGMENTS, aicore, aicpu, api, contents, done, write_network


def test_a_job_holds_the_files_of_each_sampled_inference_and_nothing_else(tmp_path: Path) -> None:
    files = contents(write_job(tmp_path, SimulationOptions(interval=3), 8))
    logs = {"aicore", "aicpu"}
    expected = {
        f"data/{log}.0.yolov5s.3.0.1.1.{count}{end}" for log in logs for count in (0, 3, 6) for end in ("", ".done")
    }
    expected |= {"data/acl_api.0.yolov5s.0", "data/acl_api.0.yolov5s.0.done"}
    expected |= {"data/yolov5s.0.net.info", "data/yolov5s.0.layer.info", "info.json.0", "simulated"}
    assert set(files) == expected


def test_lengths_and_times_agree_throughout(tmp_path: Path) -> None:
    files = contents(write_job(tmp_path, SimulationOptions(pictures=2, rate=50.0), 20))
    end_before_us = START_US
    for count in range(0, 40, 2):
        core, core_done, cpu, cpu_done = (
            files[f"data/{log}.0.yolov5s.3.0.1.2.{count}{end}"] for log in ("aicore", "aicpu") for end in ("", ".done")
        )
        assert done(core_done)["file_len"] == str(len(core))
        assert done(cpu_done)["file_len"] == str(len(cpu))
        start_us, end_us = int(done(core_done)["start_time"]), int(done(core_done)["end_time"])
        busy_us = sum(ticks for _, ticks, _ in aicore(core)) * 100 / 700
        assert end_before_us < start_us
        assert (
            0.8 * (end_us - start_us)
            < busy_us + sum(end - begin for _, begin, end, *_ in aicpu(cpu))
            < end_us + 999 - start_us
        )
        end_before_us = end_us
    calls = api(files["data/acl_api.0.yolov5s.0"])
    assert [call[0] for call in calls].count(2) == 20
    assert (calls[0][1], calls[-1][0]) == (START_US, 1)


def test_inferences_begin_at_the_rate(tmp_path: Path) -> None:
    files = contents(write_job(tmp_path, SimulationOptions(rate=8.0), 9))
    begins = [call[1] for call in api(files["data/acl_api.0.yolov5s.0"]) if call[0] == 2]
    assert [begin - begins[0] for begin in begins] == [125_000 * number for number in range(9)]


def test_an_npu_that_is_slower_than_the_rate_runs_inference_after_inference(tmp_path: Path) -> None:
    files = contents(write_job(tmp_path, SimulationOptions(rate=10_000.0), 9))
    calls = [call for call in api(files["data/acl_api.0.yolov5s.0"]) if call[0] == 2]
    assert [later[1] for later in calls[1:]] == [earlier[2] for earlier in calls[:-1]]


def test_a_model_loaded_twice_adds_to_the_same_files(tmp_path: Path) -> None:
    model = write_network(tmp_path / "three.toml", THREE_SEGMENTS)
    options = SimulationOptions(model=model)
    once = contents(write_job(tmp_path, options, 2, gaps=False))
    twice = contents(write_job(tmp_path, options, 2, loads=2, gaps=False))
    assert set(once) == set(twice)
    log = "data/aicore.0.three.3.0.1.1.1"
    assert len(twice[log]) == 2 * len(once[log])
    assert [segment for _, _, segment in aicore(twice[log])] == [0, 0, 2, 0, 0, 2]
    assert done(twice[f"{log}.done"])["file_len"] == str(len(once[log]))
    api_log = "data/acl_api.0.three.0"
    calls = api(twice[api_log])
    assert [call[0] for call in calls] == [0, 5, 2, 5, 2, 1] * 2
    last = done(twice[f"{api_log}.done"])
    assert (last["file_len"], last["start_time"]) == (str(6 * 32), str(calls[6][1]))


def test_the_same_seed_writes_the_same_job_byte_for_byte(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("a", "b", "c")]
    for root in roots:
        root.mkdir()
    first, second = (write_job(root, SimulationOptions(seed=3), 5) for root in roots[:2])
    other = write_job(roots[2], SimulationOptions(seed=4), 5)
    assert first.name == second.name != other.name
    assert contents(first) == contents(second)
    assert contents(first)["data/aicore.0.yolov5s.3.0.1.1.0"] != contents(other)["data/aicore.0.yolov5s.3.0.1.1.0"]


def test_layers_and_inferences_give_an_exact_number_of_records(tmp_path: Path) -> None:
    files = contents(write_job(tmp_path, SimulationOptions(layers=100), 10, gaps=False))
    records = [aicore(data) for name, data in files.items() if name.startswith("data/aicore") and name[-5:] != ".done"]
    assert [len(each) for each in records] == [100] * 10


def test_a_job_needs_a_load(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="loads"):
        write_job(tmp_path, SimulationOptions(), 1, loads=0)

"""The simulated board: the JOBs that it writes, against the format page; its networks, options and pace."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from profagentd.errors import DaemonError
from profagentd.simulate import draw as encode
from profagentd.simulate.draw import MAP_FILE, Drawing, load_counters
from profagentd.simulate.network import (
    AICORE,
    AICPU,
    CompiledModel,
    FusedRun,
    SimulatedLayer,
    UnitSegment,
    chosen_facts,
    load_network,
    resized,
)
from profagentd.simulate.npu import CALL_BEFORE_US, JobWriter, LoadedModel, Npu, Sampling
from profagentd.simulate.program import POSTPROCESS_US, PREPROCESS_US, STAGES, FrameSteps, SlowStage
from profagentd.simulate.run import SimulationOptions, add_simulation_arguments, options_from, simulate
from tests.daemon.simulated_job import (
    BATCHED,
    THREE_SEGMENTS,
    TurnedClock,
    aicore,
    api,
    contents,
    done,
    only_job,
    write_job,
    write_network,
)

if TYPE_CHECKING:
    from profagentd.loop import DaemonClock


def test_a_job_holds_the_files_of_each_sampled_inference_and_nothing_else(tmp_path: Path) -> None:
    files = contents(write_job(tmp_path, SimulationOptions(interval=3), 8))
    logs = {"aicore", "aicpu"}
    expected = {
        f"data/{log}.0.yolov5s.3.0.1.1.{count}{end}" for log in logs for count in (0, 3, 6) for end in ("", ".done")
    }
    expected |= {"data/acl_api.0.yolov5s.0", "data/acl_api.0.yolov5s.0.done"}
    expected |= {"data/yolov5s.0.net.info", "data/yolov5s.0.layer.info", "info.json.0", "simulated"}
    assert set(files) == expected


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


def test_more_run_time_batches_than_a_done_can_hold_are_refused(tmp_path: Path) -> None:
    model = write_network(tmp_path / "batched.toml", BATCHED)
    Npu(SimulationOptions(model=model, pictures=16, root=tmp_path))
    with pytest.raises(DaemonError) as caught:
        Npu(SimulationOptions(model=model, pictures=17, root=tmp_path))
    assert "--pictures 17" in str(caught.value)
    assert "16 pictures" in caught.value.hint


# One model in a JOB


class Loaded:
    """A model in a JOB, with its draws."""

    def __init__(self, tmp_path: Path, text: str, pictures: int = 1, interval: int = 1) -> None:
        network = load_network(write_network(tmp_path / "network.toml", text))
        self.job = JobWriter.create(tmp_path, Random(0))
        self.data = self.job.directory / "data"
        self.draw = Drawing(network, pictures, load_counters(), Random(0), chosen_facts(()), gaps=False).variants()[0]
        self.model = LoadedModel(self.job, network, pictures, Sampling(interval), 77, chosen_facts(()))
        self.model.load(1_000, 2_000)

    def read(self, name: str) -> bytes:
        return (self.data / name).read_bytes()

    def names(self) -> set[str]:
        return {path.name for path in self.data.iterdir()}


def test_calls_are_flushed_at_the_next_sample_and_at_the_unload(tmp_path: Path) -> None:
    loaded = Loaded(tmp_path, THREE_SEGMENTS)
    loaded.model.execute(loaded.draw, 10_000)
    assert [call[0] for call in api(loaded.read("acl_api.0.three.0"))] == [0]
    loaded.model.execute(loaded.draw, 20_000)
    assert [call[0] for call in api(loaded.read("acl_api.0.three.0"))] == [0, 5, 2]
    loaded.model.unload(30_000, 30_900)
    calls = api(loaded.read("acl_api.0.three.0"))
    assert [call[0] for call in calls] == [0, 5, 2, 5, 2, 1]
    assert (calls[0][1:3], calls[2][1], calls[-1][1:3]) == ((1_000, 2_000), 10_000, (30_000, 30_900))
    assert all(outer[1] < inner[1] < inner[2] < outer[2] for inner, outer in (calls[1:3], calls[3:5]))
    assert {call[3:] for call in calls} == {(77, 77)}
    assert loaded.read("acl_api.0.three.0.done") == (b"file_len:192\nstart_time:1000\nend_time:30900\npid:77\ntid:77\n")


@pytest.mark.parametrize(
    ("interval", "sampled"),
    [
        (0, [0]),
        (1, list(range(16))),
        (2, [0, 2, 4, 6, 8, 10, 12, 14]),
        (3, [0, 3, 6, 9, 12, 15]),
        (5, [0, 5, 10, 15]),
        (9_999, [0]),
    ],
)
def test_sampled_inferences_of_sixteen(interval: int, sampled: list[int]) -> None:
    sampling = Sampling(interval)
    assert [number for number in range(16) if sampling.takes_next()] == sampled


# What the hardware leaves


def drawing(model: str, pictures: int = 1, seed: int = 0, *, gaps: bool = True) -> Drawing:
    return Drawing(load_network(model), pictures, load_counters(), Random(seed), chosen_facts(()), gaps=gaps)


def test_batches_run_on_through_one_sequence_and_a_batch_layer_takes_its_pictures_time(tmp_path: Path) -> None:
    model = write_network(tmp_path / "batched.toml", BATCHED)
    draw = drawing(model, pictures=3, gaps=False).variants()[0]
    records = aicore(draw.segments[0].data)
    assert [sequence for sequence, _, _ in records] == list(range(14))
    expected_us = [10, 20, 10, 20, 80, 80, 160, 80, 160, 10, 20, 40, 80, 160]
    assert [ticks / 7 for _, ticks, _ in records] == pytest.approx(expected_us, rel=0.1)


# Bytes, by the format page


def test_api_record_equals_one_of_the_real_library() -> None:
    real = bytes.fromhex("5a5a000000000000bf9266e0c0600600f7e866e0c0600600cb700000cb700000")
    assert encode.api_record(0, 1795231375069887, 1795231375091959, 28875, 28875) == real


AGENT_COPY = Path(__file__).parents[2] / "agent" / "profagent" / "formats" / "maps" / "simulated.toml"


def test_the_agent_has_the_same_map_byte_for_byte() -> None:
    assert AGENT_COPY.read_bytes() == MAP_FILE.read_bytes()


# Networks and options


FIVE_RUNS = CompiledModel(
    "n",
    (
        UnitSegment(AICORE, tuple(FusedRun((SimulatedLayer(name, "Convolution"),), 1.0) for name in "abc")),
        UnitSegment(AICPU, (FusedRun((SimulatedLayer("cpu", "Custom"),), 1.0),)),
        UnitSegment(AICORE, tuple(FusedRun((SimulatedLayer(name, "Convolution"),), 1.0) for name in "de")),
        UnitSegment(AICPU, (FusedRun((SimulatedLayer("end", "Custom"),), 1.0),)),
    ),
)


def names(network: CompiledModel) -> list[list[str]]:
    return [[run.layers[0].name for run in segment.runs] for segment in network.segments]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (1, [["a"]]),
        (3, [["a", "b", "c"]]),
        (4, [["a", "b", "c"], ["cpu"], ["d"]]),
        (5, [["a", "b", "c"], ["cpu"], ["d", "e"], ["end"]]),
        (7, [["a", "b", "c"], ["cpu"], ["d", "e", "a_2", "b_2"], ["end"]]),
        (11, [["a", "b", "c"], ["cpu"], ["d", "e", "a_2", "b_2", "c_2", "d_2", "e_2", "a_3"], ["end"]]),
    ],
)
def test_layers_cuts_from_the_end_or_repeats_in_the_last_segment(layers: int, expected: list[list[str]]) -> None:
    assert names(resized(FIVE_RUNS, layers)) == expected
    assert sum(len(s.runs) for s in resized(FIVE_RUNS, layers).segments if s.unit == AICORE) == layers


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('name = "three"', "", "name"),
        ('name = "three"', 'name = "three"\nbatch_num = 0', "batch_num"),
        ('name = "three"', 'name = "three"\ncolour = 1', "colour"),
        ("mac_busy = 0.5", "mac_busy = 0.1", "counters.Convolution.mac_ppen"),
        ("mac_busy = 0.5", "mac_bussy = 0.5", "counters.Convolution.mac_bussy"),
        ("[counters.Convolution]", "[counters]", "counters"),
        ('unit = "aicpu"', 'unit = "gpu"', "segments[1].unit"),
        ('unit = "aicpu"\nruns', 'unit = "aicpu"\nruns = []\nother', "segments[1].runs"),
        ("time_us = 50.0", "time_us = -1", "segments[0].runs[1].time_us"),
        ("time_us = 50.0", "time_us = 50.0, batch = 1", "segments[0].runs[1].batch"),
        ('["pool:Pooling"]', '["pool"]', "segments[0].runs[1].layers"),
        ('["pool:Pooling"]', f'["{"p" * 51}:Pooling"]', "segments[0].runs[1].layers"),
    ],
)
def test_a_wrong_file_is_told_by_file_and_key(tmp_path: Path, old: str, new: str, key: str) -> None:
    assert old in THREE_SEGMENTS
    path = write_network(tmp_path / "wrong.toml", THREE_SEGMENTS.replace(old, new))
    with pytest.raises(DaemonError) as caught:
        load_network(path)
    assert str(caught.value).startswith(f"{path}: {key}")
    assert "docs/reference/simulated-board.md" in caught.value.hint


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_simulation_arguments(parser)
    return parser.parse_args(arguments)


def test_every_argument_reaches_its_option() -> None:
    network = ("--model", "m.toml", "--layers", "7")
    pace = ("--rate", "2.5", "--interval", "3", "--pictures", "4", "--for", "1.5", "--seed", "9", "--busy", "6")
    facts = ("--fact", "tick-unit=us", "--fact", "name-nul=without")
    late = ("--contend", "resnet50@0.3", "--slow-stage", "infer=2", "--slow-stage", "preprocess=3@0.5")
    options = options_from(parsed(*network, *pace, *facts, *late))
    chosen = SimulationOptions("m.toml", 7, 2.5, 3, 4, 1.5, 9, Path(), 6, facts[1::2])
    assert options == replace(chosen, contend="resnet50@0.3", slow=late[3::2])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--layers", "0"),
        ("--rate", "0"),
        ("--interval", "10000"),
        ("--pictures", "1025"),
        ("--for", "0"),
        ("--fact", "tick-unit=fortnight"),
        ("--contend", "resnet50@2"),
        ("--slow-stage", "lunch=2"),
        ("--slow-stage", "infer=0.5"),
        ("--time-lapse", "0.5"),
        ("--time-lapse", "1001"),
    ],
)
def test_a_value_out_of_range_is_told_with_what_is_allowed(arguments: tuple[str, str]) -> None:
    with pytest.raises(DaemonError) as caught:
        options_from(parsed(*arguments))
    assert str(caught.value).startswith(arguments[0])
    assert caught.value.hint.startswith((arguments[0], "there are tick-unit=100-cycles|"))
    assert caught.value.exit_code == 2


# By a clock


API_LOG = "data/acl_api.0.yolov5s.0"


def executes(files: dict[str, bytes]) -> list[tuple[int, ...]]:
    return [call for call in api(files[API_LOG]) if call[0] == 2]


async def test_it_runs_for_the_time_at_the_rate_and_unloads(tmp_path: Path) -> None:
    clock = TurnedClock()
    began_us = clock.wall_us()
    report = await simulate(SimulationOptions(rate=20.0, for_s=2.0, root=tmp_path), clock)
    files = contents(only_job(tmp_path))
    records = sum(len(aicore(data)) for name, data in files.items() if "aicore" in name and ".done" not in name)
    assert report == f"40 inferences, 40 of them recorded, {records} aicore records"
    begins = [call[1] for call in executes(files)]
    assert begins == pytest.approx([began_us + 50_000 * number for number in range(40)], abs=2)
    assert clock.now == pytest.approx(52.0)
    assert int(done(files[f"{API_LOG}.done"])["end_time"]) >= began_us + 2_000_000


async def test_a_time_lapse_makes_hours_of_minutes(tmp_path: Path) -> None:
    clock = TurnedClock()
    began_us = clock.wall_us()
    await simulate(SimulationOptions(rate=20.0, for_s=2.0, root=tmp_path, time_lapse=100), clock)
    begins = [call[1] for call in executes(contents(only_job(tmp_path)))]
    assert begins == pytest.approx([began_us + 50_000 * number for number in range(40)], abs=200)
    assert clock.now == pytest.approx(50.02)


async def cancelled(options: SimulationOptions, clock: DaemonClock) -> None:
    """Run until something cancels it, and hold that it stays cancelled."""
    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(simulate(options, clock))


def cancel_this_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


@pytest.mark.parametrize("sleeps", range(3))
@pytest.mark.parametrize("waits_for", ["the clock", "a write"])
async def test_cancelled_at_any_step_the_job_is_finished(tmp_path: Path, sleeps: int, waits_for: str) -> None:
    class Cancelling(TurnedClock):
        async def sleep(self, delay_s: float) -> None:
            if self.sleeps == sleeps:
                cancel_this_task()
                if waits_for == "a write":
                    return
            await super().sleep(delay_s)

    await cancelled(SimulationOptions(root=tmp_path), Cancelling())
    files = contents(only_job(tmp_path))
    assert api(files[API_LOG])[-1][0] == 1
    assert done(files[f"{API_LOG}.done"])["file_len"] == str(len(files[API_LOG]))


def test_a_second_process_has_the_npu_while_the_first_one_waits(tmp_path: Path) -> None:
    write_job(tmp_path, SimulationOptions("yolov5s", rate=30, contend="mobilenetv2@0.5"), 40)
    busy: dict[str, list[tuple[int, int]]] = {"yolov5s": [], "mobilenetv2": []}
    for file in tmp_path.glob("*/data/aicore.*.done"):
        known = done(file.read_bytes())
        busy[file.name.split(".")[2]].append((int(known["start_time"]), int(known["end_time"])))
    assert len(busy["yolov5s"]) == 40
    assert 10 < len(busy["mobilenetv2"]) < 30
    times = sorted(time for times in busy.values() for time in times)
    gaps = [begin - end for (_, end), (begin, _) in zip(times, times[1:])]
    assert min(gaps) >= 0
    assert sum(gap < 2 * CALL_BEFORE_US for gap in gaps) == len(busy["mobilenetv2"])
    calls = [api(file.read_bytes()) for file in tmp_path.glob("*/data/acl_api.*.0")]
    assert len({record[3] for records in calls for record in records}) == len(calls) == 2


def test_a_slow_stage_is_longer_in_its_share_of_the_frames() -> None:
    steps, usual = FrameSteps(3, [SlowStage("preprocess", 3, 0.25), SlowStage("infer", 1.5, 1)]), FrameSteps(3)
    times: dict[str, list[int]] = {name: [] for name in STAGES}
    for _ in range(400):
        frame = steps.around(10_000, 12_000)
        assert [begin for _, begin, _ in frame[1:]] == [end for *_, end in frame[:-1]]
        for name, begin, end in frame:
            times[name].append(end - begin)
    assert 70 < sum(us > 2 * PREPROCESS_US for us in times["preprocess"]) < 130
    assert {*times["infer"]} == {3000}
    assert max(times["postprocess"]) < 1.1 * POSTPROCESS_US
    assert all(abs(end - begin - 2000) < 1700 for _, begin, end in usual.around(10_000, 12_000))

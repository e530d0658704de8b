"""What a loaded model writes, file by file and in the library's order."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from profagentd.simulate.draw import Drawing, InferenceDraw, SegmentDraw
from profagentd.simulate.encode import load_counters
from profagentd.simulate.model_file import load_network
from profagentd.simulate.network import Facts
from profagentd.simulate.npu import JobWriter, LoadedModel, Sampling, call_us
from tests.daemon.simulated_job import BATCHED, THREE_SEGMENTS, FileEvents, aicore, aicpu, api, done, write_network


class Loaded:
    """A model in a JOB, with its draws."""

    def __init__(self, tmp_path: Path, text: str, pictures: int = 1, interval: int = 1) -> None:
        network = load_network(write_network(tmp_path / "network.toml", text))
        self.job = JobWriter.create(tmp_path, Random(0))
        self.data = self.job.directory / "data"
        self.draw = Drawing(network, pictures, load_counters(), Random(0), gaps=False).variants()[0]
        self.model = LoadedModel(self.job, network, pictures, Sampling(interval), 77, Facts())
        self.model.load(1_000, 2_000)

    def read(self, name: str) -> bytes:
        return (self.data / name).read_bytes()

    def names(self) -> set[str]:
        return {path.name for path in self.data.iterdir()}


def test_a_load_writes_the_layer_tables_and_no_call_yet(tmp_path: Path) -> None:
    assert Loaded(tmp_path, THREE_SEGMENTS).names() == {"three.0.net.info", "three.0.layer.info"}


def test_a_sampled_inference_writes_calls_then_segments_then_their_done(tmp_path: Path) -> None:
    loaded = Loaded(tmp_path, THREE_SEGMENTS)
    events = FileEvents(loaded.data)
    assert loaded.model.execute(loaded.draw, 10_000)
    aicore_log, aicpu_log = "aicore.0.three.3.0.1.1.0", "aicpu.0.three.3.0.1.1.0"
    assert [name for name, what in events.read() if what == "closed"] == [
        "acl_api.0.three.0",
        aicore_log,
        aicpu_log,
        aicore_log,
        f"{aicore_log}.done",
        f"{aicpu_log}.done",
    ]


def test_segments_stand_in_order_between_the_times_of_the_done(tmp_path: Path) -> None:
    loaded = Loaded(tmp_path, THREE_SEGMENTS)
    loaded.model.execute(loaded.draw, 10_000)
    records = aicore(loaded.read("aicore.0.three.3.0.1.1.0"))
    assert [(sequence, segment) for sequence, _, segment in records] == [(0, 0), (1, 0), (0, 2)]
    core, cpu = (done(loaded.read(f"{unit}.0.three.3.0.1.1.0.done")) for unit in ("aicore", "aicpu"))
    assert list(core) == ["file_len", "start_time", "end_time", "cache_hit", "cache_mis"]
    assert list(cpu) == ["file_len", "start_time", "end_time"]
    assert (core["file_len"], cpu["file_len"]) == ("768", "256")
    cpu_records = aicpu(loaded.read("aicpu.0.three.3.0.1.1.0"))
    assert [record[-1] for record in cpu_records] == [1, 1]
    assert {record[3:5] for record in cpu_records} == {(int(cpu["start_time"]), int(cpu["end_time"]))}
    start_us, end_us = int(core["start_time"]), int(core["end_time"])
    first_us = sum(ticks for _, ticks, segment in records if segment == 0) * 100 / 700
    last_us = sum(ticks for _, ticks, segment in records if segment == 2) * 100 / 700
    assert start_us > 10_000
    assert start_us + first_us < int(cpu["start_time"]) < int(cpu["end_time"]) < end_us - last_us
    assert end_us < 10_000 + call_us(loaded.draw)
    assert first_us + last_us <= end_us - start_us


def test_an_inference_without_kept_records_leaves_an_empty_file_and_no_done(tmp_path: Path) -> None:
    loaded = Loaded(tmp_path, THREE_SEGMENTS)
    loaded.model.execute(InferenceDraw((SegmentDraw(0, "aicore", 100),), (0, 0)), 10_000)
    assert loaded.read("aicore.0.three.3.0.1.1.0") == b""
    assert "aicore.0.three.3.0.1.1.0.done" not in loaded.names()


def test_run_time_batches_are_named_in_the_done_and_counted_in_pictures(tmp_path: Path) -> None:
    loaded = Loaded(tmp_path, BATCHED, pictures=3)
    loaded.model.execute(loaded.draw, 10_000)
    loaded.model.execute(loaded.draw, 20_000)
    assert loaded.read("aicore.0.batched.3.0.2.3.0.done").endswith(b"\nonline_batch_num:2,1")
    assert done(loaded.read("aicore.0.batched.3.0.2.3.3.done"))["file_len"] == str(14 * 256)


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


@pytest.mark.parametrize(("inferences", "kept"), [(509, 510), (510, 511), (600, 511)])
def test_calls_between_two_flushes_beyond_the_ring_are_gone(tmp_path: Path, inferences: int, kept: int) -> None:
    loaded = Loaded(tmp_path, BATCHED, interval=0)
    for number in range(inferences):
        assert loaded.model.execute(loaded.draw, 10_000 * (number + 1)) == (number == 0)
    loaded.model.unload(9_000_000, 9_000_900)
    calls = api(loaded.read("acl_api.0.batched.0"))
    assert [call[0] for call in calls[:2]] == [0, 2]
    assert len(calls) == 1 + kept
    assert calls[1][1] == 10_000 * (inferences - kept + 2)
    assert done(loaded.read("acl_api.0.batched.0.done"))["file_len"] == str(32 * (1 + kept))

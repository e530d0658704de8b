"""What the pretend hardware draws for an inference."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from profagentd.simulate.draw import Drawing, kept
from profagentd.simulate.encode import load_counters
from profagentd.simulate.model_file import load_network
from tests.daemon.simulated_job import BATCHED, THREE_SEGMENTS, aicore, aicpu, write_network


def drawing(model: str, pictures: int = 1, seed: int = 0, *, gaps: bool = True) -> Drawing:
    return Drawing(load_network(model), pictures, load_counters(), Random(seed), gaps=gaps)


def filtered(sequences: list[int], ticks: int = 5) -> list[int]:
    return [sequence for sequence, _, _ in kept((sequence, ticks, b"") for sequence in sequences)]


def test_the_filter_drops_what_the_real_library_dropped() -> None:
    assert filtered([0, 5, 4, 14, 25, 24, 24, 25, 26, 27, 28, 38, 49, 48]) == [0, 5, 14, 24, 24, 25, 26, 27, 28, 38, 48]
    assert filtered([10, 11]) == [10, 11]
    assert filtered([11, 12]) == []


def test_the_filter_drops_records_without_ticks_and_goes_on_from_the_last_kept() -> None:
    records = [(number, 0 if number in (1, 2) else 9, b"") for number in range(4)]
    assert [sequence for sequence, _, _ in kept(records)] == [0, 3]
    too_many = [(number, 0 if 0 < number <= 10 else 9, b"") for number in range(14)]
    assert [sequence for sequence, _, _ in kept(too_many)] == [0]


@pytest.mark.parametrize("model", ["yolov5s", "resnet50", "mobilenetv2"])
def test_records_obey_the_filter_and_leave_gaps_where_layers_take_no_time(model: str) -> None:
    network = load_network(model)
    for draw in drawing(model).variants():
        for segment, described in zip(draw.segments, network.segments):
            records = aicore(segment.data)
            timeless = {index for index, run in enumerate(described.runs) if run.time_us == 0}
            assert timeless.isdisjoint(sequence for sequence, _, _ in records)
            previous = 0
            for sequence, ticks, number in records:
                assert previous <= sequence <= previous + 10
                assert ticks > 0
                assert number == segment.number
                previous = sequence


def test_disturbed_sequence_numbers_leave_gaps_too() -> None:
    dropped = {
        index
        for seed in range(20)
        for draw in drawing("mobilenetv2", seed=seed).variants()
        for index in set(range(55)) - {sequence for sequence, _, _ in aicore(draw.segments[0].data)}
    }
    assert len(dropped) > 10


def test_without_gaps_each_layer_leaves_its_record() -> None:
    for draw in drawing("yolov5s", pictures=2, gaps=False).variants():
        first, _, third, _ = draw.segments
        assert [record[0] for record in aicore(first.data)] == list(range(43 * 2))
        assert [record[0] for record in aicore(third.data)] == list(range(42 * 2))


def test_a_segment_lasts_at_least_as_long_as_its_records() -> None:
    for draw in drawing("yolov5s").variants():
        for segment in draw.segments:
            assert sum(ticks for _, ticks, _ in aicore(segment.data)) * 100 / 700 <= segment.duration_us


def test_batches_run_on_through_one_sequence_and_a_batch_layer_takes_its_pictures_time(tmp_path: Path) -> None:
    model = write_network(tmp_path / "batched.toml", BATCHED)
    draw = drawing(model, pictures=3, gaps=False).variants()[0]
    records = aicore(draw.segments[0].data)
    assert [sequence for sequence, _, _ in records] == list(range(14))
    expected_us = [10, 20, 10, 20, 80, 80, 160, 80, 160, 10, 20, 40, 80, 160]
    assert [ticks / 7 for _, ticks, _ in records] == pytest.approx(expected_us, rel=0.1)


def test_the_aicpu_goes_through_its_layers_for_each_picture(tmp_path: Path) -> None:
    model = write_network(tmp_path / "three.toml", THREE_SEGMENTS)
    segment = drawing(model, pictures=2).variants()[0].segments[1]
    records = aicpu(segment.bytes_at(1_000_000))
    assert [record[0] for record in records] == [0, 1, 2, 3]
    assert records[0][1] == 1_000_000
    assert [record[1] for record in records[1:]] == [record[2] for record in records[:-1]]
    assert records[-1][2] == 1_000_000 + segment.duration_us
    assert {record[3:] for record in records} == {(1_000_000, 1_000_000 + segment.duration_us, 1)}


def test_counters_stay_near_the_models_and_ppen_never_exceeds_busy(tmp_path: Path) -> None:
    model = write_network(tmp_path / "three.toml", THREE_SEGMENTS)
    for draw in drawing(model).variants():
        data = draw.segments[2].data
        ticks = int.from_bytes(data[4:8], "little")
        busy, ppen = (int.from_bytes(data[at : at + 4], "little") / (ticks * 100) for at in (0x08, 0x0C))
        assert busy == pytest.approx(0.5, rel=0.05)
        assert ppen == pytest.approx(0.25, rel=0.05)
        assert int.from_bytes(data[0x20:0x22], "little") / 65_536 == pytest.approx(0.125, rel=0.05)
        assert int.from_bytes(data[0x28:0x30], "little") == pytest.approx(640 * ticks / 7, rel=0.05)
        assert int.from_bytes(data[0x30:0x34], "little") * 64 == pytest.approx(320 * ticks / 7, rel=0.05)
    for draw in drawing("yolov5s").variants():
        data = draw.segments[0].data
        for at in range(0, len(data), 256):
            busy, ppen = (int.from_bytes(data[at + word : at + word + 4], "little") for word in (0x08, 0x0C))
            assert ppen <= busy


def test_placed_segments_follow_each_other() -> None:
    draw = drawing("yolov5s").variants()[0]
    end_us = 1_000
    for start_us, segment in draw.placed(1_000):
        assert start_us > end_us
        end_us = start_us + segment.duration_us
    assert end_us == 1_000 + draw.duration_us


def test_variants_differ_and_a_seed_repeats_them() -> None:
    first, second = drawing("resnet50").variants(), drawing("resnet50").variants()
    assert first == second
    assert len({draw.segments[0].data for draw in first}) == len(first) > 1
    assert drawing("resnet50", seed=1).variants() != first

"""Networks from TOML files, and what is told about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagentd.errors import DaemonError
from profagentd.simulate.model_file import builtin_models, load_network
from profagentd.simulate.network import Layer
from tests.daemon.simulated_job import MODELS, THREE_SEGMENTS, write_network


def test_every_file_of_the_package_is_a_network_of_its_own_name() -> None:
    assert builtin_models() == ("mobilenetv2", "resnet50", "yolov5s")
    for name in builtin_models():
        assert load_network(name).name == name
        assert "invented" in (MODELS / f"{name}.toml").read_text(encoding="utf-8")


def test_yolov5s_alternates_between_the_npu_and_the_aicpu() -> None:
    assert [segment.unit for segment in load_network("yolov5s").segments] == ["aicore", "aicpu"] * 2


def test_a_users_file_is_read_whole(tmp_path: Path) -> None:
    network = load_network(write_network(tmp_path / "three.toml", THREE_SEGMENTS))
    assert (network.name, network.batch_num, network.online_batch) == ("three", 1, False)
    first = network.segments[0].runs[0]
    assert first.layers == (Layer("conv", "Convolution"), Layer("relu", "Relu"), Layer("split", "Split", 2))
    assert (first.time_us, first.is_batch) == (100.0, False)
    assert first.counters["mac_ppen"] == 0.25
    assert first.counters["ddr_read_bytes"] == 640.0
    assert set(network.segments[0].runs[1].counters.values()) == {0.0}


def test_a_name_loses_what_the_library_replaces(tmp_path: Path) -> None:
    text = THREE_SEGMENTS.replace('"three"', r'"my net/v1.2\\x"')
    assert load_network(write_network(tmp_path / "three.toml", text)).name == "my_net_v1_2_x"


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('name = "three"', "", "name"),
        ('name = "three"', 'name = ""', "name"),
        ('name = "three"', f'name = "{"q" * 201}"', "name"),
        ('name = "three"', 'name = "a\\nb"', "name"),
        ('name = "three"', 'name = "three"\nbatch_num = 0', "batch_num"),
        ('name = "three"', 'name = "three"\nbatch_num = true', "batch_num"),
        ('name = "three"', 'name = "three"\nonline_batch = 1', "online_batch"),
        ('name = "three"', 'name = "three"\ncolour = 1', "colour"),
        ("mac_busy = 0.5", "mac_busy = 1.5", "counters.Convolution.mac_busy"),
        ("mac_busy = 0.5", "mac_busy = 0.1", "counters.Convolution.mac_ppen"),
        ("mac_busy = 0.5", "mac_bussy = 0.5", "counters.Convolution.mac_bussy"),
        ("[counters.Convolution]", "[counters]", "counters"),
        ('unit = "aicpu"', 'unit = "gpu"', "segments[1].unit"),
        ('unit = "aicpu"\nruns', 'unit = "aicpu"\nruns = []\nother', "segments[1].runs"),
        ("time_us = 50.0", "time_us = -1", "segments[0].runs[1].time_us"),
        ("time_us = 50.0", "time_us = nan", "segments[0].runs[1].time_us"),
        ("time_us = 50.0, ", "", "segments[0].runs[1].time_us"),
        ("time_us = 50.0", 'time_us = "50"', "segments[0].runs[1].time_us"),
        ("time_us = 50.0", "time_us = 50.0, batch = 1", "segments[0].runs[1].batch"),
        ("time_us = 50.0", "time_us = 50.0, fast = 1", "segments[0].runs[1].fast"),
        ('["pool:Pooling"]', "[]", "segments[0].runs[1].layers"),
        ('["pool:Pooling"]', '["pool"]', "segments[0].runs[1].layers"),
        ('["pool:Pooling"]', '["pool:Pooling:0"]', "segments[0].runs[1].layers"),
        ('["pool:Pooling"]', f'["{"p" * 51}:Pooling"]', "segments[0].runs[1].layers"),
        ('["pool:Pooling"]', "[1]", "segments[0].runs[1].layers"),
    ],
)
def test_a_wrong_file_is_told_by_file_and_key(tmp_path: Path, old: str, new: str, key: str) -> None:
    assert old in THREE_SEGMENTS
    path = write_network(tmp_path / "wrong.toml", THREE_SEGMENTS.replace(old, new))
    with pytest.raises(DaemonError) as caught:
        load_network(path)
    assert str(caught.value).startswith(f"{path}: {key}")
    assert "docs/reference/simulated-board.md" in caught.value.hint


def test_a_network_without_segments_is_told(tmp_path: Path) -> None:
    for text in ('name = "n"', 'name = "n"\nsegments = 3', 'name = "n"\nsegments = []'):
        with pytest.raises(DaemonError, match="segments: expected an array of one or more tables"):
            load_network(write_network(tmp_path / "empty.toml", text))


def test_a_network_needs_a_segment_on_the_npu(tmp_path: Path) -> None:
    path = write_network(tmp_path / "cpu.toml", THREE_SEGMENTS.replace('"aicore"', '"aicpu"'))
    with pytest.raises(DaemonError, match="aicore"):
        load_network(path)


def test_text_that_is_not_toml_is_told(tmp_path: Path) -> None:
    with pytest.raises(DaemonError, match="not a TOML file"):
        load_network(write_network(tmp_path / "broken.toml", "name ="))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DaemonError, match="not a TOML file"):
        load_network(str(tmp_path / "binary.toml"))


def test_a_model_that_is_neither_built_in_nor_a_file_is_told_with_the_names(tmp_path: Path) -> None:
    with pytest.raises(DaemonError) as caught:
        load_network("yolov99")
    assert "yolov5s" in caught.value.hint
    with pytest.raises(DaemonError, match=str(tmp_path)):
        load_network(str(tmp_path))

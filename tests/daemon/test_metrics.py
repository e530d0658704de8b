"""Collectors over files of a made-up board, and the sampler that keeps them apart."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from profagentd.metrics import collectors, sampler
from profagentd.metrics.collectors import Sample
from profagentd.metrics.sampler import Sampler, Sweep, SweepLines

PM = """\
[PM] Version:[xxxx Release], Build Time[Jan  1 2025, 00:00:00]

-----temperature compensation-----
  core_tcomp_en:         Y    cpu_tcomp_en:         Y    npu_tcomp_en:        Y
  cur_temp:        58     core_cur_volt:       888      cpu_cur_volt:       900      npu_cur_volt:      850
  core_temp_comp:   0   cpu_temp_comp:   10   npu_temp_comp:  -5
"""
UMAP = (Path(__file__).parents[1] / "data" / "umap" / "svp_npu.txt").read_text()


@pytest.fixture
def board(tmp_path: Path) -> Path:
    files = {
        "proc/umap/svp_npu": UMAP,
        "proc/umap/media-mem": "---ZONE\n total size=1024KB(1MB), used=256KB(0MB), remain=768KB(0MB), zone_number=1\n",
        "proc/umap/pm": PM,
        "proc/meminfo": "MemTotal: 2048 kB\nMemAvailable: 1024 kB\n",
        "proc/loadavg": "0.50 0.40 0.30 1/100 4711\n",
        "proc/stat": "cpu  10 0 10 80 0 0 0 0\ncpu0 10 0 10 80 0 0 0 0\nintr 1\n",
        "proc/net/dev": "a\nb\n lo: 1 0 0 0 0 0 0 0 1\neth0: 1000 0 0 0 0 0 0 0 500\n",
        "sys/class/thermal/thermal_zone0/temp": "51234\n",
        "proc/7/stat": "7 (a b) c) S 1 2 3 4 5 6 70 0 5 0 30 20 0 0 20 0 4 0 0 4096 25 0\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def named(samples: list[Sample]) -> dict[str, tuple[str, float]]:
    return {each.name: (each.unit, each.value) for each in samples}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cur_temp: -3\nnpu_cur_volt:850\n", {"power.temperature": -3.0, "power.npu_voltage": 850.0}),
        ("cur_temp:   core_temp_comp: 7\nmax_cur_temp: 99", {}),
    ],
)
def test_a_number_is_taken_for_its_own_name_alone(tmp_path: Path, text: str, found: dict[str, float]) -> None:
    (tmp_path / "proc/umap").mkdir(parents=True)
    (tmp_path / "proc/umap/pm").write_text(text)
    assert {each.name: each.value for each in collectors.power(tmp_path)} == found


def test_a_disks_name_may_be_anything() -> None:
    lines = SweepLines()
    sweep = Sweep(1, [Sample("disk.\udcd6.used", "B", 5.0)], {})
    assert lines.of(sweep) + lines.names() == b"n 0 B disk.?.used\ns 1 0=5\nn 0 B disk.?.used\n"


def test_the_npus_node_is_read_by_names(board: Path) -> None:
    seen = named(list(collectors.npu(board)))
    assert seen["npu.hw_utilization"] == ("%", 0.0)
    assert seen["npu.irq_time_last_sec"] == ("us", 180.0)
    assert seen["npu.free_model_num"] == ("", 63.0)
    assert "npu.device_id" not in seen


def test_columns_may_come_in_any_order_and_sections_may_be_missing(board: Path) -> None:
    text = "---svp_nnn runtime info---\n hw_utilization mac_utilization device_id aacpu_err_cnt\n 12% 7% 0 3\n"
    (board / "proc/umap/svp_npu").rename(board / "proc/umap/svp_nnn")
    (board / "proc/umap/svp_nnn").write_text(text)
    assert named(list(collectors.npu(board))) == {
        "npu.hw_utilization": ("%", 12.0),
        "npu.mac_utilization": ("%", 7.0),
        "npu.aicpu_err_cnt": ("", 3.0),
    }


def test_a_thermal_zone_that_does_not_answer_takes_no_other_away(board: Path) -> None:
    (board / "sys/class/thermal/thermal_zone1/temp").mkdir(parents=True)  # reading it fails
    assert named(list(collectors.thermal(board))) == {"thermal.0": ("C", 51.234)}
    (board / "sys/class/thermal/thermal_zone0/temp").unlink()
    with pytest.raises(IsADirectoryError):
        list(collectors.thermal(board))


@pytest.mark.parametrize("cut", range(0, len(UMAP), 97))
def test_half_a_node_is_no_error(cut: int) -> None:
    for section, columns in collectors.umap_tables(UMAP[:cut]):
        assert isinstance(section, str)
        assert all(isinstance(each, float) for each in columns.values())


def test_what_is_measured_at_once(board: Path) -> None:
    found = [collectors.media_memory, collectors.power, collectors.thermal, collectors.memory, collectors.load]
    seen = named([sample for each in found for sample in each(board)])
    assert seen == {
        "media_memory.total": ("B", 1048576.0),
        "media_memory.used": ("B", 262144.0),
        "media_memory.free": ("B", 786432.0),
        "power.temperature": ("C", 58.0),
        "power.core_voltage": ("mV", 888.0),
        "power.cpu_voltage": ("mV", 900.0),
        "power.npu_voltage": ("mV", 850.0),
        "thermal.0": ("C", 51.234),
        "memory.total": ("B", 2097152.0),
        "memory.available": ("B", 1048576.0),
        "load.1min": ("", 0.5),
    }


def test_what_is_measured_between_two_looks(board: Path) -> None:
    now = iter([10.0, 12.0, 14.0])
    cores = collectors.Processors()
    network = collectors.Network(lambda: next(now))
    assert list(cores(board)) == list(network(board)) == []
    (board / "proc/stat").write_text("cpu  15 0 15 90 0 0 0 0\ncpu0 15 0 15 90 0 0 0 0\n")
    (board / "proc/net/dev").write_text("a\nb\n lo: 9 0 0 0 0 0 0 0 9\neth0: 3000 0 0 0 0 0 0 0 400\n")
    assert named(list(cores(board))) == {"cpu.all": ("%", 50.0), "cpu.0": ("%", 50.0)}
    # What was sent began again: no rate of it.
    assert named(list(network(board))) == {"network.eth0.received": ("B/s", 1000.0)}


def test_processes_by_their_names(board: Path) -> None:
    now = iter([1.0, 2.0])
    collector = collectors.Processes(lambda _: {"program": "7", "ended": "8"}, lambda: next(now))
    seen = named(list(collector(board)))
    assert seen["program.threads"] == ("", 4)
    assert seen["program.rss"][1] > 0
    assert "ended.rss" not in seen
    text = (board / "proc/7/stat").read_text().replace(" 30 20 ", " 80 20 ")
    (board / "proc/7/stat").write_text(text)
    assert named(list(collector(board)))["program.cpu"][1] == pytest.approx(50.0)


def test_disks_of_the_roots(tmp_path: Path) -> None:
    spools = tmp_path / "profagent-k2x9" / "spool"
    spools.mkdir(parents=True)
    seen = named(list(collectors.Disks([bytes(tmp_path), bytes(spools)], bytes(spools))(tmp_path)))
    assert {name: unit for name, (unit, _) in seen.items()} == {
        f"disk.{tmp_path}.free": "B",
        f"disk.{tmp_path}.free_inodes": "",
        "disk.spool.free": "B",
        "disk.spool.free_inodes": "",
    }


def test_one_that_fails_is_told_once_and_tried_later(board: Path) -> None:
    now = [0.0]
    subject = Sampler({"npu": collectors.npu, "load": collectors.load}, board, lambda: now[0])
    (board / "proc/umap/svp_npu").unlink()
    first = subject.sweep()
    assert [each.name for each in first.samples] == ["load.1min"]
    assert list(first.problems) == ["npu"]
    (board / "proc/umap/svp_npu").write_text(UMAP)
    assert [each.name for each in subject.sweep().samples] == ["load.1min"]
    now[0] = sampler.RETRY_S
    again = subject.sweep()
    assert "npu.hw_utilization" in named(again.samples)
    assert again.problems == {}


def test_one_that_hangs_stops_no_other_and_comes_back(board: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "SWEEP_S", 0.05)
    now, answer, asked = [0.0], threading.Event(), []

    def hanging(_board: Path) -> list[Sample]:
        asked.append(1)
        answer.wait(10)
        return []

    subject = Sampler({"first": collectors.load, "hanging": hanging, "last": collectors.load}, board, lambda: now[0])
    result = subject.sweep()
    assert [each.name for each in result.samples] == ["load.1min", "load.1min"]
    assert list(result.problems) == ["hanging"]
    now[0] = sampler.RETRY_S
    assert len(subject.sweep().samples) == 2
    assert len(asked) == 1
    answer.set()
    for _ in range(100):
        if not subject._hanging:
            break
        threading.Event().wait(0.01)
    assert len(subject.sweep().samples) == 2
    assert len(asked) == 2

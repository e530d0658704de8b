"""`profagent calibrate` on a simulated JOB, whose own map is known: what is learnt of it, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from profagent.cli.main import run
from profagent.formats.records import AICORE_DTYPE, view_records
from profagent.store.counter_maps import read_map, simulated_map
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job

LAYERS = 90


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two inferences, and the tables that the vendor's tool would make of them."""
    root = tmp_path_factory.mktemp("root")
    options = SimulationOptions(model="yolov5s", layers=LAYERS, seed=3, root=root)
    written = write_job(root, options, 2, gaps=False)
    assert run(["export", "summary", "-dir", str(written)]) == 0
    return written


@pytest.fixture
def table(job: Path) -> Path:
    """The table of the first inference."""
    (found,) = (job / "summary").glob("op_summary_0.yolov5s.0.1.1.0.*.csv")
    return found


def test_what_is_learnt_reads_records_as_the_true_map_does(
    job: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "learnt.toml"
    assert run(["calibrate", str(job), "--vendor-summary", str(table), "-o", str(file), "--sdk", "B999"]) == 0
    shown = capsys.readouterr().out
    assert f"{LAYERS} of {LAYERS} rows are records of {job.name}" in shown
    assert "*** simulated" in shown
    learnt = read_map(file)
    assert (learnt.name, learnt.sdk, learnt.simulated) == ("learnt", "B999", True)
    assert len(learnt.digest) == 32
    assert len(learnt.counters) == len(simulated_map().counters)
    (log,) = (job / "data").glob("aicore.0.yolov5s.*.1")
    records = view_records(log.read_bytes(), AICORE_DTYPE)
    true = simulated_map().apply(records)
    for name, values in learnt.apply(records).items():
        assert np.allclose(values, true[name]), name
    assert {counter.verdict for counter in learnt.counters.values()} == {"certain", "likely"}


@pytest.mark.parametrize("learns_by", ["its file", "the user's folder"])
def test_with_what_is_learnt_the_vendors_table_comes_out_again(
    learns_by: str, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JOB of a real board whose counters are where nobody knows, and the vendor's table of each inference."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    real = tmp_path / ("JOB" + "R" * 29)
    shutil.copytree(job, real, ignore=shutil.ignore_patterns("simulated", "summary", "sqlite", "*.db"))
    for log in real.glob("data/aicore.*[0-9]"):
        log.write_bytes(elsewhere(log.read_bytes()))
    tables = sorted((job / "summary").glob("op_summary_*.csv"))
    file = tmp_path / "profagent" / "counter-maps" / "learnt.toml"
    file.parent.mkdir(parents=True)
    assert run(["calibrate", str(real), "--vendor-summary", str(tables[0]), "-o", str(file)]) == 0
    taken = ["--counter-map", str(file)] if learns_by == "its file" else []
    assert run(["import", "-dir", str(real), *taken]) == 0
    assert run(["export", "summary", "-dir", str(real)]) == 0
    assert "N/A,N/A" not in tables[0].read_text("utf-8")
    for table in tables:
        assert (real / "summary" / table.name).read_bytes() == table.read_bytes()


def elsewhere(data: bytes) -> bytes:
    """Records with the simulated board's counters at other bytes, and anything around them."""
    records = np.frombuffer(data, np.uint8).reshape(-1, 256)
    moved = records.copy()
    moved[:, 0x08:0xFC] = np.random.default_rng(4).integers(0, 256, (len(records), 0xF4), np.uint8)
    place = 0xF9
    for counter in simulated_map().counters.values():
        size = int(counter.type[1:]) // 8
        place -= size + 3
        moved[:, place : place + size] = records[:, counter.offset : counter.offset + size]
    return moved.tobytes()


def test_a_table_with_another_inferences_name_is_found_by_its_times(
    job: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (second,) = (job / "summary").glob("op_summary_0.yolov5s.0.1.1.1.*.csv")
    wrong = tmp_path / table.name
    wrong.write_bytes(second.read_bytes())
    assert run(["calibrate", str(job), "--vendor-summary", str(wrong)]) == 0
    assert "yolov5s at picture 1, by name and time" in capsys.readouterr().out


def test_a_table_of_another_job_is_refused(
    job: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = SimulationOptions(model="yolov5s", layers=20, seed=9, root=tmp_path)
    other = write_job(tmp_path, options, 1, gaps=False)
    lines = table.read_text("utf-8").splitlines()
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("\n".join(line.replace("model.", "other.").replace(".", ".9", 3) for line in lines), "utf-8")
    assert run(["calibrate", str(other), "--vendor-summary", str(wrong)]) == 2
    assert "a table of none of these JOBs" in capsys.readouterr().err


def test_jobs_that_disagree_teach_nothing(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first inference under one map, the second under one that is a byte further on."""
    one, other = tmp_path / ("JOB" + "A" * 29), tmp_path / ("JOB" + "B" * 29)
    for copy, gone in ((one, 1), (other, 0)):
        shutil.copytree(job, copy)
        next((copy / "data").glob(f"aicore.0.yolov5s.*.{gone}")).unlink()
    (log,) = (log for log in (other / "data").glob("aicore.0.yolov5s.*.1"))
    records = np.frombuffer(log.read_bytes(), np.uint8).reshape(-1, 256).copy()
    records[:, 0x08:0xFC] = np.roll(records[:, 0x08:0xFC], 1, axis=1)
    log.write_bytes(records.tobytes())
    tables = [next((job / "summary").glob(f"op_summary_0.yolov5s.0.1.1.{picture}.*.csv")) for picture in (0, 1)]
    arguments = [argument for each in tables for argument in ("--vendor-summary", str(each))]
    assert run(["calibrate", str(one), str(other), *arguments, "--json"]) == 1
    counters = json.loads(capsys.readouterr().out)["counters"]
    assert {each["verdict"] for each in counters} == {"not found"}
    assert all(each["advice"] for each in counters)

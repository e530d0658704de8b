"""`profagent kit`: what would go, only when it is agreed to, and what it settles."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from profagent.calibrate.kit import MANIFEST
from profagent.cli.main import run
from profagentd.simulate import SimulationOptions, write_job

LAYERS = 60


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty inferences, and the tables that the vendor's tool would make of them."""
    root = tmp_path_factory.mktemp("root")
    options = SimulationOptions(model="yolov5s", layers=LAYERS, seed=3, root=root, facts=("tick-unit=100-cycles",))
    written = write_job(root, options, 30, gaps=False)
    assert run(["export", "summary", "-dir", str(written)]) == 0
    return written


@pytest.fixture
def table(job: Path) -> Path:
    """The table of an inference that is none of the first."""
    (found,) = (job / "summary").glob("op_summary_0.yolov5s.0.1.1.25.*.csv")
    return found


def made(job: Path, file: Path, *more: str) -> dict[str, bytes]:
    assert run(["kit", "-o", str(file), str(job), "--yes", *more]) == 0
    return contents(file)


def contents(file: Path) -> dict[str, bytes]:
    """The files of a kit, by their names below its folder."""
    with tarfile.open(file) as archive:
        opened = {member.name.removeprefix("evidence/"): archive.extractfile(member) for member in archive}
        return {name: each.read() for name, each in opened.items() if each is not None}


def test_nothing_is_written_unless_somebody_agrees(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "e.tar.gz"
    assert run(["kit", "-o", str(file), str(job)]) == 2
    shown = capsys.readouterr()
    assert "--yes" in shown.err
    assert "job/data/yolov5s.0.layer.info" in shown.out
    assert "calls of the runtime (acl_api)" in shown.out
    assert "no vendor table" in shown.out
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda question: "Write these" not in question)
    assert run(["kit", "-o", str(file), str(job)]) == 1
    assert not file.exists()
    monkeypatch.setattr("click.confirm", lambda question: "Write these" in question)
    assert run(["kit", "-o", str(file), str(job)]) == 0
    assert file.exists()


def test_a_kit_is_the_same_each_time_and_has_the_bytes_of_the_job(job: Path, table: Path, tmp_path: Path) -> None:
    first = made(job, tmp_path / "1.tar.gz", "--vendor-summary", str(table), "--sdk", "B999")
    made(job, tmp_path / "2.tar.gz", "--vendor-summary", str(table), "--sdk", "B999")
    assert (tmp_path / "1.tar.gz").read_bytes() == (tmp_path / "2.tar.gz").read_bytes()
    manifest = json.loads(first.pop(MANIFEST))
    assert (manifest["sdk"], manifest["job"], manifest["simulated"], manifest["replaced"]) == (
        "B999",
        job.name,
        True,
        [],
    )
    assert [each["name"] for each in manifest["files"]] == list(first)
    assert first.pop(f"vendor/{table.name}") == table.read_bytes()
    assert all((job / name.removeprefix("job/")).read_bytes() == content for name, content in first.items())
    assert "job/data/aicore.0.yolov5s.3.0.1.1.25" in first
    assert "job/data/aicore.0.yolov5s.3.0.1.1.24" not in first


@pytest.mark.parametrize("names", [(), ("--anonymous",)], ids=["named", "anonymous"])
def test_what_a_kit_settles(
    job: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, ...]
) -> None:
    files = made(job, tmp_path / "e.tar.gz", "--vendor-summary", str(table), *names)
    with tarfile.open(tmp_path / "e.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    capsys.readouterr()
    assert run(["doctor", str(tmp_path / "evidence/job")]) == 0
    assert "confirms 100-cycles" in capsys.readouterr().out
    (sent,) = (tmp_path / "evidence/vendor").iterdir()
    assert run(["calibrate", str(tmp_path / "evidence/job"), "--vendor-summary", str(sent)]) == 0
    shown = capsys.readouterr().out
    assert f"{LAYERS} of {LAYERS} rows are records of job" in shown
    assert "mac_busy" in shown
    if names:
        everything = "\n".join(files).encode() + b"".join(files.values())
        assert b"yolo" not in everything
        assert b"model." not in everything


def test_a_table_of_another_job_is_told(
    job: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "op_summary_0.x.0.1.1.77.0.0279.700.csv"
    heading, *_ = table.read_text("utf-8").splitlines()
    other.write_text(f"{heading}\n0,N/A,other,Conv,9999.000,1,{'0.5,' * 12}\n", "utf-8")
    file = tmp_path / "e.tar.gz"
    made(job, file, "--vendor-summary", str(other))
    assert f"the inference that {other.name} is of is not in the kit" in capsys.readouterr().out

"""`profagent kit`: what would go, only when it is agreed to, and what it settles."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from profagent.calibrate.kit import MANIFEST, choose, gather
from profagent.cli.main import run
from profagent.doctor.job import job_facts
from profagent.formats.names import parse_log_name
from profagent.ingest.local import LocalJobFiles
from profagent.limits import KIT_INFERENCES
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job
from tests.integration.board import SAMPLES

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
    assert " acl_api" in shown.out
    assert "no vendor table" in shown.out
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda question: "Write " not in question)
    assert run(["kit", "-o", str(file), str(job)]) == 1
    assert not file.exists()
    monkeypatch.setattr("click.confirm", lambda question: "Write " in question)
    assert run(["kit", "-o", str(file), str(job)]) == 0
    assert file.exists()


def test_a_kit_of_a_session_is_that_of_its_job(job: Path, tmp_path: Path) -> None:
    workspace = str(tmp_path / "workspace")
    assert run(["import", "-dir", str(job), "--workspace", workspace]) == 0
    kit = tmp_path / "of-session.tar.gz"
    assert run(["kit", "-o", str(kit), "last", "--workspace", workspace, "--yes"]) == 0
    assert contents(kit) == made(job, tmp_path / "of-job.tar.gz")


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
    assert first.pop(f"vendor/1/{table.name}") == table.read_bytes()
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
    (sent,) = (tmp_path / "evidence/vendor").rglob("*.csv")
    assert run(["calibrate", str(tmp_path / "evidence/job"), "--vendor-summary", str(sent)]) == 0
    shown = capsys.readouterr().out
    assert f"{LAYERS} of {LAYERS} rows are records of job" in shown
    assert "mac_busy" in shown
    if names:
        everything = "\n".join(files).encode() + b"".join(files.values())
        assert b"yolo" not in everything
        assert b"model." not in everything


def test_a_table_that_cannot_be_one_is_refused(job: Path, tmp_path: Path) -> None:
    file, large = tmp_path / "e.tar.gz", tmp_path / "op_summary.csv"
    for content in (None, b"my,notes", b"," * (17 << 20)):
        if content is not None:
            large.write_bytes(content)
        assert run(["kit", "-o", str(file), str(job), "--yes", "--vendor-summary", str(large)]) in (1, 2)
    assert not file.exists()


@pytest.mark.parametrize("is_anonymous", [False, True], ids=["named", "anonymous"])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_kit_says_what_its_job_says_with_names_and_without(name: str, is_anonymous: bool, tmp_path: Path) -> None:
    """JOBs that the runtime library itself wrote: odd names, torn files."""
    kit = gather(SAMPLES[name], (), sdk="", is_anonymous=is_anonymous)
    with tarfile.open(fileobj=io.BytesIO(kit.archive())) as archive:
        archive.extractall(tmp_path, filter="data")
    assert answers(tmp_path / "evidence/job") == answers(SAMPLES[name])
    if is_anonymous:
        paths = [str(path.relative_to(SAMPLES[name])) for path in SAMPLES[name].rglob("*")]
        assert not models(paths) & models([file.removeprefix("job/") for file in kit.files])


def answers(job: Path) -> dict[str, tuple[str, str]]:
    """What is said of facts, without the numbers that it stands on."""
    return {
        each.check: (each.mark, each.evidence.rpartition(": ")[0])
        for each in job_facts(LocalJobFiles(job), "").findings
    }


def models(paths: list[str]) -> set[str]:
    return {log.model for path in paths if (log := parse_log_name(path)) and log.model}


MODEL = {"info.json.0": 42, "data/m.0.net.info": 90, "data/m.0.layer.info": 9_000}


def inference(pictures: int, size: int = 256, model: str = "m") -> dict[str, int]:
    log = f"{model}.3.0.1.1.{pictures}"
    return {f"data/{kind}.0.{log}{end}": size for kind in ("aicore", "aicpu") for end in ("", ".done")}


def test_the_first_inferences_of_each_model_and_those_of_the_vendors_tables() -> None:
    many = {path: 1 for model in ("m", "n") for each in range(60) for path in inference(each, model=model)}
    others = {"data/acl_api.0.m.0": 64, "data/cont.0.m.0.1.1.0": 7, "notes.txt": 5}
    wanted = {*MODEL, "simulated"}
    for model in ("m", "n"):
        wanted |= {path for each in [*range(KIT_INFERENCES), 55] for path in inference(each, 256, model)}
    assert choose(MODEL | {"simulated": 9} | many | others, {(0, 1, 1, 55)}) == wanted

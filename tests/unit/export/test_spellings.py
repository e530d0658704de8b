"""Names of logs as runtimes and the manual spell them, in any mix, and logs that are missing: which tables come."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from profagent.export.summary import export_summary
from profagent.importing.importing import import_job
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job

INFERENCES = 4


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A JOB whose model runs on both units, with calls."""
    return write_job(tmp_path_factory.mktemp("spelt"), SimulationOptions(), INFERENCES, gaps=False)


def spelt(job: Path, folder: Path, *prefixes: tuple[str, str]) -> Path:
    """A copy of a JOB whose names begin in another way; of two ways for one kind, inferences take turns."""
    copy = Path(shutil.copytree(job, folder / job.name))
    for before, *after in ((before, *[new for old, new in prefixes if old == before]) for before, _ in prefixes):
        for file in sorted((copy / "data").glob(f"{before}.*")):
            number = int(file.name.removesuffix(".done").rpartition(".")[2])
            file.rename(file.with_name(file.name.replace(before, after[number % len(after)], 1)))
    return copy


async def tables(job: Path) -> dict[str, str]:
    """The tables of a JOB, by name."""
    await import_job(job)
    await export_summary(job / "sqlite" / "profagent.db", job / "summary", job=job.name)
    return {file.name: file.read_text() for file in (job / "summary").glob("*.csv")}


@pytest.mark.parametrize(
    "prefixes",
    [
        [("aicore", "AAcore")],
        [("aicpu", "AAcpu")],
        [("acl_api", "AclModule")],
        [("aicore", "AAcore"), ("aicpu", "AAcpu"), ("acl_api", "AclModule")],
        [("aicore", "AAcore"), ("acl_api", "AclModule")],
        [("aicore", "AICORE"), ("aicpu", "aacpu")],
        [("aicore", "aicore"), ("aicore", "AAcore"), ("aicpu", "aicpu"), ("aicpu", "AAcpu")],
        [("aicore", "aicore"), ("aicore", "AAcore"), ("aicpu", "AAcpu"), ("aicpu", "aicpu")],
    ],
    ids=lambda prefixes: " ".join(after for _, after in prefixes),
)
async def test_tables_do_not_depend_on_how_logs_are_spelt(
    original: Path, tmp_path: Path, prefixes: list[tuple[str, str]]
) -> None:
    whole = await tables(spelt(original, tmp_path / "whole"))
    assert len([name for name in whole if name.startswith("op_")]) == 2 * INFERENCES
    assert any("AA_CPU" in text for text in whole.values())
    assert await tables(spelt(original, tmp_path / "other", *prefixes)) == whole


async def test_op_summary_needs_the_log_of_the_npu_only(original: Path, tmp_path: Path) -> None:
    whole = await tables(spelt(original, tmp_path / "whole"))
    job = spelt(original, tmp_path / "cut")
    (lost,) = (job / "data").glob("aicpu.*.2")
    lost.unlink()
    lost.with_name(lost.name + ".done").unlink()
    found = await tables(job)
    assert {name for name in whole if name not in found} == {"op_statistic_0_0_2_2.csv"}
    assert all(whole[name] == text for name, text in found.items())


async def test_every_file_is_mapped_to_its_model_and_inference(original: Path, tmp_path: Path) -> None:
    job = spelt(original, tmp_path)
    # Another model that got the same id, after the first was unloaded.
    for file in sorted((job / "data").iterdir()):
        shutil.copy(file, file.with_name(file.name.replace("yolov5s", "other")))
    found = await tables(job)
    files = json.loads((job / "summary/metadata.json").read_text())["files"]
    assert set(files) == set(found)
    calls = {name: about["model"] for name, about in files.items() if name.startswith("acl_")}
    assert calls == {"acl_statistic_0_0_0.csv": "other", "acl_statistic_0_0_0.2.csv": "yolov5s"}
    assert files["op_statistic_0_0_2_2.2.csv"] == {
        "device_id": 0,
        "model": "yolov5s",
        "model_id": 0,
        "inference": {"stream_id": 3, "batch_num": 1, "input_pic_num": 1, "current_pic_count": 2, "load": 0},
    }

"""`import`, `export` and `show`, made to be dropped in for the vendor's: folders, names, columns, and refusals."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.board import content, sample, simulated
from tests.integration.host import Ended, profagent
from tests.integration.rows import query

if TYPE_CHECKING:
    from tests.integration.conftest import Demo

OP_SUMMARY = [
    *("Layer Id", "Ori Layer Name", "Layer Name", "Layer Type", "Time(us)", "Time Ratio"),
    *("Mac Busy Ratio", "Mac Ppen Ratio", "Vec Busy Ratio", "Vec Ppen Ratio"),
    *("Dstr Ratio", "Dtrans Ratio", "DLD Ratio", "WLD Ratio", "Memory Bound"),
    *("DDR Read(byte)", "DDR Write(byte)", "DDR Total(byte)"),
]


@pytest.fixture(params=["small", "simulated"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "simulated":
        made = simulated(tmp_path, 3, model="resnet50")
        # Files that were written in the moment of an import count as newer than it.
        for file in (*made.iterdir(), *(made / "data").iterdir()):
            os.utime(file, (file.stat().st_mtime - 1,) * 2)
        return made
    return sample(tmp_path, request.param)


def _files(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def _header(table: Path) -> list[str]:
    with table.open(encoding="utf-8", newline="") as text:
        return next(csv.reader(text))


def _last_row(table: Path) -> dict[str, str]:
    with table.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))[-1]


def test_import_makes_a_database_and_a_log(job: Path) -> None:
    before = content(job)
    ended = profagent("import", "-dir", job, "--json")
    assert ended.code in (0, 4)
    assert _files(job) - {"data", "info.json.0", "simulated"} == {"sqlite", "log"}
    assert _files(job / "sqlite") == {"lock", "profagent.db"}
    assert _files(job / "log") == {"profagent.log"}
    assert content(job).items() >= before.items()
    assert ended.document["database"] == str(job / "sqlite" / "profagent.db")
    assert ended.document["records"]["aicore"] > 0


def test_export_imports_first_when_that_is_needed(job: Path) -> None:
    first = profagent("export", "summary", "-dir", job)
    assert first.code == 0
    assert "importing" in first.err
    assert "importing" not in profagent("export", "timeline", "--collection-dir", job).err
    (job / "info.json.0").write_bytes(b'{"DeviceInfo": [{"aic_frequency": "350"}]}')
    assert "importing" in profagent("export", "summary", "-dir", job).err
    assert any(name.endswith(".350.csv") for name in _files(job / "summary"))


def test_summaries_have_the_manual_s_names_columns_and_total(job: Path) -> None:
    profagent("export", "summary", "-dir", job)
    files = _files(job / "summary")
    kinds = ("op_summary_0", "op_statistic_0_", "acl_statistic_0_")
    assert {kind for kind in kinds if any(name.startswith(kind) for name in files)} == set(kinds)
    for table in (job / "summary").glob("op_summary_*.csv"):
        assert _header(table) == OP_SUMMARY
        total = _last_row(table)
        assert total["Layer Name"] == "total"
        assert total["Layer Id"] == "-"


def test_json_summaries_have_the_columns_of_the_csv(job: Path) -> None:
    profagent("export", "summary", "-dir", job)
    profagent("export", "summary", "-dir", job, "--format", "json")
    for table in (job / "summary").glob("op_*.csv"):
        rows = json.loads(table.with_suffix(".json").read_text("utf-8"))
        assert list(rows[0]) == _header(table)


def test_timelines_load_as_chrome_traces(job: Path) -> None:
    assert profagent("export", "timeline", "-dir", job).code == 0
    traces = [file for file in (job / "timeline").glob("*.json") if file.name != "metadata.json"]
    assert {file.name.partition("_0.")[0] for file in traces} == {"task_time", "acl"}
    for file in traces:
        events = json.loads(file.read_text("utf-8"))["traceEvents"]
        assert any(event["ph"] == "X" and event["dur"] >= 0 for event in events)


def test_show_prints_the_four_tables(job: Path) -> None:
    shown = profagent("show", "-dir", job)
    assert shown.code == 0
    for table in ("AA core metric", "Op statistic", "Acl statistic", "Frequency"):
        assert f"\n{table}" in shown.out
    assert _files(job) >= {"sqlite", "log", "timeline"}
    (document,) = profagent("show", "-dir", job, "--json").document
    assert {table["table"] for table in document["tables"]} >= {"AA core metric", "Frequency"}


def test_simulated_figures_are_marked_wherever_they_are_shown(tmp_path: Path) -> None:
    job = simulated(tmp_path, 2)
    assert "[simulated]" in profagent("import", "-dir", job).out
    assert "[simulated]" in profagent("export", "summary", "-dir", job).out
    assert "simulated" in profagent("show", "-dir", job).out
    assert profagent("export", "timeline", "-dir", job, "--json").document[0]["simulated"] is True
    assert json.loads((job / "summary" / "metadata.json").read_text("utf-8"))["simulated"] is True


def test_inferences_can_be_chosen_and_aggregated(tmp_path: Path) -> None:
    job = simulated(tmp_path, 5)
    document = profagent("export", "summary", "-dir", job, "--last", "2", "--json").document
    assert sum(name.startswith("op_summary") for name in document[0]["files"]) == 2
    document = profagent("export", "summary", "-dir", job, "--inference", "3", "--json").document
    assert [name for name in document[0]["files"] if name.startswith("op_statistic")] == ["op_statistic_0_0_3_3.csv"]
    document = profagent("export", "summary", "-dir", job, "--aggregate", "--json").document
    assert [name for name in document[0]["files"] if name.startswith("op_stat")] == ["op_statistic_0_0_aggregate.csv"]


def test_a_session_exports_into_its_workspace(tmp_path: Path, demo: Demo) -> None:
    workspace = Path(shutil.copytree(demo.workspace, tmp_path / "workspace"))
    arguments = ("1", "--workspace", workspace)
    (exported,) = profagent("export", "summary", *arguments, "--json").document
    assert Path(exported["directory"]) == workspace / "exports" / "session-1" / "summary" / exported["job"]
    assert exported["files"]
    assert profagent("show", *arguments, "--job", exported["job"]).code == 0
    assert profagent("show", *arguments[:1], "7", *arguments[2:]).code == 2


def _refused(ended: Ended, *texts: str) -> None:
    assert ended.code == 2
    assert "Traceback" not in ended.err
    for text in texts:
        assert text in ended.err


VERBS = [("import",), ("export", "summary"), ("export", "timeline"), ("show",)]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_a_job_of_another_soc_is_refused(verb: tuple[str, ...], tmp_path: Path) -> None:
    job = sample(tmp_path, "small")
    (job / "info.json.0").write_bytes(b'{"DeviceInfo": [{"aic_frequency": "594", "magic_num": "6A6A"}]}')
    _refused(profagent(*verb, "-dir", job), "Hi3519DV500", "SS928")
    assert not (job / "sqlite" / "profagent.db").exists()


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_what_is_no_job_is_refused(verb: tuple[str, ...], tmp_path: Path) -> None:
    _refused(profagent(*verb, "-dir", tmp_path), "not a JOB directory", "name the JOB")
    _refused(profagent(*verb, "-dir", tmp_path / "missing"), "missing")
    _refused(profagent(*verb), "dir")


def test_a_job_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    job = sample(tmp_path, "small")
    (job / "sqlite").write_text("in the way", "ascii")
    ended = profagent("import", "-dir", job)
    assert ended.code == 1
    assert ended.err.startswith("profagent: cannot ")
    assert len(ended.err.splitlines()) == 2


def test_a_counter_map_fills_the_columns(tmp_path: Path) -> None:
    job = simulated(tmp_path, 2)
    (job / "simulated").unlink()
    without = profagent("import", "-dir", job, "--json").document
    assert without["simulated"] is False
    counted = "SELECT count(mac_busy) FROM op_records"
    assert query(Path(without["database"]), counted) == [(0,)]
    counter_map = Path(__file__).parents[2] / "agent/profagent/formats/maps/simulated.toml"
    profagent("import", "-dir", job, "--counter-map", counter_map)
    assert query(Path(without["database"]), counted)[0][0] > 0
    _refused(profagent("import", "-dir", job, "--counter-map", tmp_path / "none.toml"), "none.toml")

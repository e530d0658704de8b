"""What an import of paths finds and brings in, whatever the paths are, and what it says of everything else."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import zipfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from profagent.cli.main import run
from tests.fakes.dumps import write_files
from tests.fakes.job_copy import JOB
from tests.fakes.small_job import ON_CPU, PLAIN, SMALL_JOB, aicore_done
from tests.unit.ascend import files
from tests.unit.ascend.files import KERNEL_DETAILS, OP_SUMMARY, kernel, rows, summary, timeline, write

if TYPE_CHECKING:
    from collections.abc import Iterator

# One inference, nothing of it lost: four layers on the NPU, two on the CPU.
_PATHS = ("info.json.0", "data/m.0.layer.info", "data/m.0.net.info", PLAIN, f"{PLAIN}.done", ON_CPU, f"{ON_CPU}.done")
WHOLE_JOB = {path: SMALL_JOB[path] for path in _PATHS}
OTHER_JOB = "JOB" + "B" * 29
KERNEL = "7,conv1,Conv2D,AI_CORE,1.5,2.5,0,8"
ATTRIBUTES = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        "


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Where none is yet."""
    return tmp_path / "workspace"


def _job(folder: Path, name: str = JOB) -> Path:
    (folder / name / "data").mkdir(parents=True)
    return write_files(folder / name, WHOLE_JOB)


def _torch(folder: Path, name: str = "host_1_20260101000000000_ascend_pt") -> Path:
    summary(folder / name / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv", KERNEL_DETAILS, KERNEL)
    return folder / name


def _raw(folder: Path) -> Path:
    return write(folder / "PROF_000001_20260101000000000_AB" / "device_0" / "data" / "stars.data.0.slice_0", "x")


def _imported(
    workspace: Path, *paths: Path, code: int = 0, more: tuple[str, ...] = (), capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["import", *map(str, paths), "--workspace", str(workspace), "--json", *more]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def _sessions(document: dict[str, Any], below: Path) -> list[tuple[str, str, int]]:
    """Place, kind and rows of each source that has a session."""
    taken = [each for each in document["sources"] if each["session"] is not None]
    return [(str(Path(each["path"]).relative_to(below)), each["what"], each["rows"]) for each in taken]


def _not_taken(document: dict[str, Any], below: Path) -> dict[str, str]:
    return {str(Path(each["path"]).relative_to(below)): each["why"] for each in document["not_taken"]}


def _everything(folder: Path) -> list[tuple[str, str, int]]:
    """A folder with two JOBs and results of another tool at several depths; returns the sessions of it."""
    _job(folder / "out")
    _job(folder, OTHER_JOB)
    _torch(folder / "deep" / "er")
    summary(folder / "mine.csv", OP_SUMMARY, kernel())
    return [
        (OTHER_JOB, "JOB", 6),
        (f"out/{JOB}", "JOB", 6),
        ("deep/er/host_1_20260101000000000_ascend_pt", "kernel_details", 1),
        ("mine.csv", "op_summary", 1),
    ]


def test_jobs_and_results_in_one_folder_all_come_in_and_are_known_then(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sessions = _everything(tmp_path / "in")
    document = _imported(workspace, tmp_path / "in", capsys=capsys)
    assert _sessions(document, tmp_path / "in") == sessions
    assert document["not_taken"] == []
    assert rows(workspace, "SELECT DISTINCT session FROM op_records ORDER BY session") == [(1,), (2,), (3,), (4,)]
    again = _imported(workspace, tmp_path / "in", capsys=capsys)
    assert [each["is_known"] for each in again["sources"]] == [True] * 4
    assert rows(workspace, "SELECT count(*) FROM op_records WHERE session > 4") == [(0,)]


def test_paths_may_be_jobs_files_and_folders_at_once(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sessions = _everything(tmp_path / "in")
    paths = [tmp_path / "in" / path for path, *_ in sessions]
    assert _sessions(_imported(workspace, *paths, capsys=capsys), tmp_path / "in") == sessions
    (one,) = _imported(tmp_path / "other", paths[0], capsys=capsys)["sources"]
    assert (one["what"], one["session"]) == ("JOB", 1)
    assert not (paths[0] / "sqlite").exists()


def test_an_archive_of_jobs_and_results_brings_in_the_same(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sessions = _everything(tmp_path / "in")
    packed = Path(shutil.make_archive(str(tmp_path / "all"), "zip", tmp_path / "in"))
    assert _sessions(_imported(workspace, packed, capsys=capsys), packed) == sessions
    assert rows(workspace, "SELECT address FROM session WHERE session = 2") == [(f"{packed}/out/{JOB}",)]
    again = _imported(workspace, packed, capsys=capsys)
    assert [each["is_known"] for each in again["sources"]] == [True] * 4


def test_one_bad_source_stops_no_other_and_each_has_a_line(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    _job(folder)
    (folder / OTHER_JOB).mkdir()
    _job(folder, "JOB-of-monday")
    _raw(folder)
    write(folder / "cut.zip", "PK\x03\x04 and no more")
    summary(folder / "mine.csv", OP_SUMMARY, kernel())
    assert run(["import", str(folder), str(tmp_path / "none"), "--workspace", str(workspace)]) == 1
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        f"not imported: {tmp_path}/none",
        f"not imported: {folder}/JOB-of-monday",
        f"not imported: {folder}/cut.zip",
        f"session 1: {folder}/{JOB} (JOB): 6 rows",
        f"session 2: {folder}/{OTHER_JOB} (JOB): 0 rows; losses: 0, notes: 1",
        f"not imported: {folder}/PROF_000001_20260101000000000_AB",
        f"session 3: {folder}/mine.csv (op_summary): 1 row, 1 kernel",
        f"database: {workspace}/profagent.db",
    ]
    for said in (
        f"{tmp_path}/none does not exist",
        "JOB-of-monday is a JOB directory that was renamed",
        "cut.zip: cannot read the archive",
        "msprof --export=on",
        f"{OTHER_JOB}: a JOB without data",
    ):
        assert said in told.err


def test_a_source_with_a_loss_and_one_without_records_have_their_exit_codes(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in" / OTHER_JOB).mkdir(parents=True)
    _imported(workspace, tmp_path / "in", code=1, capsys=capsys)
    write(tmp_path / "in" / "op_summary_1.csv", f"{OP_SUMMARY}\n{kernel()}\n{kernel()[:50]}")
    for is_known in (False, True):
        document = _imported(workspace, tmp_path / "in", code=4, capsys=capsys)
        told = [(each["losses"], each["notes"], each["is_known"]) for each in document["sources"]]
        assert told == [(0, 1, False), (1, 0, is_known)]


def test_the_directory_of_our_own_profiler_is_its_job_with_what_it_says_as_labels(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "board_12_20260101000000000_ascend_ms"
    _job(folder)
    (folder / "ASCEND_PROFILER_OUTPUT").mkdir()
    parameters = {"profiler_level": "Level0", "activities": ["NPU"], "with_stack": False, "schedule": None}
    write(folder / "profiler_info_0.json", json.dumps({"profiler_parameters": parameters}))
    write(folder / "profiler_metadata.json", '{"name": "yolo", "shape 1": {"w": 4}}')
    document = _imported(workspace, folder, capsys=capsys)
    assert _sessions(document, folder) == [(JOB, "JOB", 6)]
    assert document["not_taken"] == []
    assert rows(workspace, "SELECT * FROM ledger") == []
    labels = {
        "profiler.profiler_level": "Level0",
        "profiler.activities": '["NPU"]',
        "metadata.name": "yolo",
        "metadata.shape 1": '{"w": 4}',
    }
    assert run(["import", "-dir", str(folder / JOB)]) == 0
    for database in (workspace, folder / JOB / "sqlite"):
        assert dict(rows(database, "SELECT key, value FROM session_label")) == labels
    for name in ("sqlite", "log"):
        shutil.rmtree(folder / JOB / name)
    # What is not a label stays in the file, which the ledger names.
    write(folder / "profiler_metadata.json", json.dumps({"name": "resnet", "long": "a" * 257}))
    write(folder / os.fsdecode(b"caf\xe9.txt"), "x")
    for _ in range(2):
        document = _imported(workspace, folder, capsys=capsys)
        assert _not_taken(document, folder) == {
            "caf\\xe9.txt": "of no known family",
            "profiler_metadata.json": "describing a run",
        }
        said = "2 files, of which 1 of no known family, 1 describing a run: caf\\xe9.txt, profiler_metadata.json"
        notes = rows(workspace, "SELECT session, grade, count, detail FROM ledger WHERE reason = 'not-taken'")
        assert notes == [(1, "note", 2, said)]
        assert ("metadata.name", "resnet") in rows(workspace, "SELECT key, value FROM session_label")


def test_everything_that_is_not_taken_is_told_once_and_noted_where_it_stood(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    run_ = _torch(folder)
    output = run_ / "ASCEND_PROFILER_OUTPUT"
    write(run_ / "profiler_info_0.json", '{"config": {}, "rank_id": 3}')
    raw = _raw(run_)
    write(run_ / "FRAMEWORK" / "torch.op_range", "x")
    write(output / "notes.md", "by hand")
    (output / "link.csv").symlink_to("/etc/hostname")
    timeline(folder / "beside" / "trace.json", files.TIMELINES["msprof"])
    summary(folder / "beside" / "people.csv", "name,age", "bob,3")
    write(folder / "beside" / "group.json", "{}")
    document = _imported(workspace, folder, capsys=capsys)
    assert _sessions(document, folder) == [("beside/trace.json", "msprof", 4), (run_.name, "kernel_details", 1)]
    of_run = {str(path.relative_to(folder)) for path in (raw, run_ / "FRAMEWORK" / "torch.op_range")}
    why = _not_taken(document, folder)
    assert {path for path, each in why.items() if each.startswith("with raw data")} == of_run
    assert why.keys() - of_run == {
        "beside/group.json",
        "beside/people.csv",
        f"{run_.name}/ASCEND_PROFILER_OUTPUT/link.csv",
        f"{run_.name}/ASCEND_PROFILER_OUTPUT/notes.md",
    }
    notes = rows(workspace, "SELECT session, count, detail FROM ledger WHERE reason = 'not-taken' ORDER BY session")
    assert notes[0] == (1, 2, "2 files of no known family: group.json, people.csv")
    assert notes[1][:2] == (2, 4)
    assert rows(workspace, "SELECT value FROM session_label WHERE key = 'rank'") == [("3",)]
    run(["import", str(folder), "--workspace", str(workspace)])
    said = "of which 3 of no known family, 2 with raw data of a run whose results are taken, 1 not regular (a link or"
    assert f"not imported: 6 files, {said} device); --json lists them\n" in capsys.readouterr().out


def test_markers_locks_and_attributes_are_no_damage_whatever_they_are_called(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    output = _torch(folder) / "ASCEND_PROFILER_OUTPUT"
    for name in ("analyse.done", "kernel_details.csv.lock", "anything", "people.csv"):
        write(output / name, "")
    attributes = folder / "__MACOSX" / "a_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "._kernel_details.csv"
    _job(folder)
    for file in (attributes, folder / "__MACOSX" / JOB / "data" / "._acl_api.0.m.0"):
        file.parent.mkdir(parents=True)
        file.write_bytes(ATTRIBUTES)
    document = _imported(workspace, folder, capsys=capsys)
    assert [what for _, what, _ in _sessions(document, folder)] == ["JOB", "kernel_details"]
    assert sorted(each["why"] for each in document["not_taken"]) == [
        *["with macOS attributes of others"] * 2,
        *["without content"] * 4,
    ]
    assert rows(workspace, "SELECT * FROM ledger") == []


@pytest.mark.parametrize("name", ["op_summary_1.csv", "trace_view.json", "msprof_1.db"])
def test_an_empty_file_is_a_loss_where_a_result_of_its_name_must_have_rows(
    name: str, tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_ = _torch(tmp_path)
    write(run_ / "ASCEND_PROFILER_OUTPUT" / name, "")
    _imported(workspace, run_, code=4, capsys=capsys)
    ((detail,),) = rows(workspace, "SELECT detail FROM ledger WHERE grade = 'loss'")
    assert f"{name}: line 1: it is empty" in detail


REMEDIES = {
    "a_ascend_pt": ("", 'torch_npu.profiler.profiler.analyse("{}")'),
    "a_ascend_ms": ("", 'Profiler.offline_analyse("{}")'),
    "renamed": ("torch.op_range", 'torch_npu.profiler.profiler.analyse("{}")'),
    "of mindspore": ("mindspore.op_range", 'Profiler.offline_analyse("{}")'),
}


@pytest.mark.parametrize("name", REMEDIES)
def test_raw_data_of_a_framework_is_one_source_with_the_framework_s_remedy(
    name: str, tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marker, remedy = REMEDIES[name]
    _raw(tmp_path / name)
    if marker:
        write(tmp_path / name / "FRAMEWORK" / marker, "x")
    assert run(["import", str(tmp_path), "--workspace", str(workspace)]) == 1
    told = capsys.readouterr()
    assert told.out.count("not imported: /") == 1
    assert remedy.format(tmp_path / name) in told.err
    assert "msprof --export" not in told.err


def test_folders_nested_deeper_than_python_s_stack_are_looked_through(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary(tmp_path.joinpath("in", *["d"] * 250, "mine.csv"), OP_SUMMARY, kernel())
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(250)
    try:
        document = _imported(workspace, tmp_path / "in", capsys=capsys)
    finally:
        sys.setrecursionlimit(limit)
    assert [each["session"] for each in document["sources"]] == [1]


def test_a_cell_larger_than_any_real_one_is_not_read_into_memory(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = files.database(tmp_path / "msprof_1.db")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE large AS SELECT zeroblob(5 << 20) AS cell")
        # Neither is a table called what it is not, or code of the schema run.
        connection.execute("DROP TABLE CANN_API")
        connection.execute(
            "CREATE VIEW CANN_API AS WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
        )
    (one,) = _imported(workspace, file, code=4, capsys=capsys)["sources"]
    assert (one["kernels"], one["losses"]) == (2, 1)
    ((detail,),) = rows(workspace, "SELECT detail FROM ledger WHERE grade = 'loss'")
    assert "large: string or blob too big" in detail


def test_a_directory_of_other_devices_that_is_called_as_a_job_is_none(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "in" / JOB / "device_0" / "data" / "hwts.log.data.45.dev.profiler_default_tag.0.slice_0", "x")
    summary(tmp_path / "in" / OTHER_JOB / "device_0" / "summary" / "op_summary_0_1.csv", OP_SUMMARY, kernel())
    # Neither is a data set one of raw slices.
    write(tmp_path / "in" / "project" / "data" / "train.data.csv", "a,b")
    document = _imported(workspace, tmp_path / "in", code=1, capsys=capsys)
    assert [(each["what"], each["rows"]) for each in document["sources"]] == [("", 0), ("op_summary", 1)]
    assert "msprof --export=on" in document["sources"][0]["hint"]
    assert _not_taken(document, tmp_path / "in") == {"project/data/train.data.csv": "of no known family"}


@pytest.mark.parametrize("option", ["--acl-json", "--counter-map"])
def test_options_of_jobs_are_refused_where_there_is_none(
    option: str, tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path("agent/profagent/formats/maps/simulated.toml").read_text("utf-8")
    given = write(tmp_path / "given", text if option == "--counter-map" else '{"profiler": {"interval": "2"}}')
    _job(tmp_path / "in")
    mine = summary(tmp_path / "mine.csv", OP_SUMMARY, kernel())
    words = ["--workspace", str(workspace), option, str(given)]
    assert run(["import", str(mine), *words]) == 2
    assert "apply to JOBs" in capsys.readouterr().err
    assert run(["import", str(mine), str(tmp_path / "in"), *words]) == 0


def test_no_workspace_is_looked_into(tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = _job(tmp_path / "in")
    lab, passed = tmp_path / "in" / "lab", {"in/lab": "in a workspace of profagent"}
    for into, is_known in ((lab, False), (lab, True), (workspace, False)):
        document = _imported(into, tmp_path / "in", capsys=capsys)
        assert [(each["path"], each["is_known"]) for each in document["sources"]] == [(str(job), is_known)]
        assert _not_taken(document, tmp_path) == passed


def test_a_path_that_may_not_be_read_stops_no_other(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    job, access, listed = _job(tmp_path / "in"), os.access, Path.iterdir

    def refused(path: Path) -> Iterator[Path]:
        if path == locked:
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    # Of root everything may be read.
    monkeypatch.setattr(os, "access", lambda path, *more: Path(path) != locked and access(path, *more))
    monkeypatch.setattr(Path, "iterdir", refused)
    document = _imported(workspace, locked, job, code=1, capsys=capsys)
    assert [(each["path"], each["session"], each["error"]) for each in document["sources"]] == [
        (str(locked), None, f"cannot read {locked}: Permission denied"),
        (str(job), 1, None),
    ]


def _records(workspace: Path) -> list[tuple[Any, ...]]:
    return rows(workspace, "SELECT session, count(*) FROM op_records GROUP BY session")


def test_another_copy_of_a_job_is_not_written_over_the_first(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [_job(tmp_path / "in" / name) for name in ("a", "b", "c", "d")]
    # One is cut, the other has another byte.
    (jobs[1] / PLAIN).write_bytes(WHOLE_JOB[PLAIN][:-80])
    (jobs[2] / ON_CPU).write_bytes(WHOLE_JOB[ON_CPU][:-1] + b"?")
    document = _imported(workspace, tmp_path / "in", code=1, capsys=capsys)
    hint = "import it by itself into another workspace: --workspace DIR"
    assert [(each["session"], each["is_known"], each["error"], each["hint"]) for each in document["sources"]] == [
        (1, False, None, None),
        *(
            (None, False, f"{job} is another copy of the JOB in {jobs[0]}: {path} is not the same", hint)
            for job, path in ((jobs[1], PLAIN), (jobs[2], ON_CPU))
        ),
        (1, True, None, None),
    ]
    assert _records(workspace) == [(1, 4)]
    assert rows(workspace, "SELECT * FROM ledger") == []


def test_a_copy_that_has_less_of_a_job_takes_nothing_away_and_one_that_has_more_goes_on(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut, whole = _job(tmp_path / "cut"), _job(tmp_path / "whole")
    (cut / PLAIN).write_bytes(WHOLE_JOB[PLAIN][:-80])
    _imported(workspace, cut, code=4, capsys=capsys)
    _imported(workspace, whole, capsys=capsys)
    (one,) = _imported(workspace, cut, code=1, capsys=capsys)["sources"]
    assert f"{cut} has less than what is there of this JOB: " in one["error"]
    assert "--workspace DIR" in one["hint"]
    assert run(["import", "-dir", str(cut), "--workspace", str(workspace)]) == 2
    assert _records(workspace) == [(1, 4)]
    assert rows(workspace, "SELECT grade FROM ledger WHERE grade = 'loss'") == []


def test_a_copy_whose_done_is_shorter_goes_on_where_the_model_was_loaded_again(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = _job(tmp_path / "copied")
    _imported(workspace, job, capsys=capsys)
    before = (job / f"{PLAIN}.done").read_bytes()
    (job / f"{PLAIN}.done").write_bytes(before[:-2])
    assert "has less than what is there" in _imported(workspace, job, code=1, capsys=capsys)["sources"][0]["error"]
    with (job / PLAIN).open("ab") as opened:
        opened.write(WHOLE_JOB[PLAIN][:512])
    shorter = aicore_done(512)
    assert len(shorter) < len(before)
    (job / f"{PLAIN}.done").write_bytes(shorter)
    assert _imported(workspace, job, capsys=capsys)["sources"][0]["error"] is None
    assert rows(workspace, "SELECT load FROM inferences ORDER BY 1") == [(0,), (1,)]


def test_what_stands_beside_nothing_is_noted_in_the_first_session(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "in" / "deep" / "er" / "unknown.csv", "a,b")
    summary(tmp_path / "in" / "of" / "mine.csv", OP_SUMMARY, kernel())
    _imported(workspace, tmp_path / "in", capsys=capsys)
    notes = rows(workspace, "SELECT session, detail FROM ledger WHERE reason = 'not-taken'")
    assert notes == [(1, "1 file of no known family: unknown.csv")]


def test_folders_in_a_job_that_are_not_its_own_are_looked_through(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = _job(tmp_path)
    for place in ("", "extra", "data/more"):
        summary(job / place / "kernel_details.csv", KERNEL_DETAILS, KERNEL)
    write(job / "extra" / "notes.txt", "by hand")
    document = _imported(workspace, job, capsys=capsys)
    assert _sessions(document, job) == [
        (".", "JOB", 6),
        *((f"{place}kernel_details.csv", "kernel_details", 1) for place in ("data/more/", "extra/", "")),
    ]
    assert _not_taken(document, job) == {"extra/notes.txt": "of no known family"}
    details = rows(workspace, "SELECT reason, detail FROM ledger ORDER BY detail")
    assert details == [
        ("not-taken", "1 file of no known family: notes.txt"),
        ("not-a-file", "data/more is a directory"),
        ("not-a-file", "extra is a directory"),
        ("foreign-file", "not a file of the runtime: kept, not read"),
    ]


def test_what_is_in_no_archive_that_results_have_is_not_unpacked(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _job(tmp_path / "in")
    with zipfile.ZipFile(tmp_path / "in" / "model.pt", "w") as packed:
        packed.writestr("mine.csv", f"{OP_SUMMARY}\n{kernel()}\n")
    document = _imported(workspace, tmp_path / "in", capsys=capsys)
    assert _not_taken(document, tmp_path / "in") == {"model.pt": "of no known family"}

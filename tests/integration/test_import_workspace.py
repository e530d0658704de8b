"""A copied JOB that is imported into a workspace is what a live capture of it would have been."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

from profagent.importing.importing import import_into
from profagent.store.database import SCHEMA_VERSION
from profagent.store.workspace import Workspace
from tests.fakes.dumps import dump
from tests.integration.board import SAMPLES, GrowingJob, content, running, sample, simulated
from tests.integration.host import COMMAND, ENVIRONMENT, Ended, profagent
from tests.integration.rows import query

BOARD = "5c21f0de"
# Beyond what `dump` has: everything but row numbers, and who captured it when and from where.
QUERIES = {
    "logs": "SELECT path, shown_path, kind, m.name, model_id, generation, offset, complete, digest FROM log"
    " LEFT JOIN model m USING (model)",
    "ledger": "SELECT path, origin, grade, reason, detail, first, last, count FROM ledger_entry"
    " LEFT JOIN log USING (log)",
    "job": "SELECT name, state, frequency_mhz, caught_up FROM job",
    "parts": "SELECT path, first_record FROM part JOIN log USING (log)",
    "model": "SELECT j.name, m.name, model_id FROM model m JOIN job j USING (job)",
    "kept": "SELECT * FROM kept_loss",
}
BY_SESSION = {
    "session": "SELECT session, simulated, counter_map, ended_us IS NULL FROM session",
    "session_job": "SELECT session, job FROM session_job",
    "session_part": "SELECT path, session FROM part JOIN log USING (log)",
}


def everything(workspace: Path, *, by_session: bool = True) -> dict[str, list[tuple[Any, ...]]]:
    """What a database says of its JOBs, and which session has what."""
    database = workspace / "profagent.db"
    queries = {**QUERIES, **(BY_SESSION if by_session else {})}
    rows = {name: sorted(query(database, sql), key=repr) for name, sql in queries.items()}
    return {**dump(database), **{f"all {name}": found for name, found in rows.items()}}


def imported(job: Path, workspace: Path, *more: str) -> Ended:
    return profagent("import", "-dir", job, "--workspace", workspace, "--json", *more)


def made(name: str, root: Path) -> Path:
    root.mkdir(exist_ok=True)
    return simulated(root, 4, loads=2) if name == "simulated" else sample(root, name)


def recorded(root: Path, workspace: Path) -> Ended:
    """What a live capture of everything in a root gives."""
    # Longer than a JOB needs to be finished.
    with running("--root", root, "--quiet-after", "4") as board:
        arguments = ("--board", board.address, "--workspace", workspace, "--backlog", "--until-finished")
        return profagent("record", *arguments, "--json")


def test_it_is_what_a_live_capture_would_have_been(tmp_path: Path) -> None:
    job = made("simulated", tmp_path / "root")
    live, copy = recorded(tmp_path / "root", tmp_path / "live"), imported(job, tmp_path / "imported")
    assert (copy.code, copy.document["complete"]) == (live.code, live.document["complete"]), copy.err
    assert everything(tmp_path / "imported") == everything(tmp_path / "live")
    assert content(Path(copy.document["mirror"]) / job.name) == content(job)
    assert copy.document["mirror"] == str(tmp_path / "imported" / "mirror" / "import")


def test_so_is_every_job_that_the_runtime_library_wrote(tmp_path: Path) -> None:
    jobs = [made(name, tmp_path / "root") for name in SAMPLES]
    live = recorded(tmp_path / "root", tmp_path / "live")
    assert sorted(live.document["jobs"]) == sorted(job.name for job in jobs)
    for job in jobs:
        summary = asyncio.run(import_into(job, Workspace(tmp_path / "imported"), asyncio.Event()))
        assert content(Path(summary["mirror"]) / job.name) == content(job)
    copies, recording = (everything(tmp_path / each, by_session=False) for each in ("imported", "live"))
    assert copies == recording


def test_the_same_job_again_adds_nothing(tmp_path: Path) -> None:
    job = made("runtime-edge", tmp_path / "root")
    first = imported(job, tmp_path / "workspace")
    before = everything(tmp_path / "workspace")
    again = imported(job, tmp_path / "workspace")
    known = {"job": job.name, "session": 1, "inferences": 2}
    assert again.document == {**first.document, "earlier": [known]}
    assert everything(tmp_path / "workspace") == before


def test_a_job_that_grew_since_goes_on(tmp_path: Path) -> None:
    job = GrowingJob(made("simulated", tmp_path / "source"), tmp_path / "root", 4)
    pieces = job.grow(job.paths("**/*"))
    for _, _piece in zip(range(60), pieces, strict=False):
        pass
    imported(job.directory, tmp_path / "workspace")
    for _ in pieces:
        pass
    for path in job.paths("data/*.done"):
        job.write(path)
    assert imported(job.directory, tmp_path / "workspace").document["session"] == 1
    imported(job.source, tmp_path / "whole")
    grown, whole = everything(tmp_path / "workspace"), everything(tmp_path / "whole")
    # A small file that was half there is another generation when it is whole.
    assert {key: rows for key, rows in grown.items() if key != "all logs"} == {
        key: rows for key, rows in whole.items() if key != "all logs"
    }
    assert content(job.directory) == content(job.source)


def test_a_live_record_of_the_same_board_goes_on_from_it(tmp_path: Path) -> None:
    whole = made("simulated", tmp_path / "source")
    job = GrowingJob(whole, tmp_path / "root", 5)
    paths = job.paths("data/*")
    for _ in job.grow(["simulated", "info.json.0", *paths[: len(paths) // 2]]):
        pass
    half = imported(job.directory, tmp_path / "workspace", "--board", BOARD)
    for _ in job.grow([path for path in job.paths("**/*") if not (job.directory / path).exists()]):
        pass
    for path in job.paths("data/*.done"):
        job.write(path)
    with running("--root", tmp_path / "root", "--quiet-after", "1", "--identity", BOARD) as board:
        arguments = ("--board", board.address, "--workspace", tmp_path / "workspace", "--backlog", "--until-finished")
        rest = profagent("record", *arguments, "--json")
    assert (half.document["session"], rest.document["session"], rest.document["complete"]) == (1, 2, True)
    assert half.document["board"] == rest.document["board"] == BOARD
    imported(whole, tmp_path / "whole")
    database, expected = tmp_path / "workspace" / "profagent.db", tmp_path / "whole" / "profagent.db"
    records = "SELECT count(*) FROM aicore"
    assert query(database, records) == query(expected, records)
    assert half.document["records"]["aicore"] + rest.document["records"]["aicore"] == query(expected, records)[0][0]
    assert dump(database) == dump(expected)
    assert query(database, "SELECT max(generation) FROM log") == [(1,)]


def test_what_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    job = made("runtime-api", tmp_path / "root")
    misnamed = shutil.copytree(job, tmp_path / "root" / "copy")
    workspace = tmp_path / "workspace"
    assert profagent("import", "-dir", job, "--board", BOARD).code == 2
    assert imported(Path(misnamed), workspace).code == 2
    assert imported(tmp_path / "root", workspace).code == 2
    (job / "info.json.0").write_bytes(b'{"DeviceInfo": [{"aic_frequency": "594", "magic_num": "6A6A"}]}')
    refused = imported(job, workspace)
    assert refused.code == 2
    assert "Hi3519DV500" in refused.err


def test_a_workspace_s_own_mirror_is_not_imported_into_it(tmp_path: Path) -> None:
    job = made("small", tmp_path / "usb")
    assert imported(job, tmp_path / "ws").code in (0, 4)
    ended = imported(tmp_path / "ws" / "mirror" / "import" / job.name, tmp_path / "ws")
    assert (ended.code, "own mirror" in ended.err) == (2, True)


def test_a_database_of_another_version_is_refused_everywhere_and_made_anew_by_what_is_told(tmp_path: Path) -> None:
    workspace = tmp_path / "a workspace"
    job = made("small", tmp_path / "root")
    imported(job, workspace, "--board", BOARD)
    before = everything(workspace)
    with closing(sqlite3.connect(workspace / "profagent.db")) as connection:
        connection.execute("PRAGMA user_version = 9")
    for command in (
        ("sessions",),
        ("stats", "1"),
        ("show", "1"),
        ("export", "summary", "1"),
        ("import", "-dir", job),
    ):
        ended = profagent(*command, "--workspace", workspace)
        said = f"profagent.db has schema version 9, this profagent has {SCHEMA_VERSION}"
        assert (ended.code, said in ended.err) == (1, True), ended
    (section,) = profagent("doctor", "--workspace", workspace, "--json").document["sections"]
    (remedy,) = [each["remedy"] for each in section["findings"] if each["check"] == "database"]
    told = remedy.replace("profagent import", f"{shlex.join(COMMAND)} import")
    subprocess.run(["sh", "-c", told], env=ENVIRONMENT, check=True, capture_output=True, timeout=60)
    assert everything(tmp_path / "a workspace.new") == before


def test_another_counter_map_than_before_is_refused(tmp_path: Path) -> None:
    job = made("runtime-api", tmp_path / "root")
    imported(job, tmp_path / "workspace")
    checkout = Path(__file__).parents[2]
    other = imported(
        job, tmp_path / "workspace", "--counter-map", str(checkout / "agent/profagent/formats/maps/simulated.toml")
    )
    assert other.code == 2
    assert "counter map" in other.err


def test_of_a_copy_that_is_not_whole_it_is_told_what_has_no_figures(tmp_path: Path) -> None:
    job = simulated(tmp_path / "copied", 4)
    for path in job.glob("data/aicpu.*.2*"):
        path.unlink()
    workspace = tmp_path / "ws"
    ended = profagent("import", "-dir", job, "--workspace", workspace)
    why = "aicpu records: their log is missing, and other inferences of the model have one"
    assert f"not final: 1 inference (partial): {why}" in ended.out + ended.err
    assert query(workspace / "profagent.db", "SELECT figures, count(*) FROM inferences GROUP BY 1") == [
        ("final", 3),
        ("partial", 1),
    ]

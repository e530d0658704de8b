"""What stands in a JOB directory, as retention sees it: real files, and JOBs that the runtime wrote."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from profagentd.retention import reaper as module
from profagentd.retention.policy import JobFacts, Part
from profagentd.retention.reaper import Look, part_of
from profagentd.sources.files import Fingerprint, Place
from tests.daemon.daemon_process import AICORE_DONE, make_job

JOBS = Path(__file__).parents[1] / "data" / "jobs"
NAME = "aicore.0.model.3.0.1.1.0"
LONG_AFTER_NS = 1 << 62


def looked(job: Path, *, delivered: bool = False, undelivered: bool = False, now_ns: int = LONG_AFTER_NS) -> JobFacts:
    def has(_place: Place, _path: bytes, _seen: Fingerprint) -> bool:
        return delivered

    return Look(now_ns, has, undelivered).facts(Place(os.fsencode(job.parent), os.fsencode(job.name)), True)


def found(facts: JobFacts) -> dict[bytes, tuple[Part, bool, int]]:
    return {log.files[0][0]: (log.part, log.is_complete, len(log.files)) for log in facts.logs}


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (b"data/aicore.0.m.3.0.1.1.0", Part.WORK),
        (b"data/aicore.0.m.3.0.1.1.0.done", Part.WORK),
        (b"data/AAcore.0.m.0.1.1.0", Part.WORK),
        (b"data/aicpu.0.m.3.0.1.1.0", Part.WORK),
        (b"data/cont.0.m.0.1.1.0", Part.WORK),
        (b"data/acl_api.0.m.0", Part.CALLS),
        (b"data/AclModule.0.m.0.done", Part.CALLS),
        (b"data/m.0.net.info", Part.TABLE),
        (b"data/m.0.layer.info", Part.TABLE),
        (b"info.json.0", Part.TABLE),
        (b"simulated", Part.TABLE),
        (b"data/info.json.0", None),
        (b"data/notes.txt", None),
        (b"data/m.info", None),
        (b"data/simulated", None),
        (b"aicore.0.m.3.0.1.1.0", None),
        (b"op_summary.csv", None),
        (b"sqlite/aicore.0.m.3.0.1.1.0", None),
    ],
)
def test_the_runtimes_files_are_known_by_name_and_place(path: bytes, part: Part | None) -> None:
    assert part_of(path) is part


@pytest.mark.parametrize("folder", ["runtime-api", "runtime-json", "runtime-reload", "runtime-misc", "runtime-edge"])
def test_every_file_of_the_runtime_is_known(folder: str) -> None:
    jobs = [each for each in (JOBS / folder).rglob("JOB*") if each.is_dir()]
    files = [os.fsencode(file.relative_to(job)) for job in jobs for file in job.rglob("*") if file.is_file()]
    assert files
    assert [path for path in files if part_of(path) is None] == []


def test_a_log_goes_with_its_done_and_after_it_was_delivered(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    (job / "data" / NAME).write_bytes(b"x" * 256)
    (job / "data" / f"{NAME}.done").write_bytes(AICORE_DONE % 256)
    path = b"data/" + NAME.encode()
    assert found(looked(job))[path] == (Part.WORK, False, 2)
    assert found(looked(job, delivered=True))[path] == (Part.WORK, True, 2)
    (log,) = (each for each in looked(job).logs if each.part is Part.WORK)
    assert [name for name, _ in log.files] == [path, path + b".done"]
    assert looked(job).is_all


def test_what_nobody_has_is_complete_when_its_done_parses_and_it_has_rested(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    data = job / "data" / NAME
    data.write_bytes(b"x" * 256)
    path = b"data/" + NAME.encode()
    assert not found(looked(job, undelivered=True))[path][1]
    (job / "data" / f"{NAME}.done").write_bytes(b"file_len:")
    assert not found(looked(job, undelivered=True))[path][1]
    (job / "data" / f"{NAME}.done").write_bytes(AICORE_DONE % 256)
    assert found(looked(job, undelivered=True))[path][1]
    assert not found(looked(job, undelivered=True, now_ns=data.stat().st_mtime_ns))[path][1]
    assert found(looked(job, undelivered=True, now_ns=data.stat().st_mtime_ns - 10**15))[path][1]


def test_a_done_without_data_stands_alone(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    (job / "data" / f"{NAME}.done").write_bytes(AICORE_DONE % 256)
    assert found(looked(job, delivered=True))[b"data/" + NAME.encode() + b".done"] == (Part.WORK, True, 1)


def test_an_empty_log_without_a_done_goes_with_the_tables(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    (job / "data" / "acl_api.0.raw.name.0").touch()
    assert found(looked(job))[b"data/acl_api.0.raw.name.0"] == (Part.TABLE, True, 1)


@pytest.mark.parametrize("foreign", ["data/notes.txt", "op_summary.csv", "data/deep/x", "sqlite/x"])
def test_foreign_files_are_not_among_them_and_are_seen(tmp_path: Path, foreign: str) -> None:
    job = make_job(tmp_path)
    (job / foreign).parent.mkdir(exist_ok=True)
    (job / foreign).write_bytes(b"mine")
    assert not looked(job).is_all
    assert list(found(looked(job))) == [b"info.json.0"]


def test_what_is_no_regular_file_is_foreign(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    (job / "data" / "acl_api.0.m.0").symlink_to("/etc/passwd")
    os.mkfifo(job / "data" / NAME)
    facts = looked(job, delivered=True)
    assert list(found(facts)) == [b"info.json.0"]
    assert not facts.is_all


def test_of_very_many_the_oldest_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOGS_LIMIT", 2)
    job = make_job(tmp_path)
    for number in range(4):
        file = job / "data" / f"cont.0.m.0.1.1.{number}"
        file.write_bytes(b"x")
        os.utime(file, (1000 - number, 1000 - number))
    facts = looked(job)
    assert sorted(found(facts)) == [b"data/cont.0.m.0.1.1.2", b"data/cont.0.m.0.1.1.3"]
    assert not facts.is_all


def test_a_copy_of_the_runtimes_own_job_is_seen_whole(tmp_path: Path) -> None:
    (source,) = (each for each in (JOBS / "runtime-api").rglob("JOB*") if each.is_dir())
    job = Path(shutil.copytree(source, tmp_path / source.name))
    facts = looked(job, undelivered=True)
    assert facts.is_all
    assert sum(len(log.files) for log in facts.logs) == sum(each.is_file() for each in job.rglob("*"))

"""What the policy deletes, what stands in a JOB, and deleting only what was meant, only here."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profagentd.retention import reaper
from profagentd.retention.policy import UNSEEN_REST_S, DeletableJob, Policy, Retain, StoredLog, is_over, plan_deletions
from profagentd.retention.reaper import DeletionScan, check_deletable, delete_logs, remove_directories
from profagentd.sources.files import Fingerprint, FolderPlace, fingerprint
from profagentd.sources.job import JobSource
from profagentd.sources.source import LogPart
from profagentd.sources.state import JobState
from tests.daemon.daemon_process import AICORE_DONE, content, make_job

JOBS_FOLDER = Path(__file__).parents[1] / "data" / "jobs"
JOB = FolderPlace(b"/root", b"JOB")
SOURCE = JobSource()
DELIVERED = Policy(Retain.DELIVERED, ("a",))
ROOM = Policy(Retain.MIN_FREE, ("a",), min_free_bytes=1)
ROOM_AT_ANY_PRICE = dataclasses.replace(ROOM, delete_undelivered=True)
DATA = b"data/aicore.0.model.3.0.1.1.0"
DONE = DATA + b".done"
LONG_AFTER_NS = 1 << 62


def stored(
    name: bytes = b"x", *, part: LogPart = LogPart.WORK, size: int = 100, age: int = 0, delivered: bool = True
) -> StoredLog:
    return StoredLog(JOB, ((name, Fingerprint(1, size, 1_000_000 - age)),), part, delivered)


def gone(policy: Policy, *logs: StoredLog, over: bool = True, whole: bool = True, short: int = 0) -> list[bytes]:
    deletions = plan_deletions(policy, [DeletableJob(logs, whole, over)], short)
    return [path for each in deletions for path, _ in each.files]


def test_what_is_delivered_goes_and_calls_when_the_job_is_over() -> None:
    logs = stored(b"d"), stored(b"u", delivered=False), stored(b"c", part=LogPart.CALLS)
    assert gone(DELIVERED, *logs, over=False) == [b"d"]
    assert gone(DELIVERED, *logs, over=True) == [b"c", b"d"]


@pytest.mark.parametrize(
    ("other", "over", "whole", "goes"),
    [
        (None, True, True, True),
        (stored(b"o"), True, True, True),
        (stored(b"o"), False, True, False),
        (stored(b"o"), True, False, False),
        (stored(b"o", delivered=False), True, True, False),
    ],
    ids=["alone", "with the rest", "job goes on", "other files", "undelivered rest"],
)
def test_tables_go_last_with_all_the_rest(other: StoredLog | None, over: bool, whole: bool, goes: bool) -> None:
    names = gone(DELIVERED, stored(b"t", part=LogPart.TABLE), *([other] if other else []), over=over, whole=whole)
    assert (b"t" in names) == goes
    assert not goes or names[-1] == b"t"


def test_others_go_after_them_when_that_is_allowed_and_are_losses() -> None:
    logs = [stored(b"had", age=1), stored(b"not", age=9, delivered=False)]
    deletions = plan_deletions(ROOM_AT_ANY_PRICE, [DeletableJob(logs, is_all=True, is_over=False)], 10**9)
    assert deletions == logs[:2]


@pytest.mark.parametrize(
    ("state", "rest_s", "npu_is_open", "over"),
    [
        (JobState.OPEN, 1e9, False, False),
        (JobState.FINISHED, 60.0, False, True),
        (JobState.QUIET, 60.0, False, True),
        (JobState.FINISHED, 59.0, False, False),
        (JobState.FINISHED, 1e9, True, False),
        (JobState.FINISHED, 60.0, None, False),
        (JobState.FINISHED, UNSEEN_REST_S, None, True),
    ],
)
def test_a_job_is_over_when_nobody_can_go_on_with_it(
    state: JobState, rest_s: float, npu_is_open: bool | None, over: bool
) -> None:
    assert is_over(state, rest_s, 60.0, npu_is_open) is over


LOGS = st.builds(
    stored,
    st.binary(min_size=1, max_size=3),
    part=st.sampled_from(LogPart),
    size=st.integers(0, 1000),
    age=st.integers(0, 1000),
    delivered=st.booleans(),
)
JOBS = st.lists(st.builds(DeletableJob, st.lists(LOGS, max_size=6), st.booleans(), st.booleans()), max_size=4)
POLICIES = st.sampled_from([Policy(), DELIVERED, ROOM, ROOM_AT_ANY_PRICE])


@settings(max_examples=200, derandomize=True)
@given(policy=POLICIES, jobs=JOBS, short=st.integers(-1000, 30_000))
def test_whatever_is_known_what_must_stay_stays(policy: Policy, jobs: Sequence[DeletableJob], short: int) -> None:
    deletions = plan_deletions(policy, jobs, short)
    chosen = [id(each) for each in deletions]
    assert len(chosen) == len(set(chosen))
    if policy.retain is not Retain.DELIVERED and (policy.retain is Retain.KEEP or short <= 0):
        assert deletions == []
    for each in deletions:
        (job,) = (job for job in jobs if any(log is each for log in job.logs))
        assert each.is_delivered or policy is ROOM_AT_ANY_PRICE
        assert each.part is LogPart.WORK or job.is_over
        assert each.part is not LogPart.TABLE or all(id(log) in chosen for log in job.logs)
    if policy is ROOM:
        sizes = [each.disk_bytes for each in deletions if each.part is not LogPart.TABLE]
        assert sum(sizes[:-1]) <= max(0, short)


# What stands in a JOB


@pytest.fixture
def job(tmp_path: Path) -> Path:
    made = make_job(tmp_path)
    (made / os.fsdecode(DATA)).write_bytes(b"x" * 256)
    (made / os.fsdecode(DONE)).write_bytes(AICORE_DONE % 256)
    return made


def place_of(job: Path) -> FolderPlace:
    return FolderPlace(os.fsencode(job.parent), os.fsencode(job.name))


def looked(
    job: Path, *, delivered: bool = False, undelivered: bool = False, now_ns: int = LONG_AFTER_NS
) -> DeletableJob:
    look = DeletionScan(place_of(job), SOURCE, lambda *_: delivered, now_ns, with_undelivered=undelivered)
    return look.facts(is_over=True)


def found(facts: DeletableJob) -> dict[bytes, tuple[LogPart, int]]:
    return {log.files[0][0]: (log.part, len(log.files)) for log in facts.logs}


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (b"data/aicore.0.m.3.0.1.1.0", LogPart.WORK),
        (b"data/aicpu.0.m.3.0.1.1.0.done", LogPart.WORK),
        (b"data/cont.0.m.0.1.1.0", LogPart.WORK),
        (b"data/acl_api.0.m.0", LogPart.CALLS),
        (b"data/m.0.layer.info", LogPart.TABLE),
        (b"info.json.0", LogPart.TABLE),
        (b"data/notes.txt", None),
        (b"aicore.0.m.3.0.1.1.0", None),
        (b"sqlite/aicore.0.m.3.0.1.1.0", None),
    ],
)
def test_the_runtimes_files_are_known_by_name_and_place(path: bytes, part: LogPart | None) -> None:
    assert SOURCE.part(path) is part


@pytest.mark.parametrize("folder", ["runtime-api", "runtime-json", "runtime-reload", "runtime-misc", "runtime-edge"])
def test_a_copy_of_the_runtimes_own_job_is_seen_whole(folder: str, tmp_path: Path) -> None:
    for source in (each for each in (JOBS_FOLDER / folder).rglob("JOB*") if each.is_dir()):
        copy = Path(shutil.copytree(source, tmp_path / source.name))
        facts = looked(copy, delivered=True)
        assert facts.is_all
        assert sum(len(log.files) for log in facts.logs) == sum(each.is_file() for each in copy.rglob("*"))


def test_a_log_may_go_with_its_done_when_it_was_delivered_and_has_settled(job: Path) -> None:
    facts = looked(job, delivered=True)
    assert facts.is_all
    assert facts.is_settled
    assert found(facts) == {b"info.json.0": (LogPart.TABLE, 1), DATA: (LogPart.WORK, 2)}
    just_now = looked(job, delivered=True, now_ns=(job / os.fsdecode(DATA)).stat().st_mtime_ns)
    assert (just_now.is_settled, DATA in found(just_now)) == (False, False)
    assert not looked(job).is_all
    assert found(looked(job)) == {}


def test_what_nobody_has_may_go_when_its_done_parses(job: Path) -> None:
    assert DATA in found(looked(job, undelivered=True))
    (job / os.fsdecode(DONE)).write_bytes(b"file_len:")
    assert DATA not in found(looked(job, undelivered=True))


@pytest.mark.parametrize("foreign", ["data/notes.txt", "op_summary.csv", "data/deep/x", "sqlite/x", "data/link", "f"])
def test_foreign_files_stay_and_are_seen(job: Path, foreign: str) -> None:
    (job / foreign).parent.mkdir(exist_ok=True)
    if foreign == "data/link":
        (job / foreign).symlink_to("/etc/passwd")
    elif foreign == "f":
        os.mkfifo(job / foreign)
    else:
        (job / foreign).write_bytes(b"mine")
    facts = looked(job, delivered=True)
    assert not facts.is_all
    assert set(found(facts)) == {b"info.json.0", DATA}


# Deleting


def seen(job: Path, *paths: bytes) -> tuple[tuple[bytes, Fingerprint], ...]:
    return tuple((path, fingerprint((job / os.fsdecode(path)).stat())) for path in paths)


def test_data_goes_before_its_done_and_directories_when_they_are_empty(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[set[bytes]] = []
    unlink = os.unlink

    def watched(name: bytes, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        left.append(set(content(job)) - {b"info.json.0"})

    monkeypatch.setattr(os, "unlink", watched)
    assert delete_logs(place_of(job), [seen(job, DATA, DONE)]) == {DATA, DONE}
    assert left == [{DONE}, set()]
    monkeypatch.undo()
    assert not remove_directories(place_of(job))
    delete_logs(place_of(job), [seen(job, b"info.json.0")])
    assert remove_directories(place_of(job))
    assert not job.exists()
    assert job.parent.exists()


@pytest.mark.parametrize("changed", [DATA, DONE])
@pytest.mark.parametrize("how", ["grown", "rewritten", "replaced", "gone", "a link"])
def test_a_log_of_which_a_part_is_not_what_it_was_stays_whole(job: Path, changed: bytes, how: str) -> None:
    log = seen(job, DATA, DONE)
    file = job / os.fsdecode(changed)
    if how == "grown":
        file.write_bytes(file.read_bytes() + b"y")
    elif how == "rewritten":
        os.utime(file, ns=(1, 1))
    else:
        held = file.rename(job / "held")
        if how == "replaced":
            file.write_bytes(held.read_bytes())
        elif how == "a link":
            file.symlink_to(held)
    before = content(job)
    assert delete_logs(place_of(job), [log]) == set()
    assert content(job) == before


@pytest.mark.parametrize("mounted", [".", "data"])
def test_nothing_is_deleted_on_a_file_system_of_others(
    job: Path, mounted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = job / mounted
    monkeypatch.setattr(
        reaper, "is_local", lambda descriptor: not os.path.samestat(os.fstat(descriptor), theirs.stat())
    )
    before = content(job)
    log = seen(job, DATA, DONE)
    for deleting in (lambda: check_deletable(place_of(job)), lambda: delete_logs(place_of(job), [log])):
        with pytest.raises(OSError, match="network file system"):
            deleting()
    with pytest.raises(OSError, match="network file system"):
        remove_directories(place_of(job))
    assert content(job) == before

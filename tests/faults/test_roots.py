"""What befalls directories of JOBs: they go and come back, notices overflow, thousands of files come at once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.board import SAMPLES, GrowingJob, content, eventually, mirrored, running, simulated
from tests.integration.host import Host, started
from tests.integration.rows import imported_rows, link_ledger, query, rows_of

# More than a stream knows at a time.
FILES = 5_000
# Each inference of this network leaves two files, and the model some more.
INFERENCES = FILES // 2
# In this time what is written is looked for.
NOTICED_S = 0.5
QUEUE = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text("ascii"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture(scope="module")
def large_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished JOB of thousands of files."""
    job = simulated(tmp_path_factory.mktemp("large"), INFERENCES, model="mobilenetv2", layers=1)
    assert len(content(job)) >= FILES
    return job


class Recording:
    """A `record` that goes on until it is told otherwise, and its daemon."""

    def __init__(self, host: Host, workspace: Path, daemon_pid: int, *, ends_itself: bool) -> None:
        self.host = host
        self.database = workspace / "profagent.db"
        self.daemon_pid = daemon_pid
        self._workspace = workspace
        self._ends_itself = ends_itself

    def holds(self, job: Path, timeout_s: float = 60.0) -> bool:
        """Wait until the mirror is what stands in a directory."""
        return eventually(lambda: self._mirror(job.name) == content(job), timeout_s)

    def is_told(self, job: str, state: str) -> bool:
        """Wait until the JOB's state has come to the database."""
        return eventually(lambda: query(self.database, "SELECT state FROM job WHERE name = ?", job) == [(state,)])

    def was_removed(self, job: str) -> bool:
        """Whether the ledger has it that the JOB was removed."""
        return bool(link_ledger(self.database, job))

    def check_end(self, job: Path, folder: Path, *, was_away: bool = False) -> None:
        """The JOB has finished: mirror and rows are the board's."""
        if not self._ends_itself:
            assert self.holds(job)
            assert self.is_told(job.name, "finished")
            assert eventually(lambda: self._has_all(job.name)), "its last completions come after its state"
        ended = self.host.ended() if self._ends_itself else self.host.interrupt()
        assert ended.code == (4 if was_away else 0), ended.err
        assert self._mirror(job.name) == content(job)
        assert rows_of(self.database, job.name) == imported_rows(job, folder / "imported")
        told = {(grade, reason) for _, grade, reason in link_ledger(self.database, job.name)}
        assert told <= ({("loss", "removed-open"), ("loss", "removed-unread")} if was_away else set())

    def _has_all(self, job: str) -> bool:
        incomplete = "SELECT 1 FROM log JOIN job USING (job) WHERE name = ? AND digest IS NULL"
        caught_up = query(self.database, "SELECT caught_up FROM job WHERE name = ?", job)
        return caught_up == [(1,)] and query(self.database, incomplete, job) == []

    def _mirror(self, job: str) -> dict[bytes, bytes]:
        return mirrored(self._workspace, job)


@contextmanager
def recording(root: Path, workspace: Path, *options: str, ends_itself: bool = False) -> Iterator[Recording]:
    """With `ends_itself` it ends when every JOB has finished, or was removed."""
    arguments = ("--workspace", workspace, "--backlog", *(("--until-finished",) if ends_itself else ()))
    with (
        running("--root", root, *options) as daemon,
        started("record", "--board", daemon.address, *arguments) as host,
    ):
        host.err.until("recording")
        yield Recording(host, workspace, daemon.process.pid, ends_itself=ends_itself)


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


@contextmanager
def unmounted_at_last(target: Path) -> Iterator[None]:
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", target], check=False, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("watching", "is_detached"),
    [
        pytest.param((), False, id="unmounted-inotify"),
        pytest.param(("--scan",), True, id="detached-scan"),
        pytest.param((), True, id="detached-inotify", marks=pytest.mark.long),
        pytest.param(("--scan",), False, id="unmounted-scan", marks=pytest.mark.long),
    ],
)
def test_a_root_that_is_unmounted_and_mounted_again_goes_on(
    root: Path, tmp_path: Path, watching: tuple[str, ...], *, is_detached: bool
) -> None:
    """While it is away its JOB is told as removed; when it is back, what is held of it is known again.

    Detached, with a program that goes on writing, it may be back before anybody looks for it.
    """
    (tmp_path / "disk").mkdir()
    mount("-t", "tmpfs", "tmpfs", tmp_path / "disk")
    with unmounted_at_last(tmp_path / "disk"), unmounted_at_last(root):
        mount("--bind", tmp_path / "disk", root)
        job = GrowingJob(SAMPLES["runtime-json"], tmp_path / "disk", 4)
        data = job.paths("data/*")
        with recording(root, tmp_path / "workspace", *watching) as recorded:
            job.write("info.json.0")
            for _ in job.grow(data[::2]):
                pass
            for _ in job.grow(data[1::2], until=dict.fromkeys(data[1::2], 100)):
                pass
            assert recorded.holds(job.directory)
            how = ("--lazy",) if is_detached else ()
            assert eventually(lambda: subprocess.run(["umount", *how, root], check=False).returncode == 0)
            assert is_detached or recorded.is_told(job.directory.name, "removed")
            for _ in job.grow(data[1::2]):
                pass
            time.sleep(NOTICED_S)
            for path in job.paths("data/*.done"):
                job.write(path)
            time.sleep(NOTICED_S)
            mount("--bind", tmp_path / "disk", root)
            for path in job.paths("*"):
                job.write(path)
            recorded.check_end(job.directory, tmp_path, was_away=recorded.was_removed(job.directory.name))
        generations = "SELECT DISTINCT generation FROM log WHERE kind IN ('aicore', 'aicpu', 'acl_api')"
        assert query(tmp_path / "workspace" / "profagent.db", generations) == [(1,)]


def test_another_disk_in_the_roots_place_is_served(root: Path, tmp_path: Path) -> None:
    """A file system that is really gone, and one with a copy of its files and more."""
    first, second = SAMPLES["runtime-json"], simulated(tmp_path / "source", 3)
    with unmounted_at_last(root):
        mount("-t", "tmpfs", "tmpfs", root)
        job = Path(shutil.copytree(first, root / first.name))
        with recording(root, tmp_path / "workspace") as recorded:
            assert recorded.holds(job)
            assert eventually(lambda: subprocess.run(["umount", root], check=False).returncode == 0)
            assert recorded.is_told(first.name, "removed")
            mount("-t", "tmpfs", "tmpfs", root)
            shutil.copytree(first, job)
            shutil.copytree(second, root / second.name)
            assert recorded.holds(second)
            recorded.check_end(job, tmp_path)


@pytest.mark.timeout(180)
def test_notices_that_overflow_are_made_up_for(root: Path, tmp_path: Path) -> None:
    """The daemon stands still while more happens than the kernel keeps notices of."""
    with recording(root, tmp_path / "workspace") as recorded:
        small = GrowingJob(SAMPLES["runtime-json"], root, 1)
        small.write("info.json.0")
        early, late = (small.paths("data/*")[part::2] for part in (0, 1))
        for _ in small.grow(early):
            pass
        assert recorded.holds(small.directory)
        with standing_still(recorded.daemon_pid):
            for number in range(QUEUE // 2 + 1):
                (root / str(number)).mkdir()
                (root / str(number)).rmdir()
            for _ in small.grow(late):
                pass
            for path in (*small.paths("*"), *small.paths("data/*.done")):
                small.write(path)
            other = Path(shutil.copytree(SAMPLES["small"], root / SAMPLES["small"].name))
        assert recorded.holds(other)
        recorded.check_end(small.directory, tmp_path)


def test_a_log_that_comes_and_goes_before_it_is_read_is_a_loss_that_stays(root: Path, tmp_path: Path) -> None:
    """The daemon stands still for its whole life; then its JOB falls quiet: the log that is gone has no `.done`."""
    with recording(root, tmp_path / "workspace", "--quiet-after", "1") as recorded:
        job = GrowingJob(SAMPLES["runtime-json"], root, 1)
        gone, *others = job.paths("data/aicore*.?")
        job.write("info.json.0")
        for _ in job.grow(others):
            pass
        assert recorded.holds(job.directory)
        with standing_still(recorded.daemon_pid):
            for _ in job.grow([gone]):
                pass
            (job.directory / gone).unlink()
        for path in {*job.paths("*"), *job.paths("data/*")} - {gone, f"{gone}.done"}:
            job.write(path)
        name, told = job.directory.name, [(None, "loss", "removed-unread")]
        assert eventually(lambda: link_ledger(recorded.database, name) == told)
        assert recorded.holds(job.directory)
        assert recorded.is_told(name, "quiet")
        ended = recorded.host.interrupt()
        assert ended.code == 4, ended.err
        assert link_ledger(recorded.database, name) == told
        assert "removed-unread" in ended.out


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["before", "while followed", "renamed"])
def test_thousands_of_files_at_once(root: Path, tmp_path: Path, large_job: Path, how: str) -> None:
    name = large_job.name
    if how == "before":
        shutil.copytree(large_job, root / name)
    with recording(root, tmp_path / "workspace", ends_itself=True) as recorded:
        if how == "renamed":
            shutil.copytree(large_job, tmp_path / name)
            (tmp_path / name).rename(root / name)
        elif how == "while followed":
            job = root / name
            (job / "data").mkdir(parents=True)
            shutil.copy(large_job / "simulated", job / "simulated")
            assert recorded.holds(job)
            shutil.copytree(large_job, job, dirs_exist_ok=True)
        recorded.check_end(root / name, tmp_path)

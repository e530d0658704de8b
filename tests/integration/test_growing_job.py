"""A JOB that is followed while it comes into being, in every order and with everything that may befall a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.board import (
    SAMPLES,
    GrowingJob,
    batched_network,
    content,
    eventually,
    mirrored,
    running,
    simulated,
    write_done,
)
from tests.integration.host import Host, started
from tests.integration.rows import Rows, imported_rows, link_ledger, query, rows_of

STEPS_BETWEEN_LOOKS = 40
OTHER_CLOCK = b'{"DeviceInfo": [{"aic_frequency": "500"}]}'


class Follower:
    """A `record` of one board, and what it has so far."""

    def __init__(self, host: Host, workspace: Path) -> None:
        self.host = host
        self.database = workspace / "profagent.db"
        self._workspace = workspace

    def mirror(self, job: str) -> dict[bytes, bytes]:
        """The mirrored files of a JOB."""
        return mirrored(self._workspace, job)

    def holds(self, job: GrowingJob) -> bool:
        """Wait until the mirror is what the board has now."""
        return eventually(lambda: self.mirror(job.directory.name) == job.content)

    def superseded(self, job: str) -> list[bytes]:
        """What was set aside of files that were made anew."""
        return [file.read_bytes() for file in self._workspace.glob(f"superseded/*/{job}/**/*") if file.is_file()]

    def state(self, job: str) -> str | None:
        rows = query(self.database, "SELECT state FROM job WHERE name = ?", job)
        return rows[0][0] if rows else None

    def rows(self, job: str) -> Rows:
        return rows_of(self.database, job)


@contextmanager
def following(root: Path, workspace: Path, *daemon_options: str) -> Iterator[Follower]:
    """A daemon over a root, and a `record` of it that runs."""
    with running("--root", root, *daemon_options) as daemon:
        arguments = ("--board", daemon.address, "--workspace", workspace)
        with started("record", *arguments) as host:
            host.err.until("recording")
            yield Follower(host, workspace)


def _source(name: str, tmp_path: Path) -> Path:
    if name == "batches":
        return simulated(tmp_path / "source", 3, model=batched_network(tmp_path), pictures=5)
    if name == "segments":
        return simulated(tmp_path / "source", 4, seed=11)
    return SAMPLES[name]


def _end(follower: Follower, job: GrowingJob, tmp_path: Path) -> None:
    """The JOB finishes; then mirror and rows are those of its files, and stay so."""
    name = job.directory.name
    assert follower.holds(job)
    assert eventually(lambda: follower.state(name) == "finished")
    imported = imported_rows(job.directory, tmp_path / "imported")
    eventually(lambda: follower.rows(name) == imported)
    assert follower.host.interrupt().code == 0
    assert follower.rows(name) == imported
    assert follower.mirror(name) == job.content == content(job.source)


@pytest.mark.parametrize(
    ("source", "seed"),
    [("batches", 2), *(pytest.param(*each, marks=pytest.mark.long) for each in (("segments", 1), ("runtime-json", 3)))],
)
def test_pieces_in_any_order_make_the_same_rows(source: str, seed: int, root: Path, tmp_path: Path) -> None:
    with following(root, tmp_path / "workspace") as follower:
        job = GrowingJob(_source(source, tmp_path), root, seed)
        dones = [path for path in job.paths("data/*.done") if "acl_api" not in path]
        job.write("info.json.0", OTHER_CLOCK)
        for path in dones[::2]:
            job.write(path)  # before its data
        early, late = (job.paths("data/*")[part::2] for part in (0, 1))
        for step, _ in enumerate(job.grow(early)):
            if step % STEPS_BETWEEN_LOOKS == 0:
                assert follower.holds(job)
        job.write("info.json.0")  # rewritten, with another clock
        for step, _ in enumerate(job.grow(late)):
            if step % STEPS_BETWEEN_LOOKS == 0:
                assert follower.holds(job)
        for path in (*job.paths("*"), *dones[1::2], *job.paths("data/acl_api*.done")):
            job.write(path)
        _end(follower, job, tmp_path)
        assert link_ledger(follower.database, job.directory.name) == []


@pytest.mark.parametrize("watching", [(), pytest.param(("--scan",), marks=pytest.mark.long)], ids=["inotify", "scan"])
def test_files_that_are_made_anew_replace_what_was_copied(
    watching: tuple[str, ...], root: Path, tmp_path: Path
) -> None:
    with following(root, tmp_path / "workspace", *watching) as follower:
        job = GrowingJob(_source("segments", tmp_path), root, 5)
        recreated, shrunk, *others = job.paths("data/aicore*")
        for path in (*job.paths("*"), *job.paths("data/*.info")):
            job.write(path)
        earlier = (job.source / shrunk).read_bytes() * 2
        job.write(recreated, earlier)
        write_done(job.directory / recreated)
        job.write(shrunk, earlier)
        assert follower.holds(job)
        (job.directory / recreated).unlink()
        for _ in job.grow([recreated]):
            pass
        os.truncate(job.directory / shrunk, 0)
        assert follower.holds(job)
        rest = [*others, shrunk, *job.paths("data/aicpu*"), *job.paths("data/acl_api*")]
        for _ in job.grow(rest):
            pass
        for path in job.paths("data/*.done"):
            job.write(path)
        _end(follower, job, tmp_path)
        told = link_ledger(follower.database, job.directory.name)
        assert {path for path, _, _ in told} == {recreated, shrunk}
        assert {row[1:] for row in told} <= {("note", "recreated"), ("note", "different")}
        assert follower.superseded(job.directory.name).count(earlier) == 2

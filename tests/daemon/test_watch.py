"""Finding JOBs, by notices and by looking: real files, a real kernel, a board that only remembers."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagentd.follow import watcher as module
from profagentd.follow.inotify import InotifyWatcher
from profagentd.follow.watcher import LogDiscovery
from profagentd.loop import Roots, SystemClock
from tests.daemon.daemon_process import job_name, make_job
from tests.daemon.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from profagentd.follow.log import FileEvent
    from profagentd.follow.registry import Touches
    from profagentd.sources.acl_json import Profiling
    from profagentd.sources.files import FolderPlace


class Told:
    """A board that remembers what it was told."""

    def __init__(self) -> None:
        self.jobs: dict[FolderPlace, bool] = {}  # whether it is scanned
        self.touches: dict[bytes, FileEvent] = {}
        self.doubts: list[FolderPlace] = []
        self.gone_jobs: list[FolderPlace] = []

    def has(self, place: FolderPlace) -> bool:
        return place in self.jobs

    def add_job(
        self,
        place: FolderPlace,
        made_wall_us: int,
        changed_wall_us: int,
        *,
        is_scanned: bool,
        profiling: Profiling | None,
    ) -> None:
        assert profiling is None
        assert 0 < made_wall_us <= changed_wall_us
        assert place not in self.jobs
        self.jobs[place] = is_scanned

    def remove_job(self, place: FolderPlace) -> None:
        del self.jobs[place]
        self.gone_jobs.append(place)

    def note_changes(self, place: FolderPlace, touches: Touches) -> None:
        self.touches.update(touches or {})
        self.doubts += [place] if touches is None else []

    def note_seen_until(self, place: FolderPlace, until: float) -> None:
        pass

    @property
    def paths(self) -> set[bytes]:
        return {place.path for place in self.jobs}


@asynccontextmanager
async def watching(told: Told, *roots: Path, scan: bool = False, depth: int = 4) -> AsyncIterator[LogDiscovery]:
    """A watch that runs, and has looked once."""
    watch = LogDiscovery(Roots(map(os.fsencode, roots)), depth, SystemClock(), told, scan=scan)  # type: ignore[arg-type]
    running = asyncio.ensure_future(watch.run())
    try:
        await asyncio.wait_for(watch.ready.wait(), PATIENCE_S)
        yield watch
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def path_of(job: Path, root: Path) -> bytes:
    return os.fsencode(job.relative_to(root))


@pytest.mark.parametrize("scan", [False, True], ids=["inotify", "scan"])
async def test_jobs_that_come_change_and_go_are_told(tmp_path: Path, scan: bool) -> None:
    told = Told()
    async with watching(told, tmp_path, scan=scan):
        job = make_job(tmp_path / "new" / "app")
        await until(lambda: told.paths == {path_of(job, tmp_path)})
        (job / "data" / "a").write_bytes(b"x")
        await until(lambda: b"data/a" in told.touches)
        shutil.rmtree(tmp_path / "new")
        await until(lambda: told.paths == set())
        assert len(told.gone_jobs) == 1


async def test_a_root_that_is_missing_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    with caplog.at_level(logging.INFO):
        async with watching(told, tmp_path / "a" / "later", tmp_path / "never"):
            job = make_job(tmp_path / "a" / "later")
            await until(lambda: told.paths == {job.name.encode()})
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert any("later is readable again" in record.getMessage() for record in caplog.records)


async def test_another_directory_in_the_place_of_a_job_is_found(tmp_path: Path) -> None:
    told = Told()
    job = make_job(tmp_path / "root")
    other = make_job(tmp_path / "elsewhere")
    async with watching(told, tmp_path / "root", scan=True):
        exchange(job, other)
        await until(lambda: bool(told.doubts))
        assert not told.gone_jobs


def exchange(one: Path, other: Path) -> None:
    """Have two directories change places, in one moment."""
    exchange_flag = 2  # RENAME_EXCHANGE of <linux/fs.h>
    here = -100  # AT_FDCWD of <fcntl.h>
    assert ctypes.CDLL(None).renameat2(here, bytes(one), here, bytes(other), exchange_flag) == 0


async def test_of_two_jobs_with_one_name_the_first_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEARCH_S", 0.2)
    told = Told()
    make_job(tmp_path / "a")
    async with watching(told, tmp_path):
        make_job(tmp_path / "b")
        await until(lambda: "is not served" in caplog.text)
        assert told.paths == {b"a/" + job_name().encode()}
        shutil.rmtree(tmp_path / "a")
        await until(lambda: told.paths == {b"b/" + job_name().encode()})


async def test_a_job_on_a_file_system_of_others_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_remote", lambda _: True)
    job = make_job(tmp_path)
    told = Told()
    async with watching(told, tmp_path):
        assert set(told.jobs.values()) == {True}
        (job / "data" / "a").write_bytes(b"x")
        await until(lambda: b"data/a" in told.touches)


async def test_without_inotify_everything_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(InotifyWatcher, "__init__", none)
    make_job(tmp_path)
    told = Told()
    async with watching(told, tmp_path):
        assert set(told.jobs.values()) == {True}


async def test_when_watches_run_out_the_rest_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> bool:
        raise OSError(errno.ENOSPC, "full")

    told = Told()
    async with watching(told, tmp_path):
        monkeypatch.setattr(InotifyWatcher, "_add_watch", full)
        job = make_job(tmp_path)
        await until(lambda: bool(told.jobs))
        assert set(told.jobs.values()) == {True}
        (job / "data" / "a").write_bytes(b"x")
        await until(lambda: b"data/a" in told.touches)

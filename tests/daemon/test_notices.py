"""What notices mean for JOBs; the kernel is the real one, its notices are handed over by the test."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from profagentd.follow import inotify as module
from profagentd.follow.inotify import Inotify, InotifyEvent, InotifyWatcher
from profagentd.follow.log import FileEvent
from profagentd.sources.job import Place
from tests.daemon.daemon_process import job_name, make_job

if TYPE_CHECKING:
    from profagentd.follow.registry import JobRegistry

MODIFY, ATTRIB, MOVED_TO, CREATE, DELETE, DELETE_SELF, ISDIR = 0x2, 0x4, 0x80, 0x100, 0x200, 0x400, 0x40000000


class Hearing:
    """What was told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []
        self.touches: dict[bytes, FileEvent] = {}

    def look_in(self, place: Place) -> None:
        self.told.append(("look in", place.path))

    def look_everywhere(self) -> None:
        self.told.append(("look everywhere", None))

    def lost(self, place: Place) -> None:
        self.told.append(("lost", place.path))

    def changed(self, place: Place, touches: Mapping[bytes, FileEvent]) -> None:
        self.told.append(("changed", place.path))
        self.touches.update(touches)

    def names_removed(self, place: Place) -> None:
        self.told.append(("removed", place.path))

    def unsure(self, place: Place) -> None:
        self.told.append(("unsure", place.path))


class Numbered(Inotify):
    """The kernel's, but that it tells which watch it gave last."""

    last = 0

    def watch_content(self, directory: bytes) -> int:
        self.last = super().watch_content(directory)
        return self.last

    def watch_names(self, directory: bytes) -> int:
        self.last = super().watch_names(directory)
        return self.last


class Bench:
    """InotifyWatcher of directories below one root, by the kernel's own watches, and who hears them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hearing = Hearing()
        self.inotify = Numbered()
        self.notices = InotifyWatcher(self.inotify, self.hearing, cast("JobRegistry", self.hearing))

    def place(self, path: Path) -> Place:
        relative = path.relative_to(self.root)
        return Place(os.fsencode(self.root), b"" if relative == Path() else os.fsencode(relative))

    def parent(self, path: Path) -> int:
        """The watch of a directory in which JOBs may appear."""
        self.notices.watch_parents([self.place(path)])
        return self.inotify.last

    def job(self) -> tuple[int, int]:
        """The watches of a JOB and of its data."""
        job = make_job(self.root)
        assert self.notices.watch_job(self.place(job))
        return self.inotify.last - 1, self.inotify.last

    def hear(self, watch: int, mask: int, name: bytes = b"") -> list[tuple[str, object]]:
        """What one notice lets be told."""
        self.hearing.told.clear()
        self.notices.take([InotifyEvent(watch, mask, name)])
        return self.hearing.told


JOB = job_name().encode()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    os.close(made.inotify._descriptor)


@pytest.mark.parametrize("mask", [CREATE, MOVED_TO, DELETE])
def test_a_directory_that_comes_or_goes_is_looked_in(bench: Bench, mask: int) -> None:
    watch = bench.parent(bench.root)
    assert bench.hear(watch, mask | ISDIR, b"app") == [("look in", b"app")]


def test_a_file_that_comes_beside_jobs_is_nothing(bench: Bench) -> None:
    assert bench.hear(bench.parent(bench.root), CREATE, b"file") == []


def test_a_parent_that_ends_is_looked_for(bench: Bench) -> None:
    (bench.root / "app").mkdir()
    watch = bench.parent(bench.root / "app")
    assert bench.hear(watch, DELETE_SELF) == [("look in", b"app")]
    assert bench.hear(watch, CREATE | ISDIR, b"x") == []


def test_names_of_a_job_are_told_by_their_paths(bench: Bench) -> None:
    job, data = bench.job()
    assert bench.hear(job, MODIFY, b"info.json.0") == [("changed", JOB)]
    assert bench.hear(data, CREATE, b"a") == [("changed", JOB)]
    assert bench.hearing.touches == {b"info.json.0": FileEvent.WRITTEN, b"data/a": FileEvent.MADE}


def test_notices_of_one_name_are_told_together(bench: Bench) -> None:
    _, data = bench.job()
    bench.notices.take(
        [InotifyEvent(data, CREATE, b"a"), InotifyEvent(data, MODIFY, b"a"), InotifyEvent(data, MODIFY, b"b")]
    )
    assert bench.hearing.told == [("changed", JOB)]
    assert bench.hearing.touches == {b"data/a": FileEvent.MADE | FileEvent.WRITTEN, b"data/b": FileEvent.WRITTEN}


def test_a_job_that_ends_is_lost_and_no_longer_watched(bench: Bench) -> None:
    job, data = bench.job()
    assert bench.hear(job, DELETE_SELF) == [("lost", JOB)]
    assert bench.hear(data, MODIFY, b"a") == []


def test_what_happened_in_a_job_is_told_before_its_end(bench: Bench) -> None:
    job, data = bench.job()
    bench.notices.take(
        [InotifyEvent(data, CREATE, b"a"), InotifyEvent(data, DELETE, b"a"), InotifyEvent(job, DELETE_SELF, b"")]
    )
    assert bench.hearing.told == [("changed", JOB), ("lost", JOB)]
    assert bench.hearing.touches == {b"data/a": FileEvent.MADE | FileEvent.DELETED}


def test_notices_that_are_not_delivered_can_be_caught_up_with(bench: Bench) -> None:
    bench.job()
    (bench.root / JOB.decode() / "info.json.0").write_bytes(b"{}")
    bench.notices.catch_up()
    assert bench.hearing.told == [("changed", JOB)]
    bench.notices.catch_up()
    assert bench.hearing.told == [("changed", JOB)]


def test_a_data_directory_that_ends_takes_its_names_along(bench: Bench) -> None:
    job, data = bench.job()
    assert bench.hear(data, DELETE_SELF) == [("removed", JOB)]
    assert bench.hear(job, DELETE | ISDIR, b"data") == [("removed", JOB)]


def test_a_data_directory_that_comes_is_watched(bench: Bench) -> None:
    job_directory = make_job(bench.root)
    (job_directory / "data").rmdir()
    bench.notices.watch_job(bench.place(job_directory))
    job = bench.inotify.last
    (job_directory / "data").mkdir()
    assert bench.hear(job, CREATE | ISDIR, b"data") == [("unsure", JOB)]
    assert bench.hear(bench.inotify.last, CREATE, b"a") == [("changed", JOB)]
    assert bench.inotify.last != job


def test_a_file_named_data_is_a_name_like_others(bench: Bench) -> None:
    job, _ = bench.job()
    bench.hear(job, CREATE, b"data")
    assert bench.hearing.touches == {b"data": FileEvent.MADE}


def test_a_directory_whose_mode_changes_makes_its_job_unsure(bench: Bench) -> None:
    job, data = bench.job()
    assert bench.hear(job, ATTRIB | ISDIR) == [("unsure", JOB)]
    assert bench.hear(data, ATTRIB | ISDIR) == [("unsure", JOB)]


def test_an_overflow_means_everything(bench: Bench) -> None:
    assert bench.hear(-1, 0x4000) == [("look everywhere", None)]


def test_a_notice_of_a_watch_that_is_unknown_is_passed_over(bench: Bench) -> None:
    assert bench.hear(999, MODIFY, b"a") == []


def test_a_parent_is_new_once(bench: Bench) -> None:
    place = bench.place(bench.root)
    assert bench.notices.watch_parents([place])
    assert not bench.notices.watch_parents([place])


def test_another_directory_in_a_parents_place_is_new(bench: Bench) -> None:
    path = bench.root / "app"
    path.mkdir()
    old = bench.parent(path)
    path.rename(bench.root / "was")
    path.mkdir()
    assert bench.notices.watch_parents([bench.place(path)])
    assert bench.hear(old, CREATE | ISDIR, b"x") == []
    assert bench.hear(bench.inotify.last, CREATE | ISDIR, b"x") == [("look in", b"app/x")]


def test_a_parent_that_is_gone_already_is_not_new(bench: Bench) -> None:
    assert not bench.notices.watch_parents([bench.place(bench.root / "missing")])
    assert not bench.notices.is_exhausted


def test_a_job_that_cannot_be_watched_says_so(bench: Bench) -> None:
    assert not bench.notices.watch_job(bench.place(bench.root / "missing"))


def test_running_out_of_watches_is_remembered(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(directory: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    job = make_job(bench.root)
    monkeypatch.setattr(bench.inotify, "watch_content", full)
    assert not bench.notices.watch_job(bench.place(job))
    assert bench.notices.is_exhausted


def test_very_many_parents_are_not_all_watched(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARENTS_LIMIT", 2)
    for name in "abc":
        (bench.root / name).mkdir()
    places = [bench.place(bench.root / name) for name in "abc"]
    assert bench.notices.watch_parents(places)
    assert bench.notices.is_exhausted
    assert not bench.notices.watch_parents(places)

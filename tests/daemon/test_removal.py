"""Deleting: only what was meant, only here, in an order that leaves nothing misleading."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from profagentd.retention import reaper as removal
from profagentd.retention.reaper import NotOurs, check, remove, remove_directories
from profagentd.sources import files as filesystems
from profagentd.sources.files import Fingerprint, Place, fingerprint
from tests.daemon.daemon_process import AICORE_DONE, content, make_job

DATA = b"data/aicore.0.model.3.0.1.1.0"
DONE = DATA + b".done"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    made = make_job(tmp_path)
    (made / os.fsdecode(DATA)).write_bytes(b"x" * 256)
    (made / os.fsdecode(DONE)).write_bytes(AICORE_DONE % 256)
    return made


def place_of(job: Path) -> Place:
    return Place(os.fsencode(job.parent), os.fsencode(job.name))


def seen(job: Path, *paths: bytes) -> tuple[tuple[bytes, Fingerprint], ...]:
    return tuple((path, fingerprint((job / os.fsdecode(path)).stat())) for path in paths)


def test_a_log_goes_with_its_done(job: Path) -> None:
    removed = remove(place_of(job), [seen(job, DATA, DONE)])
    assert (removed.paths, removed.changed, removed.late_bytes) == ([DATA, DONE], [], 0)
    assert removed.size_bytes == 256 + len(AICORE_DONE % 256)
    assert list(content(job)) == [b"info.json.0"]


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
    removed = remove(place_of(job), [log])
    assert (removed.paths, removed.changed) == ([], [DATA, DONE])
    assert content(job) == before


def test_data_goes_before_its_done(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[set[bytes]] = []
    unlink = os.unlink

    def watched(name: bytes, *, dir_fd: int) -> None:
        unlink(name, dir_fd=dir_fd)
        left.append(set(content(job)) - {b"info.json.0"})

    monkeypatch.setattr(os, "unlink", watched)
    remove(place_of(job), [seen(job, DATA, DONE)])
    assert left == [{DONE}, set()]


def test_what_is_written_in_the_last_moment_is_told(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = os.unlink

    def late(name: bytes, *, dir_fd: int) -> None:
        with (job / "data" / os.fsdecode(name)).open("ab") as file:
            unlink(name, dir_fd=dir_fd)
            file.write(b"late")

    monkeypatch.setattr(os, "unlink", late)
    assert remove(place_of(job), [seen(job, DATA)]).late_bytes == len(b"late")


@pytest.mark.parametrize("mounted", [".", "data"])
def test_nothing_is_deleted_on_a_file_system_of_others(
    job: Path, mounted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = job / mounted
    monkeypatch.setattr(
        removal, "is_local", lambda descriptor: not os.path.samestat(os.fstat(descriptor), theirs.stat())
    )
    before = content(job)
    for deleting in (lambda: check(place_of(job)), lambda: remove(place_of(job), [seen(job, DATA, DONE)])):
        with pytest.raises(NotOurs):
            deleting()
    with pytest.raises(NotOurs):
        remove_directories(place_of(job))
    assert content(job) == before


def test_where_mounts_cannot_be_seen_nothing_is_deleted(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystems, "_MOUNTS", Path("/missing"))
    with pytest.raises(NotOurs):
        check(place_of(job))


@pytest.mark.parametrize("linked", ["job", "data"])
def test_a_link_in_place_of_a_directory_leads_nowhere(job: Path, tmp_path: Path, linked: str) -> None:
    log = seen(job, DATA)
    directory = job if linked == "job" else job / "data"
    directory.rename(tmp_path / "elsewhere")
    directory.symlink_to(tmp_path / "elsewhere")
    with suppress(NotADirectoryError):
        assert remove(place_of(job), [log]).paths == []
    assert list(tmp_path.glob("elsewhere/**/aicore*0"))


def test_directories_go_when_they_are_empty(job: Path) -> None:
    assert not remove_directories(place_of(job))
    remove(place_of(job), [seen(job, DATA, DONE)])
    assert not remove_directories(place_of(job))
    remove(place_of(job), [seen(job, b"info.json.0")])
    assert remove_directories(place_of(job))
    assert not job.exists()
    assert job.parent.exists()

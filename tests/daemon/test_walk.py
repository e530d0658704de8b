"""Walking through a JOB directory in pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from profagentd.sources import files as filesystems
from profagentd.sources.files import (
    FolderPlace,
    Gone,
    NotAFile,
    OpenCollection,
    Unreadable,
    file_system_at,
    is_local,
    is_remote,
    open_directory,
)
from profagentd.sources.job import JobSource
from profagentd.sources.walk import CollectionWalk, WalkPage, look_up
from tests.daemon.daemon_process import make_job
from tests.daemon.privileges import public_directory, without_privileges

JOB = JobSource()


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return make_job(tmp_path / "app")


def place(job: Path) -> FolderPlace:
    return FolderPlace(os.fsencode(job.parent), os.fsencode(job.name))


def pages(walk: CollectionWalk, limit: int) -> list[WalkPage]:
    found = [walk.page(limit)]
    while not found[-1].is_last:
        found.append(walk.page(limit, paths(found)))
    return found


def paths(found: list[WalkPage]) -> list[bytes]:
    return [each.path for page in found for each in page.logs]


def fill(job: Path, files: int) -> set[bytes]:
    for number in range(files):
        (job / "data" / f"aicore.0.m.3.0.1.1.{number}").write_bytes(b"x" * number)
        (job / "data" / f"aicore.0.m.3.0.1.1.{number}.done").write_bytes(b"")
    names = {f"data/aicore.0.m.3.0.1.1.{number}" for number in range(files)}
    return {name.encode() for name in names | {f"{name}.done" for name in names}} | {b"info.json.0"}


@pytest.mark.parametrize("limit", [1, 3, 7, 1000])
def test_every_file_comes_once(job: Path, limit: int) -> None:
    expected = fill(job, 10)
    found = pages(CollectionWalk(place(job), JOB), limit)
    assert sorted(paths(found)) == sorted(expected)
    assert all(len(page.logs) <= limit + 3 for page in found)


def test_tables_that_are_made_behind_the_walks_back_come_before_their_data(job: Path) -> None:
    walk = CollectionWalk(place(job), JOB)
    assert paths([walk.page(1)]) == [b"info.json.0"]
    for name in ("m.0.net.info", "m.0.layer.info", "aicore.0.m.3.0.1.1.0"):
        (job / "data" / name).write_bytes(b"x")
    rest = paths([walk.page(1000, [b"info.json.0"])])
    assert sorted(rest[:2]) == [b"data/m.0.layer.info", b"data/m.0.net.info"]
    assert rest[2:] == [b"data/aicore.0.m.3.0.1.1.0"]


def test_a_look_brings_what_must_be_announced_before(job: Path) -> None:
    core, cpu = (f"data/{unit}.0.m.3.0.1.1.0".encode() for unit in ("aicore", "aicpu"))
    for path in (core, cpu, core + b".done"):
        (job / path.decode()).write_bytes(b"")
    page = look_up(place(job), JOB, [core + b".done"])
    assert paths([page]) == [b"info.json.0", core, cpu, core + b".done"]
    assert paths([look_up(place(job), JOB, [core + b".done"], announced=None)]) == [core + b".done"]
    assert paths([look_up(place(job), JOB, [core + b".done"], announced={core, b"info.json.0"})]) == [
        cpu,
        core + b".done",
    ]


def test_of_a_job_that_is_gone_nothing_is_known(job: Path) -> None:
    fill(job, 10)
    walk = CollectionWalk(place(job), JOB)
    walk.page(2)
    job.rename(job.parent / "elsewhere")
    assert walk.page(2).is_job_gone


def test_a_job_that_may_not_be_read_says_so() -> None:
    with public_directory() as root:
        job = make_job(root)
        job.chmod(0)
        with without_privileges():
            (page,) = pages(CollectionWalk(place(job), JOB), 10)
        job.chmod(0o700)
    assert page.unreadable == "Permission denied"
    assert page.is_last


# Files of a JOB are opened without following links, and only regular ones

NAME = b"data/aicore.0.model.3.0.1.1.0"


@pytest.fixture
def files(job: Path, tmp_path: Path) -> Iterator[OpenCollection]:
    with OpenCollection(place_of(job, tmp_path)) as opened:
        yield opened


def place_of(job: Path, root: Path) -> FolderPlace:
    return FolderPlace(os.fsencode(root), os.fsencode(job.relative_to(root)))


def read(files: OpenCollection, path: bytes) -> bytes:
    descriptor = files.open(path).descriptor
    try:
        return os.read(descriptor, 100)
    finally:
        os.close(descriptor)


def test_a_fifo_is_no_file_and_blocks_nobody(files: OpenCollection, job: Path) -> None:
    os.mkfifo(job / os.fsdecode(NAME))
    with pytest.raises(NotAFile):
        read(files, NAME)


def test_a_data_directory_that_is_a_link_is_not_entered(files: OpenCollection, job: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x").write_bytes(b"secret")
    (job / "data").rmdir()
    (job / "data").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Gone):
        read(files, b"data/x")


def test_a_job_reached_through_a_link_is_not_entered(job: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(job.parent)
    with pytest.raises(OSError, match="irectory"):
        open_directory(FolderPlace(os.fsencode(tmp_path), b"link/" + os.fsencode(job.name)))


def test_a_file_that_may_not_be_read_says_why(files: OpenCollection, job: Path) -> None:
    (job / os.fsdecode(NAME)).write_bytes(b"abc")
    (job / os.fsdecode(NAME)).chmod(0)
    files.status(NAME)
    with without_privileges(), pytest.raises(Unreadable, match="denied"):
        read(files, NAME)


# On which kind of file system a directory is

MOUNTS = b"""\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/root rw
31 22 0:27 / /mnt/host rw,relatime shared:9 master:1 - nfs4 192.168.1.5:/srv rw,vers=4.2
32 22 0:28 / /mnt/with\\040space rw - fuse.sshfs me@host: rw
33 22 0:29 / /mnt/auto rw - autofs systemd-1 rw
34 33 0:30 / /mnt/auto rw - tmpfs none rw
"""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        (b"/", "ext4"),
        (b"/opt/app", "ext4"),
        (b"/mnt/host", "nfs4"),
        (b"/mnt/host/app/JOB", "nfs4"),
        (b"/mnt/hostile", "ext4"),
        (b"/mnt/with space/app", "fuse.sshfs"),
        (b"/mnt/auto", "tmpfs"),
    ],
)
def test_the_kind_at_a_directory_is_read_from_the_mounts(directory: bytes, kind: str) -> None:
    assert file_system_at(directory, MOUNTS) == kind


@pytest.mark.parametrize(
    ("kind", "remote"),
    [
        ("nfs", True),
        ("nfs4", True),
        ("cifs", True),
        ("9p", True),
        ("smb3", True),
        ("fuse", True),
        ("fuse.sshfs", True),
        ("ext4", False),
        ("tmpfs", False),
        ("overlay", False),
        ("f2fs", False),
    ],
)
def test_file_systems_of_others_are_remote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, remote: bool
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - ext4 none rw\n2 1 0:2 / {tmp_path} rw - {kind} none rw\n")
    monkeypatch.setattr(filesystems, "_MOUNTS", mounts)
    assert is_remote(os.fsencode(tmp_path)) is remote


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs"])
def test_an_open_directory_of_others_is_not_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fields = dict(line.split() for line in Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines())
    (tmp_path / "mountinfo").write_text(f"{fields['mnt_id:']} 1 0:2 / / rw - {kind} none rw\n")
    monkeypatch.setattr(filesystems, "_MOUNTS", tmp_path / "mountinfo")
    assert not is_local(descriptor)
    os.close(descriptor)

"""On which kind of file system a directory is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profagentd import filesystems
from profagentd.filesystems import is_remote, kind_of_device

MOUNTS = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/root rw
31 22 0:27 / /mnt/host rw,relatime shared:9 master:1 - nfs4 192.168.1.5:/srv rw,vers=4.2
32 22 0:28 / /mnt/with\\040space rw - fuse.sshfs me@host: rw
"""


@pytest.mark.parametrize(
    ("device", "kind"), [((259, 2), "ext4"), ((0, 27), "nfs4"), ((0, 28), "fuse.sshfs"), ((0, 99), None)]
)
def test_the_kind_of_a_device_is_read_from_the_mounts(device: tuple[int, int], kind: str | None) -> None:
    assert kind_of_device(MOUNTS, *device) == kind


@pytest.mark.parametrize(
    ("kind", "remote"),
    [
        ("nfs", True),
        ("nfs4", True),
        ("cifs", True),
        ("9p", True),
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
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 {os.major(device)}:{os.minor(device)} / / rw - {kind} none rw\n")
    monkeypatch.setattr(filesystems, "_MOUNTS", mounts)
    assert is_remote(os.fsencode(tmp_path)) is remote


def test_what_cannot_be_seen_is_not_called_remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_remote(os.fsencode(tmp_path / "missing"))
    monkeypatch.setattr(filesystems, "_MOUNTS", tmp_path / "missing")
    assert not is_remote(os.fsencode(tmp_path))


def test_this_machine_can_be_asked(tmp_path: Path) -> None:
    assert not is_remote(os.fsencode(tmp_path))

"""On which kind of file system a directory is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profagentd.sources import files as filesystems
from profagentd.sources.files import is_local, is_remote, kind_at

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
    assert kind_at(directory, MOUNTS) == kind


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

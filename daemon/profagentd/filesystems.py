"""On which kind of file system a directory is: changes made elsewhere to a network's give no notices here."""

from __future__ import annotations

import os
import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_REMOTE = re.compile(r"nfs\d?|cifs|smb\d?|smbfs|9p|afs|ceph|lustre|glusterfs|virtiofs|vboxsf|fuse\..*")


def is_remote(directory: bytes) -> bool:
    """Whether others may change the directory without this kernel's knowing."""
    try:
        device = os.stat(directory).st_dev
        mounts = _MOUNTS.read_text("utf-8", "replace")
    except OSError:
        return False
    kind = kind_of_device(mounts, os.major(device), os.minor(device))
    return kind is not None and _REMOTE.fullmatch(kind) is not None


def kind_of_device(mounts: str, major: int, minor: int) -> str | None:
    """The type of the file system with this device number, by the text of /proc/self/mountinfo."""
    for line in mounts.splitlines():
        mount, _, kind = line.partition(" - ")
        if mount.split()[2:3] == [f"{major}:{minor}"]:
            return kind.split()[0]
    return None

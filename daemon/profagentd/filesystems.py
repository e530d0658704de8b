"""On which kind of file system a directory is: changes made elsewhere to a network's give no notices here.

Only the kernel's list of mounts is read, never the directory itself: one whose server is away would not answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOUNTS = Path("/proc/self/mountinfo")
_DESCRIPTORS = Path("/proc/self/fdinfo")
_REMOTE = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|ncpfs|9p|afs|coda|ceph|lustre|glusterfs|beegfs|orangefs|gfs2|ocfs2|autofs"
    r"|virtiofs|vboxsf|vmhgfs|prl_fs|fuse|fuse\..*"
)
_ESCAPED = re.compile(rb"\\([0-7]{3})")


def is_remote_kind(kind: str) -> bool:
    """Whether a type of file system is a network's."""
    return _REMOTE.fullmatch(kind) is not None


def is_remote(directory: bytes) -> bool:
    """Whether others may change what is at this absolute path, which has no links, without this kernel's knowing."""
    kind = kind_at(directory, _read_mounts())
    return kind is not None and is_remote_kind(kind)


def is_local(descriptor: int) -> bool:
    """Whether the open directory is surely on a file system of this machine alone."""
    try:
        lines = (_DESCRIPTORS / str(descriptor)).read_text("ascii").splitlines()
    except OSError:
        return False
    numbers = [line.split()[1] for line in lines if line.startswith("mnt_id:")]
    kind = next((each.kind for each in _parsed(_read_mounts()) if [each.number] == numbers), None)
    return kind is not None and _REMOTE.fullmatch(kind) is None


def kind_at(directory: bytes, mounts: bytes) -> str | None:
    """The type of the file system at an absolute path, by the text of /proc/self/mountinfo."""
    found = [each for each in _parsed(mounts) if _is_below(directory, each.point)]
    # Of two that are mounted at one place the later one is seen.
    return max(enumerate(found), key=lambda each: (len(each[1].point), each[0]))[1].kind if found else None


@dataclass(frozen=True)
class RemoteMount:
    """A network's file system, where it is mounted, and what it is called."""

    point: bytes
    kind: str
    source: bytes


def remote_mounts(mounts: bytes) -> list[RemoteMount]:
    """The network's file systems in the text of /proc/self/mountinfo."""
    found = [each for each in _parsed(mounts) if is_remote_kind(each.kind)]
    return [RemoteMount(each.point, each.kind, each.source) for each in found]


class _Mount:
    def __init__(self, line: bytes) -> None:
        before, _, after = line.partition(b" - ")
        fields = before.split()
        self.number = fields[0].decode("ascii")
        self.point = _plain(fields[4])
        after_fields = after.split()
        self.kind = after_fields[0].decode("ascii", "replace")
        self.source = _plain(after_fields[1]) if len(after_fields) > 1 else b""


def _plain(escaped: bytes) -> bytes:
    return _ESCAPED.sub(lambda match: bytes([int(match.group(1), 8)]), escaped)


def _parsed(mounts: bytes) -> Iterator[_Mount]:
    return (_Mount(line) for line in mounts.splitlines() if b" - " in line)


def _is_below(directory: bytes, point: bytes) -> bool:
    return directory == point or directory.startswith(point.rstrip(b"/") + b"/")


def _read_mounts() -> bytes:
    try:
        return _MOUNTS.read_bytes()
    except OSError:
        return b""

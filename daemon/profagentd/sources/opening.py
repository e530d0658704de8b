"""Opening files of a JOB directory so that no symbolic link leads anywhere and nothing but a regular file is read."""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

from profagentd.sources.job import DATA_DIRECTORY, done_length, done_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


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


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A fifo would block in open without O_NONBLOCK; regular files do not care.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DONE_LIMIT_BYTES = 4096
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


class Gone(Exception):  # noqa: N818 - a state of the board, not a fault
    """There is no such file any more."""


class JobGone(Gone):
    """There is no such JOB directory, or another one stands in its place: nothing is known of its files."""


class NotAFile(Exception):  # noqa: N818 - a state of the board, not a fault
    """Something else than a regular file stands there."""


class Unreadable(Exception):  # noqa: N818 - a state of the board, not a fault
    """The file is there and cannot be read; the text says why."""


class Place(NamedTuple):
    """A directory below a root: `path` is relative to it, empty for the root itself."""

    root: bytes
    path: bytes

    @property
    def directory(self) -> bytes:
        """The absolute path, for people and for watching."""
        return os.path.join(self.root, self.path) if self.path else self.root

    def is_below(self, other: Place) -> bool:
        """Whether it is `other`, or inside it."""
        inside = self.path.startswith(other.path + b"/") or self.path == other.path or not other.path
        return self.root == other.root and inside


class DirectoryId(NamedTuple):
    """Which directory it is that stands at a place."""

    device: int
    inode: int


class Fingerprint(NamedTuple):
    """What changes when a file is written or replaced."""

    inode: int
    size: int
    mtime_ns: int


class SmallFile(NamedTuple):
    """All that stood in a file at one time."""

    seen: Fingerprint
    data: bytes


def open_directory(place: Place) -> int:
    """Descriptor of the directory at `place`, reached component by component without following links. OSError."""
    descriptor = os.open(place.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for component in place.path.split(b"/") if place.path else ():
        try:
            below = open_below(descriptor, component)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def open_below(directory: int, name: bytes) -> int:
    """Descriptor of the directory `name` in another, reached without a link. OSError."""
    return os.open(name, _DIRECTORY, dir_fd=directory)


def directory_id(status: os.stat_result) -> DirectoryId:
    """Which directory has this status."""
    return DirectoryId(status.st_dev, status.st_ino)


def open_job(place: Place, expected: DirectoryId | None) -> int:
    """Descriptor of the directory of the JOB at `place`. JobGone, also where it is not `expected`; OSError."""
    try:
        descriptor = open_directory(place)
    except OSError as error:
        raise (JobGone() if error.errno in _GONE else error) from error
    if expected is None or directory_id(os.fstat(descriptor)) == expected:
        return descriptor
    os.close(descriptor)
    raise JobGone


def fingerprint(status: os.stat_result) -> Fingerprint:
    """The fingerprint of a file with this status."""
    return Fingerprint(status.st_ino, status.st_size, status.st_mtime_ns)


@final
class OpenFile:
    """A file that was opened, and its status then; a context manager that closes it.

    What fails inside raises Gone, NotAFile, Unreadable.
    """

    __slots__ = ("descriptor", "status")

    def __init__(self, descriptor: int) -> None:
        """Raises OSError; the descriptor is closed then."""
        self.descriptor = descriptor
        try:
            self.status = os.fstat(descriptor)
        except OSError:
            os.close(descriptor)
            raise

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self.descriptor)
        if isinstance(error, OSError):
            raise _meaning(error) from error


@final
class OpenJob:
    """The two directories of a JOB, held open for a few reads; a context manager that belongs to one thread."""

    def __init__(self, place: Place, expected: DirectoryId | None = None) -> None:
        """`expected`: which directory it must be, where that is known."""
        self._place = place
        self._expected = expected
        self._descriptors: dict[bytes, int] = {}
        self._dones: dict[bytes, SmallFile] = {}

    def __enter__(self) -> OpenJob:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def open(self, path: bytes) -> OpenFile:
        """The regular file at `path` inside the JOB. Raises Gone, JobGone, NotAFile, Unreadable."""
        try:
            directory, name = self._split(path)
            file = OpenFile(os.open(name, _FILE, dir_fd=directory))
        except OSError as error:
            raise _meaning(error) from error
        if not stat.S_ISREG(file.status.st_mode):
            os.close(file.descriptor)
            raise NotAFile
        return file

    def status(self, path: bytes) -> os.stat_result:
        """Status of the regular file at `path` inside the JOB. Raises Gone, JobGone, NotAFile, Unreadable."""
        try:
            directory, name = self._split(path)
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError as error:
            raise _meaning(error) from error
        if not stat.S_ISREG(status.st_mode):
            raise NotAFile
        return status

    def done_length(self, path: bytes) -> int | None:
        """What the `.done` of the data log at `path` tells of its bytes; None without one that parses."""
        done = done_of(path)
        try:
            with self.open(done) as file:
                text, seen = os.read(file.descriptor, _DONE_LIMIT_BYTES), fingerprint(file.status)
                if len(text) == seen.size and fingerprint(os.fstat(file.descriptor)) == seen:
                    self._dones[done] = SmallFile(seen, text)
        except (Gone, NotAFile, Unreadable):
            return None
        return done_length(path, text)

    def done_read(self, path: bytes) -> SmallFile | None:
        """The `.done` at `path` as it was when its data was looked at meanwhile; None where that was not done."""
        return self._dones.get(path)

    def _split(self, path: bytes) -> tuple[int, bytes]:
        directory, _, name = path.rpartition(b"/")
        held = self._descriptors.get(directory)
        return self._directory(directory) if held is None else held, name

    def _directory(self, name: bytes) -> int:
        if name not in self._descriptors:
            self._descriptors[name] = (
                open_below(self._directory(b""), name) if name else open_job(self._place, self._expected)
            )
        return self._descriptors[name]


def in_data(name: bytes) -> bytes:
    """The path inside a JOB of a file in its data directory."""
    return DATA_DIRECTORY + b"/" + name


def _meaning(error: OSError) -> Gone | NotAFile | Unreadable:
    if error.errno in _GONE:
        return Gone()
    if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
        return NotAFile()
    return Unreadable(os.strerror(error.errno or errno.EIO))

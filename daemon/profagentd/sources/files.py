"""Places below the roots, and opening files there without following any symbolic link."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

from profagentd.limits import MOST_ENDS

if TYPE_CHECKING:
    from types import TracebackType

    from profagentd.sources.source import Source

_MOUNTS = Path("/proc/self/mountinfo")
_DESCRIPTORS = Path("/proc/self/fdinfo")
_REMOTE = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|ncpfs|9p|afs|coda|ceph|lustre|glusterfs|beegfs|orangefs|gfs2|ocfs2|autofs"
    r"|virtiofs|vboxsf|vmhgfs|prl_fs|fuse|fuse\..*"
)
_ESCAPED = re.compile(rb"\\([0-7]{3})")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a FIFO would block without O_NONBLOCK; for regular files the flag has no effect.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DRAFT = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_END_BYTES = 4096
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


class Mount(NamedTuple):
    """Mounted file system: its mount point, type, source and mount number."""

    point: bytes
    kind: str
    source: bytes
    number: str


def is_remote_kind(kind: str) -> bool:
    """Return True if this type of file system is a network file system."""
    return _REMOTE.fullmatch(kind) is not None


def is_remote(directory: bytes) -> bool:
    """Return True if the file system at this absolute path, which has no links, is a network's.

    Other machines may change files there without this kernel's knowing, and any access may hang.
    """
    kind = file_system_at(directory, _read_mounts())
    return kind is not None and is_remote_kind(kind)


def is_local(descriptor: int) -> bool:
    """Return True if the open directory is certainly on a file system of this machine alone."""
    try:
        lines = (_DESCRIPTORS / str(descriptor)).read_text("ascii").splitlines()
    except OSError:
        return False
    numbers = [line.split()[1] for line in lines if line.startswith("mnt_id:")]
    kinds = [each.kind for each in _parse_mounts(_read_mounts()) if [each.number] == numbers]
    return bool(kinds) and not is_remote_kind(kinds[0])


def file_system_at(directory: bytes, mounts: bytes) -> str | None:
    """Return the type of the file system at an absolute path, by the text of /proc/self/mountinfo."""
    found = [each for each in _parse_mounts(mounts) if (directory + b"/").startswith(each.point.rstrip(b"/") + b"/")]
    # Of two file systems mounted at one place the later one is visible; max() keeps the first of equals.
    return max(reversed(found), key=lambda each: len(each.point)).kind if found else None


def remote_mounts(mounts: bytes) -> list[Mount]:
    """Return the network file systems in the text of /proc/self/mountinfo."""
    return [each for each in _parse_mounts(mounts) if is_remote_kind(each.kind)]


def _parse_mounts(mounts: bytes) -> list[Mount]:
    halves = (line.split(b" - ", 1) for line in mounts.splitlines() if b" - " in line)
    return [_mount(before.split(), after.split()) for before, after in halves]


def _mount(before: list[bytes], after: list[bytes]) -> Mount:
    source = _unescape(after[1]) if len(after) > 1 else b""
    return Mount(_unescape(before[4]), after[0].decode("ascii", "replace"), source, before[0].decode("ascii"))


def _unescape(escaped: bytes) -> bytes:
    return _ESCAPED.sub(lambda match: bytes([int(match.group(1), 8)]), escaped)


def _read_mounts() -> bytes:
    try:
        return _MOUNTS.read_bytes()
    except OSError:
        return b""


class Gone(Exception):  # noqa: N818 - a state of the board, not a fault
    """The file does not exist any more."""


class JobGone(Gone):
    """The collection's directory does not exist, so nothing is known of its files."""


class NotAFile(Exception):  # noqa: N818 - a state of the board, not a fault
    """The path is something else than a regular file."""


class Unreadable(Exception):  # noqa: N818 - a state of the board, not a fault
    """The file exists and cannot be read; the text says why."""


class FolderPlace(NamedTuple):
    """Directory below a root; `path` is relative to the root, and empty for the root itself."""

    root: bytes
    path: bytes

    @property
    def directory(self) -> bytes:
        """Absolute path, for messages and for watching."""
        return os.path.join(self.root, self.path) if self.path else self.root

    @property
    def name(self) -> bytes:
        """Last component of the path."""
        return self.path.rpartition(b"/")[2]

    def below(self, name: bytes) -> FolderPlace:
        """Return the directory `name` in this one; for an empty name, this one."""
        return FolderPlace(self.root, os.path.join(self.path, name)) if name else self

    def is_below(self, other: FolderPlace) -> bool:
        """Return True if this place is `other`, or inside it."""
        inside = self.path.startswith(other.path + b"/") or self.path == other.path or not other.path
        return self.root == other.root and inside


class Fingerprint(NamedTuple):
    """Values of a file's status that change when it is written or replaced."""

    inode: int
    size: int
    mtime_ns: int


def fingerprint(status: os.stat_result) -> Fingerprint:
    """Return the fingerprint of a file with this status."""
    return Fingerprint(status.st_ino, status.st_size, status.st_mtime_ns)


def open_directory(place: FolderPlace) -> int:
    """Return a descriptor of the directory at `place`. Raises OSError.

    Each component is opened relative to the one above it, without following links: a check of the path before the open
    could be outrun by whoever owns the directory.
    """
    descriptor = os.open(place.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    # Each directory is opened through its parent's descriptor, so a component that is replaced by a link is refused.
    for component in place.path.split(b"/") if place.path else ():
        try:
            below = os.open(component, _DIRECTORY, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def list_directory(place: FolderPlace) -> list[tuple[bytes, bool]]:
    """Return the names in a directory, each with True if it is a directory itself. Raises OSError."""
    descriptor = open_directory(place)
    try:
        with os.scandir(descriptor) as entries:
            return [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
    finally:
        os.close(descriptor)


class OpenFile(NamedTuple):
    """Open regular file, with its status at the opening."""

    descriptor: int
    status: os.stat_result


class SmallFile(NamedTuple):
    """Complete content of a file, and the fingerprint that it had."""

    seen: Fingerprint
    data: bytes


@final
class OpenCollection:
    """Open directories of a collection, for a few reads. A context manager that belongs to one thread."""

    def __init__(self, place: FolderPlace) -> None:
        self._place = place
        self._descriptors: dict[bytes, int] = {}  # of directories, by path inside the collection
        self._ends: dict[bytes, SmallFile] = {}  # `.done` files read for their data logs; bounded by MOST_ENDS

    def __enter__(self) -> OpenCollection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def open(self, path: bytes) -> OpenFile:
        """Open the regular file at `path` inside; the caller closes it. Raises Gone, JobGone, NotAFile, Unreadable."""
        try:
            directory, name = self._split(path)
            # No link is followed: one that is planted in a JOB must not lead out of the root.
            descriptor = os.open(name, _FILE, dir_fd=directory)
        except OSError as error:
            raise translate_error(error) from error
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise NotAFile
        return OpenFile(descriptor, status)

    def status(self, path: bytes) -> os.stat_result:
        """Return the status of the regular file at `path` inside. Raises Gone, JobGone, NotAFile, Unreadable."""
        try:
            directory, name = self._split(path)
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError as error:
            raise translate_error(error) from error
        if not stat.S_ISREG(status.st_mode):
            raise NotAFile
        return status

    def announced_length(self, source: Source, path: bytes) -> int | None:
        """Return the length that its `.done` announces for the data log at `path`; None without a valid one."""
        end = source.end_of(path)
        if end is None:
            return None
        try:
            descriptor, status = self.open(end)
        except (Gone, NotAFile, Unreadable):
            return None
        try:
            data, seen = os.pread(descriptor, _END_BYTES, 0), fingerprint(status)
            # The fingerprint is the same before and after the read, so no writer came between.
            if len(data) == seen.size and len(self._ends) < MOST_ENDS and fingerprint(os.fstat(descriptor)) == seen:
                self._ends[end] = SmallFile(seen, data)
            return source.end_length(path, data)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def take_end(self, path: bytes) -> SmallFile | None:
        """Return the content of the `.done` at `path` if `announced_length` has just read it; None otherwise."""
        return self._ends.pop(path, None)

    def directory(self, name: bytes = b"") -> int:
        """Return the descriptor of a directory inside, which this object closes. Raises JobGone, OSError."""
        if name not in self._descriptors:
            self._descriptors[name] = os.open(name, _DIRECTORY, dir_fd=self.directory()) if name else self._open_own()
        return self._descriptors[name]

    def _open_own(self) -> int:
        try:
            return open_directory(self._place)
        except OSError as error:
            raise (JobGone() if error.errno in _GONE else error) from error

    def _split(self, path: bytes) -> tuple[int, bytes]:
        directory, _, name = path.rpartition(b"/")
        return self._descriptors.get(directory) or self.directory(directory), name


def replace_file(path: str | Path, content: bytes, draft: str = "", *, synced: bool = False) -> None:
    """Replace a small file of the daemon's own, so that a reader finds the old or the new content. Raises OSError.

    The content is first written to `draft`, which stands beside the file. With `synced` it is on the disk on return.
    """
    draft = draft or f"{path}.new"
    with open(os.open(draft, _DRAFT, 0o640), "wb") as file:
        file.write(content)
        if synced:
            file.flush()
            os.fsync(file.fileno())
    # The rename is atomic: a reader opens the old file or the new one.
    os.replace(draft, path)
    if synced:
        # The rename itself is durable only when the directory is.
        above = os.open(os.path.dirname(path), _DIRECTORY)
        try:
            os.fsync(above)
        finally:
            os.close(above)


def translate_error(error: OSError) -> Gone | NotAFile | Unreadable:
    """Return the exception that stands for this error of opening or reading a file."""
    if error.errno in _GONE:
        return Gone()
    if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
        return NotAFile()
    return Unreadable(os.strerror(error.errno or errno.EIO))

"""What a JOB's files are called and mean, and opening them so that no link leads anywhere (format page 2.1, 2.2)."""

from __future__ import annotations

import enum
import errno
import os
import re
import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

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


DATA_DIRECTORY = b"data"
DONE_SUFFIX = b".done"

_DATA_NAME = re.compile(rb"(aicore|aacore|aicpu|aacpu|acl_api|aclmodule)\.\d+\..*\d", re.IGNORECASE | re.DOTALL)
_NET_INFO_NAME = re.compile(rb"(.*\.\d+)\.net\.info", re.DOTALL)
_DONE_LINE = re.compile(rb"^([a-z_]+):[ \t]*(-?[0-9]+)[ \t\r]*$", re.MULTILINE)
# The clock's file, the mark of the simulated board, and what a model is made of.
_TABLE = re.compile(rb"simulated|info\.json\.\d+|data/.*\.\d+\.(net|layer)\.info", re.DOTALL)
_UNIT_NAME = re.compile(rb"((?:.*/)?(?:ai|aa))(core|cpu)(\..*)", re.IGNORECASE | re.DOTALL)
_FIRST_UNIT = (b"core", b"CORE")
_CALLS = (b"acl_api", b"aclmodule")
_OTHER_UNIT = {b"core": b"cpu", b"cpu": b"core", b"CORE": b"CPU", b"CPU": b"CORE"}
_API_NAME = re.compile(rb"(?:acl_api|aclmodule)\.\d+\.(.*\.\d+)", re.IGNORECASE | re.DOTALL)

# Each name is asked about several times within a moment.
_REMEMBERED = 512

_DIGITS = 20
_EVERY_DONE = frozenset((b"file_len", b"start_time", b"end_time"))
_DONE_KEYS = {
    b"aicore": _EVERY_DONE | {b"cache_hit", b"cache_mis"},
    b"aacore": _EVERY_DONE | {b"cache_hit", b"cache_mis"},
    b"aicpu": _EVERY_DONE,
    b"aacpu": _EVERY_DONE,
    b"acl_api": _EVERY_DONE | {b"pid", b"tid"},
    b"aclmodule": _EVERY_DONE | {b"pid", b"tid"},
}


class LogKind(enum.IntEnum):
    """How a log is written; the numbers are the wire's."""

    DATA = 1  # it grows at its end
    SNAPSHOT = 2  # it is rewritten whole


# Looking up an enum's member takes ten times as long as a name, which shows where it is done for every file.
DATA, SNAPSHOT = LogKind


@lru_cache(_REMEMBERED)
def kind_of(path: bytes) -> LogKind:
    """The kind of the log at `path` inside a JOB directory; what is not known to grow is a snapshot."""
    return DATA if _DATA_NAME.fullmatch(base_name(path)) else SNAPSHOT


def base_name(path: bytes) -> bytes:
    """The last component of `path`."""
    return path.rpartition(b"/")[2]


def done_of(path: bytes) -> bytes:
    """The path of the `.done` that ends the data log at `path`."""
    return path + DONE_SUFFIX


@lru_cache(_REMEMBERED)
def ended_by(path: bytes) -> bytes | None:
    """The data log that the file at `path` is the `.done` of, or None when it is something else."""
    if not path.endswith(DONE_SUFFIX):
        return None
    data = path[: -len(DONE_SUFFIX)]
    return data if kind_of(data) is DATA else None


@lru_cache(_REMEMBERED)
def group_of(path: bytes) -> tuple[bytes, ...]:
    """The files of one inference, or of one log, that at `path` among them: data of both units, then their `.done`s.

    Not all of them need to stand. What is no data and no `.done` is alone.
    """
    data = ended_by(path) or path
    if kind_of(data) is not DATA:
        return (path,)
    match = _UNIT_NAME.fullmatch(data)
    other = match and _OTHER_UNIT.get(match[2])
    if not match or not other:
        return data, done_of(data)
    sibling = match[1] + other + match[3]
    both = (sibling, data) if other in _FIRST_UNIT else (data, sibling)
    return *both, *map(done_of, both)


def is_table(path: bytes) -> bool:
    """Whether it is one of the small files with which data are read."""
    return _TABLE.fullmatch(path) is not None


def tables_of(path: bytes) -> tuple[bytes, ...]:
    """The small files with which the data log at `path` is read; not all of them need to stand."""
    is_of_calls = path.partition(b".")[0].lower().endswith(_CALLS)
    # The last three numbers are an inference's own: what is before them comes again with each.
    return _tables(path if is_of_calls else path.rsplit(b".", 3)[0], is_of_calls)


@lru_cache(_REMEMBERED)
def _tables(head: bytes, is_of_calls: bool) -> tuple[bytes, ...]:
    _, device, model = (*head.split(b".", 2), b"", b"")[:3]
    # After the name come the stream, which not all boards have, and the model's id (format page 2.1).
    name, *stream, model_id = model.rsplit(b".", 2) if b"." in model else (model, b"")
    if stream and stream[0].isdigit() and not is_of_calls:
        model = name + b"." + model_id
    own = DATA_DIRECTORY + b"/" + model
    return b"simulated", b"info.json." + device, own + b".net.info", own + b".layer.info"


@lru_cache(_REMEMBERED)
def done_length(data_path: bytes, text: bytes) -> int | None:
    """The bytes that a whole `.done` of the data log at `data_path` tells of: all expected keys, each with an integer.

    None for another text. A line that is not `key:integer` is passed over: aicore may end in `online_batch_num:4,2`.
    The figure may be larger than the file, and negative (format page 1).
    """
    prefix = base_name(data_path).partition(b".")[0].lower()
    found = dict(_DONE_LINE.findall(text))
    # A number of more digits is larger than any file, and may be too large for `int`.
    return int(found[b"file_len"][:_DIGITS]) if found.keys() >= _DONE_KEYS[prefix] else None


def api_model(path: bytes) -> bytes | None:
    """`<name>.<model id>` of an acl_api data log, else None."""
    match = _API_NAME.fullmatch(base_name(path))
    return match.group(1) if match else None


def profiled_model(path: bytes) -> bytes | None:
    """`<name>.<model id>` of a `.net.info`, which only models built for profiling have; else None."""
    match = _NET_INFO_NAME.fullmatch(base_name(path))
    return match.group(1) if match else None

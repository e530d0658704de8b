"""What a board sees of itself, as plain values; `board.proto` says what each field means.

Texts are cut to a length and steer no terminal, lists are cut as well. Nothing else of it has been checked.
"""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass, replace
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from profagent.formats.names import display_text
from profagent_wire.v1 import board_pb2 as pb

LONGEST_TEXT = 1000
LONGEST_LIST = 64
LARGEST_FILE_BYTES = 64 << 10
_OUTPUTS = {
    pb.OUTPUT_STATE_DIRECTORY: "directory",
    pb.OUTPUT_STATE_MISSING: "missing",
    pb.OUTPUT_STATE_NOT_A_DIRECTORY: "not a directory",
}


@dataclass(frozen=True, slots=True)
class NpuFacts:
    """Signs of the NPU stacks."""

    has_device: bool = False
    has_other_device: bool = False
    has_other_libraries: bool = False
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NpuProcess:
    """A process that has the NPU open; `umask` in octal, empty where it is not known."""

    pid: int
    name: str
    uid: int = 0
    umask: str = ""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """The processes that have the NPU open; `count` may be more than are named."""

    with_npu: tuple[NpuProcess, ...] = ()
    count: int = 0
    are_all_seen: bool = True


@dataclass(frozen=True, slots=True)
class UmapNode:
    """A node of /proc/umap; `error` says why it cannot be read, `text` is the NPU's alone."""

    name: str
    error: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A JOB directory: permission bits, and why it cannot be listed."""

    directory: str
    mode: int = 0o755
    uid: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class RootFacts:
    """A root; `error` says why it cannot be listed, then the rest is not known. Sizes are bytes."""

    path: str
    error: str = ""
    file_system: str = ""
    is_remote: bool = False
    total_bytes: int = 0
    free_bytes: int = 0
    has_inodes: bool = True
    jobs: int = 0
    open_jobs: int = 0
    newest: tuple[JobFacts, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    """Directories below it that cannot be listed, and why."""


@dataclass(frozen=True, slots=True)
class AclFile:
    """A file that is, or may be, an acl.json; `output` is directory, missing, not a directory, or empty: not known."""

    path: str
    data: bytes
    size: int
    output: str = ""


@dataclass(frozen=True, slots=True)
class Mount:
    """A network's file system."""

    point: str
    file_system: str
    source: str


@dataclass(frozen=True, slots=True)
class InotifyFacts:
    """The kernel's limits, 0 where it does not tell; `watches` are the daemon's."""

    max_user_watches: int
    max_user_instances: int
    max_queued_events: int
    watches: int


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """The daemon's user and its effective capabilities, a bit each.

    `settings_file` is what it reads again on SIGHUP; empty when it has only its arguments, or is too old to tell.
    """

    uid: int
    capabilities: int
    pid: int = 0
    settings_file: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """All of it; None is what is not known, and `unknown` says why, by source."""

    unknown: tuple[tuple[str, str], ...] = ()
    npu: NpuFacts | None = None
    processes: ProcessFacts | None = None
    umap: tuple[UmapNode, ...] = ()
    roots: tuple[RootFacts, ...] = ()
    acl_json: tuple[AclFile, ...] = ()
    remote_mounts: tuple[Mount, ...] = ()
    inotify: InotifyFacts | None = None
    daemon: DaemonFacts | None = None
    tls_cert: bytes = b""
    tls_ca: bytes = b""

    def why_unknown(self, source: str) -> str:
        """Why there are no facts of a source; empty when there are."""
        return dict(self.unknown).get(source, "")


def examination_from_wire(said: pb.Examination) -> Examination:
    """A board's answer."""
    nodes = (
        UmapNode(_text(each.name), _text(each.error), each.text[:LARGEST_FILE_BYTES])
        for each in said.umap[:LONGEST_LIST]
    )
    files = (
        AclFile(_text(each.path), each.data[:LARGEST_FILE_BYTES], each.size, _OUTPUTS.get(each.output, ""))
        for each in said.acl_json[:LONGEST_LIST]
    )
    examination: Examination = _facts(Examination, said, omitting=("umap", "acl_json"))
    return replace(examination, umap=tuple(nodes), acl_json=tuple(files))


def _facts(kind: Any, said: Any, omitting: tuple[str, ...] = ()) -> Any:
    """A message as the dataclass whose fields are named like its own."""
    hints = get_type_hints(kind)
    return kind(**{name: _value(hint, said, name) for name, hint in hints.items() if name not in omitting})


def _value(hint: Any, said: Any, name: str) -> Any:
    value = getattr(said, name)
    if get_origin(hint) is tuple:
        return tuple(_element(get_args(hint)[0], each) for each in value[:LONGEST_LIST])
    if get_origin(hint) is UnionType:
        return _facts(get_args(hint)[0], value) if said.HasField(name) else None
    return _element(hint, value)


def _element(hint: Any, value: Any) -> Any:
    if is_dataclass(hint):
        return _facts(hint, value)
    if get_origin(hint) is tuple:
        return tuple(_text(getattr(value, field.name)) for field in value.DESCRIPTOR.fields)
    if hint is bytes:
        return value[:LARGEST_FILE_BYTES]
    return _text(value) if hint is str else value


def _text(said: str) -> str:
    return display_text(said[:LONGEST_TEXT])

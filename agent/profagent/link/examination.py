"""What a board sees of itself, as plain values; `board.proto` says what each field means.

Texts are cut to a length and steer no terminal, lists are cut as well. Nothing else of it has been checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.formats.names import display_text
from profagent_wire.v1 import board_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    return Examination(
        unknown=tuple((_text(each.source), _text(each.why)) for each in said.unknown[:LONGEST_LIST]),
        npu=_npu(said.npu) if said.HasField("npu") else None,
        processes=_processes(said.processes) if said.HasField("processes") else None,
        umap=tuple(
            UmapNode(_text(each.name), _text(each.error), each.text[:LARGEST_FILE_BYTES])
            for each in said.umap[:LONGEST_LIST]
        ),
        roots=tuple(map(_root, said.roots[:LONGEST_LIST])),
        acl_json=tuple(map(_acl_file, said.acl_json[:LONGEST_LIST])),
        remote_mounts=tuple(
            Mount(_text(each.point), _text(each.file_system), _text(each.source))
            for each in said.remote_mounts[:LONGEST_LIST]
        ),
        inotify=_inotify(said.inotify) if said.HasField("inotify") else None,
        daemon=_daemon(said.daemon) if said.HasField("daemon") else None,
        tls_cert=said.tls_cert[:LARGEST_FILE_BYTES],
        tls_ca=said.tls_ca[:LARGEST_FILE_BYTES],
    )


def _npu(said: pb.NpuFacts) -> NpuFacts:
    return NpuFacts(said.has_device, said.has_other_device, said.has_other_libraries, _texts(said.modules))


def _processes(said: pb.ProcessFacts) -> ProcessFacts:
    told = [NpuProcess(each.pid, _text(each.name), each.uid, _text(each.umask)) for each in said.with_npu]
    return ProcessFacts(tuple(told[:LONGEST_LIST]), said.count, said.are_all_seen)


def _root(said: pb.RootFacts) -> RootFacts:
    newest = [JobFacts(_text(each.directory), each.mode, each.uid, _text(each.error)) for each in said.newest]
    return RootFacts(
        path=_text(said.path),
        error=_text(said.error),
        file_system=_text(said.file_system),
        is_remote=said.is_remote,
        total_bytes=said.total_bytes,
        free_bytes=said.free_bytes,
        has_inodes=said.has_inodes,
        jobs=said.jobs,
        open_jobs=said.open_jobs,
        newest=tuple(newest[:LONGEST_LIST]),
        unreadable=tuple((_text(each.path), _text(each.error)) for each in said.unreadable[:LONGEST_LIST]),
    )


def _acl_file(said: pb.AclJson) -> AclFile:
    return AclFile(_text(said.path), said.data[:LARGEST_FILE_BYTES], said.size, _OUTPUTS.get(said.output, ""))


def _inotify(said: pb.InotifyFacts) -> InotifyFacts:
    return InotifyFacts(said.max_user_watches, said.max_user_instances, said.max_queued_events, said.watches)


def _daemon(said: pb.DaemonFacts) -> DaemonFacts:
    return DaemonFacts(said.uid, said.capabilities, said.pid, _text(said.settings_file))


def _text(said: str) -> str:
    return display_text(said[:LONGEST_TEXT])


def _texts(said: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(_text, said[:LONGEST_LIST]))

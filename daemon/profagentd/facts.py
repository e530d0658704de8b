"""What the board's own files tell for a diagnosis, one function a source. Facts, not verdicts. All of them block.

`filesystem` is where the board's `/` is. Each raises OSError when its source cannot be read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profagent_wire.v1 import board_pb2 as wire
from profagentd.filesystems import is_remote_kind, kind_at, remote_mounts
from profagentd.messages import text
from profagentd.npu import npu_processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MODULES = PROCESSES = 16
MOUNTS = 32
NODE_BYTES = 8 << 10
CERTIFICATE_BYTES = 64 << 10
# The NPU's node goes by the first name, in manuals of 2025 by the second.
NPU_NODES = ("svp_npu", "svp_nnn")
NODES = (*NPU_NODES, "media-mem", "pm", "sys", "logmpp")
_MODULE_SIGNS = ("npu", "nnn", "pqp")
_INOTIFY = ("max_user_watches", "max_user_instances", "max_queued_events")


def npu(filesystem: Path) -> wire.Examination:
    """Which NPU stack the board has."""
    modules = filesystem / "proc/modules"
    lines = modules.read_text("utf-8", "replace").splitlines() if modules.exists() else []
    names = [line.split()[0] for line in lines if line.strip()]
    signs = [name for name in names if any(sign in name for sign in _MODULE_SIGNS)]
    found = wire.NpuFacts(
        has_device=(filesystem / "dev/svp_npu").exists(),
        has_other_device=(filesystem / "dev/pqp").exists(),
        has_other_libraries=(filesystem / "opt/lib/npu").exists(),
        modules=signs[:MODULES],
    )
    return wire.Examination(npu=found)


def processes(filesystem: Path) -> wire.Examination:
    """Who has the NPU open."""
    found, are_all_seen = npu_processes(filesystem / "proc")
    told = [wire.NpuProcess(**vars(each)) for each in found[:PROCESSES]]
    return wire.Examination(processes=wire.ProcessFacts(with_npu=told, count=len(found), are_all_seen=are_all_seen))


def umap(filesystem: Path) -> wire.Examination:
    """The SDK's nodes that are there."""
    return wire.Examination(umap=list(_nodes(filesystem / "proc/umap")))


def mounts(filesystem: Path) -> wire.Examination:
    """Network file systems; only the kernel's list is read, so one that hangs does not matter."""
    found = remote_mounts((filesystem / "proc/self/mountinfo").read_bytes())[:MOUNTS]
    told = [wire.Mount(point=text(each.point), file_system=each.kind, source=text(each.source)) for each in found]
    return wire.Examination(remote_mounts=told)


def inotify(filesystem: Path) -> wire.Examination:
    """The kernel's limits, and how many directories this process watches."""
    limits: dict[str, Any] = {}
    for name in _INOTIFY:
        limits[name] = int((filesystem / "proc/sys/fs/inotify" / name).read_bytes())
    return wire.Examination(inotify=wire.InotifyFacts(**limits, watches=_watches(filesystem)))


def daemon(filesystem: Path, settings_file: str) -> wire.Examination:
    """Who this process is, what it may, and what tells it what to do."""
    lines = (filesystem / "proc/self/status").read_text("utf-8", "replace").splitlines()
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    told = wire.DaemonFacts(
        uid=os.geteuid(), capabilities=int(effective, 16), pid=os.getpid(), settings_file=settings_file
    )
    return wire.Examination(daemon=told)


def certificates(cert: str, ca: str) -> wire.Examination:
    """The daemon's certificate and its authority's."""
    return wire.Examination(tls_cert=_beginning(Path(cert)), tls_ca=_beginning(Path(ca)))


def file_system_at(filesystem: Path, directory: bytes) -> tuple[str, bool]:
    """The type of the file system at a directory, empty if not known, and whether it is a network's."""
    kind = kind_at(directory, (filesystem / "proc/self/mountinfo").read_bytes())
    return kind or "", kind is not None and is_remote_kind(kind)


def _nodes(directory: Path) -> Iterator[wire.UmapNode]:
    for name in NODES:
        try:
            content = _beginning(directory / name, NODE_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            yield wire.UmapNode(name=name, error=error.strerror or str(error))
        else:
            said = content.decode("utf-8", "backslashreplace") if name in NPU_NODES else ""
            yield wire.UmapNode(name=name, text=said)


def _watches(filesystem: Path) -> int:
    count = 0
    for descriptor in (filesystem / "proc/self/fdinfo").iterdir():
        try:
            lines: Sequence[bytes] = descriptor.read_bytes().splitlines()
        except OSError:
            continue  # it was closed just now
        count += sum(line.startswith(b"inotify wd:") for line in lines)
    return count


def _beginning(path: Path, size: int = CERTIFICATE_BYTES) -> bytes:
    """At most `size` bytes; what is no plain file does not block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)

"""Facts for a diagnosis: each source of facts has a thread of its own and a time limit, as any may hang."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from profagent_wire.v1 import board_pb2 as wire
from profagentd.follow.messages import text
from profagentd.limits import (
    CERTIFICATE_BYTES,
    EXAMINED_ACL_JSON,
    EXAMINED_ACL_JSON_BYTES,
    EXAMINED_ENTRIES,
    EXAMINED_MOUNTS,
    EXAMINED_S,
    EXAMINED_TEXT_BYTES,
    NODE_BYTES,
)
from profagentd.loop import in_time
from profagentd.retention.losses import space_of
from profagentd.sources.acl_json import candidates, load_json
from profagentd.sources.files import FolderPlace, file_system_at, open_directory, remote_mounts
from profagentd.sources.job import JobSource
from profagentd.sources.state import JobState, npu_processes
from profagentd.sources.walk import directories_of, find_jobs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from profagentd.follow.registry import JobRegistry
    from profagentd.follow.watcher import LogDiscovery
    from profagentd.loop import DaemonClock

    Work = Callable[[], wire.Examination]


# The NPU's node has the first name, in manuals of 2025 the second.
NPU_NODES = ("svp_npu", "svp_nnn")
NODES = (*NPU_NODES, "media-mem", "pm", "sys", "logmpp")
_MODULE_SIGNS = ("npu", "nnn", "pqp")
_INOTIFY = ("max_user_watches", "max_user_instances", "max_queued_events")


def npu(filesystem: Path) -> wire.Examination:
    """Return the facts that tell the board's NPU stack."""
    modules = filesystem / "proc/modules"
    lines = modules.read_text("utf-8", "replace").splitlines() if modules.exists() else []
    names = [line.split()[0] for line in lines if line.strip()]
    signs = [name for name in names if any(sign in name for sign in _MODULE_SIGNS)]
    found = wire.NpuFacts(
        has_device=(filesystem / "dev/svp_npu").exists(),
        has_other_device=(filesystem / "dev/pqp").exists(),
        has_other_libraries=(filesystem / "opt/lib/npu").exists(),
        modules=signs[:EXAMINED_ENTRIES],
    )
    return wire.Examination(npu=found)


def processes(filesystem: Path) -> wire.Examination:
    """Return the processes that have the NPU open."""
    found, are_all_seen = npu_processes(filesystem / "proc")
    known = [wire.NpuProcess(**vars(each)) for each in found[:EXAMINED_ENTRIES]]
    return wire.Examination(processes=wire.ProcessFacts(with_npu=known, count=len(found), are_all_seen=are_all_seen))


def umap(filesystem: Path) -> wire.Examination:
    """Return the SDK's nodes under /proc/umap."""
    found = wire.Examination()
    for name in NODES:
        try:
            content = _read_beginning(filesystem / "proc/umap" / name, NODE_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            found.umap.add(name=name, error=error.strerror or str(error))
        else:
            found.umap.add(name=name, text=content.decode("utf-8", "backslashreplace") if name in NPU_NODES else "")
    return found


def mounts(filesystem: Path) -> wire.Examination:
    """Return network file systems. Only the kernel's list is read, so a mount that hangs does no harm."""
    found = remote_mounts((filesystem / "proc/self/mountinfo").read_bytes())[:EXAMINED_MOUNTS]
    known = [wire.Mount(point=text(each.point), file_system=each.kind, source=text(each.source)) for each in found]
    return wire.Examination(remote_mounts=known)


def inotify(filesystem: Path) -> wire.Examination:
    """Return the kernel's limits, and the number of directories that this process watches."""
    limits: dict[str, Any] = {}
    for name in _INOTIFY:
        limits[name] = int((filesystem / "proc/sys/fs/inotify" / name).read_bytes())
    return wire.Examination(inotify=wire.InotifyFacts(**limits, watches=_watches(filesystem)))


def daemon(filesystem: Path) -> wire.Examination:
    """Return this process's user and capabilities."""
    lines = (filesystem / "proc/self/status").read_text("utf-8", "replace").splitlines()
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return wire.Examination(daemon=wire.DaemonFacts(uid=os.geteuid(), capabilities=int(effective, 16)))


def certificates(cert: str, ca: str) -> wire.Examination:
    """Return the daemon's certificate and its authority's."""
    return wire.Examination(tls_cert=_read_beginning(Path(cert)), tls_ca=_read_beginning(Path(ca)))


def _watches(filesystem: Path) -> int:
    count = 0
    # The kernel has no counter of a process's watches: fdinfo has one line for each.
    for descriptor in (filesystem / "proc/self/fdinfo").iterdir():
        try:
            lines: Sequence[bytes] = descriptor.read_bytes().splitlines()
        except OSError:
            continue  # the descriptor has just been closed
        count += sum(line.startswith(b"inotify wd:") for line in lines)
    return count


def _read_beginning(path: Path, size: int = CERTIFICATE_BYTES) -> bytes:
    """Return at most `size` bytes of a file. O_NONBLOCK, as a FIFO in its place would block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def identify(configured: str = "", filesystem: Path = Path("/")) -> wire.Description:
    """Return the description's constant part, from files under `filesystem`; a configured identity wins."""
    deployed = configured or _first_line(filesystem / "etc/profagent/board-id")
    return wire.Description(
        identity=deployed or _first_line(filesystem / "etc/machine-id"),
        hostname=os.fsencode(socket.gethostname()).decode("utf-8", "replace"),
        boot_id=_first_line(filesystem / "proc/sys/kernel/random/boot_id"),
        model=_first_line(filesystem / "proc/device-tree/model"),
        sdk_version=next(filter(None, (_first_line(filesystem / "proc/umap" / node) for node in NPU_NODES)), ""),
    )


def _first_line(path: Path) -> str:
    try:
        lines = _read_beginning(path, EXAMINED_TEXT_BYTES).decode("utf-8", "replace").strip("\0\n ").splitlines()
    except OSError:
        return ""
    return lines[0].strip("\0 ") if lines else ""


# Name of a JOB that does not exist yet: only its place decides which acl.json may belong to its program.
_ANY_JOB = b"any"


def root_facts(
    filesystem: Path, root: bytes, depth: int, jobs: Sequence[FolderPlace], open_jobs: int
) -> wire.Examination:
    """Return facts of a root, with `depth` levels searched; `jobs` are those known in it, newest first."""
    kind = file_system_at(root, (filesystem / "proc/self/mountinfo").read_bytes()) or ""
    found = wire.RootFacts(path=text(root), file_system=kind, jobs=len(jobs), open_jobs=open_jobs)
    try:
        with os.scandir(root):
            pass
        space = space_of(root)
    except OSError as error:
        found.error = error.strerror or str(error)
        return wire.Examination(roots=[found])
    found.total_bytes, found.free_bytes, found.has_inodes = space.total_bytes, space.free_bytes, space.has_inodes
    found.newest.extend(map(_job_facts, jobs[:EXAMINED_ENTRIES]))
    for place in find_jobs(FolderPlace(root, b""), depth).unreadable[:EXAMINED_ENTRIES]:
        found.unreadable.append(wire.UnreadableDirectory(path=text(place.directory), error=_why_unreadable(place)))
    return wire.Examination(roots=[found])


def acl_facts(root: bytes, jobs: Sequence[FolderPlace], patterns: Sequence[str] = ()) -> wire.Examination:
    """Return files that may be a program's acl.json: those of `patterns`, or those in the usual places below a root."""
    holders = {os.path.dirname(job.path): job for job in (FolderPlace(root, _ANY_JOB), *jobs)}
    files = {file.path: file for file in candidates(list(holders.values()), patterns)}
    found = wire.Examination()
    for file in list(files.values())[:EXAMINED_ACL_JSON]:
        data = file.data
        found.acl_json.add(
            path=text(file.path), data=data[:EXAMINED_ACL_JSON_BYTES], size=len(data), output=_output_state(data)
        )
    return found


def _job_facts(place: FolderPlace) -> wire.JobFacts:
    found = wire.JobFacts(directory=text(place.directory))
    try:
        status = os.lstat(place.directory)
        found.mode, found.uid = stat.S_IMODE(status.st_mode), status.st_uid
    except OSError as error:
        found.error = error.strerror or str(error)
        return found
    found.error = next(filter(None, (_why_unreadable(place.below(inside)) for inside in directories_of(place))), "")
    return found


def _why_unreadable(place: FolderPlace) -> str:
    try:
        os.close(open_directory(place))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _output_state(data: bytes) -> wire.OutputState.ValueType:
    try:
        output = load_json(data)["profiler"]["output"]
        if not output.startswith("/"):
            return wire.OUTPUT_STATE_UNSPECIFIED
        mode = os.stat(output).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return wire.OUTPUT_STATE_MISSING
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return wire.OUTPUT_STATE_UNSPECIFIED
    return wire.OUTPUT_STATE_DIRECTORY if stat.S_ISDIR(mode) else wire.OUTPUT_STATE_NOT_A_DIRECTORY


# Answers younger than this are given again, so that many requests cost no more than one in this time.
KEEP_S = 2.0

_BOARD_SOURCES = {"npu": npu, "processes": processes, "umap": umap, "mounts": mounts, "inotify": inotify}


class Examiner:
    """Collector of all facts. `certificates` are the paths of the daemon's certificate and its authority's."""

    def __init__(
        self,
        registry: JobRegistry,
        discovery: LogDiscovery,
        clock: DaemonClock,
        certificates: tuple[str, str] = ("", ""),
        filesystem: Path = Path("/"),
        patience_s: float = EXAMINED_S,
        lacking: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Make an examiner; `lacking` returns the metrics that the board does not give, with reasons."""
        self._registry = registry
        self._discovery = discovery
        self._clock = clock
        self._certificates = certificates
        self._filesystem = filesystem
        self._patience_s = patience_s
        self._lacking = lacking
        self._look: asyncio.Future[wire.Examination] | None = None  # the newest examination, done or under way
        self._fresh_until = float("-inf")  # monotonic time up to which it is given again

    async def examine(self) -> wire.Examination:
        """Return the facts, of now or at most KEEP_S old."""
        if self._look is None or (self._look.done() and self._clock.monotonic() >= self._fresh_until):
            self._look = asyncio.ensure_future(self._gather())
        # A caller that is cancelled does not cancel the examination, which others may wait for: so a file system that
        # hangs holds one thread, however many calls come and go.
        return await asyncio.shield(self._look)

    async def _gather(self) -> wire.Examination:
        try:
            parts = await asyncio.gather(*(self._facts_of(name, work) for name, work in self._sources()))
        finally:
            self._fresh_until = self._clock.monotonic() + KEEP_S
        gathered = wire.Examination()
        for part in parts:
            gathered.MergeFrom(part)
        for name, why in self._lacking().items():
            gathered.unknown.add(source=f"metrics {name}", why=why)
        return gathered

    async def _facts_of(self, source: str, work: Work) -> wire.Examination:
        key = f"facts: {source}".encode()
        try:
            return await in_time(key, work, patience_s=self._patience_s)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or f"it cannot be read: {error}"
            return wire.Examination(unknown=[wire.UnknownFacts(source=source, why=why)])

    def _sources(self) -> Iterator[tuple[str, Work]]:
        for name, look in _BOARD_SOURCES.items():
            yield name, partial(look, self._filesystem)
        yield "daemon", partial(daemon, self._filesystem)
        if all(self._certificates):
            yield "certificates", partial(certificates, *self._certificates)
        for root in self._discovery.roots:
            yield from self._sources_of(root)
        if self._discovery.acl_json:
            yield "acl-json", partial(acl_facts, b"", (), tuple(self._discovery.acl_json))

    def _sources_of(self, root: bytes) -> Iterator[tuple[str, Work]]:
        found = [job for job in reversed(self._registry.jobs) if job.place.root == root]
        jobs = [job for job in found if job.source.name == JobSource.name]  # spools are none
        places = [job.place for job in jobs]
        open_jobs = sum(job.state is JobState.OPEN for job in jobs)
        yield (
            f"root {text(root)}",
            partial(root_facts, self._filesystem, root, self._discovery.depth, places, open_jobs),
        )
        if not self._discovery.acl_json:
            yield f"acl-json below {text(root)}", partial(acl_facts, root, places)

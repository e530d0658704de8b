"""Gathers facts for a diagnosis: each source on a thread of its own, and none waited for long."""

from __future__ import annotations

import asyncio
import os
import stat
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from profagent_wire.v1 import board_pb2 as wire
from profagentd import facts
from profagentd.aclconfig import is_text, load_json
from profagentd.disks import in_time
from profagentd.facts import file_system_at
from profagentd.jobs import find_jobs
from profagentd.logs import DATA_DIRECTORY
from profagentd.messages import text
from profagentd.opening import Place, open_directory
from profagentd.profiling import candidates
from profagentd.space import space_of
from profagentd.state import JobState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from profagentd.board import Board
    from profagentd.clock import Clock
    from profagentd.profiling import File
    from profagentd.watch import Watch

    Work = Callable[[], wire.Examination]


JOBS = UNREADABLE = 16
ACL_FILES = 16
ACL_BYTES = 64 << 10
# Stands for a JOB that is yet to come, where its place decides which acl.json may be its program's.
_ANY_JOB = b"any"


def root_facts(filesystem: Path, root: bytes, depth: int, jobs: Sequence[Place], open_jobs: int) -> wire.Examination:
    """A root that JOBs are looked for in, so deep; `jobs` are those known in it, the newest first."""
    kind, is_remote = file_system_at(filesystem, root)
    found = wire.RootFacts(path=text(root), file_system=kind, is_remote=is_remote, jobs=len(jobs), open_jobs=open_jobs)
    try:
        with os.scandir(root):
            pass
        space = space_of(root)
    except OSError as error:
        found.error = error.strerror or str(error)
        return wire.Examination(roots=[found])
    found.total_bytes, found.free_bytes, found.has_inodes = space.total_bytes, space.free_bytes, space.has_inodes
    found.newest.extend(map(_job_facts, jobs[:JOBS]))
    for place in find_jobs(Place(root, b""), depth).unreadable[:UNREADABLE]:
        found.unreadable.append(wire.UnreadableDirectory(path=text(place.directory), error=_why_not(place)))
    return wire.Examination(roots=[found])


def acl_facts(root: bytes, jobs: Sequence[Place], patterns: Sequence[str] = ()) -> wire.Examination:
    """Files that are or may be the acl.json of programs, by patterns or else in the usual places below a root."""
    holders = {os.path.dirname(job.path): job for job in (Place(root, _ANY_JOB), *jobs)}
    files = {file.path: file for file in candidates(list(holders.values()), patterns)}
    return wire.Examination(acl_json=[_acl_json(file) for file in list(files.values())[:ACL_FILES]])


def _job_facts(place: Place) -> wire.JobFacts:
    found = wire.JobFacts(directory=text(place.directory))
    try:
        status = os.lstat(place.directory)
        found.mode, found.uid = stat.S_IMODE(status.st_mode), status.st_uid
        for directory in (place, Place(place.root, os.path.join(place.path, DATA_DIRECTORY))):
            os.close(open_directory(directory))
    except OSError as error:
        found.error = error.strerror or str(error)
    return found


def _why_not(place: Place) -> str:
    try:
        os.close(open_directory(place))
    except OSError as error:
        return error.strerror or str(error)
    return ""  # it can be read by now


def _acl_json(file: File) -> wire.AclJson:
    output = next(_outputs(file.data), "")
    return wire.AclJson(
        path=text(file.path), data=file.data[:ACL_BYTES], size=len(file.data), output=_state(os.fsencode(output))
    )


def _outputs(data: bytes) -> Iterator[str]:
    """The `output` that is told, as far as the file is JSON."""
    try:
        loaded: Any = load_json(data)
    except (ValueError, RecursionError):
        return
    profiler = loaded.get("profiler") if isinstance(loaded, dict) else None
    output = profiler.get("output") if isinstance(profiler, dict) else None
    if isinstance(output, str) and is_text(output):
        yield output


def _state(output: bytes) -> wire.OutputState.ValueType:
    if not output.startswith(b"/"):
        return wire.OUTPUT_STATE_UNSPECIFIED
    try:
        mode = os.stat(output).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return wire.OUTPUT_STATE_MISSING
    except OSError:
        return wire.OUTPUT_STATE_UNSPECIFIED
    return wire.OUTPUT_STATE_DIRECTORY if stat.S_ISDIR(mode) else wire.OUTPUT_STATE_NOT_A_DIRECTORY


# A source that has not told its facts by then is said not to answer.
PATIENCE_S = 3.0
# However often it is asked, the board is looked at no more often.
KEEP_S = 2.0

_BOARD_SOURCES = {
    "npu": facts.npu,
    "processes": facts.processes,
    "umap": facts.umap,
    "mounts": facts.mounts,
    "inotify": facts.inotify,
}


class Examiner:
    """Looks at the board when it is asked to. `certificates` are the paths of the daemon's own and its authority's.

    `settings_file` is where the daemon's settings stand, if not in its arguments alone.
    """

    def __init__(
        self,
        board: Board,
        watch: Watch,
        clock: Clock,
        certificates: tuple[str, str] = ("", ""),
        settings_file: str = "",
        filesystem: Path = Path("/"),
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._board = board
        self._watch = watch
        self._clock = clock
        self._certificates = certificates
        self._settings_file = settings_file
        self._filesystem = filesystem
        self._patience_s = patience_s
        self._look: asyncio.Future[wire.Examination] | None = None
        self._fresh_until = float("-inf")  # monotonic

    async def examine(self) -> wire.Examination:
        """What can be found out now, or was a moment ago."""
        if self._look is None or (self._look.done() and self._clock.monotonic() >= self._fresh_until):
            self._look = asyncio.ensure_future(self._gather())
        # Who leaves meanwhile leaves the look to others: whatever hangs is asked only once.
        return await asyncio.shield(self._look)

    async def _gather(self) -> wire.Examination:
        try:
            parts = await asyncio.gather(*(self._ask(name, work) for name, work in self._sources()))
        finally:
            self._fresh_until = self._clock.monotonic() + KEEP_S
        gathered = wire.Examination()
        for part in parts:
            gathered.MergeFrom(part)
        return gathered

    async def _ask(self, source: str, work: Work) -> wire.Examination:
        """The facts of one source, or why there are none."""
        key = f"facts: {source}".encode()
        try:
            return await in_time(key, work, patience_s=self._patience_s)
        except OSError as error:
            return _unknown(source, error.strerror or str(error))
        except ValueError as error:
            return _unknown(source, f"it cannot be read: {error}")

    def _sources(self) -> Iterator[tuple[str, Work]]:
        for name, look in _BOARD_SOURCES.items():
            yield name, partial(look, self._filesystem)
        yield "daemon", partial(facts.daemon, self._filesystem, self._settings_file)
        if all(self._certificates):
            yield "certificates", partial(facts.certificates, *self._certificates)
        for root in self._watch.roots:
            yield from self._sources_of(root)
        if self._watch.acl_json:
            yield "acl-json", partial(acl_facts, b"", (), tuple(self._watch.acl_json))

    def _sources_of(self, root: bytes) -> Iterator[tuple[str, Work]]:
        jobs = [job for job in reversed(self._board.jobs) if job.place.root == root]
        places = [job.place for job in jobs]
        open_jobs = sum(job.state is JobState.OPEN for job in jobs)
        yield f"root {text(root)}", partial(root_facts, self._filesystem, root, self._watch.depth, places, open_jobs)
        if not self._watch.acl_json:
            yield f"acl-json below {text(root)}", partial(acl_facts, root, places)


def _unknown(source: str, why: str) -> wire.Examination:
    return wire.Examination(unknown=[wire.UnknownFacts(source=source, why=why)])

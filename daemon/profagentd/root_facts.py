"""What can be said of a root and its JOBs for a diagnosis, and of the acl.json of programs. Facts; they block."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from profagent_wire.v1 import board_pb2 as wire
from profagentd.aclconfig import is_text, load_json
from profagentd.facts import file_system_at
from profagentd.jobs import find_jobs
from profagentd.logs import DATA_DIRECTORY
from profagentd.messages import text
from profagentd.opening import Place, open_directory
from profagentd.profiling import candidates
from profagentd.space import space_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from profagentd.profiling import File

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

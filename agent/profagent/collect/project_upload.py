"""Bringing a project to a board: only what is not there already, by content."""

from __future__ import annotations

import asyncio
import os
import shlex
import stat
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.collect.project import DIGESTS, Entry, Tree, difference, is_plain_name, read_digests
from profagent.collect.project_steps import MANIFEST, OWN, digests, listing, manifest, read_listing, removal
from profagent.errors import UsageError
from profagent.formats.names import is_job_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator

    from profagent.collect.project import Tree
    from profagent.ssh.remote import Remote


_PIECE_BYTES = 1 << 18
# What no program needs that was built elsewhere.
LEFT_OUT = frozenset({".git", ".hg", ".svn", "__pycache__", OWN})


def project_tree(project: Path, tool: str, left_out: Collection[Path] = ()) -> Tree:
    """The files, directories and links below a directory, in order, with digests as the board's `tool` makes them.

    Left out are repositories of versions, JOBs, and what is named. Raises UsageError.
    """
    if not project.is_dir():
        raise UsageError(f"{project} is no directory", hint="name the directory that holds the program with --project")
    tree: Tree = {}
    resolved = {path.resolve() for path in left_out}
    try:
        for name, path in _paths(project, resolved):
            entry = _entry(path, tool)
            if entry is not None:
                tree[name] = entry
    except OSError as error:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}", hint="check its mode") from error
    return tree


def sizes(project: Path, names: Iterable[str]) -> int:
    """The bytes of the files among these."""
    found = ((project / name).lstat() for name in names)
    return sum(each.st_size for each in found if stat.S_ISREG(each.st_mode))


def project_tar(project: Path, names: Iterable[str]) -> Iterator[bytes]:
    """An uncompressed tar of some of it, piece by piece. Raises UsageError for a file that changes meanwhile."""
    for name in names:
        path = project / name
        entry = _header(path, name)
        yield entry.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
        if entry.isreg():
            yield from _content(path, entry.size)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _paths(project: Path, left_out: Collection[Path]) -> Iterator[tuple[str, Path]]:
    for folder, directories, files in os.walk(project):
        here = Path(folder)
        directories[:] = sorted(name for name in directories if not _is_left_out(name))
        directories[:] = [name for name in directories if (here / name).resolve() not in left_out]
        kept = [name for name in files if (here / name).resolve() not in left_out]
        for base in sorted((*directories, *kept)):
            name = (here / base).relative_to(project).as_posix()
            if not is_plain_name(name):
                raise UsageError(f"{name!r} cannot be sent by its name", hint="rename it, or keep it elsewhere")
            yield name, here / base


def _is_left_out(name: str) -> bool:
    return name in LEFT_OUT or is_job_name(name)


def _entry(path: Path, tool: str) -> Entry | None:
    """None for what is neither file, directory nor link."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return Entry("link", str(path.readlink()))
    if stat.S_ISDIR(found.st_mode):
        return Entry("directory")
    if not stat.S_ISREG(found.st_mode):
        return None
    return Entry("file", _digest(path, tool), bool(found.st_mode & 0o111))


def _digest(path: Path, tool: str) -> str:
    if tool not in DIGESTS:
        return ""
    digest = DIGESTS[tool]()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _header(path: Path, name: str) -> tarfile.TarInfo:
    found = path.lstat()
    entry = tarfile.TarInfo(name)
    entry.mtime, entry.mode = int(found.st_mtime), found.st_mode & 0o777
    if stat.S_ISLNK(found.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
    elif stat.S_ISDIR(found.st_mode):
        entry.type = tarfile.DIRTYPE
    else:
        entry.size = found.st_size
    return entry


def _content(path: Path, size: int) -> Iterator[bytes]:
    left = size
    with path.open("rb") as file:
        while left and (piece := file.read(min(left, _PIECE_BYTES))):
            left -= len(piece)
            yield piece
        if left or file.read(1):
            raise UsageError(f"{path} changes while it is sent", hint="let what writes it end first")
    if size % tarfile.BLOCKSIZE:
        yield bytes(-size % tarfile.BLOCKSIZE)


@dataclass(frozen=True, slots=True)
class Uploaded:
    """What was done: names."""

    sent: tuple[str, ...]
    removed: tuple[str, ...]
    sent_bytes: int
    total: int


async def upload_project(
    remote: Remote,
    project: Path,
    directory: str,
    left_out: Collection[Path] = (),
    on_progress: Callable[[int, int], None] = lambda _sent, _total: None,
) -> Uploaded:
    """Make a directory of the board hold what the project holds; `on_progress` is told bytes sent, and of how many.

    Removed there is only what an earlier upload put there. Raises UsageError, ProfagentError, UnreachableError; what
    was sent by then stays, and is known as ours.
    """
    tool, *put = (await remote.must(manifest(directory))).text.splitlines()
    put = [name for name in put if is_plain_name(name)]
    wanted = await asyncio.to_thread(project_tree, project, tool, left_out)
    found = await _found(remote, directory, [*dict.fromkeys((*wanted, *put))], tool)
    plan = difference(wanted, found, put)
    size = await asyncio.to_thread(sizes, project, plan.send)
    if plan.send or plan.remove or set(put) != set(plan.put):
        # Names first: a link that drops must leave nothing that is not known as ours.
        await _remember(remote, directory, dict.fromkeys((*put, *plan.put)))
        await remote.must(removal(directory), _lines(plan.remove))
        await remote.unpack(
            _pieces(project_tar(project, plan.send)), directory, lambda sent: on_progress(min(sent, size), size)
        )
        await _remember(remote, directory, plan.put)
    return Uploaded(plan.send, plan.remove, size, len(wanted))


async def _found(remote: Remote, directory: str, names: list[str], tool: str) -> Tree:
    """What is on the board under these names."""
    answer = await remote.must(listing(directory), _lines(names))
    found = read_listing(names, answer.stdout.decode("utf-8", "surrogateescape").split("\n")[:-1])
    files = [name for name, entry in found.items() if entry.kind == "file"]
    if tool == "none" or not files:
        return found
    told = (await remote.must(digests(directory, tool), _lines(files))).stdout.decode("utf-8", "surrogateescape")
    known = read_digests(told.splitlines(), tool)
    return {
        name: replace(entry, content=known.get(f"./{name}", "")) if entry.kind == "file" else entry
        for name, entry in found.items()
    }


async def _remember(remote: Remote, directory: str, names: Iterable[str]) -> None:
    await remote.must(f"mkdir -p {shlex.quote(directory)}/{OWN}")
    await remote.put(_lines(names), f"{directory}/{MANIFEST}")


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape")


async def _pieces(tar: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Read on a thread: the files of a project may be large."""
    while piece := await asyncio.to_thread(next, tar, b""):
        yield piece

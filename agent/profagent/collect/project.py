"""Upload of a project to a board: only files whose content the board does not have."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shlex
import stat
import subprocess
import tarfile
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from profagent.errors import ProfagentError, UsageError
from profagent.formats.names import is_job_name
from profagent.limits import GIT_S, LONGEST_MODEL_NAME, MOST_MODELS
from profagent.ssh.remote import safely

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from profagent.ssh.remote import Remote

# Profagent's own folder in a project's directory on a board, and the list of uploaded names in it.
OWN = ".profagent"
MANIFEST = f"{OWN}/files"
# Folders that no program needs at run time.
LEFT_OUT = frozenset({".git", ".hg", ".svn", "__pycache__", OWN})
_KINDS = {"f": "file", "x": "file", "d": "directory", "l": "link"}


@dataclass(frozen=True, slots=True)
class ProjectEntry:
    """Entry of a project: a file, directory or link.

    `content` is a file's SHA-256, empty if it is unknown, or the target of a link.
    """

    kind: str
    content: str = ""
    is_executable: bool = False


# Entries by their name below the project's directory.
Tree = dict[str, ProjectEntry]


@dataclass(frozen=True, slots=True)
class Uploaded:
    """Names that an upload sent and removed, and the size of what was sent."""

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
    """Upload a project to a directory of the board; `on_progress` is called with the bytes sent, and their total.

    Only files of an earlier upload are removed. After an error, the files that were sent remain, and are known as
    uploaded. Raises UsageError, ProfagentError, UnreachableError.
    """
    where = shlex.quote(directory)
    manifest = await remote.must(f"cd {where} 2>/dev/null && [ -f {MANIFEST} ] && cat {MANIFEST}; :")
    # The list on the board may have been changed by others: a name that leads elsewhere is never removed.
    uploaded = [name for name in manifest.text.splitlines() if is_plain_name(name)]
    wanted = await asyncio.to_thread(project_tree, project, left_out)
    found = await _board_entries(remote, where, [*dict.fromkeys((*wanted, *uploaded))])
    send, remove = difference(wanted, found, uploaded)
    stats = [(project / name).lstat() for name in send]
    size = sum(each.st_size for each in stats if stat.S_ISREG(each.st_mode))
    if send or remove or set(uploaded) != set(wanted):
        # Names are recorded first: a lost link must not leave a file that is not known as uploaded.
        await _remember(remote, directory, dict.fromkeys((*uploaded, *wanted)))
        await remote.must(
            f'cd {where} && while IFS= read -r name; do if [ -d "./$name" ] && [ ! -L "./$name" ]; then'
            ' rmdir "./$name" 2>/dev/null || :; else rm -f "./$name"; fi; done',
            _lines(remove),
        )
        with tempfile.TemporaryFile() as tar:
            await asyncio.to_thread(_pack, project, send, tar)
            await remote.unpack(tar, directory, lambda sent: on_progress(min(sent, size), size))
        await _remember(remote, directory, wanted)
    return Uploaded(send, remove, size, len(wanted))


def difference(
    wanted: Mapping[str, ProjectEntry], found: Mapping[str, ProjectEntry], uploaded: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names to send and to remove, in order.

    `uploaded` are names of an earlier upload; others are never removed.
    """
    # A board without sha256sum gives no digests, so every file is sent.
    send = tuple(name for name, entry in wanted.items() if found.get(name) != entry)
    gone = [
        name for name in uploaded if name in found and (name not in wanted or wanted[name].kind != found[name].kind)
    ]
    # Reverse order removes the entries of a directory before the directory.
    return send, tuple(sorted(gone, reverse=True))


def is_plain_name(name: str) -> bool:
    """Return True if a name has no line end or backslash, and stays below the project's directory."""
    # Names travel as lines to shells of the board, where a line end or backslash would split or change them.
    parts = name.split("/")
    return name.isprintable() and "\\" not in name and not any(part in ("", ".", "..") for part in parts)


def project_tree(project: Path, left_out: Collection[Path] = ()) -> Tree:
    """Return the files, directories and links below a directory, in order.

    Repositories of version control, JOBs, and `left_out` are excluded. Raises UsageError.
    """
    if not project.is_dir():
        raise UsageError(
            f"{project} is not a directory", hint="name the directory that holds the program with --project"
        )
    resolved = {path.resolve() for path in left_out}
    try:
        entries = ((name, _entry(path)) for name, path in _paths(project, resolved))
        return {name: entry for name, entry in entries if entry is not None}
    except OSError as error:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}", hint="check its mode") from error


def _paths(project: Path, left_out: Collection[Path]) -> Iterator[tuple[str, Path]]:
    for folder, directories, files in os.walk(project):
        here = Path(folder)
        searched = [name for name in directories if name not in LEFT_OUT and not is_job_name(name)]
        directories[:] = sorted(name for name in searched if (here / name).resolve() not in left_out)
        for base in sorted((*directories, *(name for name in files if (here / name).resolve() not in left_out))):
            name = (here / base).relative_to(project).as_posix()
            if not is_plain_name(name):
                raise UsageError(f"{name!r} has a name that cannot be sent", hint="rename it, or keep it elsewhere")
            yield name, here / base


def _entry(path: Path) -> ProjectEntry | None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return ProjectEntry("link", str(path.readlink()))
    if stat.S_ISDIR(mode):
        return ProjectEntry("directory")
    if not stat.S_ISREG(mode):
        return None
    with path.open("rb") as file:
        return ProjectEntry("file", hashlib.file_digest(file, "sha256").hexdigest(), bool(mode & 0o111))


async def _board_entries(remote: Remote, where: str, names: list[str]) -> Tree:
    """Return the entries on the board under these names, with digests if it has `sha256sum`.

    Raises ProfagentError for a link of another user, through which the upload would write elsewhere.
    """
    listing = f"""cd {where} 2>/dev/null || exit 0
me=$(me)
while IFS= read -r name; do
    if [ -L "./$name" ]; then
        its=$(owner "./$name")
        case $its in 0 | "$me") ;; *) fail "$name is a link of user $its" ;; esac
        echo "l$(readlink "./$name" | head -n 1)"
    elif [ -d "./$name" ]; then echo d
    elif [ -x "./$name" ] && [ -f "./$name" ]; then echo x
    elif [ -f "./$name" ]; then echo f
    elif [ -e "./$name" ]; then echo o
    else echo -
    fi
done"""
    ran = await remote.run(safely(listing), _lines(names))
    if ran.status != 0:
        raise ProfagentError(
            f"cannot upload to {where} on {remote.host}: {ran.complaint}",
            hint="log in as its owner, or name another --remote-dir",
        )
    lines = ran.stdout.decode("utf-8", "surrogateescape").split("\n")
    found: Tree = {}
    for name, line in zip(names, lines, strict=False):
        kind = _KINDS.get(line[:1], "other")
        if line not in ("", "-"):
            found[name] = ProjectEntry(kind, line[1:] if kind == "link" else "", line == "x")
    files = [name for name, entry in found.items() if entry.kind == "file"]
    if files:
        digests = f"cd {where} && sed 's|^|./|' | tr '\\n' '\\0' | xargs -0 sha256sum 2>/dev/null; :"
        for line in (await remote.must(digests, _lines(files))).stdout.decode("utf-8", "surrogateescape").splitlines():
            digest, _, name = line.partition(" ")
            name = name[1:].removeprefix("./")
            if name in found:
                found[name] = replace(found[name], content=digest)
    return found


def _pack(project: Path, names: Iterable[str], file: IO[bytes]) -> None:
    """Write an uncompressed tar of these names. Raises UsageError for a file that changes meanwhile."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
        try:
            for name in names:
                archive.add(project / name, name, recursive=False)
        except OSError as error:
            raise UsageError(
                f"{error.filename or project} changed while it was sent",
                hint="wait until the program that writes it has ended",
            ) from error
    file.seek(0)


async def _remember(remote: Remote, directory: str, names: Iterable[str]) -> None:
    await remote.must(f"mkdir -p {shlex.quote(directory)}/{OWN}")
    await remote.put(_lines(names), f"{directory}/{MANIFEST}")


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape")


_LABEL_DIGITS = 16
_ODD = re.compile(r"[^A-Za-z0-9_.-]")


async def project_labels(project: Path | None, main: str, digest: str = "") -> dict[str, str]:
    """Return the labels `git` (with `-dirty` for changes), `main` and `model.NAME` (of SHA-256), as far as known.

    `digest` is the program's, if it was read on the board.
    """
    seen = {"main": digest[:_LABEL_DIGITS]} if digest else {}
    if project is None:
        return seen
    digests = await asyncio.to_thread(_digests, project, main)
    revision = await asyncio.to_thread(_revision, project)
    return {**({"git": revision} if revision else {}), **digests, **seen}


def _digests(project: Path, main: str) -> dict[str, str]:
    models = sorted(project.rglob("*.om"))[: MOST_MODELS + 1]
    files = {f"model.{_ODD.sub('_', model.stem)[:LONGEST_MODEL_NAME]}": model for model in models}
    program = {} if main.startswith("/") else {"main": project / main}
    wanted = {**program, **(files if len(models) <= MOST_MODELS else {})}
    found: dict[str, str] = {}
    for label, file in wanted.items():
        with suppress(OSError), file.open("rb") as opened:
            found[label] = hashlib.file_digest(opened, "sha256").hexdigest()[:_LABEL_DIGITS]
    return found


def _revision(project: Path) -> str:
    command = ["git", "-C", str(project), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=GIT_S, check=False)  # noqa: S603 - the user's git
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout.decode("ascii", "replace").strip()

"""Survey of a board, which decides how a daemon can run there: a POSIX sh script that only reads, and its parser."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from profagent.errors import ProfagentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from profagent.ssh.remote import Remote


T = TypeVar("T")
MIB = 1 << 20
OLDEST_PYTHON = (3, 9)
# manylinux2014 means glibc 2.17; grpcio has no wheels for older ones.
_OLDEST_GLIBC = 17
_MUSL_MINORS = (2, 1)
_FIELDS = 5
# A POSIX sh script that prints one line: machine, path, version, libc and its version, or `-`.
PROBE = """for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9; do
    "$python" -I -c 'import os, platform, sys
if sys.version_info < (3, 9): sys.exit(1)
name, version = platform.libc_ver()
print(os.uname().machine, sys.executable, "%d.%d" % sys.version_info[:2], name or "-", version or "-", sep="\\t")
' 2>/dev/null && exit
done
exit 1
"""


@dataclass(frozen=True, slots=True)
class BoardPython:
    """Python interpreter on a board.

    `glibc` is the version of the C library; None stands for musl, whose version Python does not report.
    """

    machine: str
    path: str
    version: tuple[int, int]
    glibc: tuple[int, int] | None

    @property
    def shown(self) -> str:
        """Version as people write it: MAJOR.MINOR."""
        return ".".join(map(str, self.version))

    @property
    def platforms(self) -> list[str]:
        """Platform tags of the wheels that run there, the newest first."""
        if self.glibc is None:
            return [f"musllinux_1_{minor}_{self.machine}" for minor in _MUSL_MINORS]
        tags = [f"manylinux_2_{minor}_{self.machine}" for minor in range(self.glibc[1], _OLDEST_GLIBC - 1, -1)]
        return [*tags, f"manylinux2014_{self.machine}"] if tags else []


def read_probe(output: str) -> BoardPython:
    """Return the interpreter that PROBE found. Raises ProfagentError if the output is not that of PROBE."""
    fields = output.strip().split("\t")
    try:
        machine, path, version, libc, libc_version = fields[-_FIELDS:]
        glibc = _pair(libc_version) if libc == "glibc" else None
        return BoardPython(machine, path, _pair(version), glibc)
    except ValueError as error:
        raise ProfagentError(
            f"the board's Python printed an unexpected answer: {output.strip()[-200:]!r}",
            hint="log in to the board and check what `python3 -V` prints",
        ) from error


def _pair(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


@dataclass(frozen=True, slots=True)
class BoardFacts:
    """Facts that decide which daemon runs on a board; empty or None means that a fact could not be determined."""

    machine: str
    hostname: str
    libc: str
    python: BoardPython | None
    old_python: str
    """Version of a Python that is too old; empty if there is none."""
    lacks: tuple[str, ...]
    """Modules and libraries that the daemon needs and the interpreter lacks."""
    place: str
    """The nearest directory above the prefix that exists."""
    free_bytes: int | None


async def survey(remote: Remote, prefix: str) -> BoardFacts:
    """Return the facts of a board on which a daemon is to run below `prefix`.

    Raises UnreachableError, ProfagentError.
    """
    return read_survey((await remote.must("sh -s", survey_script(prefix).encode())).stdout.decode("utf-8", "replace"))


# Prints the modules that the daemon imports and a Python built for a small board may lack, then the C++ library that
# gRPC is linked to.
_LACKS = """import importlib
for name in "asyncio ctypes socket ssl zlib".split():
    try:
        importlib.import_module(name)
    except ImportError:
        print(name)
        if name == "ctypes":
            raise SystemExit
import ctypes
try:
    ctypes.CDLL("libstdc++.so.6")
except OSError:
    print("libstdc++.so.6")
"""
_SCRIPT = """say() { printf '%s=%s\\n' "$1" "$2"; }
say machine "$(uname -m)"
say hostname "$(uname -n)"
libc=$(ldd --version 2>&1 | grep -o 'musl' | head -n 1)
for file in /lib/ld-musl-*.so.1 /lib/ld*-uClibc.so.*; do
    [ ! -e "$file" ] || case $file in *musl*) libc=musl ;; *) libc=uClibc ;; esac
done
for file in /lib/libc.so.6 /lib64/libc.so.6 /lib/*-linux-gnu*/libc.so.6; do
    [ -e "$file" ] || continue
    libc="glibc $("$file" 2>/dev/null | sed -n '1s/.*version \\([0-9.]*[0-9]\\).*/\\1/p')"
    break
done
say libc "$libc"
python=$(probe)
say python "$python"
[ -n "$python" ] || say old_python "$(python3 -V 2>&1 | sed -n 's/^Python \\([0-9.]*\\).*/\\1/p')"
if [ -n "$python" ]; then
    say lacks "$("$(printf '%s' "$python" | cut -f 2)" -I -c "$LACKS" 2>/dev/null | tr '\\n' ' ')"
fi
place=$PREFIX
while [ ! -d "$place" ]; do place=$(dirname "$place"); done
say place "$place"
say free_kib "$(df -Pk "$place" 2>/dev/null | tail -n 1 | sed -n 's/.* \\([0-9][0-9]*\\)  *[0-9][0-9]*% .*/\\1/p')"
"""


def survey_script(prefix: str) -> str:
    """Return the survey script.

    It defines the shell function `say KEY VALUE` and the variable `place` for scripts that are appended to it.
    """
    assigned = "".join(f"{name}={shlex.quote(value)}\n" for name, value in (("PREFIX", prefix), ("LACKS", _LACKS)))
    return f"{assigned}probe() (\n{PROBE})\n{_SCRIPT}"


def read_survey(output: str) -> BoardFacts:
    """Return the facts that the script printed. Raises ProfagentError if they cannot be parsed."""
    return read_answers(output, lambda said, _: BoardFacts(**board_fields(said)))


def read_answers(output: str, facts_of: Callable[[Mapping[str, str], Mapping[str, str]], T]) -> T:
    """Return `facts_of` applied to a script's answers by key and the texts of files by path.

    Raises ProfagentError where `facts_of` raises KeyError or ValueError.
    """
    said: dict[str, str] = {}
    files: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in output.split("\n"):
        if line.startswith("|"):
            # Such a line before the first file comes from a login banner, and is dropped.
            lines.append(line[1:])
            continue
        key, _, value = line.partition("=")
        said[key] = value
        if key == "file":
            lines = files[value] = []
    try:
        return facts_of(said, {path: "\n".join(text) for path, text in files.items()})
    except (KeyError, ValueError) as error:
        raise ProfagentError(
            f"the board's shell printed an unexpected answer: {error}",
            hint="log in and check what the shell prints at login (.profile, .bashrc)",
        ) from error


def board_fields(said: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of BoardFacts from the script's answers. Raises KeyError, ValueError, ProfagentError."""
    return {
        "machine": said["machine"],
        "hostname": said["hostname"],
        "libc": said["libc"].strip(),
        "python": read_probe(said["python"]) if said["python"] else None,
        "old_python": said.get("old_python", ""),
        "lacks": tuple(said.get("lacks", "").split()),
        "place": said["place"],
        "free_bytes": int(said["free_kib"]) * 1024 if said["free_kib"].isdigit() else None,
    }


# Room for more than the version's files: links, settings, and the file system's own structures.
_ROOM_BYTES = 2 << 20


def check_room(facts: BoardFacts, size_bytes: int) -> None:
    """Raise ProfagentError if the file system of the prefix has no room for a version of `size_bytes`."""
    needed = _ROOM_BYTES + size_bytes
    if facts.free_bytes is not None and facts.free_bytes < needed:
        raise ProfagentError(
            f"{facts.place} on {facts.hostname} has {facts.free_bytes / MIB:.1f} MiB free, and"
            f" {needed / MIB:.1f} MiB are needed",
            hint="make room there, or deploy to another file system: `profagent deploy --prefix DIR`",
        )


def unfit(facts: BoardFacts) -> str | None:
    """Return why the daemon cannot run with the board's own Python; None if it can."""
    if facts.python is None:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return (
            f"has Python {facts.old_python}, and not {oldest} or later"
            if facts.old_python
            else f"has no Python {oldest} or later"
        )
    if facts.lacks:
        return f"has Python {facts.python.shown} without {' and '.join(facts.lacks)}"
    # Python recognises glibc only; the survey's `libc` tells musl from other C libraries.
    if not facts.python.platforms or (facts.python.glibc is None and facts.libc != "musl"):
        return f"has {facts.libc or 'a C library that cannot be told'}, for which there are no wheels of grpcio"
    return None

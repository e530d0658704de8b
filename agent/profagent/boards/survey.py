"""What decides which daemon runs on a board: a POSIX sh script that looks and writes nothing, and its answers."""

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
# manylinux2014 is glibc 2.17; no wheel of grpcio is for an older one.
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
    """A Python on a board. The C library is `glibc` with its version, or musl, which does not tell its own."""

    machine: str
    path: str
    version: tuple[int, int]
    glibc: tuple[int, int] | None

    @property
    def shown(self) -> str:
        """Its version as people write it."""
        return ".".join(map(str, self.version))

    @property
    def platforms(self) -> list[str]:
        """The platform tags whose wheels run there, the newest first."""
        if self.glibc is None:
            return [f"musllinux_1_{minor}_{self.machine}" for minor in _MUSL_MINORS]
        tags = [f"manylinux_2_{minor}_{self.machine}" for minor in range(self.glibc[1], _OLDEST_GLIBC - 1, -1)]
        return [*tags, f"manylinux2014_{self.machine}"] if tags else []


def read_probe(output: str) -> BoardPython:
    """The Python that PROBE has found. Raises ProfagentError for output that is none of its."""
    fields = output.strip().split("\t")
    try:
        machine, path, version, libc, libc_version = fields[-_FIELDS:]
        glibc = _pair(libc_version) if libc == "glibc" else None
        return BoardPython(machine, path, _pair(version), glibc)
    except ValueError as error:
        raise ProfagentError(
            f"the board's Python said {output.strip()[-200:]!r}", hint="log in and see what `python3 -V` prints"
        ) from error


def _pair(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


@dataclass(frozen=True, slots=True)
class BoardFacts:
    """A board as far as it decides which daemon runs there. Empty or None is what could not be found out."""

    machine: str
    hostname: str
    libc: str
    python: BoardPython | None
    old_python: str
    """The version of a Python that is too old."""
    lacks: tuple[str, ...]
    """What that Python does not have and the daemon needs."""
    place: str
    """The nearest directory above the prefix that exists."""
    free_bytes: int | None


async def survey(remote: Remote, prefix: str) -> BoardFacts:
    """Look at the board where a daemon is to stand below `prefix`. Raises UnreachableError, ProfagentError."""
    return read_survey((await remote.must("sh -s", survey_script(prefix).encode())).stdout.decode("utf-8", "replace"))


# What the daemon imports and a Python made for a small board may lack, then what the library of gRPC is linked to.
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
    """Return the script; it leaves the shell `say KEY VALUE`, and `place`, for whoever asks more after it."""
    assigned = "".join(f"{name}={shlex.quote(value)}\n" for name, value in (("PREFIX", prefix), ("LACKS", _LACKS)))
    return f"{assigned}probe() (\n{PROBE})\n{_SCRIPT}"


def read_survey(output: str) -> BoardFacts:
    """Return the facts that the script has printed. Raises ProfagentError when they make no sense."""
    return read_answers(output, lambda said, _: BoardFacts(**board_fields(said)))


def read_answers(output: str, facts_of: Callable[[Mapping[str, str], Mapping[str, str]], T]) -> T:
    """Return the facts of a script's answers by key, and of the texts of files by path.

    Raises ProfagentError where `facts_of` raises KeyError or ValueError.
    """
    said: dict[str, str] = {}
    files: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in output.split("\n"):
        if line.startswith("|"):
            # Before the first file it is a login banner's.
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
            f"the board's shell does not answer as expected: {error}",
            hint="log in and see what it prints by itself (.profile, .bashrc)",
        ) from error


def board_fields(said: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of BoardFacts, of the script's answers. Raises KeyError, ValueError, ProfagentError."""
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


# Besides a version's own files: links, settings, the room that a file system takes for itself.
_ROOM_BYTES = 2 << 20


def check_room(facts: BoardFacts, size_bytes: int) -> None:
    """Raise ProfagentError where the prefix has no room for so many bytes."""
    needed = _ROOM_BYTES + size_bytes
    if facts.free_bytes is not None and facts.free_bytes < needed:
        raise ProfagentError(
            f"{facts.place} on {facts.hostname} has {facts.free_bytes / MIB:.1f} MiB free, and"
            f" {needed / MIB:.1f} MiB are needed",
            hint="make room there, or deploy to another file system: `profagent deploy --prefix DIR`",
        )


def unfit(facts: BoardFacts) -> str | None:
    """Return why the daemon cannot run with the board's own Python; None where it can."""
    if facts.python is None:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return (
            f"has Python {facts.old_python}, and not {oldest} or later"
            if facts.old_python
            else f"has no Python {oldest} or later"
        )
    if facts.lacks:
        return f"has Python {facts.python.shown} without {' and '.join(facts.lacks)}"
    # A Python tells glibc from others alone.
    if not facts.python.platforms or (facts.python.glibc is None and facts.libc != "musl"):
        return f"has {facts.libc or 'a C library that cannot be told'}, for which there are no wheels of grpcio"
    return None

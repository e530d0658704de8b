"""The wheels that the daemon needs on a board's own Python; pip fetches them once for each kind of board."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from profagent.errors import ProfagentError
from profagent.files import make_directory

# The board's dependencies of pyproject.toml.
REQUIREMENTS = ("grpcio>=1.60", "protobuf>=5.26,<8")
TOMLI = "tomli>=2.0"
HAS_TOMLLIB = (3, 11)
OLDEST_PYTHON = (3, 9)
# manylinux2014 is glibc 2.17; no wheel of grpcio is for an older one.
_OLDEST_GLIBC = 17
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_MUSL_MINORS = (2, 1)
_FIELDS = 5
_DIGITS = 8
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
        return _dotted(self.version)

    @property
    def key(self) -> str:
        """What wheels depend on, as a folder's name: this Python, and what is required of them."""
        libc = "musl" if self.glibc is None else "glibc{}.{}".format(*self.glibc)
        required = hashlib.sha256("\n".join(self.requirements).encode()).hexdigest()[:_DIGITS]
        return f"cp{self.version[0]}{self.version[1]}-{self.machine}-{libc}-{required}"

    @property
    def requirements(self) -> tuple[str, ...]:
        """What pip is asked for: its own look at markers would be for this host's Python."""
        return REQUIREMENTS if self.version >= HAS_TOMLLIB else (*REQUIREMENTS, TOMLI)

    @property
    def platforms(self) -> list[str]:
        """The platform tags whose wheels run there, the newest first."""
        if self.glibc is None:
            return [f"musllinux_1_{minor}_{self.machine}" for minor in _MUSL_MINORS]
        tags: list[str] = []
        for minor in range(self.glibc[1], _OLDEST_GLIBC - 1, -1):
            tags.append(f"manylinux_2_{minor}_{self.machine}")
            tags += [f"{_OLD_NAMES[minor]}_{self.machine}"] if minor in _OLD_NAMES else []
        return tags


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


def download_arguments(python: BoardPython, folder: Path, wheelhouse: Path | None = None) -> list[str]:
    """Arguments of `pip` that bring the wheels into a folder: from a folder without internet, or as pip is set up.

    Raises ProfagentError for a C library that is too old for any.
    """
    if not python.platforms:
        raise ProfagentError(
            f"the board's glibc is {_dotted(python.glibc)}: no wheel of grpcio is for one before 2.{_OLDEST_GLIBC}",
            hint="use a bundle with a Python of its own: `profagent bundle`",
        )
    where = ["--no-index", "--find-links", str(wheelhouse)] if wheelhouse else []
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    return ["download", *quiet, *_kind(python, python.platforms), "--dest", str(folder), *where, *python.requirements]


def filling(python: BoardPython, wheelhouse: Path) -> str:
    """The command that fills a wheelhouse, on a machine with internet."""
    kind = _kind(python, python.platforms[-2:])
    return shlex.join(["pip", "download", *kind, "--dest", str(wheelhouse), *python.requirements])


def _kind(python: BoardPython, platforms: list[str]) -> list[str]:
    chosen = [argument for tag in platforms for argument in ("--platform", tag)]
    version = ["--implementation", "cp", "--python-version", _dotted(python.version)]
    return ["--only-binary", ":all:", *version, *chosen]


def _pair(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def _dotted(version: tuple[int, int] | None) -> str:
    return ".".join(map(str, version or ()))


_ONLINE = "check this host's internet or pip's settings"


def cache_folder() -> Path:
    """Where fetched wheels are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "profagent" / "wheels"


async def fetch_wheels(python: BoardPython, wheelhouse: Path | None = None) -> list[Path]:
    """The wheels; those of a wheelhouse are not kept apart from it. Raises ProfagentError."""
    kept = cache_folder() / python.key
    if wheelhouse is None and (wheels := _wheels(kept)):
        return wheels
    make_directory(kept.parent)
    folder = Path(tempfile.mkdtemp(prefix=f".{python.key}-", dir=kept.parent))
    try:
        hint = f"on a machine with internet: {filling(python, wheelhouse)}" if wheelhouse else _ONLINE
        await _pip(download_arguments(python, folder, wheelhouse), hint)
        if wheelhouse is not None:
            return [wheelhouse / wheel.name for wheel in _wheels(folder)]
        return _keep(folder, kept)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keep(folder: Path, kept: Path) -> list[Path]:
    # Another command may have been faster: what it has brought is the same.
    with suppress(OSError):
        folder.rename(kept)
    return _wheels(kept)


def _wheels(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.whl"))


async def _pip(arguments: list[str], hint: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        lines = complaint.decode("utf-8", "replace").strip().splitlines() or ["pip failed"]
        raise ProfagentError(f"the board's libraries cannot be fetched: {lines[-1]}", hint=hint)

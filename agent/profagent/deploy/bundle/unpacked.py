"""Directories of unpacked packages or archives: the Python that lies there, and shared libraries by their names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.deploy.bundle.elf import Elf, read_elf
from profagent.deploy.bundle.trimming import is_needed
from profagent.errors import ProfagentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["UnpackedPython", "find_python", "needed_libraries"]

# Debian's packages, python-build-standalone's archives, and either with its first directory left out.
_PROGRAMS = ("usr/bin", "python/bin", "bin")
_LIBRARIES = ("lib/*-linux-gnu", "usr/lib/*-linux-gnu", "lib64", "usr/lib64", "lib", "usr/lib", "python/lib")
_PROGRAM = re.compile(r"python(3)\.(\d+)")
PACKAGES = "libc6 libgcc-s1 libstdc++6 zlib1g"


@dataclass(frozen=True)
class UnpackedPython:
    """A CPython: its program, and what of its standard library is needed, by path below lib/pythonX.Y."""

    version: tuple[int, int]
    program: bytes
    elf: Elf
    library: dict[str, bytes]

    @property
    def name(self) -> str:
        """pythonX.Y."""
        return "python{}.{}".format(*self.version)


def find_python(root: Path, machine: str) -> UnpackedPython:
    """The newest Python below a directory. Raises ProfagentError for none, or one of another machine."""
    found = [
        ((int(match[1]), int(match[2])), path)
        for folder in _PROGRAMS
        for path in (root / folder).glob("python3.*")
        if (match := _PROGRAM.fullmatch(path.name)) and path.is_file()
    ]
    if not found:
        raise ProfagentError(
            f"no Python in {root}: neither usr/bin/python3.X nor python/bin/python3.X",
            hint="unpack Debian's packages there (`dpkg -x FILE.deb DIR`): python3.11-minimal, libpython3.11-minimal,"
            f" libpython3.11-stdlib, libexpat1, libffi8, libssl3, {PACKAGES}",
        )
    version, path = max(found)
    program = path.read_bytes()
    elf = read_elf(program)
    if elf is None or elf.machine != machine or not elf.loader:
        raise ProfagentError(
            f"{path} is for {elf.machine if elf else 'no machine that is known'}, not for {machine}",
            hint=f"name what was unpacked for {machine} with --from, or another --arch",
        )
    library = path.parent.parent / "lib" / path.name
    if not (library / "os.py").is_file():
        raise ProfagentError(
            f"{path} is without its library, {library}",
            hint="unpack Debian's libpython3.X-minimal and libpython3.X-stdlib there, too",
        )
    return UnpackedPython(version, program, elf, _needed(library))


def needed_libraries(start: Iterable[Elf], roots: Sequence[Path]) -> dict[str, bytes]:
    """Each library, by soname, that these need, and those that they need in turn.

    The loader is one of them. Raises ProfagentError for one that is nowhere.
    """
    libraries: dict[str, bytes] = {}
    waiting = list(start)
    while waiting:
        elf = waiting.pop()
        for name in (*elf.needed, *([Path(elf.loader).name] if elf.loader else [])):
            if name in libraries:
                continue
            libraries[name], found = _library(name, elf.machine, roots)
            waiting.append(found)
    return libraries


def _library(name: str, machine: str, roots: Sequence[Path]) -> tuple[bytes, Elf]:
    for path in _places(name, roots):
        data = path.read_bytes()
        if (elf := read_elf(data)) is not None and elf.machine == machine:
            return data, elf
    raise ProfagentError(
        f"{name} for {machine} is not in {' or '.join(map(str, roots))}",
        hint=f"unpack Debian's packages for {machine} into a directory (`dpkg -x FILE.deb DIR`: {PACKAGES} and the one"
        " that has this file) and name it with --libraries",
    )


def _places(name: str, roots: Sequence[Path]) -> Iterator[Path]:
    for root in roots:
        for pattern in _LIBRARIES:
            for path in sorted(root.glob(f"{pattern}/{name}")):
                # A link that leads out of the tree leads to this machine's own library.
                if path.is_file() and path.resolve().is_relative_to(root.resolve()):
                    yield path


def _needed(library: Path) -> dict[str, bytes]:
    paths = sorted(path for path in library.rglob("*") if path.is_file() and not path.is_symlink())
    named = ((path.relative_to(library).as_posix(), path) for path in paths)
    return {name: path.read_bytes() for name, path in named if is_needed(name)}

"""Assembly of a bundle: the daemon with its own Python, loader and libraries, which needs no more than a kernel."""

from __future__ import annotations

import importlib.util
import marshal
import re
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.boards.daemon_tree import DaemonTree, launcher
from profagent.boards.survey import BoardPython
from profagent.errors import ProfagentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


MACHINES = {62: "x86_64", 183: "aarch64"}
# Start of an ELF file with 64 bits and little-endian order, which all of these machines use.
_MAGIC = b"\x7fELF\x02\x01"


def machine_of(data: bytes) -> str | None:
    """Return the machine of a program or library, as `uname -m` prints it; None for other files and machines."""
    return MACHINES.get(int.from_bytes(data[18:20], "little")) if data.startswith(_MAGIC) else None


# Flags of a .pyc file. Bit 0: the source's hash follows, not its time. Bit 1, not set: the hash would be checked.
_UNCHECKED_HASH = 1
# The last marshal version without references. References depend on what else the process has in memory, and equal
# sources must give equal bytes.
_MARSHAL_VERSION = 2


def can_compile(version: tuple[int, int]) -> bool:
    """Return True if this Python compiles to the bytecode of a CPython of that version."""
    return sys.implementation.name == "cpython" and sys.version_info[:2] == version


def compiled(files: Mapping[str, bytes], version: tuple[int, int]) -> Mapping[str, bytes]:
    """Return the files with X.pyc in place of each X.py, if this Python compiles for that version.

    A file that does not compile stays as it is.
    """
    if not can_compile(version):
        return files
    return dict(_compiled_file(path, data) if path.endswith(".py") else (path, data) for path, data in files.items())


def _compiled_file(path: str, source: bytes) -> tuple[str, bytes]:
    try:
        code = compile(source, path, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError):
        return path, source
    header = importlib.util.MAGIC_NUMBER + struct.pack("<I", _UNCHECKED_HASH) + importlib.util.source_hash(source)
    return f"{path}c", header + marshal.dumps(code, _MARSHAL_VERSION)


_PACKAGES = (
    *("__phello__", "curses", "dbm", "dist-packages", "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data"),
    *("site-packages", "sqlite3", "test", "tkinter", "turtle.py", "turtledemo", "venv", "wsgiref", "xmlrpc"),
)
# Tests, modules that draw on a terminal, and modules that need libraries which the bundle does not contain.
_EXTENSIONS = ("_test", "_xxtest", "_ctypes_test", "_codecs_", "_curses", "_bz2", "_dbm", "_gdbm", "_lzma", "_sqlite3")
_KINDS = (".py", ".so", ".txt")


def is_needed(path: str) -> bool:
    """Return True if the daemon may need a file of the standard library.

    The path is relative to lib/pythonX.Y, e.g. `asyncio/base_events.py` or `lib-dynload/_ssl.cpython-311-….so`.
    """
    if not path.endswith(_KINDS) or "__pycache__" in path:
        return False
    top, _, rest = path.partition("/")
    if top == "lib-dynload":
        return not rest.startswith(_EXTENSIONS)
    return top not in _PACKAGES and not top.startswith(("config-", "_sysconfigdata")) and "/test" not in f"/{rest}"


# Places in unpacked Debian packages, in archives of python-build-standalone, and in either without its first directory.
_PROGRAMS = ("usr/bin", "python/bin", "bin")
_LIBRARIES = ("lib/*-linux-gnu", "usr/lib/*-linux-gnu", "lib64", "usr/lib64", "lib", "usr/lib", "python/lib")
_PROGRAM = re.compile(r"python(3)\.(\d+)")
_GLIBC = re.compile(rb"GLIBC_2\.(\d+)")
_LIBC = "libc.so.6"
# Libraries that every daemon needs: a bundle without one of them runs on no board.
_REQUIRED = (_LIBC, "libgcc_s.so.1", "libstdc++.so.6")
PACKAGES = "libc6 libgcc-s1 libstdc++6 zlib1g"


@dataclass(frozen=True)
class BundledPython:
    """CPython for a bundle: its program, the needed part of its standard library, and shared libraries.

    `standard` has paths relative to lib/pythonX.Y, `libraries` file names.
    """

    machine: str
    version: tuple[int, int]
    program: bytes
    standard: Mapping[str, bytes]
    libraries: Mapping[str, Path]

    @property
    def name(self) -> str:
        """Name of the program and of its library's directory: pythonX.Y."""
        return "python{}.{}".format(*self.version)

    @property
    def wheels_for(self) -> BoardPython:
        """Description of this Python with the bundle's C library, for which wheels are fetched."""
        newest = max(int(minor) for minor in _GLIBC.findall(self.libraries[_LIBC].read_bytes()))
        return BoardPython(self.machine, PYTHON, self.version, (2, newest))

    def files(self, library: Mapping[str, bytes]) -> dict[str, tuple[bytes, int]]:
        """Return bin/python, and below python/ the files that it and the extensions of `library` need."""
        extensions = (data for data in (*self.standard.values(), *library.values()) if machine_of(data))
        needed = needed_libraries((self.program, *extensions), self.libraries)
        loader = next(name for name in needed if name.startswith("ld-"))
        standard = compiled(self.standard, self.version)
        return {
            PYTHON: (_PYTHON.format(loader=loader, python=self.name).encode(), 0o755),
            f"python/bin/{self.name}": (self.program, 0o755),
            **{f"python/lib/{soname}": (data, 0o755) for soname, data in sorted(needed.items())},
            **{f"python/lib/{self.name}/{path}": (data, 0o644) for path, data in sorted(standard.items())},
        }


def find_runtime(machine: str, source: Path, libraries: Path | None) -> BundledPython:
    """Return the newest Python in `source`, with the shared libraries of `source` and `libraries`.

    Raises ProfagentError if there is none for the machine, or a required library is missing.
    """
    found = [
        ((int(match[1]), int(match[2])), path)
        for folder in _PROGRAMS
        for path in (source / folder).glob("python3.*")
        if (match := _PROGRAM.fullmatch(path.name)) and path.is_file()
    ]
    version, program = max(found, default=((0, 0), source))
    library = program.parent.parent / "lib" / program.name
    if not (library / "os.py").is_file():
        raise ProfagentError(
            f"{source} has no Python: neither usr/bin/python3.X nor python/bin/python3.X with its library",
            hint="unpack Debian's packages there (`dpkg -x FILE.deb DIR`): python3.11-minimal, libpython3.11-minimal,"
            f" libpython3.11-stdlib, libexpat1, libffi8, libssl3, {PACKAGES}",
        )
    if machine_of(program.read_bytes()) != machine:
        raise ProfagentError(
            f"{program} is not for {machine}", hint="name another directory with --from, or its --arch"
        )
    there = shared_libraries(machine, [source, *([libraries] if libraries else [])])
    if lacking := [name for name in _REQUIRED if name not in there]:
        raise ProfagentError(
            f"{lacking[0]} for {machine} is not in {source}{f' or {libraries}' if libraries else ''}",
            hint=f"unpack Debian's packages for {machine} into a directory (`dpkg -x FILE.deb DIR`: {PACKAGES}) and"
            " name it with --libraries; an archive of python-build-standalone has to end in -gnu",
        )
    paths = sorted(path for path in library.rglob("*") if path.is_file() and not path.is_symlink())
    named = ((path.relative_to(library).as_posix(), path) for path in paths)
    standard = {name: path.read_bytes() for name, path in named if is_needed(name)}
    return BundledPython(machine, version, program.read_bytes(), standard, there)


def shared_libraries(machine: str, roots: Sequence[Path]) -> dict[str, Path]:
    """Return the machine's libraries below these directories, by file name; the first of each name counts."""
    found: dict[str, Path] = {}
    for root in roots:
        for path in sorted(path for pattern in _LIBRARIES for path in root.glob(f"{pattern}/*.so.*")):
            # An absolute link leads out of the tree, to a library of this host.
            is_inside = path.is_file() and path.resolve().is_relative_to(root.resolve())
            if path.name not in found and is_inside and machine_of(_beginning(path)) == machine:
                found[path.name] = path
    return found


def _beginning(path: Path) -> bytes:
    # The ELF header is enough: some libraries have a hundred megabytes.
    with path.open("rb") as file:
        return file.read(64)


def needed_libraries(files: Iterable[bytes], there: Mapping[str, Path]) -> dict[str, bytes]:
    """Return the libraries that the files name, the loader included, and those that these name in turn."""
    needed: dict[str, bytes] = {}
    waiting = list(files)
    while waiting:
        data = waiting.pop()
        # Dynamic sections name libraries as NUL-terminated strings, and so does code that loads one at run time: a
        # search for the strings finds both.
        for name in (name for name in there if name not in needed and name.encode() + b"\0" in data):
            needed[name] = there[name].read_bytes()
            waiting.append(needed[name])
    return needed


PYTHON = "bin/python"
INSTALLER, ITS_FILES = "install.sh", "installer"
# The bundle's loader gets the library path as an argument, so that neither the board's libraries nor its environment
# take part. -S: the module `site` would search for packages that a bundle does not have.
_PYTHON = """#!/bin/sh
# Runs this tree's own Python, with its own loader and libraries.
case $0 in */*) here=${{0%/*}} ;; *) here=. ;; esac
here=$(cd "$here/../python" && pwd -P) || exit 1
unset LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT
exec "$here/lib/{loader}" --inhibit-cache --library-path "$here/lib" "$here/bin/{python}" -S "$@"
"""


def bundle_tree(
    version: str, runtime: BundledPython, library: Mapping[str, bytes], its_files: Mapping[str, bytes]
) -> DaemonTree:
    """Return the tree of a bundle, with `library` below lib/, and install.sh with `its_files`.

    Raises ProfagentError.
    """
    modules = compiled({path: data for path, data in library.items() if not path.endswith(".pyi")}, runtime.version)
    installer = Path(__file__).with_name(INSTALLER).read_bytes()
    return DaemonTree.of(
        version,
        launcher(PYTHON),
        modules,
        {
            INSTALLER: (installer, 0o755),
            **{f"{ITS_FILES}/{path}": (data, 0o644) for path, data in sorted(its_files.items())},
            **runtime.files(library),
        },
        machine=runtime.machine,
    )

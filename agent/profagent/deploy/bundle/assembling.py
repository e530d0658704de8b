"""A version directory that needs nothing of its board but a kernel: the daemon, its Python, loader and libraries."""

from __future__ import annotations

import importlib.util
import marshal
import re
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.deploy.daemon_tree import BoardPython, DaemonTree, launcher
from profagent.errors import ProfagentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


MACHINES = {62: "x86_64", 183: "aarch64"}
# 64 bits, little-endian: what every machine above is.
_MAGIC = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB = 1, 5


@dataclass(frozen=True, slots=True)
class Elf:
    """`machine` as `uname -m` has it; `loader` is a path, empty for a library; `needed` are sonames."""

    machine: str
    loader: str
    needed: tuple[str, ...]


def read_elf(data: bytes) -> Elf | None:
    """None for what is no ELF file of a machine that is known, or is cut off."""
    if not data.startswith(_MAGIC):
        return None
    try:
        return _read_elf(data)
    except (struct.error, ValueError, StopIteration):
        return None


def _read_elf(data: bytes) -> Elf | None:
    _, number, _, _, table, _, _, _, size, count, *_ = _HEADER.unpack_from(data)
    machine = MACHINES.get(number)
    headers = [_PROGRAM_HEADER.unpack_from(data, table + index * size) for index in range(count)]
    if machine is None:
        return None
    loader = next((_text(data, header[2]) for header in headers if header[0] == _PT_INTERP), "")
    dynamic = next((header for header in headers if header[0] == _PT_DYNAMIC), None)
    if dynamic is None:
        return Elf(machine, loader, ())
    begin, end = dynamic[2], dynamic[2] + dynamic[5]
    entries = list(_ENTRY.iter_unpack(data[begin : end - (end - begin) % _ENTRY.size]))
    address = next(value for tag, value in entries if tag == _DT_STRTAB)
    # The string table's place is given as it is in memory.
    load = next(h for h in headers if h[0] == _PT_LOAD and h[3] <= address < h[3] + h[5])
    strings = address - load[3] + load[2]
    return Elf(machine, loader, tuple(_text(data, strings + value) for tag, value in entries if tag == _DT_NEEDED))


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode("ascii")


# Bit 0: what follows is the source's hash, not its time. Bit 1, that it be checked, is not set.
_UNCHECKED_HASH = 1
# The last form without references, which depend on what else a process has in memory: the same source, the same bytes.
_MARSHAL_VERSION = 2


def can_compile(version: tuple[int, int]) -> bool:
    """Whether this Python's bytecode is that of a CPython of this version."""
    return sys.implementation.name == "cpython" and sys.version_info[:2] == version


def compiled(files: Mapping[str, bytes], version: tuple[int, int]) -> Mapping[str, bytes]:
    """The same files with X.pyc for each X.py, for a Python that can have ours; what does not compile stays."""
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


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PACKAGES = _names(
    "__phello__ curses dbm dist-packages distutils ensurepip idlelib lib2to3 pydoc_data site-packages sqlite3 test"
    " tkinter turtledemo venv wsgiref xmlrpc"
)
_MODULES = _names(
    "__hello__ _aix_support _bootsubprocess _osx_support _pydecimal _pyio aifc antigravity asynchat asyncore cgi cgitb"
    " chunk crypt ftplib imaplib imghdr mailbox mailcap msilib nntplib pipes poplib pydoc sitecustomize smtpd"
    " smtplib sndhdr sunau telnetlib this turtle uu wave webbrowser xdrlib zipapp"
)
_EXTENSIONS = _names(
    "_bz2 _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw _crypt _curses _curses_panel _dbm"
    " _gdbm _lsprof _lzma _multibytecodec _sqlite3 _tkinter _uuid audioop nis ossaudiodev readline spwd"
)
_TEST_EXTENSIONS = ("_test", "_xxtest", "_ctypes_test", "xxlimited", "xxsubtype")
# Text on a board is UTF-8 or bytes; a C library without its locales has no other anyway.
_ENCODINGS = _names(
    "__init__ aliases ascii charmap cp437 idna latin_1 punycode raw_unicode_escape unicode_escape utf_16 utf_16_be"
    " utf_16_le utf_32 utf_32_be utf_32_le utf_8 utf_8_sig"
)
_KINDS = (".py", ".so", ".txt")


def is_needed(path: str) -> bool:
    """For a path below lib/pythonX.Y, e.g. `asyncio/base_events.py` or `lib-dynload/_ssl.cpython-311-….so`."""
    if not path.endswith(_KINDS) or "__pycache__" in path:
        return False
    top, _, rest = path.partition("/")
    if not rest:
        module = top.partition(".")[0]
        return module not in _MODULES and not module.startswith("_sysconfigdata")
    if top == "lib-dynload":
        module = rest.partition(".")[0]
        return module not in _EXTENSIONS and not module.startswith(_TEST_EXTENSIONS)
    if top == "encodings":
        return rest.removesuffix(".py") in _ENCODINGS
    return top not in _PACKAGES and not top.startswith("config-") and "/test" not in f"/{rest}"


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


PYTHON = "bin/python"
INSTALLER, ITS_FILES = "install.sh", "installer"
_LIBC = "libc.so.6"
_GLIBC = re.compile(rb"GLIBC_2\.(\d+)")
# Its own loader is told where to look: a library of the board's, and what its environment says of libraries, stay out.
# Without `site` (-S), which looks for packages where there are none.
_PYTHON = """#!/bin/sh
# Runs this tree's own Python, with its own loader and libraries.
case $0 in */*) here=${{0%/*}} ;; *) here=. ;; esac
here=$(cd "$here/../python" && pwd -P) || exit 1
unset LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT
exec "$here/lib/{loader}" --inhibit-cache --library-path "$here/lib" "$here/bin/{python}" -S "$@"
"""


class Runtime:
    """A Python and the C library that it is to run with."""

    def __init__(self, python: UnpackedPython, roots: Sequence[Path]) -> None:
        self.python = python
        self._roots = roots

    @property
    def wheels_for(self) -> BoardPython:
        """What wheels must fit: this Python, and this C library instead of the board's."""
        libraries = needed_libraries([self.python.elf], self._roots)
        if _LIBC not in libraries:
            raise ProfagentError(
                f"this Python does not run with glibc: it needs {', '.join(self.python.elf.needed)}",
                hint="take Debian's packages, or an archive of python-build-standalone whose name ends in -gnu",
            )
        newest = max(int(minor) for minor in _GLIBC.findall(libraries[_LIBC]))
        return BoardPython(self.python.elf.machine, PYTHON, self.python.version, (2, newest))

    def files(self, library: Mapping[str, bytes]) -> dict[str, tuple[bytes, int]]:
        """python/: what it and the extensions of lib/ need of it."""
        python, name = self.python, self.python.name
        extensions = [elf for data in (*python.library.values(), *library.values()) if (elf := read_elf(data))]
        libraries = needed_libraries([python.elf, *extensions], self._roots)
        standard = compiled(python.library, python.version)
        return {
            f"python/bin/{name}": (python.program, 0o755),
            **{f"python/lib/{soname}": (data, 0o755) for soname, data in sorted(libraries.items())},
            **{f"python/lib/{name}/{path}": (data, 0o644) for path, data in sorted(standard.items())},
        }

    @property
    def launcher(self) -> str:
        """bin/python."""
        return _PYTHON.format(loader=Path(self.python.elf.loader).name, python=self.python.name)


def find_runtime(machine: str, source: Path, libraries: Path | None) -> Runtime:
    """The Python of one unpacked directory, with what it lacks from another. Raises ProfagentError."""
    roots = [source, *([libraries] if libraries else [])]
    return Runtime(find_python(source, machine), roots)


def bundle_tree(
    version: str, runtime: Runtime, library: Mapping[str, bytes], its_files: Mapping[str, bytes]
) -> DaemonTree:
    """The tree, with `library` below lib/ and install.sh with `its_files`. Raises ProfagentError."""
    kept = compiled({path: data for path, data in library.items() if not path.endswith(".pyi")}, runtime.python.version)
    installer = Path(__file__).with_name(INSTALLER).read_bytes()
    its_files = compiled(its_files, runtime.python.version)
    return DaemonTree.of(
        version,
        launcher(PYTHON),
        kept,
        {
            PYTHON: (runtime.launcher.encode(), 0o755),
            INSTALLER: (installer, 0o755),
            **{f"{ITS_FILES}/{path}": (data, 0o644) for path, data in sorted(its_files.items())},
            **runtime.files(library),
        },
        machine=runtime.python.elf.machine,
    )

"""A version directory that needs nothing of its board but a kernel: the daemon, its Python, loader and libraries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.deploy.bundle.bytecode import can_compile, compiled
from profagent.deploy.bundle.elf import read_elf
from profagent.deploy.bundle.unpacked import UnpackedPython, find_python, needed_libraries
from profagent.deploy.daemon_tree import DaemonTree, launcher
from profagent.deploy.wheels import BoardPython
from profagent.errors import ProfagentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Runtime", "bundle_tree", "find_runtime"]

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
        standard = _compiled(python.library, python.version)
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
    kept = _compiled(
        {path: data for path, data in library.items() if not path.endswith(".pyi")}, runtime.python.version
    )
    installer = Path(__file__).with_name(INSTALLER).read_bytes()
    its_files = _compiled(its_files, runtime.python.version)
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


def _compiled(files: Mapping[str, bytes], version: tuple[int, int]) -> Mapping[str, bytes]:
    return compiled(files) if can_compile(version) else files

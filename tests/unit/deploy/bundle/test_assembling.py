"""What a bundle is made of: bytecode, the part of the standard library that a board needs, libraries."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profagent.deploy.bundle.assembling import (
    can_compile,
    compiled,
    find_runtime,
    is_needed,
    needed_libraries,
    shared_libraries,
)
from profagent.errors import ProfagentError

SHELL = Path("/bin/sh").resolve()
OWN = sys.version_info[:2]
SOURCE = b"""
'''A module.'''
NAMES = {'one', 'two', 'three'} | frozenset(('a', 'b'))
def has(name):
    return name in {'one', 'two', 'three'}
"""


def test_it_runs_without_its_source(tmp_path: Path) -> None:
    for path, data in compiled({"module.py": SOURCE}, OWN).items():
        (tmp_path / path).write_bytes(data)
    assert [path.name for path in tmp_path.iterdir()] == ["module.pyc"]
    program = "import module, sys; print(module.__doc__, module.has('two'), sorted(module.NAMES)[0])"
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert ran.stdout == "A module. True a\n"


def test_only_its_own_version_is_compiled_for() -> None:
    major, minor = OWN
    assert can_compile(OWN)
    assert compiled({"module.py": SOURCE}, (major, minor + 1)) == {"module.py": SOURCE}


NEEDED = """os.py asyncio/base_events.py encodings/utf_8.py lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so
unittest/mock.py LICENSE.txt"""
LEFT_OUT = """test/test_os.py tkinter/__init__.py ctypes/test/test_init.py lib-dynload/_testcapi.cpython-311.so
__pycache__/os.cpython-311.pyc _sysconfigdata__linux_x86_64-linux-gnu.py site-packages/pip/__init__.py
EXTERNALLY-MANAGED config-3.11-x86_64-linux-gnu/python.o"""


def test_what_a_board_needs_of_the_standard_library() -> None:
    assert [path for path in NEEDED.split() if not is_needed(path)] == []
    assert [path for path in LEFT_OUT.split() if is_needed(path)] == []


MACHINE = platform.machine()
OTHER = "aarch64" if MACHINE == "x86_64" else "x86_64"


def make_python(root: Path, name: str = "python3.11") -> Path:
    """A tree with a Python and three files of its library."""
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(SHELL, root / "usr/bin" / name)
    library = root / "usr/lib" / name
    (library / "test").mkdir(parents=True)
    for path in ("os.py", "test/test_os.py"):
        (library / path).write_text("")
    (library / "sitecustomize.py").symlink_to("/etc/hostname")
    return root


def test_the_newest_is_taken_with_what_is_needed_of_its_library(tmp_path: Path) -> None:
    for name in ("python3.9", "python3.11", "python3.10"):
        make_python(tmp_path, name)
    (tmp_path / "usr/bin/python3.12-config").write_text("")
    python = find_runtime(MACHINE, tmp_path, Path("/"))
    assert (python.version, python.name) == ((3, 11), "python3.11")
    assert list(python.standard) == ["os.py"]


def test_a_python_or_a_library_of_another_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfagentError, match=f"is not for {OTHER}"):
        find_runtime(OTHER, make_python(tmp_path), None)
    shutil.copy("/usr/bin/env", tmp_path / "usr/lib/libc.so.6")
    other = bytearray((tmp_path / "usr/lib/libc.so.6").read_bytes())
    other[18:20] = b"\xb7\0" if OTHER == "aarch64" else b"\x3e\0"
    (tmp_path / "usr/lib/libc.so.6").write_bytes(other)
    with pytest.raises(ProfagentError, match=f"libc.so.6 for {MACHINE} is not in {tmp_path}") as refused:
        find_runtime(MACHINE, tmp_path, None)
    assert "--libraries" in refused.value.hint


def test_libraries_are_found_with_what_they_need_in_turn() -> None:
    """As the loader finds them for a program."""
    found = needed_libraries([SHELL.read_bytes(), b"libstdc++.so.6\0"], shared_libraries(MACHINE, [Path("/")]))
    own = {**os.environ, "LD_PRELOAD": ""}
    loaded = subprocess.run(["ldd", SHELL], env=own, check=True, capture_output=True, text=True).stdout
    wanted = {line.split()[0].rpartition("/")[2] for line in loaded.splitlines() if "=>" in line}
    assert wanted | {"libstdc++.so.6", "libm.so.6", "libc.so.6", "libgcc_s.so.1"} <= found.keys()
    assert any(name.startswith("ld-linux-") for name in found)

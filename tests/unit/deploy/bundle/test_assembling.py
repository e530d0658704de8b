"""What a bundle is made of: ELF files, bytecode, the part of the standard library that a board needs, libraries."""

from __future__ import annotations

import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profagent.deploy.bundle.assembling import (
    Elf,
    can_compile,
    compiled,
    find_python,
    is_needed,
    needed_libraries,
    read_elf,
)
from profagent.errors import ProfagentError

LIBRARY = next(Path(grpc.__file__).parent.glob("_cython/cygrpc*.so"))
SHELL = Path("/bin/sh").resolve()
HEAD = SHELL.read_bytes()[: 4 << 10]


@pytest.mark.parametrize("path", [LIBRARY, SHELL], ids=["library", "program"])
def test_what_a_file_needs_is_what_the_loader_loads_for_it(path: Path) -> None:
    elf = read_elf(path.read_bytes())
    assert elf is not None
    assert elf.machine == platform.machine()
    assert elf.needed
    loaded = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
    assert set(elf.needed) <= {line.split()[0].rpartition("/")[2] for line in loaded.splitlines()}


def test_another_kind_of_file_is_none() -> None:
    assert read_elf(b"") is None
    assert read_elf(b"#!/bin/sh\n") is None
    assert read_elf(HEAD[:18] + struct.pack("<H", 8) + HEAD[20:]) is None, "a machine that is not known"


@given(st.integers(0, len(HEAD)), st.integers(0, len(HEAD) - 1), st.integers(0, 255))
def test_damaged_files_are_none_or_something(size: int, place: int, value: int) -> None:
    damaged = bytearray(HEAD)
    damaged[place] = value
    assert isinstance(read_elf(bytes(damaged[:size])), Elf | None)


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


NEEDED = """
os.py site.py asyncio/base_events.py json/decoder.py tomllib/_parser.py encodings/utf_8.py encodings/aliases.py
lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so lib-dynload/_asyncio.cpython-311-aarch64-linux-gnu.so
unittest/mock.py importlib/metadata/__init__.py LICENSE.txt"""
LEFT_OUT = """
test/test_os.py idlelib/idle.py tkinter/__init__.py lib2to3/Grammar.txt ctypes/test/test_init.py
encodings/cp1252.py lib-dynload/_tkinter.cpython-311-x86_64-linux-gnu.so lib-dynload/_testcapi.cpython-311.so
lib-dynload/_xxtestfuzz.cpython-311-x86_64-linux-gnu.so __pycache__/os.cpython-311.pyc asyncio/__pycache__/log.pyc
_sysconfigdata__linux_x86_64-linux-gnu.py site-packages/pip/__init__.py EXTERNALLY-MANAGED turtle.py
config-3.11-x86_64-linux-gnu/python.o"""


@pytest.mark.parametrize("path", NEEDED.split())
def test_needed(path: str) -> None:
    assert is_needed(path)


@pytest.mark.parametrize("path", LEFT_OUT.split())
def test_left_out(path: str) -> None:
    assert not is_needed(path)


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


def refusal(root: Path, machine: str = MACHINE) -> ProfagentError:
    with pytest.raises(ProfagentError) as refused:
        find_python(root, machine)
    return refused.value


def test_the_newest_is_taken_with_what_is_needed_of_its_library(tmp_path: Path) -> None:
    for name in ("python3.9", "python3.11", "python3.10"):
        make_python(tmp_path, name)
    (tmp_path / "usr/bin/python3.12-config").write_text("")
    python = find_python(tmp_path, MACHINE)
    assert (python.version, python.name) == ((3, 11), "python3.11")
    assert list(python.library) == ["os.py"]


def test_a_python_of_another_machine_is_refused(tmp_path: Path) -> None:
    assert f"is for {MACHINE}, not for {OTHER}" in str(refusal(make_python(tmp_path), OTHER))
    (tmp_path / "usr/bin/python3.11").write_text("#!/bin/sh\n")
    assert "no machine that is known" in str(refusal(tmp_path))


def test_libraries_are_found_with_what_they_need_in_turn() -> None:
    found = needed_libraries([Elf(MACHINE, "", ("libstdc++.so.6",))], [Path("/")])
    assert {"libstdc++.so.6", "libm.so.6", "libc.so.6", "libgcc_s.so.1"} <= found.keys()
    assert any(name.startswith("ld-linux-") for name in found)


def test_a_library_that_is_nowhere_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ProfagentError, match=f"libnone.so.1 for {MACHINE} is not in {tmp_path}") as refused:
        needed_libraries([Elf(MACHINE, "", ("libnone.so.1",))], [tmp_path])
    assert "--libraries" in refused.value.hint

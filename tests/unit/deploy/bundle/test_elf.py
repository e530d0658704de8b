"""What is read of ELF files: of those that this machine runs, and of damaged ones."""

from __future__ import annotations

import platform
import struct
import subprocess
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profagent.deploy.bundle.elf import Elf, read_elf

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


def test_a_program_names_its_loader_and_a_library_none() -> None:
    program, library = read_elf(SHELL.read_bytes()), read_elf(LIBRARY.read_bytes())
    assert program is not None
    assert library is not None
    assert Path(program.loader).is_file()
    assert library.loader == ""


def test_another_kind_of_file_is_none() -> None:
    assert read_elf(b"") is None
    assert read_elf(b"#!/bin/sh\n") is None
    assert read_elf(HEAD[:18] + struct.pack("<H", 8) + HEAD[20:]) is None, "a machine that is not known"


@given(st.integers(0, len(HEAD)), st.integers(0, len(HEAD) - 1), st.integers(0, 255))
def test_damaged_files_are_none_or_something(size: int, place: int, value: int) -> None:
    damaged = bytearray(HEAD)
    damaged[place] = value
    assert isinstance(read_elf(bytes(damaged[:size])), Elf | None)

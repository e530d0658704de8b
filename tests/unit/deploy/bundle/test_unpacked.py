"""What is found in directories of unpacked packages, with this machine's shell as their Python."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest

from profagent.deploy.bundle.assembling import find_python, needed_libraries
from profagent.deploy.bundle.elf import Elf
from profagent.errors import ProfagentError

MACHINE = platform.machine()
OTHER = "aarch64" if MACHINE == "x86_64" else "x86_64"
SHELL = Path("/bin/sh").resolve()


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


def test_a_tree_without_python_or_its_library_is_refused(tmp_path: Path) -> None:
    assert "libpython3.11-stdlib" in refusal(tmp_path).hint
    make_python(tmp_path)
    (tmp_path / "usr/lib/python3.11/os.py").unlink()
    assert "without its library" in str(refusal(tmp_path))


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


def test_neither_another_machines_library_nor_this_ones_own_is_taken(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libown.so.1").symlink_to(SHELL)
    shutil.copy(SHELL, tmp_path / "lib/libother.so.1")
    for elf in (Elf(MACHINE, "", ("libown.so.1",)), Elf(OTHER, "", ("libother.so.1",))):
        with pytest.raises(ProfagentError, match="is not in"):
            needed_libraries([elf], [tmp_path])

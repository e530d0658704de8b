"""The scripts under tools/: which Python 3.9 is taken, and what happens where something is missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


class Machine:
    """An environment in which only the programs that a test puts there can be found."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.pyenv = folder / "pyenv"
        self.programs.mkdir()
        for name in ("bash", "chmod", "dirname", "mkdir", "rm", "sh", "touch"):
            (self.programs / name).symlink_to(str(shutil.which(name)))

    def add_program(self, path: Path, script: str) -> Path:
        """A program that is a shell script."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def add_python(self, path: Path, version: str) -> Path:
        """A program that says that it is this version of Python, whatever it is asked."""
        return self.add_program(path, f"echo {version}")

    def add_apt(self) -> None:
        """An apt-get that says what it is asked, and gives Python its venv module."""
        self.add_program(self.programs / "apt-get", f'echo "apt-get $*"; touch {self.programs}/installed')

    def run(self, tool: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run one of the tools to its end."""
        return subprocess.run(
            [str(TOOLS / tool), *map(str, arguments)],
            env={"PATH": str(self.programs), "PYENV_ROOT": str(self.pyenv), **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine without any Python."""
    return Machine(tmp_path)


def test_a_named_python_of_another_version_is_an_error(machine: Machine, tmp_path: Path) -> None:
    machine.add_python(machine.programs / "python3.9", "3.9")
    named = machine.add_python(tmp_path / "mine", "3.11")
    found = machine.run("find_python39", PYTHON39=str(named))
    assert (found.returncode, found.stdout) == (2, "")
    assert "is not a Python 3.9" in found.stderr


def test_without_a_39_the_last_line_says_what_did_not_run(machine: Machine) -> None:
    run = machine.run("test_on_39")
    assert run.returncode == 0
    assert run.stdout.splitlines()[-1].startswith("NOT RUN: the daemon's tests on Python 3.9")


def test_a_missing_program_is_installed_for_root_and_said(machine: Machine) -> None:
    machine.add_program(machine.programs / "id", "echo 0")
    machine.add_apt()
    installed = machine.run("need", "openssl", "openssl-package")
    assert installed.returncode == 0, installed.stderr
    said, update, install = installed.stdout.splitlines()
    assert said.startswith("installing openssl-package, which has openssl")
    assert (update, install.split()[-1]) == ("apt-get update", "openssl-package")


@pytest.mark.parametrize(("has_it", "said"), [(True, "without the disk: "), (False, "")])
def test_a_command_does_without_waiting_for_the_disk_where_it_can(machine: Machine, *, has_it: bool, said: str) -> None:
    machine.add_program(machine.programs / "id", "echo 1000")
    machine.add_program(machine.programs / "program", 'echo "$1"; exit 5')
    if has_it:
        machine.add_program(machine.programs / "eatmydata", 'printf "without the disk: "; "$@"')
    ran = machine.run("unsynced", "program", "word")
    assert (ran.returncode, ran.stdout) == (5, f"{said}word\n")
    assert ("apt-get install eatmydata" in ran.stderr) is not has_it

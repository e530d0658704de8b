"""The project as a whole: one version, pins that anyone can install, and a wheel with all that runs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import profagent
import profagentd

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINNED = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
IMPORT_ROOTS = ("protos/profagent_wire", "daemon/profagentd", "agent/profagent")


def pins(name: str) -> dict[str, str]:
    """Package and version of each pin."""
    return dict(PIN.findall((ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The project's wheel, just built."""
    built = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")), versions=["standard"])
    with zipfile.ZipFile(next(iter(built))) as opened:
        yield opened


def test_both_sides_have_the_version_of_the_distribution() -> None:
    assert profagent.__version__ == profagentd.__version__ == PYPROJECT["project"]["version"]


@pytest.mark.parametrize("path", PINNED, ids=lambda path: path.name)
def test_pins_have_hashes_and_name_no_registry(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    blocks = re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]
    assert blocks
    assert all("--hash=sha256:" in block for block in blocks)
    assert not re.search(r"://|--(extra-)?index-url|--find-links|--trusted-host", text)


def test_hosts_run_what_was_tested() -> None:
    assert pins("host").items() <= pins("dev").items()


def test_each_dependency_is_pinned_where_it_is_wanted() -> None:
    names = {re.split(r"[<>=; ]", entry)[0]: entry for entry in PYPROJECT["project"]["dependencies"]}
    board = {name for name, entry in names.items() if "python_version >=" not in entry}
    host = {name for name, entry in names.items() if "python_version <" not in entry}
    assert board <= pins("board39").keys()
    assert host <= pins("host").keys()


def test_the_wheel_holds_every_file_of_the_three_packages(wheel: zipfile.ZipFile) -> None:
    wanted = {
        path.relative_to(ROOT / root.split("/")[0]).as_posix()
        for root in IMPORT_ROOTS
        for path in (ROOT / root).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"profagent/store/schema.sql", "profagent_wire/v1/board.proto", "profagentd/py.typed"} <= wanted
    assert wanted <= set(wheel.namelist())


def test_the_wheel_gives_both_commands(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("/entry_points.txt"))
    lines = wheel.read(entry_points).decode().split("\n")
    assert {"profagent = profagent.cli.main:main", "profagentd = profagentd.main:main"} <= set(lines)


def test_the_wheel_brings_what_a_board_starts_the_daemon_with(wheel: zipfile.ZipFile) -> None:
    units = [path.relative_to(ROOT).as_posix() for path in (ROOT / "systemd").rglob("*") if path.is_file()]
    assert "systemd/profagentd.init" in units
    for unit in units:
        assert wheel.read(f"profagent/deploy/{unit}") == (ROOT / unit).read_bytes()


def test_an_older_python_is_told_so_in_one_sentence() -> None:
    """The distribution installs there for the daemon; the agent needs a newer one."""
    program = "import sys; sys.version_info = (3, 10, 13); import profagent.cli.main"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.stderr == "profagent needs Python 3.11 or later; this Python has profagentd only\n"
    assert found.returncode == 1

"""A version directory: that it runs from wherever it stands, and says what it holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest

from profagent.deploy.daemon_tree import (
    REQUIREMENTS,
    TOMLI,
    BoardPython,
    DaemonTree,
    download_arguments,
    fetch_wheels,
    launcher,
    own_packages,
    pack,
    read_probe,
    unpack,
    wheel_files,
)
from profagent.errors import ProfagentError
from profagentd import __version__

TREE = DaemonTree.of("1.2", "start", {"a/b.py": b"1"}, {"bin/python": (b"2", 0o755)}, machine="aarch64")


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    file.write_bytes(pack(TREE))
    assert unpack(file) == TREE
    assert unpack(file).name == TREE.name
    assert unpack(file).about == {"machine": "aarch64"}


@pytest.mark.parametrize("cut", [0, 20, 200])
def test_a_file_that_is_cut_off_is_refused(cut: int, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    file.write_bytes(pack(TREE)[:cut])
    with pytest.raises(ProfagentError, match="is no bundle"):
        unpack(file)


BOARD = BoardPython("aarch64", "/usr/bin/python3", (3, 11), (2, 35))


def make_wheel(folder: Path, name: str, version: str, tag: str) -> str:
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel.name


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheelhouse for several kinds of boards; its grpcio for newer C libraries has a higher version."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    house = tmp_path / "house"
    make_wheel(house, "grpcio", "1.80.0", "cp311-cp311-manylinux2014_aarch64")
    make_wheel(house, "grpcio", "1.81.0", "cp311-cp311-manylinux_2_36_aarch64")
    make_wheel(house, "grpcio", "1.82.0", "cp310-cp310-manylinux2014_aarch64")
    make_wheel(house, "grpcio", "1.83.0", "cp311-cp311-manylinux2014_x86_64")
    make_wheel(house, "protobuf", "7.1.0", "cp310-abi3-manylinux2014_aarch64")
    make_wheel(house, "protobuf", "8.0.0", "cp310-abi3-manylinux2014_aarch64")
    return house


async def test_the_newest_wheels_that_run_on_the_board_are_taken(house: Path) -> None:
    wheels = await fetch_wheels(BOARD, house)
    assert [wheel.name for wheel in wheels] == [
        "grpcio-1.80.0-cp311-cp311-manylinux2014_aarch64.whl",
        "protobuf-7.1.0-cp310-abi3-manylinux2014_aarch64.whl",
    ]
    assert all(wheel.parent == house for wheel in wheels)


async def test_what_a_wheelhouse_lacks_is_told(house: Path) -> None:
    with pytest.raises(ProfagentError, match="grpcio") as error:
        await fetch_wheels(BoardPython("riscv64", "python3", (3, 11), (2, 39)), house)
    assert error.value.hint.startswith("on a machine with internet: pip download --only-binary :all:")
    assert f"--platform manylinux2014_riscv64 --dest {house} 'grpcio>=1.60'" in error.value.hint


async def test_what_was_fetched_once_is_kept(house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(house))
    first = await fetch_wheels(BOARD)
    assert len(first) == 2
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert await fetch_wheels(BOARD) == first
    assert [folder.name for folder in (tmp_path / "cache" / "profagent" / "wheels").iterdir()] == [BOARD.key]


PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))["project"]
AIFLY = BoardPython("aarch64", "/usr/bin/python3", (3, 10), (2, 35))


def test_the_requirements_are_the_projects_for_the_board() -> None:
    board = {entry.partition(";")[0].strip() for entry in PROJECT["dependencies"] if "version >=" not in entry}
    assert board == {*REQUIREMENTS, TOMLI}


def test_a_probe_tells_the_python_and_its_c_library() -> None:
    assert read_probe("aarch64\t/usr/bin/python3\t3.10\tglibc\t2.35\n") == AIFLY
    assert read_probe("banner\naarch64\t/opt/my python\t3.12\t-\t-\n").glibc is None
    with pytest.raises(ProfagentError, match="banner"):
        read_probe("banner\n")


def test_wheels_are_for_the_boards_platform_and_none_newer() -> None:
    arguments = download_arguments(AIFLY, Path("/wheels"))
    platforms = [after for before, after in pairwise(arguments) if before == "--platform"]
    assert platforms[0] == "manylinux_2_35_aarch64"
    assert platforms[-2:] == ["manylinux_2_17_aarch64", "manylinux2014_aarch64"]
    assert arguments[-3:] == ["grpcio>=1.60", "protobuf>=5.26,<8", "tomli>=2.0"]
    assert arguments[arguments.index("--python-version") + 1] == "3.10"


def test_musl_has_wheels_of_its_own() -> None:
    musl = BoardPython("aarch64", "python3", (3, 12), None)
    assert all(re.fullmatch(r"musllinux_1_\d_aarch64", tag) for tag in musl.platforms)
    assert musl.key.startswith("cp312-aarch64-musl-")


def unpacked(tree: DaemonTree, folder: Path) -> Path:
    with tarfile.open(fileobj=tree.tar()) as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_the_tree_runs_from_where_it_stands(tmp_path: Path) -> None:
    """With nothing of the caller's directory or environment in place of its own."""
    tree = DaemonTree.of(__version__, launcher(sys.executable), own_packages())
    at = unpacked(tree, tmp_path / "it's here")
    (tmp_path / "profagentd").mkdir()
    (tmp_path / "profagentd" / "__init__.py").write_text("raise SystemExit('the wrong one')", "ascii")
    (tmp_path / "link").symlink_to(at)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(
        [tmp_path / "link" / "bin" / "profagentd", "--version"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout, ran.returncode) == (f"profagentd {__version__}\n", 0), ran.stderr


def test_the_daemon_and_the_wire_are_whole() -> None:
    files = own_packages()
    assert {
        "profagentd/main.py",
        "profagentd/simulate/models/resnet50.toml",
        "profagent_wire/checksum.py",
    } <= files.keys()
    assert not any("__pycache__" in path or path.startswith("profagent/") for path in files)


def test_a_wheel_gives_its_packages_without_metadata(tmp_path: Path) -> None:
    wheel = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a/__init__.py", "1")
        archive.writestr("a-1.dist-info/METADATA", "2")
    assert wheel_files([wheel]) == {"a/__init__.py": b"1"}
    wheel.write_bytes(b"damaged")
    with pytest.raises(ProfagentError, match="a-1-py3-none-any"):
        wheel_files([wheel])

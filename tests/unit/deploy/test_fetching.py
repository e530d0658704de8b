"""Fetching wheels with a real pip, from a folder in place of the internet."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from profagent.deploy.daemon_tree import BoardPython, fetch_wheels
from profagent.errors import ProfagentError

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

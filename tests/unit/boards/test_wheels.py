"""The libraries for a board: which wheels run there, and that they are the pinned ones."""

from __future__ import annotations

import hashlib
import re
import tomllib
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest

from profagent.boards import wheels
from profagent.boards.survey import BoardPython
from profagent.boards.wheels import Pin, download_arguments, fetch_wheels, pins, wheels_key
from profagent.errors import ProfagentError

ROOT = Path(__file__).parents[3]
BOARD = BoardPython("aarch64", "/usr/bin/python3", (3, 11), (2, 35))


def make_wheel(folder: Path, name: str, version: str, tag: str) -> str:
    """A wheel; its digest."""
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheelhouse for several kinds of boards, and of several versions."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    house = tmp_path / "house"
    digest = make_wheel(house, "grpcio", "1.80.0", "cp311-cp311-manylinux2014_aarch64")
    make_wheel(house, "grpcio", "1.80.0", "cp310-cp310-manylinux2014_aarch64")
    make_wheel(house, "grpcio", "1.80.0", "cp311-cp311-manylinux2014_x86_64")
    make_wheel(house, "grpcio", "1.81.0", "cp311-cp311-manylinux2014_aarch64")
    pinned = [Pin("grpcio", "1.80.0", frozenset([digest]))]
    digest = make_wheel(house, "protobuf", "7.1.0", "cp310-abi3-manylinux2014_aarch64")
    make_wheel(house, "protobuf", "7.2.0", "cp310-abi3-manylinux2014_aarch64")
    monkeypatch.setattr(wheels, "pins", lambda _: (*pinned, Pin("protobuf", "7.1.0", frozenset([digest]))))
    return house


async def test_the_pinned_wheels_that_run_on_the_board_are_taken(house: Path) -> None:
    found = await fetch_wheels(BOARD, house)
    assert [wheel.name for wheel in found] == [
        "grpcio-1.80.0-cp311-cp311-manylinux2014_aarch64.whl",
        "protobuf-7.1.0-cp310-abi3-manylinux2014_aarch64.whl",
    ]
    assert all(wheel.parent == house for wheel in found)


async def test_what_a_wheelhouse_lacks_is_told(house: Path) -> None:
    with pytest.raises(ProfagentError, match="grpcio") as error:
        await fetch_wheels(BoardPython("riscv64", "python3", (3, 11), (2, 39)), house)
    assert error.value.hint.startswith("on a machine with internet: pip download --no-deps --only-binary :all:")
    assert f"--platform manylinux2014_riscv64 --dest {house} grpcio==1.80.0" in error.value.hint


async def test_what_was_fetched_once_is_kept_and_another_file_of_its_name_never_taken(
    house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(house))
    first = await fetch_wheels(BOARD)
    assert len(first) == 2
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert await fetch_wheels(BOARD) == first
    assert [folder.name for folder in (tmp_path / "cache" / "profagent" / "wheels").iterdir()] == [wheels_key(BOARD)]
    for wheel, given in ((first[0], None), (house / first[0].name, house)):
        with zipfile.ZipFile(wheel, "a") as archive:
            archive.writestr("grpc/__init__.py", "print('not what was published')")
        with pytest.raises(ProfagentError, match="is not the file that this profagent pins") as error:
            await fetch_wheels(BOARD, given)
        assert "grpcio==1.80.0, protobuf==7.1.0" in error.value.hint


@pytest.mark.parametrize(("version", "pinned"), [((3, 9), "board39"), ((3, 10), "host"), ((3, 14), "host")])
def test_a_board_gets_what_was_tested_of_all_that_the_daemon_needs(version: tuple[int, int], pinned: str) -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    needed = {re.split("[><=]", entry)[0] for entry in dependencies if "version >=" not in entry}
    found = {pin.name: pin for pin in pins(version)}
    # gRPC needs the last one.
    assert found.keys() == {*needed, "typing-extensions"} - ({"tomli"} if version >= (3, 11) else set())
    text = (ROOT / "requirements" / f"{pinned}.txt").read_text("ascii")
    for name in ("grpcio", "protobuf", "typing-extensions"):
        (block,) = re.findall(rf"^{found[name].requirement} .*\n(?:    --hash.*\n)+", text, re.MULTILINE)
        assert set(re.findall("[0-9a-f]{64}", block)) == found[name].digests


def test_wheels_are_for_the_boards_platform_and_none_newer() -> None:
    aifly = BoardPython("aarch64", "/usr/bin/python3", (3, 10), (2, 35))
    arguments = download_arguments(aifly, Path("/wheels"))
    platforms = [after for before, after in pairwise(arguments) if before == "--platform"]
    assert platforms[0] == "manylinux_2_35_aarch64"
    assert platforms[-2:] == ["manylinux_2_17_aarch64", "manylinux2014_aarch64"]
    assert arguments[-4:] == [pin.requirement for pin in pins((3, 10))]
    assert arguments[arguments.index("--python-version") + 1] == "3.10"


def test_musl_has_wheels_of_its_own() -> None:
    musl = BoardPython("aarch64", "python3", (3, 12), None)
    assert all(re.fullmatch(r"musllinux_1_\d_aarch64", tag) for tag in musl.platforms)
    assert wheels_key(musl).startswith("cp312-aarch64-musl-")

"""What pip is asked for on behalf of a board's Python."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from profagent.deploy.daemon_tree import REQUIREMENTS, TOMLI, BoardPython, download_arguments, read_probe
from profagent.errors import ProfagentError

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


def test_a_c_library_without_wheels_is_told() -> None:
    with pytest.raises(ProfagentError, match=r"glibc is 2\.12") as error:
        download_arguments(BoardPython("aarch64", "python3", (3, 9), (2, 12)), Path("/wheels"))
    assert "bundle" in error.value.hint

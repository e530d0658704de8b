"""Which daemon is brought to a board; and a version directory: that it runs from wherever it stands."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from profagent.boards.daemon_tree import DaemonTree, chosen_version, launcher, own_packages, pack, unpack, wheel_files
from profagent.boards.survey import BoardFacts, BoardPython, check_room, read_probe, read_survey, survey_script, unfit
from profagent.errors import ProfagentError
from profagentd import __version__

EULER = BoardFacts("aarch64", "euler", "glibc 2.29", None, "", (), "/opt", 50 << 20)
AIFLY = replace(EULER, python=BoardPython("aarch64", "/usr/bin/python3", (3, 10), (2, 35)))


def test_a_python_of_the_board_will_do() -> None:
    assert unfit(AIFLY) is None


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (EULER, r"has no Python 3\.9 or later"),
        (replace(AIFLY, lacks=("ssl", "libstdc++.so.6")), r"Python 3\.10 without ssl and libstdc\+\+\.so\.6"),
        (
            replace(AIFLY, libc="glibc 2.12", python=BoardPython("aarch64", "python3", (3, 9), (2, 12))),
            r"glibc 2\.12, for which there are no wheels",
        ),
    ],
    ids=["none", "incomplete", "old glibc"],
)
async def test_where_it_will_not_what_it_lacks_is_named(facts: BoardFacts, why: str) -> None:
    for wish in ("auto", "system"):
        with pytest.raises(ProfagentError, match=why) as refused:
            await chosen_version(facts, wish, None, None)
        assert "profagent bundle --arch aarch64 --libraries DIR -o" in refused.value.hint


async def test_a_bundle_is_taken_where_it_is_needed_and_fits(tmp_path: Path) -> None:
    made, other = (DaemonTree.of("1", "start", {}, machine=machine) for machine in ("aarch64", "x86_64"))
    (tmp_path / "bundle").write_bytes(pack(made))
    (tmp_path / "other").write_bytes(pack(other))
    assert await chosen_version(EULER, "auto", tmp_path / "bundle", None) == made
    assert await chosen_version(AIFLY, "bundled", tmp_path / "bundle", None) == made
    with pytest.raises(ProfagentError, match="the bundle is for x86_64, and euler is aarch64"):
        await chosen_version(EULER, "auto", tmp_path / "other", None)


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
    with pytest.raises(ProfagentError, match="is not a bundle"):
        unpack(file)


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


# What a board says of itself


def test_a_probe_tells_the_python_and_its_c_library() -> None:
    assert read_probe("aarch64\t/usr/bin/python3\t3.10\tglibc\t2.35\n") == AIFLY.python
    assert read_probe("banner\naarch64\t/opt/my python\t3.12\t-\t-\n").glibc is None
    with pytest.raises(ProfagentError, match="banner"):
        read_probe("banner\n")


def test_this_machine_is_seen_without_anything_that_was_deployed(tmp_path: Path) -> None:
    prefix = str(tmp_path / "not/yet/there")
    ran = subprocess.run(["sh", "-s"], input=survey_script(prefix), check=True, capture_output=True, text=True)
    facts = read_survey(ran.stdout)
    assert (ran.stderr, facts.machine, facts.hostname) == ("", os.uname().machine, os.uname().nodename)
    assert facts.place == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_board_without_room_is_refused() -> None:
    check_room(EULER, 48 << 20)
    check_room(replace(EULER, free_bytes=None), 1 << 40)
    with pytest.raises(ProfagentError, match=r"/opt on euler has 50\.0 MiB free, and 50\.0 MiB are needed"):
        check_room(EULER, (48 << 20) + 1)

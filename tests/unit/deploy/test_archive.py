"""A tree as a file, and back."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest

from profagent.deploy.daemon_tree import DaemonTree, pack, unpack
from profagent.deploy.setup import MANIFEST
from profagent.errors import ProfagentError

TREE = DaemonTree.of("1.2", "start", {"a/b.py": b"1"}, {"bin/python": (b"2", 0o755)}, machine="aarch64")


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    file.write_bytes(pack(TREE))
    assert unpack(file) == TREE
    assert unpack(file).name == TREE.name
    assert unpack(file).about == {"machine": "aarch64"}


def test_the_file_has_one_directory_and_nothing_of_when_and_who(tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    file.write_bytes(pack(TREE))
    with tarfile.open(file) as archive:
        members = archive.getmembers()
    assert {member.name.split("/")[0] for member in members} == {TREE.name}
    assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {(0, 0, 0, "")}
    assert file.read_bytes()[4:8] == bytes(4), "the time in gzip's head"


@pytest.mark.parametrize("cut", [0, 20, 200])
def test_a_file_that_is_cut_off_is_refused(cut: int, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    file.write_bytes(pack(TREE)[:cut])
    with pytest.raises(ProfagentError, match="is no bundle"):
        unpack(file)


def test_a_file_that_was_changed_is_named(tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    changed = DaemonTree(TREE.version, {**TREE.files, "lib/a/b.py": (b"3", 0o644), "lib/c": (b"", 0o644)})
    file.write_bytes(pack(changed))
    with pytest.raises(ProfagentError, match=r"is damaged: lib/a/b\.py, lib/c$"):
        unpack(file)


def test_another_archive_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.tar.gz"
    without = DaemonTree(TREE.version, {path: file for path, file in TREE.files.items() if path != MANIFEST})
    other.write_bytes(gzip.compress(b"".join(without.tar(below="x/"))))
    with pytest.raises(ProfagentError, match="is no bundle"):
        unpack(other)
    other.write_bytes(gzip.compress(b"no tar"))
    with pytest.raises(ProfagentError, match="is no bundle"):
        unpack(other)

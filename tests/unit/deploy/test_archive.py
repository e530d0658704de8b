"""A tree as a file, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.deploy.daemon_tree import DaemonTree, pack, unpack
from profagent.errors import ProfagentError

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


def test_a_file_that_was_changed_is_named(tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    changed = DaemonTree(TREE.version, {**TREE.files, "lib/a/b.py": (b"3", 0o644), "lib/c": (b"", 0o644)})
    file.write_bytes(pack(changed))
    with pytest.raises(ProfagentError, match=r"is damaged: lib/a/b\.py, lib/c$"):
        unpack(file)

"""A version directory: that it runs from wherever it stands, and says what it holds."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from profagent.deploy.daemon_tree import DaemonTree, launcher, own_packages, wheel_files
from profagent.errors import ProfagentError
from profagentd import __version__


def unpacked(tree: DaemonTree, folder: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(b"".join(tree.tar()))) as archive:
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

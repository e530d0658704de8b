"""A version directory: that it runs from wherever it stands, and says what it holds."""

from __future__ import annotations

import hashlib
import io
import json
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


def test_the_manifest_has_the_digest_of_each_file(tmp_path: Path) -> None:
    tree = DaemonTree.of("1.2", launcher("/usr/bin/python3"), {"one/two.py": b"2"})
    at = unpacked(tree, tmp_path)
    manifest = json.loads((at / "manifest.json").read_bytes())
    assert manifest["version"] == "1.2"
    for path, digest in manifest["files"].items():
        assert hashlib.sha256((at / path).read_bytes()).hexdigest() == digest
    assert (at / "bin" / "profagentd").stat().st_mode & 0o777 == 0o755
    assert (at / "lib" / "one" / "two.py").stat().st_mode & 0o777 == 0o644


def test_the_name_follows_the_content() -> None:
    one = DaemonTree.of("1.2", "", {"a": b"1"})
    assert one.name == DaemonTree.of("1.2", "", {"a": b"1"}).name
    assert one.name.startswith("1.2-")
    assert one.name != DaemonTree.of("1.2", "", {"a": b"2"}).name


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

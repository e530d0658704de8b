"""The installer of a bundle: the real script and what it asks, below a prefix of the test's own."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profagent.deploy.bundle.bundling import installer_files
from profagent.deploy.daemon_tree import DaemonTree

SCRIPT = Path(__file__).parents[4] / "agent/profagent/deploy/bundle/install.sh"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What of a bundle the script needs: no more of the package than a board has."""
    folder = tmp_path / "tree"
    for path, data in installer_files().items():
        (folder / "installer" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "installer" / path).write_bytes(data)
    (folder / "bin").mkdir()
    (folder / "bin/python").symlink_to(sys.executable)
    (folder / "bin/id").write_text("#!/bin/sh\necho 0\n")
    (folder / "bin/id").chmod(0o755)
    text = SCRIPT.read_text("utf-8")
    assert "\nPREFIX=/opt/profagent\n" in text
    assert "\nBEAT_S=5\n" in text
    quick = text.replace("\nBEAT_S=5\n", "\nBEAT_S=0.1\n")
    (folder / "install.sh").write_text(quick.replace("PREFIX=/opt/profagent", f"PREFIX={tmp_path}/board", 1))
    return folder


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A board's, with settings and a version."""
    (tmp_path / "board/etc/roots.d").mkdir(parents=True)
    (tmp_path / "board/versions/1.0-0123abcd").mkdir(parents=True)
    (tmp_path / "board/versions/1.0-0123abcd/manifest.json").touch()
    return tmp_path / "board"


def ran(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `install.sh`."""
    path = f"{tree / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", tree / "install.sh", *arguments], env={"PATH": path}, capture_output=True, text=True, check=False
    )


def removal(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run `install.sh --remove`."""
    return ran(tree, "--remove")


@pytest.mark.parametrize("is_named", [False, True], ids=["settings", "roots.d"])
def test_jobs_are_not_removed(tree: Path, prefix: Path, is_named: bool) -> None:
    jobs = prefix / "versions/jobs"
    (jobs / "JOBX").mkdir(parents=True)
    if is_named:
        (prefix / "etc/roots.d/a.conf").write_text(f"# mine\n{jobs}")
    else:
        (prefix / "etc/profagentd.toml").write_text(f'roots = ["/elsewhere", "{jobs}"]\n')
    ended = removal(tree)
    assert ended.returncode == 1
    assert f"JOBs below {jobs} would be removed, too" in ended.stderr
    assert (jobs / "JOBX").is_dir()
    assert (prefix / "versions/1.0-0123abcd").is_dir()


def test_settings_that_cannot_be_read_may_name_jobs(tree: Path, prefix: Path) -> None:
    (prefix / "etc/profagentd.toml").write_text("roots = [")
    ended = removal(tree)
    assert ended.returncode == 1
    assert "cannot be read" in ended.stderr
    assert (prefix / "versions/1.0-0123abcd").is_dir()


def test_without_jobs_all_is_removed(tree: Path, prefix: Path, tmp_path: Path) -> None:
    (prefix / "etc/profagentd.toml").write_text(f'roots = ["{tmp_path}/jobs"]\n')
    ended = removal(tree)
    assert ended.returncode == 0, ended.stderr
    assert not prefix.exists()


def test_who_works_on_the_board_already_is_named(tree: Path, prefix: Path) -> None:
    (prefix / "deploying").mkdir()
    (prefix / "deploying/owner").write_text("lab-3 0123\n")
    (prefix / "deploying/beat").write_text(Path("/proc/uptime").read_text().split(".")[0])
    ended = removal(tree)
    assert ended.returncode == 1
    assert "is being worked on from lab-3" in ended.stderr
    assert (prefix / "versions/1.0-0123abcd").is_dir()
    assert (prefix / "deploying/owner").exists()


def test_a_damaged_version_is_brought_anew_and_not_led_back_to(tree: Path, prefix: Path) -> None:
    version = DaemonTree.of("1.0", "#!/bin/sh\nexit 1\n", {"a.py": b"1"}, machine=platform.machine())
    for path, (content, mode) in version.files.items():
        (tree / path).parent.mkdir(exist_ok=True)
        (tree / path).write_bytes(content)
        (tree / path).chmod(mode)
    damaged = prefix / "versions" / version.name
    shutil.copytree(tree, damaged, symlinks=True)
    (damaged / "lib/a.py").write_bytes(b"")
    (prefix / "previous").symlink_to(f"versions/{version.name}")
    ended = ran(tree, "--rollback", "--init", "none")
    assert f"{version.name}, the version before, is damaged" in ended.stderr
    ended = ran(tree, "--root", str(prefix.parent / "jobs"), "--init", "none")
    assert "the settings have mistakes" in ended.stderr  # as its launcher says, whatever they are
    assert (damaged / "lib/a.py").read_bytes() == b"1"
    assert not damaged.with_name(f"{damaged.name}.part").exists()

"""The installer of a bundle: the real script and what it asks, below a prefix of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from profagent.commands.bundling import installer_files

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
    (folder / "install.sh").write_text(text.replace("PREFIX=/opt/profagent", f"PREFIX={tmp_path}/board", 1))
    return folder


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A board's, with settings and a version."""
    (tmp_path / "board/etc/roots.d").mkdir(parents=True)
    (tmp_path / "board/versions/1.0-0123abcd").mkdir(parents=True)
    (tmp_path / "board/versions/1.0-0123abcd/manifest.json").touch()
    return tmp_path / "board"


def removal(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run `install.sh --remove`."""
    path = f"{tree / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", tree / "install.sh", "--remove"], env={"PATH": path}, capture_output=True, text=True, check=False
    )


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

"""The installer of a bundle: the real script, with its paths below a directory."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest


def removal(root: Path) -> subprocess.CompletedProcess[str]:
    """Run `install.sh --remove` with every path of the system below `root`."""
    text = files("profagent.deploy").joinpath("bundle", "install.sh").read_text("utf-8")
    moved = "".join(
        line.replace("=/", f"={root}/", 1) if line.split("=/")[0].isupper() else line for line in text.splitlines(True)
    )
    assert f"\nPREFIX={root}/opt/profagent\n" in moved
    programs = root / "bin"
    programs.mkdir()
    (root / "install.sh").write_text(moved)
    (programs / "python").symlink_to(sys.executable)
    (programs / "id").write_text("#!/bin/sh\necho 0\n")
    (programs / "id").chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", root / "install.sh", "--remove"], env={"PATH": path}, capture_output=True, text=True, check=False
    )


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    found = tmp_path / "etc/profagent"
    (found / "roots.d").mkdir(parents=True)
    (tmp_path / "opt/profagent/jobs/JOBX").mkdir(parents=True)
    return found


@pytest.mark.parametrize("is_named", [False, True], ids=["settings", "roots.d"])
def test_jobs_are_not_removed(tmp_path: Path, settings: Path, is_named: bool) -> None:
    jobs = tmp_path / "opt/profagent/jobs"
    if is_named:
        (settings / "roots.d/a.conf").write_text(f"# mine\n{jobs}")
    else:
        (settings / "profagentd.toml").write_text(f'roots = ["/elsewhere", "{jobs}"]\n')
    ended = removal(tmp_path)
    assert ended.returncode == 1
    assert f"{jobs}' would be removed, too" in ended.stderr
    assert (jobs / "JOBX").is_dir()


def test_settings_that_cannot_be_read_may_name_jobs(tmp_path: Path, settings: Path) -> None:
    (settings / "profagentd.toml").write_text("roots = [")
    ended = removal(tmp_path)
    assert ended.returncode == 1
    assert "cannot be read" in ended.stderr
    assert settings.is_dir()


def test_without_jobs_all_is_removed(tmp_path: Path, settings: Path) -> None:
    (settings / "profagentd.toml").write_text(f'roots = ["{tmp_path}/jobs"]\n')
    ended = removal(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert not settings.exists()
    assert not (tmp_path / "opt/profagent").exists()

"""The installer of a bundle: the real script with what it needs of the package, below a prefix of the test's own."""

from __future__ import annotations

import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from profagent.deploy.bundle.cli import installer_files
from profagent.deploy.daemon_tree import DaemonTree

SCRIPT = Path(__file__).parents[4] / "agent/profagent/deploy/bundle/install.sh"
# Takes all settings; its service finds a daemon that listens already.
START = '#!/bin/sh\ncase "$*" in *--check-config*) exit 0 ;; esac\nexec sleep 60\n'


def make_tree(folder: Path, *, mark: str = "", machine: str = platform.machine()) -> Path:
    """A bundle without its libraries; its Python is this one."""
    more = {f"installer/{path}": (data, 0o644) for path, data in installer_files().items()}
    more["bin/python"] = (f'#!/bin/sh\nexec {sys.executable} "$@"\n'.encode(), 0o755)
    more["install.sh"] = (SCRIPT.read_bytes(), 0o755)
    tree = DaemonTree.of("1.0", START, {"mark": mark.encode()}, more, machine=machine)
    for path, (data, mode) in tree.files.items():
        (folder / tree.name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / tree.name / path).write_bytes(data)
        (folder / tree.name / path).chmod(mode)
    return folder / tree.name


@pytest.fixture
def prefix(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "board"
    script = tmp_path / "board/profagentd.init"
    if script.exists():
        subprocess.run([script, "stop"], check=False, capture_output=True)


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[str]:
    """Where something answers."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        yield f"unix:{tmp_path}/s"


def ran(tree: Path, prefix: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = ["sh", tree / "install.sh", "--prefix", prefix, "--init", "none", *arguments]
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "ANSWER_S": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_it_installs_upgrades_leads_back_and_removes(tmp_path: Path, prefix: Path, listening: str) -> None:
    one, two = make_tree(tmp_path / "one"), make_tree(tmp_path / "two", mark="2")
    first = ran(one, prefix, "--root", "/root/jobs", "--listen", listening)
    assert first.returncode == 0, first.stderr
    assert f"profagentd {one.name} is installed; nothing starts it at boot" in first.stdout
    assert f'listen = "{listening}"\nroots = ["/root/jobs"]\n' in (prefix / "etc/profagentd.toml").read_text()
    identity = (prefix / "etc/board-id").read_text()
    assert ran(two, prefix).returncode == 0
    assert (prefix / "current").readlink().name == two.name
    back = ran(prefix / "current", prefix, "--rollback")
    assert back.returncode == 0, back.stderr
    assert (prefix / "current").readlink().name == one.name
    assert (prefix / "etc/board-id").read_text() == identity
    (prefix / "previous/lib/mark").write_text("damaged")
    assert "lib/mark is damaged" in ran(prefix / "current", prefix, "--rollback").stderr
    removed = ran(prefix / "current", prefix, "--remove")
    assert removed.returncode == 0, removed.stderr
    assert not prefix.exists()


def test_one_that_does_not_answer_is_taken_back(tmp_path: Path, prefix: Path) -> None:
    ended = ran(make_tree(tmp_path), prefix, "--root", "/root/jobs", "--listen", f"unix:{tmp_path}/none")
    assert ended.returncode == 1
    assert "does not start: what ran before is back; nothing answers at unix:" in ended.stderr
    assert not (prefix / "current").is_symlink()


def test_what_cannot_be_installed_is_refused(tmp_path: Path, prefix: Path) -> None:
    tree = make_tree(tmp_path)
    assert "this is for riscv64" in ran(make_tree(tmp_path, machine="riscv64"), prefix, "--root", "/a").stderr
    assert "say where JOBs are" in ran(tree, prefix).stderr
    assert "no /none/board.pem" in ran(tree, prefix, "--root", "/a", "--keys", "/none").stderr
    assert "no version before this one" in ran(tree, prefix, "--rollback").stderr
    (tree / "lib/mark").write_text("damaged")
    assert "lib/mark is damaged" in ran(tree, prefix, "--root", "/a").stderr
    assert not prefix.exists()


@pytest.mark.parametrize("is_named", [False, True], ids=["settings", "roots.d"])
def test_jobs_are_not_removed(tmp_path: Path, prefix: Path, is_named: bool) -> None:
    jobs = prefix / "versions/jobs"
    (jobs / "JOBX").mkdir(parents=True)
    (prefix / "etc/roots.d").mkdir(parents=True)
    if is_named:
        (prefix / "etc/roots.d/a.conf").write_text(f"# mine\n{jobs}")
    else:
        (prefix / "etc/profagentd.toml").write_text(f'roots = ["/elsewhere", "{jobs}"]\n')
    ended = ran(make_tree(tmp_path), prefix, "--remove")
    assert f"JOBs below {jobs} would be removed, too" in ended.stderr
    assert (jobs / "JOBX").is_dir()
    (prefix / "etc/profagentd.toml").write_text("roots = [")
    assert "cannot be read" in ran(make_tree(tmp_path), prefix, "--remove").stderr
    shutil.rmtree(prefix)

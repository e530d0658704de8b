"""A bundle: what is assembled, the installer in it, and that it needs nothing else."""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import platform
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from profagent.boards.daemon_tree import DaemonTree
from profagent.deploy.bundle.assembling import (
    can_compile,
    compiled,
    find_runtime,
    is_needed,
    needed_libraries,
    shared_libraries,
)
from profagent.deploy.bundle.cli import fetch_standalone, installer_files, standalone_link, unpack_archive
from profagent.errors import ProfagentError

SHELL = Path("/bin/sh").resolve()
OWN = sys.version_info[:2]
SOURCE = b"""
'''A module.'''
NAMES = {'one', 'two', 'three'} | frozenset(('a', 'b'))
def has(name):
    return name in {'one', 'two', 'three'}
"""


def test_it_runs_without_its_source(tmp_path: Path) -> None:
    for path, data in compiled({"module.py": SOURCE}, OWN).items():
        (tmp_path / path).write_bytes(data)
    assert [path.name for path in tmp_path.iterdir()] == ["module.pyc"]
    program = "import module, sys; print(module.__doc__, module.has('two'), sorted(module.NAMES)[0])"
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert ran.stdout == "A module. True a\n"


def test_only_its_own_version_is_compiled_for() -> None:
    major, minor = OWN
    assert can_compile(OWN)
    assert compiled({"module.py": SOURCE}, (major, minor + 1)) == {"module.py": SOURCE}


NEEDED = """os.py asyncio/base_events.py encodings/utf_8.py lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so
unittest/mock.py LICENSE.txt"""
LEFT_OUT = """test/test_os.py tkinter/__init__.py ctypes/test/test_init.py lib-dynload/_testcapi.cpython-311.so
__pycache__/os.cpython-311.pyc _sysconfigdata__linux_x86_64-linux-gnu.py site-packages/pip/__init__.py
EXTERNALLY-MANAGED config-3.11-x86_64-linux-gnu/python.o"""


def test_what_a_board_needs_of_the_standard_library() -> None:
    assert [path for path in NEEDED.split() if not is_needed(path)] == []
    assert [path for path in LEFT_OUT.split() if is_needed(path)] == []


MACHINE = platform.machine()
OTHER = "aarch64" if MACHINE == "x86_64" else "x86_64"


def make_python(root: Path, name: str = "python3.11") -> Path:
    """A tree with a Python and three files of its library."""
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(SHELL, root / "usr/bin" / name)
    library = root / "usr/lib" / name
    (library / "test").mkdir(parents=True)
    for path in ("os.py", "test/test_os.py"):
        (library / path).write_text("")
    (library / "sitecustomize.py").symlink_to("/etc/hostname")
    return root


def test_the_newest_is_taken_with_what_is_needed_of_its_library(tmp_path: Path) -> None:
    for name in ("python3.9", "python3.11", "python3.10"):
        make_python(tmp_path, name)
    (tmp_path / "usr/bin/python3.12-config").write_text("")
    python = find_runtime(MACHINE, tmp_path, Path("/"))
    assert (python.version, python.name) == ((3, 11), "python3.11")
    assert list(python.standard) == ["os.py"]


def test_a_python_or_a_library_of_another_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfagentError, match=f"is not for {OTHER}"):
        find_runtime(OTHER, make_python(tmp_path), None)
    shutil.copy("/usr/bin/env", tmp_path / "usr/lib/libc.so.6")
    other = bytearray((tmp_path / "usr/lib/libc.so.6").read_bytes())
    other[18:20] = b"\xb7\0" if OTHER == "aarch64" else b"\x3e\0"
    (tmp_path / "usr/lib/libc.so.6").write_bytes(other)
    with pytest.raises(ProfagentError, match=f"libc.so.6 for {MACHINE} is not in {tmp_path}") as refused:
        find_runtime(MACHINE, tmp_path, None)
    assert "--libraries" in refused.value.hint


def test_libraries_are_found_with_what_they_need_in_turn() -> None:
    """As the loader finds them for a program."""
    found = needed_libraries([SHELL.read_bytes(), b"libstdc++.so.6\0"], shared_libraries(MACHINE, [Path("/")]))
    own = {**os.environ, "LD_PRELOAD": ""}
    loaded = subprocess.run(["ldd", SHELL], env=own, check=True, capture_output=True, text=True).stdout
    wanted = {line.split()[0].rpartition("/")[2] for line in loaded.splitlines() if "=>" in line}
    assert wanted | {"libstdc++.so.6", "libm.so.6", "libc.so.6", "libgcc_s.so.1"} <= found.keys()
    assert any(name.startswith("ld-linux-") for name in found)


# The installer of a bundle: the real script with what it needs of the package, below a prefix of the test's own

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
    assert "does not start, so the earlier version runs again: nothing answers at unix:" in ended.stderr
    assert not (prefix / "current").is_symlink()


def test_what_cannot_be_installed_is_refused(tmp_path: Path, prefix: Path) -> None:
    tree = make_tree(tmp_path)
    assert "this is for riscv64" in ran(make_tree(tmp_path, machine="riscv64"), prefix, "--root", "/a").stderr
    assert "say where JOBs are" in ran(tree, prefix).stderr
    assert "no /none/board.pem" in ran(tree, prefix, "--root", "/a", "--keys", "/none").stderr
    assert "no earlier version" in ran(tree, prefix, "--rollback").stderr
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


# Standalone Pythons: their list is the real one, the archives come from a server of the tests


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Serves what is in tmp_path / "served"."""
    (tmp_path / "served").mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "served"))
    ) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


# Of pbs-installer, which still runs on Pythons without another way.
@pytest.mark.filterwarnings("ignore:open_text is deprecated:DeprecationWarning")
@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
def test_the_list_has_an_archive_that_can_be_unpacked_for_each_machine(machine: str) -> None:
    address, digest = standalone_link(machine)
    assert machine in address
    assert "linux-gnu" in address
    assert address.endswith(".tar.gz")
    assert len(bytes.fromhex(digest)) == 32


def test_what_has_its_digest_is_taken_and_else_refused(server: str, tmp_path: Path) -> None:
    (tmp_path / "served/python.tar.gz").write_bytes(b"archive")
    address, target = f"{server}/python.tar.gz", tmp_path / "here"
    told: list[tuple[int, int]] = []
    digest = hashlib.sha256(b"archive").hexdigest()
    fetch_standalone(address, digest, target, lambda done, total: told.append((done, total)))
    assert told == [(7, 7)]
    assert target.read_bytes() == b"archive"
    with pytest.raises(ProfagentError, match="SHA-256"):
        fetch_standalone(address, "00" * 32, target)
    with pytest.raises(ProfagentError, match="404") as refused:
        fetch_standalone(f"{server}/none.tar.gz", "00" * 32, target)
    assert "--from" in refused.value.hint


def test_an_archive_is_unpacked_and_nothing_outside(tmp_path: Path) -> None:
    archive = tmp_path / "python.tar.gz"
    with tarfile.open(archive, "w:gz") as opened:
        opened.addfile(tarfile.TarInfo("python/bin/python3.11"), io.BytesIO())
    unpack_archive(archive, tmp_path / "there")
    assert (tmp_path / "there/python/bin/python3.11").exists()
    with tarfile.open(archive, "w:gz") as opened:
        opened.addfile(tarfile.TarInfo("../outside"), io.BytesIO())
    with pytest.raises(ProfagentError, match="outside"):
        unpack_archive(archive, tmp_path / "there")
    assert not (tmp_path / "outside").exists()

"""A home folder of the test's own, an OpenSSH server, and a board that has booted."""

from __future__ import annotations

import asyncio
import fcntl
import functools
import os
import platform
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.boards.survey import PROBE, read_probe
from profagent.boards.wheels import fetch_wheels
from profagent.link.boards_file import BoardEntry, BoardsFile
from tests.board.bare import debian_tree
from tests.board.bench import Bench
from tests.board.booted import Booted, booted
from tests.board.bundling import bundled
from tests.board.sshd import PATH_OF_TESTS, Sshd, login_settings, running_sshd
from tests.integration import host
from tests.integration.board import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REST_S = 0.5


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The HOME of this process and of those that it starts: without keys, agent or known hosts."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(mode=0o700, parents=True)
    monkeypatch.setenv("HOME", str(folder))
    for name in ("SSH_AUTH_SOCK", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE", "DISPLAY", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Sshd]]:
    """The one server of a worker for each kind of board: with GNU's programs and the tests' Python, or BusyBox's."""
    with ExitStack() as stack:

        @functools.cache
        def server(programs: str) -> Sshd:
            folder = tmp_path_factory.mktemp(programs)
            return stack.enter_context(running_sshd(folder, settings=login_settings(folder, programs)))

        yield server


@pytest.fixture(scope="session")
def sshd(request: pytest.FixtureRequest, servers: Callable[[str], Sshd]) -> Sshd:
    """A server that takes its key; a test is parametrised with the kind of board."""
    return servers(getattr(request, "param", "gnu"))


@pytest.fixture
def friend(home: Path, sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> Sshd:
    """The same server, known at home, with its key there. Its board has a place of its own for root's locks."""
    (home / ".ssh" / "known_hosts").write_text(sshd.known, "ascii")
    (home / ".ssh" / "id_ed25519").symlink_to(sshd.key)
    host.hurry(monkeypatch, "profagent.collect.board_run", "LOCKS", str(sshd.folder / "tmp"))
    return sshd


@pytest.fixture(scope="module")
def one_board() -> Iterator[Booted]:
    """A booted board for the tests of a module."""
    assert os.geteuid() == 0, "a system that boots in a container needs root: run the tests as root"
    with tempfile.TemporaryDirectory(prefix="board-") as directory, booted(Path(directory) / "root") as board:
        yield board


@pytest.fixture
def board(one_board: Booted) -> Booted:
    """The same, with the service as it is installed, and stopped."""
    one_board.reset()
    return one_board


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where wheels are kept: they are fetched once, as this machine's pip is set up, before HOME is another.

    The first worker that needs them fetches them; each has a copy of its own.
    """
    own = tmp_path_factory.getbasetemp()
    common = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "fetched"
    with Path(f"{common}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not common.exists():
            _fetch(Path(f"{common}.part"))
            Path(f"{common}.part").rename(common)
    return Path(shutil.copytree(common, own / "cache"))


def _fetch(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setenv("PATH", PATH_OF_TESTS)
        probed = subprocess.run(["sh", "-c", PROBE], check=True, capture_output=True, text=True)
        asyncio.run(fetch_wheels(read_probe(probed.stdout)))


@pytest.fixture
def variables(home: Path, friend: Sshd, cache: Path) -> dict[str, str]:
    """Those of a command on the host."""
    return {"HOME": str(home), "XDG_CACHE_HOME": str(cache), "XDG_DATA_HOME": str(home / "data")}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory of the board for JOBs."""
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def bench(tmp_path: Path, home: Path, friend: Sshd, cache: Path) -> Bench:
    """A project for `collect`, and a host whose home is a test's own."""
    variables = {"HOME": str(home), "XDG_CACHE_HOME": str(cache), "XDG_DATA_HOME": str(home / "data")}
    return Bench(tmp_path, friend, variables)


@pytest.fixture
def served(bench: Bench, home: Path) -> Iterator[Bench]:
    """The same with a daemon on the board that serves the project's directory already."""
    with running("--root", bench.remote) as daemon:
        entry = BoardEntry("euler", daemon.address, ssh=bench.friend.target)
        BoardsFile(home / ".config" / "profagent" / "boards.toml").put(entry)
        bench.board, bench.daemon = "euler", daemon.process
        yield bench


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debian's Python, libraries and a static BusyBox."""
    folder = debian_tree(tmp_path_factory.mktemp("packages") / "tree")
    return debian_tree(folder, "busybox-static")


@pytest.fixture(scope="session")
def bundle(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle, by the command."""
    folder = tmp_path_factory.mktemp("bundle")
    file = folder / "bundle.tar.gz"
    made = bundled(platform.machine(), packages, file, folder, "--json")
    assert made.code == 0, made.err
    assert made.document["start_s"] > 0
    assert made.document["is_compiled"]
    return file


@pytest.fixture(autouse=True)
def _little_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a program is gone, a shorter silence tells that nothing more comes: here, and in processes.

    A daemon that was deployed is looked for more often.
    """
    monkeypatch.setattr("profagent.deploy.deploying._BETWEEN_S", 0.1)
    monkeypatch.setattr("profagent.record.beginnings.REST_S", REST_S)
    hurried = f"from profagent.record import beginnings; beginnings.REST_S = {REST_S}; {host.COMMAND[-1]}"
    monkeypatch.setattr(host, "COMMAND", [*host.COMMAND[:-1], hurried])

"""An emulated aarch64 board without Python: a bundle goes there and serves, and a JOB arrives over mutual TLS.

`make test-board` runs it, and prints how long each part took. Speed under emulation says nothing of a real board.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from profagent.boards.daemon_tree import unpack
from profagent.keys.keys import Keys
from tests.board.bare import CHECKOUT
from tests.board.bundling import bundled, patiently
from tests.board.emulated.qemu import HOST, Emulated, booted, make_image
from tests.integration.host import Ended

Host = Callable[..., Ended]
DAEMON = "/opt/profagent/current/bin/profagentd"


@contextmanager
def timed(what: str) -> Iterator[None]:
    begin = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - begin:.0f} s")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    with timed("bundle"):
        subprocess.run([CHECKOUT / "tools/debian_tree", "arm64", folder / "tree"], check=True)
        file = folder / "bundle.tar.gz"
        made = bundled("aarch64", folder / "tree", file, folder)
    assert made.code == 0, made.err
    print(made.out)
    return file


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("image") / "board"
    with timed("image"):
        make_image(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def board(image: Path) -> Iterator[Emulated]:
    with timed("boot, use and end"), booted(image) as board:
        yield board


@pytest.fixture
def host(home: Path) -> Host:
    """`profagent` on a host with folders of its own."""
    folders = {"XDG_CONFIG_HOME": home / ".config", "XDG_DATA_HOME": home / "data"}
    return partial(patiently, HOME=str(home), **{name: str(path) for name, path in folders.items()})


@pytest.fixture
def workshop(home: Path) -> Keys:
    keys = Keys(home / ".config/profagent/keys")
    keys.init("lab-3")
    return keys


def recorded_whole(board: Emulated, host: Host, name: str, workspace: Path) -> None:
    """A JOB that is written there arrives here, byte for byte."""
    with timed("JOB written on the board"):
        simulate = f"{DAEMON} --simulate --root /root/jobs --rate 4 --for 5 --listen unix:/tmp/simulated"
        board.must(f"umask 027; timeout 40 {simulate} || [ $? = 124 ]")
    with timed("recorded"):
        ended = host("record", "--board", name, "--backlog", "--until-finished", "--json", "--workspace", workspace)
    assert ended.code == 0, ended.err
    mirror = Path(ended.document["mirror"])
    there = board.ssh("cd /root/jobs && tar -cf - JOB*").stdout
    with tarfile.open(fileobj=io.BytesIO(there)) as archive:
        files = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        assert len(files) > 5
        for path, file in files.items():
            assert file is not None
            assert (mirror / path).read_bytes() == file.read(), path


def test_it_is_installed_by_hand(board: Emulated, host: Host, bundle: Path, workshop: Keys, tmp_path: Path) -> None:
    assert board.ssh("command -v python3").returncode != 0
    workshop.issue_board("board", (HOST,))
    keys = tmp_path / "keys.tar"
    with tarfile.open(keys, "w") as archive:
        archive.add(workshop.folder / "boards/board", "keys")
    with timed("copied and unpacked"):
        board.must("tar -xf - -C /tmp", keys)
        board.must("mkdir -p /root/jobs && tar -xzf - -C /tmp", bundle)
    installer = f"/tmp/{unpack(bundle).name}/install.sh"
    with timed("install.sh"):
        assert "is installed" in board.must(
            f"sh {installer} --root /root/jobs --keys /tmp/keys --listen {HOST}:{board.port}"
        )
    assert board.must("systemctl is-active profagentd") == "active"
    assert board.must("stat --format=%U /proc/$(systemctl show --property MainPID --value profagentd)") == "profagentd"
    recorded_whole(board, host, board.address, tmp_path / "ws")
    board.must(f"sh {installer} --remove")
    left = board.must("ls -d /opt/profagent /etc/profagent /var/lib/profagentd 2>/dev/null; ls /root/jobs")
    assert left.startswith("JOB")


@pytest.mark.usefixtures("workshop")
def test_it_is_deployed_over_ssh(board: Emulated, host: Host, bundle: Path, home: Path, tmp_path: Path) -> None:
    (home / ".ssh/known_hosts").symlink_to(board.known_hosts)
    (home / ".ssh/id_ed25519").symlink_to(board.key)
    board.must("mkdir -p /root/jobs")
    chosen = ("--root", "/root/jobs", "--listen", f"{HOST}:{board.port}", "--name", "euler")
    with timed("profagent deploy"):
        deployed = host("deploy", board.target, *chosen, "--python", "bundled", "--bundle", bundle)
    assert deployed.code == 0, deployed.err + deployed.out
    print(deployed.out)
    assert board.must("systemctl is-active profagentd") == "active"
    recorded_whole(board, host, "euler", tmp_path / "ws")
    with timed("profagent deploy --remove"):
        removed = host("deploy", board.target, "--remove")
    assert removed.code == 0, removed.err
    left = board.must("ls -d /opt/profagent /etc/profagent /var/lib/profagentd 2>/dev/null; ls /root/jobs")
    assert left.startswith("JOB")

"""A bundle of this machine's architecture on a board that has nothing but BusyBox, put there by hand."""

from __future__ import annotations

import platform
import shutil
import socket
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.boards.daemon_tree import LAUNCHER, MANIFEST, DaemonTree, pack, unpack
from profagent.keys.keys import Keys
from tests.board.bare import PATIENCE_S as BOARD_PATIENCE_S
from tests.board.bare import Bare, booted_bare, make_bare
from tests.board.booted import booted
from tests.board.bundling import bundled
from tests.integration.board import content, eventually, simulated
from tests.integration.host import profagent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Packages and wheels are fetched, and a bundle is 50 MB.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

CURRENT = "/opt/profagent/current"
IDENTITY = "0f0e0d0c-0b0a-4000-8000-000102030405"
# What a version whose settings are fine and which does not serve would do.
_FAILING = b"""#!/bin/sh
case "$*" in *--check-config*) exit 0 ;; esac
exit 1
"""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    keys = Keys(tmp_path_factory.mktemp("keys") / "workshop")
    keys.init("lab-3")
    keys.issue_board("euler", ("127.0.0.1",), identity=IDENTITY)
    return keys


@pytest.fixture
def root(packages: Path, tmp_path: Path) -> Path:
    return make_bare(tmp_path / "board", packages / "bin/busybox")


@pytest.fixture
def board(root: Path) -> Iterator[Bare]:
    with booted_bare(root) as booted:
        yield booted


@pytest.fixture(scope="module")
def failing(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A version that does not serve."""
    return changed(bundle, tmp_path_factory.mktemp("failing") / "failing.tar.gz", {LAUNCHER: _FAILING})


@cache
def name_of(bundle: Path) -> str:
    """The name of the directory in it."""
    return unpack(bundle).name


def copied(board: Bare, bundle: Path) -> str:
    """The bundle unpacked below the board's /tmp, by its own tar; its installer."""
    shutil.copy(bundle, board.root / "tmp/bundle.tar.gz")
    board.run("sh", "-c", "cd /tmp && gzip -dc bundle.tar.gz | tar -xf - && rm bundle.tar.gz")
    return f"/tmp/{name_of(bundle)}/install.sh"


def changed(bundle: Path, target: Path, files: Mapping[str, bytes], **about: str) -> Path:
    """Another version: a bundle with these files, and what its manifest says."""
    tree = unpack(bundle)
    whole = {**tree.files, **{path: (data, 0o755) for path, data in files.items()}}
    library = {path.removeprefix("lib/"): data for path, (data, _) in whole.items() if path.startswith("lib/")}
    more = {
        path: file for path, file in whole.items() if not path.startswith("lib/") and path not in (LAUNCHER, MANIFEST)
    }
    remade = DaemonTree.of(tree.version, whole[LAUNCHER][0].decode(), library, more, **{**tree.about, **about})
    target.write_bytes(pack(remade))
    return target


def recorded(address: str, workshop: Keys, workspace: Path) -> Path:
    """Record what the board has; the mirror."""
    chosen = ("--backlog", "--until-finished", "--json", "--keys", workshop.folder, "--workspace", workspace)
    ended = profagent("record", "--board", address, *chosen)
    assert ended.code == 0, ended.err
    return Path(ended.document["mirror"])


def answers(port: int) -> bool:
    """Whether something listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def settings_of(board: Bare) -> dict[str, bytes]:
    """Settings, identity and keys, and what else stands beside them."""
    files = [path for path in (board.root / "etc/profagent").rglob("*") if path.is_file()]
    return {path.relative_to(board.root).as_posix(): path.read_bytes() for path in files}


def test_a_board_without_libc_is_installed_by_hand_recorded_over_tls_booted_and_cleared(
    root: Path, bundle: Path, workshop: Keys, tmp_path: Path, unused_tcp_port: int
) -> None:
    job = simulated(root / "root/jobs")
    address = f"127.0.0.1:{unused_tcp_port}"
    shutil.copytree(workshop.folder / "boards/euler", root / "tmp/keys")
    with booted_bare(root) as board:
        before = board.files()
        installer = copied(board, bundle)
        said = board.run("sh", installer, "--root", "/root/jobs", "--keys", "/tmp/keys", "--listen", address)
        assert "is installed" in said
        assert content(recorded(address, workshop, tmp_path / "one") / job.name) == content(job)
        identity = (root / "etc/profagent/board-id").read_text()
        again = board.run("sh", f"{CURRENT}/install.sh")
        assert "is installed" in again
        assert (root / "etc/profagent/board-id").read_text() == identity == f"{IDENTITY}\n"
        (root / "tmp/keys/board-id").write_text("another\n")
        said = board.run("sh", f"{CURRENT}/install.sh", "--keys", "/tmp/keys", status=1)
        assert "are those of the board another, and this one is" in said
    with booted_bare(root) as board:
        assert eventually(lambda: answers(unused_tcp_port), BOARD_PATIENCE_S)
        assert content(recorded(address, workshop, tmp_path / "two") / job.name) == content(job)
        shutil.rmtree(root / Path(installer).parent.relative_to("/"))
        board.run("sh", f"{CURRENT}/install.sh", "--remove")
        assert board.files() == before
        assert not [line for line in board.run("ps").splitlines() if "profagentd" in line]


def test_keys_that_do_not_fit_replace_nothing(board: Bare, bundle: Path, workshop: Keys, unused_tcp_port: int) -> None:
    shutil.copytree(workshop.folder / "boards/euler", board.root / "tmp/keys")
    address = ("--listen", f"127.0.0.1:{unused_tcp_port}")
    board.run("sh", copied(board, bundle), "--root", "/root/jobs", "--keys", "/tmp/keys", *address)
    before = settings_of(board)
    (board.root / "tmp/keys/ca.pem").write_text("nothing")
    (board.root / "tmp/keys/board.pem").write_bytes((workshop.folder / "ca.pem").read_bytes())
    said = board.run("sh", f"{CURRENT}/install.sh", "--keys", "/tmp/keys", status=1)
    assert "profagentd.toml: tls_key: /etc/profagent/keys/board.key is not the key of" in said
    assert "profagentd.toml: tls_ca: /etc/profagent/keys/ca.pem holds no certificate" in said
    assert settings_of(board) == before
    assert "is running" in board.run("/etc/init.d/profagentd", "status")


def test_an_installation_that_is_killed_leads_back(board: Bare, bundle: Path, failing: Path) -> None:
    board.run("sh", copied(board, bundle), "--root", "/root/jobs", "--listen", "unix:/run/s")
    before, good = settings_of(board), board.run("readlink", CURRENT)
    board.run("sh", "-c", f"sh {copied(board, failing)} >/dev/null 2>&1 & echo $! >/tmp/installing")
    assert eventually(lambda: board.run("readlink", CURRENT) != good, BOARD_PATIENCE_S)
    board.run("sh", "-c", "kill -KILL $(cat /tmp/installing)")
    assert eventually(lambda: board.run("readlink", CURRENT) == good, BOARD_PATIENCE_S)
    assert eventually((board.root / "run/s").is_socket, BOARD_PATIENCE_S)
    assert eventually(lambda: not (board.root / "var/run/profagentd.deploying").exists(), BOARD_PATIENCE_S)
    assert settings_of(board) == before
    assert "is running" in board.run("/etc/init.d/profagentd", "status")


def test_under_systemd_the_service_may_delete_what_the_settings_say(bundle: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="board-", dir="/var/tmp") as folder:
        root = Path(folder) / "root"
        with booted(root, is_bare=True) as board:
            with tarfile.open(bundle) as archive:
                archive.extractall(root / "root", filter="data")
            given = ("--root", "/root/jobs", "--listen", "unix:/run/profagentd/s")
            board.run("sh", f"/root/{name_of(bundle)}/install.sh", *given)
            assert (board.show("ActiveState"), board.show("ReadWritePaths")) == ("active", "")
            with (root / "etc/profagent/profagentd.toml").open("a") as settings:
                settings.write('retain = "delivered"\nretain_for = ["test"]\n')
            (root / "etc/profagent/roots.d/app.conf").write_text("/root/more\n")
            board.run("sh", f"{CURRENT}/install.sh")
            assert board.show("ActiveState") == "active"
            drop_in = root / "etc/systemd/system/profagentd.service.d/retention.conf"
            assert 'ReadWritePaths="-/root/jobs" "-/root/more"\n' in drop_in.read_text()
            board.run("sh", f"{CURRENT}/install.sh", "--remove")
            assert board.show("LoadState") == "not-found"
            left = [path for path in root.glob("etc/**/*profagent*") if not path.name.startswith((".", "passwd"))]
            assert left == []


def test_a_standalone_python_takes_its_c_library_from_elsewhere(packages: Path, bundle: Path, tmp_path: Path) -> None:
    # As python-build-standalone packs it; no such archive is among what tests can have.
    archive, libraries, file = tmp_path / "python.tar.gz", tmp_path / "libraries", tmp_path / "bundle.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as opened:
        opened.add(packages / "usr/bin/python3.11", "python/bin/python3.11")
        opened.add(packages / "usr/lib/python3.11", "python/lib/python3.11", filter=without_links)
    shutil.copytree(packages, libraries, symlinks=True, ignore=shutil.ignore_patterns("python3.11"))
    refused = bundled(platform.machine(), archive, file, bundle.parent)
    assert refused.code == 1
    assert f"for {platform.machine()} is not in" in refused.err
    assert "--libraries" in refused.err
    assert not file.exists()
    # The same is the same whatever the order in which its parts are met.
    made = bundled(platform.machine(), archive, file, bundle.parent, "--libraries", libraries, PYTHONHASHSEED="7")
    assert made.code == 0, made.err
    assert file.read_bytes() == bundle.read_bytes()


def without_links(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Debian's links lead out of the archive, which no standalone Python's do."""
    return None if member.issym() else member

"""`profagent deploy` to boards that start services: a systemd that has booted, and an init.d, with all usual paths."""

from __future__ import annotations

import socket
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.board.booted import Booted, booted
from tests.board.deployed import HOST, MUTE, DeployBoard, another_version, deploy_board, mounted
from tests.integration.board import eventually, simulated

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
PATH = f"{sys.base_prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
UNIT = "etc/systemd/system/profagentd.service"
PATHS = ("opt/profagent", "etc/profagent", "var/lib/profagentd")
# A board's own directories in place of this machine's; what is in /etc is a copy.
OWN = (
    "mkdir {folder} && cp -a /etc {folder}/etc && mount --bind {folder}/etc /etc"
    " && for each in /opt /run /var/lib /var/log; do mount -t tmpfs tmpfs $each; done && mkdir -p /run/sshd"
)


@pytest.fixture
def systemd(cache: Path) -> Iterator[tuple[Booted, DeployBoard]]:
    """A booted board without a daemon, and the way there; /tmp of the board is its own."""
    with tempfile.TemporaryDirectory(prefix="board-", dir="/var/tmp") as directory:
        folder = Path(directory)
        with booted(folder / "root", is_bare=True) as machine:
            enter = ["nsenter", "-t", str(machine.leader), "-m", "-u", "-i", "-p", "setpriv", "--pdeathsig", "KILL"]
            inside = [*enter, "sh", "-c", 'mkdir -p /run/sshd && exec "$@"', "sh"]
            prefix = machine.root / "opt/profagent"
            with deploy_board(folder, cache, prefix, programs=PATH, inside=inside) as board:
                board.way = ()
                board.roots = Path("/root/jobs")
                yield machine, board


def job_of_root(parent: Path) -> Path:
    """A JOB as a program of root leaves it under a careful umask."""
    job = simulated(parent)
    for path in (parent, job, *job.rglob("*")):
        path.chmod(0o750 if path.is_dir() else 0o640)
    return job


def deploys_a_drop_in_of_all_roots(board: DeployBoard, root: Path) -> None:
    """Those that programs name as well."""
    drop_in, named = root / f"{UNIT}.d/retention.conf", root / "etc/profagent/roots.d/app.conf"
    named.write_text("# of a program\n/root/more\n")
    assert board.deploy().code == 0
    assert 'ReadWritePaths="-/root/jobs" "-/root/more"\n' in drop_in.read_text()


def daemon_of(run: Path) -> int:
    """The process of the daemon whose script keeps its numbers there."""
    return int((run / "profagentd.daemon.pid").read_text().split()[0])


def leads_back_when_it_does_not_answer(board: DeployBoard) -> None:
    """To the service that was there."""
    with socket.socket() as taken:  # nobody listens there, and nobody else can
        taken.bind(("127.0.0.1", 0))
        failed = board.deploy("--retain", "delivered", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert failed.code == 1
    assert "runs again" in failed.err
    assert "its log ends with: profagentd: cannot listen on 127.0.0.1" in failed.err


def leads_back_when_the_link_is_lost(board: DeployBoard, root: Path, mute: dict[str, str]) -> None:
    """To the version, settings and service that were there."""
    current, config = root / "opt/profagent/current", root / "etc/profagent/profagentd.toml"
    running, settings = current.readlink(), config.read_text()
    with board.cut_off("--upgrade", "--retain", "delivered", **mute) as cut:
        assert eventually(lambda: current.readlink() != running)
        assert config.read_text() != settings
        ended = cut()
    assert ended.code == 3, ended.err
    assert eventually(lambda: not (root / "opt/profagent/trial.json").exists())
    assert current.readlink() == running
    assert config.read_text() == settings
    assert "nothing to do" in board.deploy().out


def test_a_board_with_systemd(systemd: tuple[Booted, DeployBoard], tmp_path: Path) -> None:
    machine, board = systemd
    directories = {path for path in (machine.root / "etc").iterdir() if path.is_dir()}
    job = job_of_root(machine.root / "root/jobs")
    assert list(job.glob("data/aicore*"))
    deployed = board.deploy_first("--retain", "delivered")
    assert "init     systemd" in deployed.out
    assert machine.show("ActiveState") == "active"
    assert machine.run("stat", "--format=%U", f"/proc/{machine.show('MainPID')}") == "profagentd"
    assert machine.run("systemctl", "is-enabled", "profagentd") == "enabled"
    drop_in = machine.root / f"{UNIT}.d/retention.conf"
    recorded = board.record(tmp_path / "ws")
    assert recorded.code == 0, recorded.err + machine.journal()
    assert job.name in recorded.document["jobs"]  # beside the board's metrics
    assert eventually(lambda: not list(job.glob("data/aicore*")))

    main = machine.show("MainPID")
    assert "nothing to do" in board.deploy().out
    assert machine.show("MainPID") == main
    deploys_a_drop_in_of_all_roots(board, machine.root)
    assert board.deploy("--retain", "keep").code == 0
    assert not drop_in.exists()
    assert machine.show("ReadWritePaths") == ""

    mute = another_version(tmp_path / "mute", MUTE)
    for lead_back in (
        lambda: leads_back_when_it_does_not_answer(board),
        lambda: leads_back_when_the_link_is_lost(board, machine.root, mute),
    ):
        lead_back()
        assert (machine.show("ActiveState"), machine.show("ReadWritePaths")) == ("active", "")
        assert not drop_in.exists()

    removed = board.deploy("--remove")
    assert removed.code == 0, removed.err
    assert machine.show("LoadState") == "not-found"
    assert machine.run("getent", "passwd", "profagentd", check=False) == ""
    left = [path for path in machine.root.glob("etc/**/*profagent*") if not path.name.startswith((".", "passwd"))]
    assert left == []
    assert {path for path in (machine.root / "etc").iterdir() if path.is_dir()} == directories
    assert not any((machine.root / path).exists() for path in PATHS)
    assert (job / "info.json.0").exists()


def test_a_board_with_an_init_script(tmp_path: Path, cache: Path) -> None:
    inside = mounted(OWN.format(folder=tmp_path / "own"))
    with deploy_board(tmp_path, cache, inside=inside) as board:
        board.way = ("--init", "initd")
        root = Path(f"/proc/{board.sshd.process.pid}/root")
        job = simulated(board.roots)
        try:
            board.deploy_first()
            assert (root / "etc/init.d/profagentd").stat().st_mode & 0o777 == 0o755
            assert (
                list((root / "etc").glob("rc[2S].d/S*profagentd")) or (root / "etc/init.d/S90profagentd").is_symlink()
            )
            assert (root / "opt/profagent/current/bin/profagentd").exists()
            recorded = board.record(tmp_path / "ws")
            assert recorded.code == 0, recorded.err
            assert job.name in recorded.document["jobs"]  # beside the board's metrics
            leads_back_when_the_link_is_lost(board, root, another_version(tmp_path / "mute", MUTE))
        finally:
            daemon = daemon_of(root / "run")
            removed = board.deploy("--remove")
        assert removed.code == 0, removed.err
        assert not Path(f"/proc/{daemon}").exists()
        assert not any((root / path).exists() for path in PATHS)
        assert list((root / "etc").glob("**/*profagentd")) == []
        assert (job / "info.json.0").exists()


def test_the_service_of_another_prefix_is_left_to_it(tmp_path: Path, cache: Path) -> None:
    inside = mounted(OWN.format(folder=tmp_path / "own"))
    with deploy_board(tmp_path, cache, inside=inside) as board:
        root = Path(f"/proc/{board.sshd.process.pid}/root")
        board.way = ("--init", "initd")
        try:
            board.deploy_first()
            daemon = daemon_of(root / "run")
            refused = board.deploy("--prefix", "/opt/other", "--listen", f"{HOST}:{board.port}")
            assert refused.code == 2
            assert "the service on" in refused.err
            assert "--prefix /opt/profagent --remove" in refused.err
            assert daemon_of(root / "run") == daemon
        finally:
            board.deploy("--remove")

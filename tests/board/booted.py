"""A booted systemd with the daemon's service: this machine's /usr in a container, with an /etc of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHECKOUT = Path(__file__).parents[2]
UNITS = CHECKOUT / "systemd"
SERVICE = "profagentd.service"
# Much more than anything takes; a test that waits so long has failed.
PATIENCE_S = 90.0
CONFIG = 'listen = "unix:/run/profagentd/profagentd.sock"\nroots = ["/root/jobs"]\nquiet_after_s = 5\nspools = []\n'
_NO_LOGIN = "/usr/sbin/nologin"
_SSHD = f"sshd:x:100:65534::/run/sshd:{_NO_LOGIN}\n"
_LAUNCHER = """#!/bin/sh
export LD_LIBRARY_PATH=/opt/python/lib
export PYTHONPATH=/opt/profagent/lib/protos:/opt/profagent/lib/daemon:/opt/profagent/lib/site
exec {python} {program} "$@"
"""


class Booted:
    """A board that runs. Its files are below `root`, but for what it mounts itself (/run, /tmp): see `inside`."""

    def __init__(self, root: Path, leader: int) -> None:
        self.root = root
        self.leader = leader
        self._cursor = ""  # of the journal, when the service was as it is installed

    @property
    def inside(self) -> Path:
        """Its whole file system, as it sees it."""
        return Path(f"/proc/{self.leader}/root")

    @property
    def address(self) -> str:
        """Where its daemon listens."""
        return f"unix:{self.inside}/run/profagentd/profagentd.sock"

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command as its root; what it prints."""
        enter = ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-n", "-p", "-C"]
        ran = subprocess.run([*enter, *command], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert not check or ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}{self.journal()}"
        return ran.stdout.strip()

    def show(self, name: str) -> str:
        """A property of the service."""
        return self.run("systemctl", "show", "--property", name, "--value", SERVICE)

    def journal(self) -> str:
        """What the service has said, and systemd of it, since the last reset."""
        after = [f"--after-cursor={self._cursor}"] if self._cursor else []
        return self.run("journalctl", "--no-pager", "--unit", SERVICE, "--output=cat", *after, check=False)

    def configure(self, config: str = CONFIG, unit: str = "") -> None:
        """Settings, and a drop-in for its unit, for the next start."""
        (self.root / "etc/profagent/profagentd.toml").write_text(config)
        drop_in = self.root / "etc/systemd/system" / f"{SERVICE}.d"
        drop_in.mkdir(exist_ok=True)
        (drop_in / "test.conf").write_text(unit)
        self.run("systemctl", "daemon-reload")

    def start(self) -> None:
        """Start the service; it has said that it is ready when this returns."""
        self.run("systemctl", "restart", SERVICE)

    def reset(self) -> None:
        """The service as it is installed, stopped, without JOBs."""
        self.run("systemctl", "stop", SERVICE)
        self.run("systemctl", "reset-failed", SERVICE, check=False)
        for path in (self.root / "etc/profagent/roots.d").glob("*"):
            path.unlink()
        for name in ("jobs", "more"):
            shutil.rmtree(self.root / "root" / name, ignore_errors=True)
            (self.root / "root" / name).mkdir(mode=0o750)
        self.configure()
        self._cursor = self.run("journalctl", "--lines=0", "--show-cursor").partition("-- cursor: ")[2]

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, self.journal()
            time.sleep(0.1)


@contextmanager
def booted(root: Path, *, is_bare: bool = False) -> Iterator[Booted]:
    """Boot a tree that is made at `root`; its processes are ended at the end.

    A bare one has nothing of the daemon, this machine's network, its Python at the same place, and what is beside
    `root` in a directory sshd/.
    """
    _make_bare_tree(root)
    if not is_bare:
        _add_daemon(root)
    name = f"--machine=board-{uuid.uuid4().hex[:8]}"
    options = [name, "--register=no", "--keep-unit", "--console=pipe", "--quiet", "--boot"]
    options += _bare_mounts(root) if is_bare else ["--private-network", *_mounts()]
    with (root.parent / "console.log").open("wb") as console:
        process = subprocess.Popen(
            # It goes with us, however we end.
            ["setpriv", "--pdeathsig", "KILL", "systemd-nspawn", *options, f"--directory={root}"],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
        )
    try:
        board = Booted(root, _leader(process, root.parent / "console.log"))
        board.until(lambda: board.run("systemctl", "is-system-running", check=False) in ("running", "degraded"))
        yield board
        board.run("systemctl", "poweroff", "--no-wall", check=False)
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()


def _leader(process: subprocess.Popen[bytes], console: Path) -> int:
    """The container's first process."""
    deadline = time.monotonic() + PATIENCE_S
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while time.monotonic() < deadline:
        assert process.poll() is None, console.read_text()
        for child in children.read_text().split():
            if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                return int(child)
        time.sleep(0.05)
    raise AssertionError(f"no systemd: {console.read_text()}")


def _mounts() -> list[str]:
    site = Path(grpc.__file__).parents[1]
    mounts = ["--bind-ro=/usr", f"--bind-ro={site}:/opt/profagent/lib/site"]
    mounts += [f"--bind-ro={CHECKOUT / each}:/opt/profagent/lib/{each}" for each in ("protos", "daemon")]
    return mounts if sys.base_prefix == "/usr" else [*mounts, f"--bind-ro={sys.base_prefix}:/opt/python"]


def _bare_mounts(root: Path) -> list[str]:
    (root.parent / "sshd").mkdir()
    places = ["/usr", str(root.parent / "sshd")]
    if not sys.base_prefix.startswith("/usr"):
        places.append(sys.base_prefix)
    return [f"--bind-ro={place}" for place in places]


def _make_bare_tree(root: Path) -> None:
    """What a board has before its deployment; a machine id keeps systemd from taking this for a first boot."""
    for name in (
        "usr",
        "etc/systemd/system",
        "var/log/journal",
        "root",
        "opt",
        "proc",
        "tmp",
    ):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    etc = root / "etc"
    (root / "root").chmod(0o700)
    (etc / "machine-id").write_text(uuid.uuid4().hex + "\n")
    (etc / "passwd").write_text(
        f"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n{_SSHD}"
    )
    (etc / "group").write_text("root:x:0:\nnogroup:x:65534:\n")
    for name in ("ld.so.cache", "os-release"):
        shutil.copy(Path("/etc") / name, etc)


def _add_daemon(root: Path) -> None:
    """What a board has after its deployment."""
    etc = root / "etc"
    (root / "opt/profagent/current/bin").mkdir(parents=True)
    shutil.copytree(UNITS / "sysusers.d", etc / "sysusers.d")
    shutil.copytree(UNITS / "tmpfiles.d", etc / "tmpfiles.d")
    shutil.copy(UNITS / SERVICE, etc / "systemd/system")
    add_program(root, "profagentd", "-m profagentd")


def add_program(root: Path, name: str, program: str) -> None:
    """A program of the board that has what the daemon has; `program` is what its Python is to run."""
    prefix = "/usr" if sys.base_prefix == "/usr" else "/opt/python"
    python = f"{prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    path = root / "opt/profagent/current/bin" / name
    path.write_text(_LAUNCHER.format(python=python, program=program))
    path.chmod(0o755)

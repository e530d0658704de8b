"""A board to deploy to: this machine behind an OpenSSH server, and a prefix of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from profagent.link.boards_file import BoardEntry, BoardsFile
from tests.board.sshd import PATH_OF_TESTS, Sshd, public_key, running_sshd
from tests.daemon.daemon_process import CHECKOUT
from tests.fakes.ports import own_port
from tests.faults.proxy import Ending, FaultProxy
from tests.integration.host import Ended, processed, profagent, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

# Leads to this machine, and does not look like a loopback address.
HOST = "0.0.0.0"
ROOTS = ("protos", "daemon", "agent")
# A daemon that takes all settings, says that it is ready, and never answers.
MUTE = """import os
import socket
import sys
import time
def main():
    if "--check-config" not in sys.argv:
        if "NOTIFY_SOCKET" in os.environ:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
        time.sleep(600)
    return 0
"""


class DeployBoard:
    """The board, and the host that deploys to it; `home` is the host's."""

    def __init__(self, sshd: Sshd, home: Path, cache: Path, prefix: Path, port: int) -> None:
        self.sshd = sshd
        self.home = home
        self.prefix = prefix
        self.port = port
        self.way: tuple[str | Path, ...] = ("--prefix", prefix, "--init", "none")
        self.roots = prefix.parent / "jobs"
        self.variables = {"HOME": str(home), "XDG_CACHE_HOME": str(cache), "XDG_DATA_HOME": str(home / "data")}
        self.variables.update(XDG_CONFIG_HOME=str(home / ".config"), SSH_AUTH_SOCK="")
        (home / ".ssh").mkdir(mode=0o700, parents=True)
        (home / ".ssh" / "id_ed25519").symlink_to(sshd.key)
        self.know(sshd.port)

    def know(self, port: int) -> None:
        """The host knows the key of a server at that port."""
        known = f"[{HOST}]:{port} {public_key(self.sshd.folder / 'host')}\n"
        with (self.home / ".ssh" / "known_hosts").open("a") as file:
            file.write(known)

    def target(self, port: int | None = None) -> str:
        """How SSH calls it."""
        return f"ssh://{self.sshd.user}@{HOST}:{port or self.sshd.port}"

    def arguments(self, *more: str | Path, target: str = "") -> list[str | Path]:
        """A deployment's, that touches nothing beyond the prefix."""
        return ["deploy", target or self.target(), *self.way, "--name", "euler", *more]

    def deploy(self, *more: str | Path, target: str = "", **variables: str) -> Ended:
        """Run it, in a process of its own when its variables say what it is."""
        run = processed if variables else profagent
        return run(*self.arguments(*more, target=target), **self.variables, **variables)

    @contextmanager
    def cut_off(self, *more: str | Path, **variables: str) -> Iterator[Callable[[], Ended]]:
        """A deployment that runs, and what cuts its link and waits for its end."""
        with FaultProxy(f"127.0.0.1:{self.sshd.port}", seed=1) as proxy:
            port = int(proxy.address.rpartition(":")[2])
            self.know(port)

            def cut() -> Ended:
                proxy.cut(Ending.RST)
                return host.ended()

            arguments = self.arguments(*more, target=self.target(port))
            with started(*arguments, **self.variables, **variables) as host:
                yield cut

    def deploy_first(self, *more: str | Path) -> Ended:
        """Deploy, listening on a port of its own."""
        ended = self.deploy("--listen", f"{HOST}:{self.port}", "--root", self.roots, *more)
        assert ended.code == 0, ended.err + ended.out
        return ended

    @property
    def entry(self) -> BoardEntry:
        """What the host knows of it."""
        return BoardsFile(self.home / ".config/profagent/boards.toml").entries()["euler"]

    @property
    def daemon(self) -> int:
        """The daemon's process."""
        return int((self.prefix / "run/profagentd.daemon.pid").read_text().split()[0])

    def version(self, link: str = "current") -> str:
        """Where a link leads."""
        return (self.prefix / link).readlink().name

    def given(self) -> dict[str, bytes]:
        """Settings, identity and keys that it has."""
        return {path.name: path.read_bytes() for path in sorted((self.prefix / "etc").rglob("*")) if path.is_file()}

    def record(self, workspace: Path) -> Ended:
        """Record what it has, by its name alone."""
        ends = ("--until-finished", "--backlog", "--json", "--workspace", workspace)
        return profagent("record", "--board", "euler", *ends, **self.variables)

    def stop(self) -> None:
        """End what was deployed."""
        script = self.prefix / "profagentd.init"
        if script.exists():
            subprocess.run([script, "stop"], check=True, capture_output=True)


@contextmanager
def deploy_board(
    folder: Path,
    cache: Path,
    prefix: Path | None = None,
    programs: Path | str = PATH_OF_TESTS,
    inside: Sequence[str] = (),
) -> Iterator[DeployBoard]:
    """The board; `programs` is where it finds its own, else those of this machine; `inside` as of `running_sshd`."""
    # The user's own settings of the shell may have added to PATH.
    settings = f'ForceCommand exec /usr/bin/env "PATH={programs}" /bin/sh -c "$SSH_ORIGINAL_COMMAND"'
    with running_sshd(folder / "sshd", settings=settings, inside=inside) as sshd:
        board = DeployBoard(sshd, folder / "home", cache, prefix or folder / "board", own_port())
        try:
            yield board
        finally:
            board.stop()


def mounted(command: str) -> list[str]:
    """Words with which a program sees what a shell command has mounted, and nobody else does."""
    return ["unshare", "--mount", "sh", "-c", f'{command} && exec "$@"', "sh"]


def another_version(folder: Path, main: str = "") -> dict[str, str]:
    """Variables with which `profagent` has another daemon to deploy; `main` in place of its own main.py."""
    shutil.copytree(CHECKOUT / "daemon", folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "profagentd" / "other.py").write_text(f"# {folder.name}\n")
    if main:
        (folder / "profagentd" / "main.py").write_text(main)
    return {"PYTHONPATH": os.pathsep.join([str(folder), *(str(CHECKOUT / root) for root in ROOTS)])}

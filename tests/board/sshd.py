"""A real OpenSSH server on a loopback port with throw-away keys: this machine is the board."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


class Nobody:
    """Nobody is there to answer."""

    async def confirm(self, question: str) -> bool | None:
        return None

    async def secret(self, prompt: str) -> str | None:
        return None


class Ready:
    """Gives one secret, and yes; keeps what was asked."""

    def __init__(self, secret: str | None = None) -> None:
        self.asked: list[str] = []
        self._secret = secret

    async def confirm(self, question: str) -> bool | None:
        self.asked.append(question)
        return True

    async def secret(self, prompt: str) -> str | None:
        self.asked.append(prompt)
        return self._secret


def busybox(folder: Path, **scripts: str) -> Path:
    """A directory with what BusyBox has, and other programs, as shell scripts."""
    folder.mkdir()
    program = shutil.which("busybox")
    assert program, "the tests need busybox: apt-get install busybox"
    for name in subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.split():
        (folder / name).symlink_to(program)
    for name, script in scripts.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return folder


# What OpenHarmony's toybox has and Debian's is built without.
_MORE_OF_TOYBOX = ("dd", "tr")


def toybox(folder: Path) -> Path:
    """A directory with what OpenHarmony Small has: toybox's programs, and mksh as the shell."""
    folder.mkdir()
    found = {name: shutil.which(name) for name in ("toybox", "mksh", "busybox")}
    for name, program in found.items():
        assert program, f"the tests need {name}: apt-get install {name}"
    names = subprocess.run([str(found["toybox"])], check=True, capture_output=True, text=True).stdout.split()
    programs = {**dict.fromkeys(names, "toybox"), **dict.fromkeys(_MORE_OF_TOYBOX, "busybox"), "sh": "mksh"}
    for name, program in programs.items():
        (folder / name).symlink_to(str(found[program]))
    return folder


def login_settings(folder: Path, programs: str) -> str:
    """Settings for sshd: `gnu` (with the tests' Python), `busybox` or `toybox`; a home and a TMPDIR of its own."""
    kinds: dict[str, Callable[[Path], Path]] = {"busybox": busybox, "toybox": toybox}
    path = kinds[programs](folder / "bin") if programs in kinds else PATH_OF_TESTS
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    return f'SetEnv {AS_OF_A_BOARD} "PATH={path}" "HOME={folder / "home"}" "TMPDIR={folder / "tmp"}"'


START_S = 20.0
POLL_S = 0.02
TRIES = 5
# Where the package has put it; it is in no ordinary user's PATH.
SBIN = "/usr/sbin:/usr/local/sbin:/sbin"
RUN = Path("/run/sshd")
# For a board whose Python is the tests' own.
PATH_OF_TESTS = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
# For bash a shell in a shell: what this machine's ~/.bashrc does may take longer than all that a test is about.
AS_OF_A_BOARD = "SHLVL=2"

# For a server that asks by PAM: a password, and nothing of what a system's own session needs.
_PAM = "auth required pam_unix.so nodelay\naccount required pam_permit.so\nsession required pam_permit.so\n"


class Sshd:
    """A server that listens; logins are this process's own user's."""

    def __init__(self, folder: Path, port: int, process: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self.port = port
        self.process = process
        self.user = getpass.getuser()
        self.key = folder / "user"

    @property
    def target(self) -> str:
        """Where to log in."""
        return f"ssh://{self.user}@127.0.0.1:{self.port}"

    @property
    def known(self) -> str:
        """Its line in known_hosts."""
        return f"[127.0.0.1]:{self.port} {public_key(self.folder / 'host')}\n"

    @property
    def fingerprint(self) -> str:
        """SHA256 of its host key."""
        shown = subprocess.run(
            ["ssh-keygen", "-lf", self.folder / "host.pub"], check=True, capture_output=True, text=True
        )
        return shown.stdout.split()[1]

    def sessions(self) -> list[int]:
        """The processes that serve one connection each."""
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]


def public_key(private: Path) -> str:
    """Kind and key, without the comment."""
    return " ".join(Path(f"{private}.pub").read_text("ascii").split()[:2])


def make_key(path: Path, passphrase: str = "", kind: str = "ed25519") -> Path:
    """A key of a person or a host."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-a", "1", "-N", passphrase, "-C", "test", "-f", path], check=True)
    return path


@contextmanager
def running_sshd(
    folder: Path, *, password: str | None = None, settings: str = "", inside: Sequence[str] = ()
) -> Iterator[Sshd]:
    """A server. With a password, root has that one as far as it sees, in a mount namespace of its own (needs root).

    `inside` are the words before its command line that have it see another machine than this one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("host", "user"):
        if not (folder / name).exists():
            make_key(folder / name)
    (folder / "authorized_keys").write_text(public_key(folder / "user") + "\n", "ascii")
    RUN.mkdir(mode=0o755, exist_ok=True)
    config = folder / "sshd_config"

    def command(port: int) -> list[str]:
        config.write_text(_config(folder, port, password, settings), "ascii")
        return _command(folder, config, password, inside)

    with listening(folder / "log", command) as (port, process):
        yield Sshd(folder, port, process)


@contextmanager
def listening(
    log: Path, command: Callable[[int], list[str]], environment: Mapping[str, str] | None = None
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """An SSH server that listens on a port of 127.0.0.1, by the command for it; it is ended with the context.

    A port may be taken between the look for it and its use: then another one.
    """
    for _ in range(TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        with log.open("wb") as file:
            process = subprocess.Popen(command(port), stderr=file, env=environment)
        try:
            if _listens(port, process):
                yield port, process
                return
        finally:
            # What serves a connection ends with that, or with its client.
            process.terminate()
            process.wait(START_S)
    raise AssertionError(log.read_text("utf-8", "replace"))


def _config(folder: Path, port: int, password: str | None, settings: str) -> str:
    # The first value of a setting holds.
    return f"""{settings}
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PermitUserRC no
PasswordAuthentication {"yes" if password else "no"}
KbdInteractiveAuthentication no
PermitRootLogin {"yes" if password else "prohibit-password"}
MaxStartups 50
SetEnv {AS_OF_A_BOARD}
"""


def _command(folder: Path, config: Path, password: str | None, inside: Sequence[str]) -> list[str]:
    sshd = shutil.which("sshd", path=SBIN)
    assert sshd is not None, "the tests need sshd: apt-get install openssh-server"
    server = [sshd, "-D", "-e", "-f", str(config)]
    if inside:
        return [*inside, *server]
    if password is None:
        return server
    made = subprocess.run(["openssl", "passwd", "-6", password], check=True, capture_output=True, text=True)
    shadow = folder / "shadow"
    shadow.touch(0o600)
    shadow.write_text(f"root:{made.stdout.strip()}:19000:0:99999:7:::\nsshd:!:19000::::::\n", "ascii")
    pam = folder / "pam"
    pam.write_text(_PAM, "ascii")
    script = 'mount --bind "$0" /etc/shadow && mount --bind "$1" /etc/pam.d/sshd && shift && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(shadow), str(pam), *server]


def _listens(port: int, process: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=START_S) as connection:
                return connection.recv(4) == b"SSH-"
        except ConnectionRefusedError:
            time.sleep(POLL_S)
    return False

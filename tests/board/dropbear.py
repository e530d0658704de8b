"""A real Dropbear, the SSH server of small boards, which has no SFTP."""

from __future__ import annotations

import os
import shlex
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.board.bare import debian_tree
from tests.board.deployed import mounted
from tests.board.sshd import Sshd, listening, make_key, public_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGES = ("dropbear-bin", "libtomcrypt1", "libtommath1", "libgmp10")


class Dropbear:
    """Its programs, unpacked into a directory of the tests' own."""

    def __init__(self, folder: Path) -> None:
        self._root = debian_tree(folder, *PACKAGES)
        (libraries,) = self._root.glob("usr/lib/*-linux-gnu")
        self._environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(libraries)}

    @contextmanager
    def running(self, folder: Path, programs: Path) -> Iterator[Sshd]:
        """A server for this process's own user, who finds `programs` alone there (needs root)."""
        self._make_host_key(folder)
        make_key(folder / "user")
        passwd = _home_elsewhere(folder / "login", public_key(folder / "user"))
        forced = f'exec /usr/bin/env PATH={shlex.quote(str(programs))} /bin/sh -c "$SSH_ORIGINAL_COMMAND"'

        def command(port: int) -> list[str]:
            settings = ("-F", "-E", "-s", "-m", "-P", f"{folder}/pid", "-r", f"{folder}/host", "-c", forced)
            server = [f"{self._root}/usr/sbin/dropbear", *settings, "-p", f"127.0.0.1:{port}"]
            return [*mounted(f"mount --bind {passwd} /etc/passwd"), *server]

        with listening(folder / "log", command, self._environment) as (port, process):
            yield Sshd(folder, port, process)

    def _make_host_key(self, folder: Path) -> None:
        folder.mkdir()
        made = subprocess.run(
            [f"{self._root}/usr/bin/dropbearkey", "-t", "ed25519", "-f", folder / "host"],
            env=self._environment,
            check=True,
            capture_output=True,
            text=True,
        )
        (shown,) = (line for line in made.stdout.splitlines() if line.startswith("ssh-ed25519 "))
        (folder / "host.pub").write_text(f"{shown}\n", "ascii")


def _home_elsewhere(home: Path, key: str) -> Path:
    """A list of users in which root has another home, with this key to log in."""
    (home / ".ssh").mkdir(mode=0o700, parents=True)
    (home / ".ssh" / "authorized_keys").write_text(f"{key}\n", "ascii")
    passwd = home / "passwd"
    passwd.write_text(f"root:x:0:0:root:{home}:/bin/sh\n", "ascii")
    return passwd

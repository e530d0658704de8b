"""A board that has a static BusyBox and nothing else: its init, its shell, no library, no Python."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).parents[2]
PATIENCE_S = 90.0
_INITTAB = """::sysinit:/bin/busybox mount -t proc proc /proc
::sysinit:/etc/init.d/rcS
"""
_RCS = """#!/bin/sh
for script in /etc/init.d/S??*; do
    [ ! -x "$script" ] || "$script" start
done
: >/run/booted
"""


class Bare:
    """A board that runs. Its files are below `root`; it shares this machine's network."""

    def __init__(self, root: Path, init: int) -> None:
        self.root = root
        self._init = init

    def run(self, *command: str, status: int = 0, **variables: str) -> str:
        """Run a command there, in its root directory; stdout and stderr."""
        enter = ["nsenter", f"--target={self._init}", "--mount", "--pid", "--root", "--wd"]
        ran = subprocess.run(
            [*enter, *command],
            env={"PATH": "/bin", **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        log = self.root / "var/log/profagentd.log"
        assert ran.returncode == status, ran.stdout + (log.read_text() if log.exists() else "")
        return ran.stdout

    def files(self) -> set[str]:
        """All paths, but for those of the kernel."""
        paths = (path.relative_to(self.root).as_posix() for path in self.root.rglob("*"))
        return {path for path in paths if not path.startswith(("proc/", "run/"))}


def debian_tree(directory: Path, *packages: str) -> Path:
    """Packages of Debian 12 for this machine's architecture, unpacked."""
    shown = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True)
    tool = CHECKOUT / "tools/debian_tree"
    ran = subprocess.run(
        [tool, shown.stdout.strip(), directory, *packages], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return directory


def make_bare(root: Path, busybox: Path) -> Path:
    """The files of such a board."""
    assert os.geteuid() == 0, "a board in namespaces of its own needs root: run the tests as root"
    for name in ("bin", "dev", "etc/init.d", "opt", "proc", "root/jobs", "run", "tmp", "var/lib", "var/log", "var/run"):
        (root / name).mkdir(parents=True)
    for number, name in ((3, "null"), (9, "urandom")):
        os.mknod(root / "dev" / name, 0o20666, os.makedev(1, number))
    (root / "bin/busybox").write_bytes(busybox.read_bytes())
    (root / "bin/busybox").chmod(0o755)
    subprocess.run(["chroot", root, "/bin/busybox", "--install", "-s", "/bin"], check=True)
    (root / "etc/inittab").write_text(_INITTAB)
    (root / "etc/init.d/rcS").write_text(_RCS)
    (root / "etc/init.d/rcS").chmod(0o755)
    return root


@contextmanager
def booted_bare(root: Path) -> Iterator[Bare]:
    """Boot it; at the end it loses its power."""
    (root / "run/booted").unlink(missing_ok=True)
    spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    process = subprocess.Popen(
        # It goes with us, however we end.
        ["setpriv", "--pdeathsig", "KILL", *spaces, "chroot", root, "/bin/init"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + PATIENCE_S
        while not (root / "run/booted").exists():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        yield Bare(root, int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]))
    finally:
        process.kill()
        process.wait()

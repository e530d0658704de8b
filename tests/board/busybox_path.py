"""What a login on the board finds: GNU's programs, or those that a BusyBox is and no others."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.board.sshd import AS_OF_A_BOARD, PATH_OF_TESTS

if TYPE_CHECKING:
    from pathlib import Path


def busybox_path(folder: Path) -> str:
    """A directory with BusyBox's programs, for PATH."""
    busybox = shutil.which("busybox")
    assert busybox is not None, "the tests need busybox: apt-get install busybox"
    folder.mkdir()
    subprocess.run([busybox, "--install", "-s", folder], check=True)
    return str(folder)


def login_settings(folder: Path, programs: str) -> str:
    """Settings for sshd: `gnu` (with the tests' Python) or `busybox`, and a home and a TMPDIR of its own."""
    path = busybox_path(folder / "bin") if programs == "busybox" else PATH_OF_TESTS
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    return f'SetEnv {AS_OF_A_BOARD} "PATH={path}" "HOME={folder / "home"}" "TMPDIR={folder / "tmp"}"'

"""A directory with the programs that a BusyBox is, and no others: what a small board has."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def busybox_path(folder: Path) -> str:
    """The directory, for PATH."""
    busybox = shutil.which("busybox")
    assert busybox is not None, "the tests need busybox: apt-get install busybox"
    folder.mkdir()
    subprocess.run([busybox, "--install", "-s", folder], check=True)
    return str(folder)

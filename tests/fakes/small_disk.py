"""A file system of a few kilobytes, in memory. Mounting it needs root, as CI's containers give; else it fails."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LAZY = 2  # MNT_DETACH: what is still open does not keep it


@contextmanager
def small_disk(directory: Path, size_bytes: int, *, inodes: int = 0) -> Iterator[Path]:
    """A tmpfs of this size at `directory`, which is made. Raises OSError where it cannot be mounted."""
    directory.mkdir(parents=True, exist_ok=True)
    options = f"size={size_bytes}" + (f",nr_inodes={inodes}" if inodes else "")
    call("mount", b"tmpfs", os.fsencode(directory), b"tmpfs", 0, options.encode("ascii"))
    try:
        yield directory
    finally:
        call("umount2", os.fsencode(directory), LAZY)


def call(name: str, *arguments: bytes | int) -> None:
    """Call a function of the C library. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    values = [ctypes.c_ulong(each) if isinstance(each, int) else ctypes.c_char_p(each) for each in arguments]
    if getattr(libc, name)(*values) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}: this test needs root")

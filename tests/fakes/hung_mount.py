"""A file system that never answers: FUSE, whose program says nothing. As an NFS mount whose server is away."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LAZY = 2  # MNT_DETACH


@contextmanager
def hung_mount(directory: Path) -> Iterator[Path]:
    """Whoever touches `directory` blocks until the end. Raises OSError where it cannot be mounted (it needs root)."""
    directory.mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode("ascii")
    try:
        if libc.mount(b"hung", os.fsencode(directory), b"fuse", ctypes.c_ulong(0), options) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"mount: {os.strerror(number)}: this test needs root and /dev/fuse")
        try:
            yield directory
        finally:
            libc.umount2(os.fsencode(directory), _LAZY)
    finally:
        # Whoever waits is told that nobody will answer.
        os.close(device)

"""A file system that never answers: FUSE, whose program says nothing. As an NFS mount whose server is away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fakes.small_disk import LAZY, call


@contextmanager
def hung_mount(directory: Path) -> Iterator[Path]:
    """Whoever touches `directory` blocks until the end. Raises OSError where it cannot be mounted (it needs root)."""
    directory.mkdir(parents=True, exist_ok=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode("ascii")
    try:
        call("mount", b"hung", os.fsencode(directory), b"fuse", 0, options)
        try:
            yield directory
        finally:
            call("umount2", os.fsencode(directory), LAZY)
    finally:
        # Whoever waits is told that nobody will answer.
        os.close(device)

"""Which files this process has open."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def open_below(folder: Path) -> list[Path]:
    """Those below a folder."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        # The one that listed them is closed.
        with suppress(FileNotFoundError):
            found.append(descriptor.readlink())
    return [file for file in found if file.is_relative_to(folder)]

"""The archive of a kit: the same bytes for the same files."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["JOB", "MANIFEST", "VENDOR", "packed"]

TOP = "evidence"
MANIFEST = "manifest.json"
JOB, VENDOR = "job", "vendor"
_MODE = 0o644
_LEVEL = 9


def packed(files: Mapping[str, bytes]) -> bytes:
    """A .tar.gz of the files in the order given, without owners, times or names of this machine."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{TOP}/{name}")
            member.size, member.mode = len(content), _MODE
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(written.getvalue(), _LEVEL, mtime=0)

"""The archive of a kit: the same bytes for the same files, and read back without trust."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from typing import TYPE_CHECKING

from profagent.errors import FormatError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["JOB", "LARGEST_ARCHIVE_BYTES", "MANIFEST", "VENDOR", "packed", "unpacked"]

TOP = "evidence"
MANIFEST = "manifest.json"
JOB, VENDOR = "job", "vendor"
# More than a kit has, whoever made it.
LARGEST_ARCHIVE_BYTES = 64 << 20
MOST_FILES = 4096
LONGEST_NAME_BYTES = 255
_MODE = 0o644
_WINDOW_BITS = 16 + zlib.MAX_WBITS
_LEVEL = 9
# One file name in one of the kit's own folders.
_NAME = re.compile(r"(?:manifest\.json|(?:job|job/data|vendor)/(?P<base>[^/\0]+))")
_HINT = "do not use it: a kit is made by profagent kit, and has none of this"


def packed(files: Mapping[str, bytes]) -> bytes:
    """A .tar.gz of the files in the order given, without owners, times or names of this machine."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{TOP}/{name}")
            member.size, member.mode = len(content), _MODE
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(written.getvalue(), _LEVEL, mtime=0)


def unpacked(data: bytes, file: str) -> dict[str, bytes]:
    """The files of a kit by their names; nothing is written.

    Raises FormatError for what is no archive, and UsageError for one that is too large when unpacked, and for links,
    devices and names that a kit does not have.
    """
    content = _decompressed(data, file)
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:", encoding="utf-8") as archive:
            for member in _members(archive, file):
                opened = archive.extractfile(member)
                name = member.name.removeprefix(f"{TOP}/")
                if name in found:
                    raise _refused(file, f"{name!r} is in it twice")
                found[name] = opened.read() if opened is not None else b""
    except (tarfile.TarError, ValueError, OverflowError, EOFError, RecursionError) as error:
        raise FormatError(file, 0, "a tar archive", str(error)[:80], hint=_HINT) from error
    return found


def _members(archive: tarfile.TarFile, file: str) -> Iterator[tarfile.TarInfo]:
    for number, member in enumerate(archive):
        if number >= MOST_FILES:
            raise _refused(file, f"it has more than {MOST_FILES} files")
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or getattr(member, "sparse", None) is not None:
            raise _refused(file, f"{member.name!r} is no regular file")
        match = _NAME.fullmatch(member.name.removeprefix(f"{TOP}/"))
        base = "" if match is None else match["base"]
        # The folder of the data is no file.
        is_odd = match is None or base in (".", "..", "data") or not member.name.startswith(f"{TOP}/")
        if is_odd or len((base or "").encode("utf-8", "surrogateescape")) > LONGEST_NAME_BYTES:
            raise _refused(file, f"{member.name[:80]!r} is no name of a file in a kit")
        yield member


def _decompressed(data: bytes, file: str) -> bytes:
    decompressor = zlib.decompressobj(_WINDOW_BITS)
    try:
        content = decompressor.decompress(data, LARGEST_ARCHIVE_BYTES + 1)
    except zlib.error as error:
        raise FormatError(file, 0, "a gzip file", str(error), hint=_HINT) from error
    if len(content) > LARGEST_ARCHIVE_BYTES:
        raise _refused(file, f"it is larger than {LARGEST_ARCHIVE_BYTES >> 20} MiB when it is unpacked")
    if not decompressor.eof:
        raise FormatError(file, len(data), "the end of a gzip file", "the end of the file", hint="fetch it again")
    return content


def _refused(file: str, why: str) -> UsageError:
    return UsageError(f"{file} is refused: {why}", hint=_HINT)

"""Archives, unpacked into a folder, never outside of it, and no further than their limits allow."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from profagent.errors import ResultError
from profagent.limits import (
    ALWAYS_UNPACKED_BYTES,
    FILE_PIECE_BYTES,
    LONGEST_HEADER_BYTES,
    MOST_ENTRIES,
    MOST_FOLDERS,
    MOST_UNPACKED,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ZIP = b"PK\x03\x04"
# Names of archives that may have results; other tools pack their own data, too.
NAMES = re.compile(r"\.(?:zip|tar|t[gx]z|tbz2?|(?:tar|csv|json|db)\.(?:gz|xz|bz2))$", re.IGNORECASE)
# Beginning of a compressed stream, and the function that opens it.
_STREAMS: tuple[tuple[bytes, Callable[[Path], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"\xfd7zXZ\0", lzma.open),
    (b"BZh", bz2.open),
)
# Bit in the flags of a zip's member.
_ENCRYPTED = 1
_LONG_HEADERS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME)
_DAMAGES = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError)
UNPACK_BY_HAND = "unpack it by hand, then import the folder"


class Limits:
    """Entries and bytes that an archive, with the archives in it, may still unpack to.

    `take…` raise ResultError at a limit.
    """

    def __init__(self, archive: Path, folder: Path) -> None:
        """Allow half of the free space at `folder`: unpacked files become rows there, too."""
        self._archive = archive
        # Entries that may still be unpacked, and bytes by the size of the archive and by the free space.
        self._entries = MOST_ENTRIES
        self._by_size = max(ALWAYS_UNPACKED_BYTES, archive.stat().st_size * MOST_UNPACKED)
        self._by_disk = shutil.disk_usage(folder).free // 2

    @property
    def bytes_left(self) -> int:
        """Number of bytes that may still be written."""
        return min(self._by_size, self._by_disk)

    def take_entry(self, name: str) -> None:
        """Count an entry with this name."""
        self._entries -= 1
        if self._entries < 0:
            self._refuse(f"it has more than {MOST_ENTRIES:,} entries")
        if name.replace("\\", "/").count("/") > MOST_FOLDERS:
            self._refuse(f"its folders are nested more than {MOST_FOLDERS} deep")

    def take_bytes(self, count: int, name: str) -> None:
        """Count written bytes of an entry; the caller writes one byte more than is left if there are more."""
        self._by_size -= count
        self._by_disk -= count
        if self._by_size < 0:
            self._refuse(f"{name}: it unpacks to more than {MOST_UNPACKED} times its size")
        if self._by_disk < 0:
            hint = f"free some room, name a workspace on another disk with --workspace DIR, or {UNPACK_BY_HAND}"
            self._refuse(f"{name}: it unpacks to more than half of what the workspace's disk has free", hint)

    def _refuse(self, what: str, hint: str = UNPACK_BY_HAND) -> None:
        raise ResultError(self._archive, 0, what, hint=hint)


def is_packed(beginning: bytes) -> bool:
    """Return True if a file that begins with these bytes is a .tar, .zip, .gz, .xz or .bz2."""
    return beginning[257:262] == b"ustar" or beginning.startswith((ZIP, *(magic for magic, _ in _STREAMS)))


class Unpacked(NamedTuple):
    """Names of members that are no regular file, and of members that a later one of the same name replaces."""

    others: list[str]
    replaced: list[str]


def unpack(archive: Path, folder: Path, limits: Limits) -> Unpacked:
    """Unpack the regular files of an archive into a folder, and return the names of the others.

    Raises ResultError if the archive is damaged, a name leads to a place outside the folder, or a limit is reached.
    """
    unpacked = Unpacked([], [])
    try:
        for name, data in _members(archive, limits):
            if data is None:
                unpacked.others.append(name)
                continue
            file = _inside(archive, folder, name)
            if file.exists():
                unpacked.replaced.append(name)
            _write(file, name, data, limits)
    except (*_DAMAGES, OSError) as error:
        # An error of the system has a number; damages that bz2 and gzip find are an OSError without one.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ResultError(archive, 0, f"cannot read the archive: {error}", hint="pack or copy it again") from error
    return unpacked


def _members(archive: Path, limits: Limits) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Yield the names and contents of members, without directories; a link or a device has no content."""
    with archive.open("rb") as file:
        is_zip = file.read(len(ZIP)) == ZIP
    if is_zip:
        # The index of a zip is checked as a whole before the first member is written.
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                limits.take_entry(entry.filename)
                if entry.flag_bits & _ENCRYPTED:
                    what = f"{entry.filename} in it is encrypted: it cannot be read without its password"
                    raise ResultError(archive, 0, what, hint=UNPACK_BY_HAND)
            for entry in packed.infolist():
                # The upper half of the attributes is the mode of a Unix file: a link is not followed.
                if entry.external_attr >> 28 == 0o12:
                    yield entry.filename, None
                elif not entry.is_dir():
                    with packed.open(entry) as data:
                        yield entry.filename, data
        return
    if not tarfile.is_tarfile(archive):
        with archive.open("rb") as file:
            beginning = file.read(max(len(magic) for magic, _ in _STREAMS))
        opened = next((opened for magic, opened in _STREAMS if beginning.startswith(magic)), _STREAMS[0][1])
        with opened(archive) as alone:
            yield archive.stem, alone
        return
    # A tar is read as a stream, because building an index would read all of a hostile archive first.
    with tarfile.open(archive, "r|*", tarinfo=_StrictMember) as tape:
        for member in tape:
            limits.take_entry(member.name)
            if not member.isdir():
                yield member.name, tape.extractfile(member) if member.isreg() else None


class _StrictMember(tarfile.TarInfo):
    """Member of a tar that treats a damaged or missing header as an error, which tarfile takes for the end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _StrictMember:
        """Return the next member. Raises ReadError, and EOFHeaderError after the last one."""
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _StrictMember:
        """Return a member from its header.

        Raises HeaderError also before an extended header longer than any real one.
        """
        member = super().frombuf(buf, encoding, errors)
        if member.type in _LONG_HEADERS and member.size > LONGEST_HEADER_BYTES:
            raise tarfile.HeaderError(f"a header of {member.size:,} bytes")
        return member


def _inside(archive: Path, folder: Path, name: str) -> Path:
    parts = PurePosixPath(name.replace("\\", "/"))
    # A hostile name must not reach any file outside of the folder, also on a system with drives.
    if parts.is_absolute() or ".." in parts.parts or not parts.parts or "\0" in name or ":" in parts.parts[0]:
        raise ResultError(
            archive,
            0,
            f"the name {name!r} leads to a place outside the folder",
            hint="unpack it by hand and check its content",
        )
    file = folder.joinpath(*parts.parts)
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _write(file: Path, name: str, data: IO[bytes], limits: Limits) -> None:
    with file.open("wb") as out:
        while piece := data.read(min(FILE_PIECE_BYTES, limits.bytes_left + 1)):
            out.write(piece)
            limits.take_bytes(len(piece), name)

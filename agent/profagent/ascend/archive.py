"""Archives of results: unpacked beside the workspace, never outside of their folder, and never more than is sane."""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from profagent.errors import ResultError

if TYPE_CHECKING:
    from collections.abc import Iterator

ZIP = b"PK\x03\x04"
MOST_FILES = 100_000
# Text of profilers packs to a twentieth; what packs to less than a five-hundredth is made to fill a disk.
MOST_TIMES = 500
ALWAYS_ALLOWED_BYTES = 1 << 30
PIECE_BYTES = 1 << 20
_DAMAGES = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the regular files of a .tar, .tar.gz, .zip or .gz into a folder.

    Raises ResultError where it is damaged, names lead out of the folder, or it is larger than any real one.
    """
    allowed = max(ALWAYS_ALLOWED_BYTES, archive.stat().st_size * MOST_TIMES)
    try:
        for count, (name, data) in enumerate(_members(archive), 1):
            if count > MOST_FILES:
                raise ResultError(archive, 0, f"it has more than {MOST_FILES:,} files")
            allowed -= _write(_inside(archive, folder, name), data, allowed)
            if allowed < 0:
                raise ResultError(archive, 0, f"{name}: it unpacks to more than {MOST_TIMES} times its size")
    except (*_DAMAGES, OSError) as error:
        # What the system refuses has a number, what bz2 and gzip find has none.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ResultError(archive, 0, f"the archive cannot be read: {error}", hint="pack or copy it anew") from error


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes] | gzip.GzipFile]]:
    """Names and content of its regular files; links and devices are passed over."""
    with archive.open("rb") as file:
        is_zip = file.read(len(ZIP)) == ZIP
    if is_zip:
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                # The upper half has the mode of a Unix file, of which a link is none.
                is_link = entry.external_attr >> 28 == 0o12
                if not entry.is_dir() and not is_link:
                    with packed.open(entry) as data:
                        yield entry.filename, data
        return
    if not tarfile.is_tarfile(archive):
        with gzip.open(archive) as alone:
            yield archive.stem, alone
        return
    # As a stream: an index of a hostile archive would be read first.
    with tarfile.open(archive, "r|*", tarinfo=_Strict) as tape:
        for member in tape:
            if member.isreg() and (content := tape.extractfile(member)) is not None:
                yield member.name, content


class _Strict(tarfile.TarInfo):
    """Of a member behind the first, too, a header that is damaged or missing is an error; else it is the end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _Strict:
        """The next member. Raises ReadError, and EOFHeaderError where all are read."""
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error


def _inside(archive: Path, folder: Path, name: str) -> Path:
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or not parts.parts or "\0" in name or ":" in parts.parts[0]:
        raise ResultError(archive, 0, f"the name {name!r} leads out of the folder", hint="unpack it by hand and look")
    file = folder.joinpath(*parts.parts)
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _write(file: Path, data: IO[bytes] | gzip.GzipFile, allowed: int) -> int:
    """Write a member, no more of it than is allowed; returns its size, or more than is allowed."""
    size = 0
    with file.open("wb") as out:
        while size <= allowed and (piece := data.read(PIECE_BYTES)):
            out.write(piece)
            size += len(piece)
    return size

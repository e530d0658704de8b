"""Who has which log, kept over the daemon's restarts: for each JOB a file of a few bytes a log and consumer.

A record is a digest of consumer and path, and one of the file as it was delivered: it holds for no other file, so that
nothing need be taken back. The newest record of a log counts.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Callable, TypeVar

from profagentd.disks import on_disk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from profagentd.opening import Fingerprint, Place

_LOGGER = logging.getLogger(__name__)

T = TypeVar("T")

DIRECTORY_NAME = "delivered"
# JOBs, and bytes in all their files, beyond which those are forgotten that were written to earliest.
JOBS_LIMIT = 1000
BYTES_LIMIT = 64 * 1024 * 1024
DIGEST_BYTES = 8
RECORD_BYTES = 2 * DIGEST_BYTES
_SEEN = struct.Struct("<QQq")


def log_key(consumer: str, place: Place, path: bytes) -> bytes:
    """What tells a consumer's log from all others."""
    return _digest(b"\0".join((consumer.encode("utf-8"), place.directory, path)))


def file_key(seen: Fingerprint) -> bytes:
    """What tells a file from what it was, and will be."""
    return _digest(_SEEN.pack(*seen))


class KeptDeliveries:
    """The files. All calls come from the loop."""

    def __init__(self, directory: Path | None) -> None:
        """`directory`: where they are kept; None keeps nothing."""
        self._directory = directory / DIRECTORY_NAME if directory else None
        self._is_failing = False
        self._writing = asyncio.Lock()

    async def read(self, place: Place) -> dict[bytes, bytes]:
        """Of a JOB, the file that was delivered of each log, both by their keys."""
        return await self._on_disk(_read, place) or {}

    async def append(self, place: Place, records: bytes) -> int:
        """Add records of a JOB; how many bytes there are of it now."""
        return await self._on_disk(_append, place, records) or 0

    async def replace(self, place: Place, records: Iterable[bytes]) -> None:
        """These are all records of a JOB; none of them is made before a thread writes them."""
        await self._on_disk(_replace, place, records)

    async def drop(self, place: Place) -> None:
        """The JOB was deleted."""
        await self._on_disk(_drop, place)

    async def _on_disk(self, work: Callable[..., T], place: Place, *arguments: object) -> T | None:
        """What a thread gives; None where nothing can be kept, which is said once."""
        if self._directory is None:
            return None
        async with self._writing:
            try:
                file = self._directory / os.path.basename(place.path).decode("ascii")
                found = await on_disk(os.fsencode(self._directory), work, file, *arguments)
            except OSError as error:
                if not self._is_failing:
                    self._is_failing = True
                    _LOGGER.warning("%s: %s: deliveries are known in memory only", self._directory, error.strerror)
                return None
            self._is_failing = False
            return found


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def _read(file: Path) -> dict[bytes, bytes]:
    """What a daemon that was killed wrote in part is passed over."""
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return {}
    records = range(0, len(text) - RECORD_BYTES + 1, RECORD_BYTES)
    return {text[at : at + DIGEST_BYTES]: text[at + DIGEST_BYTES : at + RECORD_BYTES] for at in records}


def _append(file: Path, records: bytes) -> int:
    descriptor = _open(file, 0)
    try:
        size = os.fstat(descriptor).st_size
        end = size - size % RECORD_BYTES
        end += os.pwrite(descriptor, records, end)
    finally:
        os.close(descriptor)
    if not size:
        _bound(file)
    return end


def _replace(file: Path, records: Iterable[bytes]) -> None:
    new = file.with_name(f"{file.name}.new")
    with os.fdopen(_open(new, os.O_TRUNC), "wb") as text:
        text.writelines(records)
    os.replace(new, file)


def _drop(file: Path) -> None:
    with suppress(FileNotFoundError):
        file.unlink()


def _open(file: Path, flags: int) -> int:
    """It need not outlive the board's power: what was written last to its JOB does not either."""
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)


def _bound(newest: Path) -> None:
    """Forget JOBs that were removed long ago by others than retention."""
    with os.scandir(newest.parent) as entries:
        found = [(entry.stat(follow_symlinks=False), entry.path) for entry in entries if entry.name != newest.name]
    size = 0
    for number, (status, path) in enumerate(sorted(found, key=lambda each: -each[0].st_mtime_ns), 2):
        size += status.st_size
        if number > JOBS_LIMIT or size > BYTES_LIMIT:
            _drop(Path(path))

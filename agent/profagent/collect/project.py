"""A project on the host and its copy on a board: what has to be sent, and what may be removed there."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

__all__ = ["DIGESTS", "Difference", "Entry", "Tree", "difference", "is_plain_name"]


@dataclass(frozen=True, slots=True)
class Entry:
    """`kind`: file, directory or link. `content` is a file's digest, empty if not known, and where a link leads."""

    kind: str
    content: str = ""
    is_executable: bool = False


# By the name below the project's directory.
Tree = dict[str, Entry]


@dataclass(frozen=True, slots=True)
class Difference:
    """Names, in the order in which they are to be sent and removed."""

    send: tuple[str, ...]
    remove: tuple[str, ...]
    put: tuple[str, ...]
    """What of the project is on the board then."""


def difference(wanted: Mapping[str, Entry], found: Mapping[str, Entry], put: Collection[str]) -> Difference:
    """`put` are the names that an earlier upload has put there: nothing else is ever removed."""
    send = tuple(name for name, entry in wanted.items() if not _is_there(entry, found.get(name)))
    gone = [name for name in put if name in found and (name not in wanted or wanted[name].kind != found[name].kind)]
    # What is in a directory goes before it.
    return Difference(send, tuple(sorted(gone, reverse=True)), tuple(wanted))


def is_plain_name(name: str) -> bool:
    """Whether a name can stand in a line of its own, and stays below the project's directory."""
    parts = name.split("/")
    return name.isprintable() and "\\" not in name and not any(part in ("", ".", "..") for part in parts)


def _is_there(wanted: Entry, found: Entry | None) -> bool:
    return found == wanted and (wanted.kind != "file" or bool(wanted.content))


class Digest(Protocol):
    """A running digest."""

    def update(self, data: bytes, /) -> None:
        """Take some bytes."""

    def hexdigest(self) -> str:
        """What the board's program prints of a file."""


class Cksum:
    """What POSIX `cksum` prints of a file: its CRC and its size."""

    # Its CRC takes the highest bit of a byte first, zlib's the lowest.
    _REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))

    def __init__(self) -> None:
        self._crc = 0xFFFFFFFF  # zlib inverts it at both ends
        self._size = 0

    def update(self, data: bytes, /) -> None:
        """As Digest."""
        self._crc = zlib.crc32(data.translate(self._REVERSED), self._crc)
        self._size += len(data)

    def hexdigest(self) -> str:
        """As Digest."""
        length = self._size.to_bytes((self._size.bit_length() + 7) // 8, "little")
        crc = zlib.crc32(length.translate(self._REVERSED), self._crc)
        return f"{int(f'{crc:032b}'[::-1], 2)} {self._size}"


# The board's programs, the best first.
DIGESTS: dict[str, Callable[[], Digest]] = {
    "sha256sum": hashlib.sha256,
    "md5sum": partial(hashlib.md5, usedforsecurity=False),
    "cksum": Cksum,
}


def read_digests(lines: Iterable[str], tool: str) -> dict[str, str]:
    """Digests by name, of what the board's program has printed."""
    found: dict[str, str] = {}
    for line in lines:
        crc, _, rest = line.partition(" ")
        if tool == "cksum":
            size, _, name = rest.partition(" ")
            found[name] = f"{crc} {size}"
        else:
            found[rest[1:]] = crc
    return found

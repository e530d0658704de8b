"""What watching remembers of a JOB's files: small ones that arrive, and what decoding may ask for again."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from profagent.formats.names import LogKind
from profagent.ingest.mirror import LARGEST_CONTENT_BYTES

if TYPE_CHECKING:
    from profagent.formats.names import LogName

# Logs whose state the decoder keeps. What it may ask for again is kept longer: data, `.done` files; tables longest.
DECODED_LOGS = 4_096
REMEMBERED_FILES = 2 * DECODED_LOGS
REMEMBERED_BYTES = 64 << 20
TABLES = frozenset({LogKind.NET_INFO, LogKind.LAYER_INFO})


class RememberedFiles:
    """What decoding may ask for again, in memory: tables of layers, and the files that came last."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, bytes] = OrderedDict()
        self._tables_size = 0
        self._recent: OrderedDict[str, bytearray] = OrderedDict()
        self._size = 0

    def keep(self, path: str, name: LogName, data: bytes) -> None:
        """Remember a snapshot that decoding may need."""
        if name.kind in TABLES:
            self._tables_size += len(data) - len(self._tables.pop(path, b""))
            self._tables[path] = data
            while self._tables_size > REMEMBERED_BYTES:
                self._tables_size -= len(self._tables.popitem(last=False)[1])
        elif name.is_done:
            self.begin(path)
            self.append(path, data)

    def begin(self, path: str) -> None:
        """A file comes from its start."""
        self._size -= len(self._recent.pop(path, b""))
        self._recent[path] = bytearray()

    def append(self, path: str, data: bytes) -> None:
        """A file goes on; of one that was forgotten the rest is not kept either."""
        if path not in self._recent:
            return
        self._recent.move_to_end(path)
        self._recent[path] += data
        self._size += len(data)
        while len(self._recent) > REMEMBERED_FILES or self._size > REMEMBERED_BYTES:
            self._size -= len(self._recent.popitem(last=False)[1])

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        """At most `size` bytes of a remembered file from `start` on; None for another."""
        data = self._tables.get(path) or self._recent.get(path)
        return None if data is None else bytes(data[start : None if size is None else start + size])

    @property
    def size(self) -> int:
        """Bytes that are remembered."""
        return self._size + self._tables_size

    def names(self) -> list[str]:
        """Paths of remembered files."""
        return [*self._tables, *self._recent]


class Arriving:
    """Small files of all JOBs of which not all has come, by handle."""

    def __init__(self) -> None:
        self._content: dict[int, bytearray] = {}
        self._size = 0

    def begin(self, handle: int) -> None:
        """A file comes from its start."""
        self.take(handle)
        self._content[handle] = bytearray()

    def append(self, handle: int, data: bytes) -> bool:
        """A file goes on; False when it is dropped, because it or all together are too large."""
        if handle not in self._content:
            return True
        self._content[handle] += data
        self._size += len(data)
        if len(self._content[handle]) <= LARGEST_CONTENT_BYTES and self._size <= REMEMBERED_BYTES:
            return True
        self.take(handle)
        return False

    def take(self, handle: int) -> bytes | None:
        """What has come of a file, which is kept here no longer; None of one that is dropped."""
        content = self._content.pop(handle, None)
        if content is None:
            return None
        self._size -= len(content)
        return bytes(content)

    def clear(self) -> None:
        """Nothing of what has come goes on."""
        self._content.clear()
        self._size = 0

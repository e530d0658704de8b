"""First bytes of many aicore logs, read together before each log takes its own: what they say by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.formats.aicore import AicoreFile, AicoreRecords, read_together
from profagent.formats.records import AICORE_DTYPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from profagent.formats.countermap import CounterMap

# So much is read in one pass that it stays in the processor's cache.
BYTES_TOGETHER = 512 << 10


class Ahead:
    """What was read ahead, until it is taken or the next is read."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[bytes, AicoreFile, AicoreRecords]] = {}
        self._counter_map: CounterMap | None = None

    def read(self, beginnings: Iterable[tuple[str, bytes]], counter_map: CounterMap | None) -> None:
        """Read the first bytes of logs, given by path; what was read before and not taken is dropped."""
        self._read, self._counter_map = {}, counter_map
        whole = ((path, data) for path, data in beginnings if len(data) >= AICORE_DTYPE.itemsize)
        for group in _groups(whole):
            files = [AicoreFile() for _ in group]
            found = read_together(files, [data for _, data in group], counter_map)
            for (path, data), file, records in zip(group, files, found, strict=True):
                self._read[path] = (data, file, records)

    def take(self, path: str, data: bytes, counter_map: CounterMap | None) -> tuple[AicoreFile, AicoreRecords] | None:
        """How these very bytes, as a log's first, were read with this map; None where they were not."""
        known, file, records = self._read.pop(path, (None, None, None))
        if known is not data or counter_map is not self._counter_map or file is None or records is None:
            return None
        return file, records


def _groups(beginnings: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    group: list[tuple[str, bytes]] = []
    size = 0
    for path, data in beginnings:
        group.append((path, data))
        size += len(data)
        if size >= BYTES_TOGETHER:
            yield group
            group, size = [], 0
    if group:
        yield group

"""The daemon's end of the FIFO `marks`, as far as tests need it."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from typing import NamedTuple

from profagent_app.marks import MAGIC, VERSION, Kind

RECORD = struct.Struct("<IBBHIIQQQIHH208s")  # as the layout says
F_SETPIPE_SZ = 1031  # Python 3.9 has no name for it


class Mark(NamedTuple):
    """A record, read."""

    kind: Kind
    text: str
    attributes: str
    pid: int
    tid: int
    begin_ns: int
    end_ns: int
    number: int
    lane: int
    writer: int


class MarksReader:
    """Makes the FIFO, and reads what is in it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "marks"
        os.mkfifo(self.path)
        self._fifo = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    def limit(self, size: int) -> None:
        fcntl.fcntl(self._fifo, F_SETPIPE_SZ, size)

    def read(self) -> list[Mark]:
        return [_mark(*each) for each in RECORD.iter_unpack(self.raw())]

    def raw(self) -> bytes:
        data = b""
        while True:
            try:
                piece = os.read(self._fifo, 1 << 20)
            except BlockingIOError:
                break
            if not piece:
                break
            data += piece
        return data

    def close(self) -> None:
        os.close(self._fifo)


def _mark(  # noqa: PLR0917 - the fields of the record
    magic: int, version: int, kind: int, size: int, pid: int, tid: int, begin: int, end: int,
    number: int, lane: int, more: int, writer: int, text: bytes,
) -> Mark:  # fmt: skip
    assert (magic, version) == (MAGIC, VERSION)
    assert not text[size + more :].strip(b"\0")
    said, attributes = text[:size].decode(), text[size : size + more].decode()
    return Mark(Kind(kind), said, attributes, pid, tid, begin, end, number, lane, writer)

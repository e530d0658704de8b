"""Marks, spans and stamps of the program: 256 bytes each, written to the daemon's FIFO `marks` with one `write`.

A write never waits: without a daemon, or with a full FIFO, the mark is dropped. Its number is not used again, so the
host sees the gap and records a loss. `profagent_mark.h` writes the same bytes.

    offset  type       field
    0x00    u32        magic, 0x4B52414D ("MARK")
    0x04    u8, u8     version (1), kind (Kind)
    0x06    u16        bytes of the text
    0x08    u32, u32   process, thread
    0x10    u64, u64   begin and end, nanoseconds since 1970 by the board's clock
    0x20    u64        number by this writer in this process, from 0
    0x28    u32        the range's id, or the asyncio task's; 0 for a thread's own
    0x2C    u16        bytes of the attributes (a JSON object behind the text)
    0x2E    u16        writer: an even number for each process, since two containers may have one pid; an odd one for
                       each C file with the header
    0x30    208 bytes  text and attributes, zeros behind them
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import json
import os
import struct
import threading
import time
from types import TracebackType
from typing import Any, Callable

RUN_DIRECTORY = "/run/profagent"
# Fields are combined to words of 64 bits first: each argument of `pack` costs a hundredth of a mark.
RECORD = struct.Struct("<QQQQQQ208s")
MAGIC, VERSION = 0x4B52414D, 1
TEXT_BYTES = 208
# Interval of trying to open the FIFO.
RETRY_NS = 1_000_000_000


class Kind(enum.IntEnum):
    """Kind of a record."""

    MARK = 0  # a point in time
    SPAN = 1  # begun and ended in one thread or asyncio task, nested in others
    RANGE = 2  # may cross threads, and overlap others
    STEP = 3  # a step of a Profiler


# Looked up once: a mark may take 3 µs.
_pack, _write = RECORD.pack, os.write
_loop: Callable[[], Any] = asyncio._get_running_loop  # noqa: SLF001 - the public form raises, which costs a microsecond
_MARK, _SPAN = int(Kind.MARK), int(Kind.SPAN)
# The first eight bytes by kind and length of the text, as combining numbers of 64 bits takes long.
_HEADS = [[MAGIC | VERSION << 32 | kind << 40 | size << 48 for size in range(TEXT_BYTES + 1)] for kind in Kind]


class MarkWriter:
    """Writer of records to the FIFO. It tries to open a missing FIFO again once a second."""

    def __init__(self, path: str | None = None, pid: int = 0) -> None:
        """Write records of the main thread of the process `pid`, if it is not this one."""
        self._path, self._pid = path, pid
        self._fifo = -1  # descriptor of the FIFO while the daemon reads it, else -1
        # That descriptor's number. It is never closed, as another thread may be about to write to it: a later FIFO gets
        # the same number.
        self._descriptor = -1
        self._next_try_ns = 0  # monotonic time of the next attempt to open it
        self._opening = threading.Lock()  # held by the one thread that opens it
        # The next record's number: `next` of a count is atomic, so writing needs no lock.
        self._numbers = itertools.count()
        self._thread_data = threading.local()  # process and thread number of each thread, as one word
        self._writer = _random_writer()
        # Two processes with one sequence of numbers would hide each other's losses.
        os.register_at_fork(after_in_child=self._reset_after_fork)

    def write(self, kind: int, text: bytes, begin_ns: int, end_ns: int, lane: int = 0, attributes: bytes = b"") -> bool:
        """Write a record; return True if it reached the FIFO. Text and attributes are cut to 208 bytes together."""
        content = text + attributes
        if len(content) > TEXT_BYTES:
            content = text = _truncate(text)
            attributes = b""  # a part of a JSON object is useless
        try:
            writer = self._thread_data.writer
        except AttributeError:
            thread = self._pid or threading.get_native_id()
            writer = self._thread_data.writer = (self._pid or os.getpid()) | thread << 32
        if attributes:
            lane |= len(attributes) << 32
        # One word holds the lane, the length of the attributes, and the writer.
        lane |= self._writer
        record = _pack(_HEADS[kind][len(text)], writer, begin_ns, end_ns, next(self._numbers), lane, content)
        if self._fifo < 0 and not self._open():
            return False
        try:
            _write(self._fifo, record)
        except BlockingIOError:
            return False
        except OSError:  # the daemon is gone
            self._fifo = -1
            return False
        return True

    def _open(self) -> bool:
        with self._opening:
            now_ns = _monotonic_ns()
            # Another thread may have opened it meanwhile, and a failed attempt is not repeated within RETRY_NS.
            if self._fifo >= 0 or now_ns < self._next_try_ns:
                return self._fifo >= 0
            self._next_try_ns = now_ns + RETRY_NS
            with contextlib.suppress(OSError):
                path = self._path or os.path.join(os.environ.get("PROFAGENT_RUN", RUN_DIRECTORY), "marks")
                fifo = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                if self._descriptor < 0:
                    self._descriptor = fifo
                else:
                    os.dup2(fifo, self._descriptor, inheritable=False)
                    os.close(fifo)
                self._fifo = self._descriptor
            return self._fifo >= 0

    def _reset_after_fork(self) -> None:
        # The child numbers its own records. It may share the open FIFO, since each write is atomic. The lock is new: a
        # thread of the parent that held the old one would never release it in the child.
        self._numbers, self._thread_data, self._opening = itertools.count(), threading.local(), threading.Lock()
        self._writer = _random_writer()


def _random_writer() -> int:
    """Return a random even number, shifted to its place in the record's last field."""
    return (int.from_bytes(os.urandom(2), "little") & 0xFFFE) << 48


def _truncate(text: bytes) -> bytes:
    return text if len(text) <= TEXT_BYTES else text[:TEXT_BYTES].decode(errors="ignore").encode()


_now_ns: Callable[[], int] = time.time_ns
_monotonic_ns: Callable[[], int] = time.monotonic_ns
_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode
_quoted = json.encoder.encode_basestring_ascii
WRITER = MarkWriter()  # the process's only writer, as the numbers of records form one sequence


def mark(text: object, /, **attributes: Any) -> None:
    """Write a mark of the present time."""
    now = _now_ns()
    loop = _loop()
    lane = 0 if loop is None else _task_number(loop)
    WRITER.write(_MARK, _encoded(text), now, now, lane, _json(attributes) if attributes else b"")


class span:  # noqa: N801 - it is used as a function
    """Context manager that writes its time as a span: `with span("preprocess", frame=7):`.

    It works in threads and in asyncio tasks. Each use needs an object of its own: one that is entered again before it
    has ended gives both spans the later begin.
    """

    __slots__ = ("_attributes", "_begin_ns", "_text")

    def __init__(self, text: object, /, **attributes: Any) -> None:
        self._text, self._attributes = text, attributes

    def __enter__(self) -> None:
        self._begin_ns = _now_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end, attributes = _now_ns(), self._attributes
        loop = _loop()
        lane = 0 if loop is None else _task_number(loop)
        attached = _json(attributes) if attributes else b""
        WRITER.write(_SPAN, _encoded(self._text), self._begin_ns, end, lane, attached)


def _encoded(text: object) -> bytes:
    try:
        if type(text) is str:
            return text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        pass
    try:
        return str(text).encode("utf-8", "replace")
    except Exception:  # noqa: BLE001 - whatever its __str__ does: a mark must not end the program
        return b"?"


def _json(attributes: dict[str, Any]) -> bytes:
    # Encoding the object as a whole would take longer than the rest of a mark.
    text = ""
    try:
        for key, value in attributes.items():
            member = f"{_quoted(key)}:{value if type(value) is int else _value(value)}"
            text = f"{text},{member}" if text else member
    except Exception:  # noqa: BLE001 - JSON has no cycles, and __str__ may do anything
        return b""
    return f"{{{text}}}".encode()


def _value(value: Any) -> str:
    return _quoted(value) if type(value) is str else _encode(value)


def _task_number(loop: asyncio.AbstractEventLoop) -> int:
    """Return a number for the running asyncio task, 0 outside of one. Two tasks of a thread are two tracks."""
    task = asyncio.current_task(loop)
    return 0 if task is None else (id(task) >> 4) & 0xFFFFFFFF or 1

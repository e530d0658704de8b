"""pyACL's stamps (msproftx). The SS928's runtime has none, so they are profagent's marks under the documented rules.

A stamp is a number from 1 to 100; at most 100 exist at a time. Each function returns 0, or -1 with a warning in the
log. Stamps work only between `prof.start` and `prof.stop`.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from typing import Callable

from profagent_app import marks
from profagent_app.marks import Kind

OK, FAILED = 0, -1
LIVE_STAMPS = 100
LONGEST_MESSAGE = 127

_log = logging.getLogger("profagent_app")


class _Stamp:
    __slots__ = ("message", "range_begin_ns")

    def __init__(self) -> None:
        self.range_begin_ns: int | None = None  # begin of the range that is started, if any
        self.message = b""  # text of its marks


class Stamps:
    """The stamps of a process. `is_running` returns True between prof.start and prof.stop."""

    def __init__(self, is_running: Callable[[], bool]) -> None:
        self._lock = threading.Lock()  # guards all of the below; marks are written outside of it
        self._free = list(range(LIVE_STAMPS, 0, -1))  # numbers that are free, the next one last
        self._live: dict[int, _Stamp] = {}  # by number
        # Pushed stamps with their begin. As in pyACL the process has one stack: push and pop belong in one thread.
        self._stack: list[tuple[int, int]] = []
        self._is_running = is_running

    def create(self) -> int:
        """Return a new stamp; 0 when profiling is not started, or when 100 exist."""
        with self._lock:
            if not self._is_running():
                return _refused("create_stamp", "call prof.start first", 0)
            if not self._free:
                return _refused("create_stamp", f"{LIVE_STAMPS} stamps live: destroy one first", 0)
            number = self._free.pop()
            self._live[number] = _Stamp()
            return number

    def set_message(self, stamp: int, message: str | bytes | int, length: int) -> int:
        """Set the stamp's message: `length` bytes, at most 127, of a text, of bytes or at an address."""
        with self._lock:
            if stamp not in self._live:
                return _refused("set_stamp_trace_message", f"there is no stamp {stamp}")
            if not 0 <= length <= LONGEST_MESSAGE:
                return _refused(
                    "set_stamp_trace_message",
                    f"a message has at most {LONGEST_MESSAGE} bytes",
                )
            if isinstance(message, int) and message:
                message = ctypes.string_at(message, length)
            data = message.encode() if isinstance(message, str) else message
            if not isinstance(data, bytes):
                return _refused("set_stamp_trace_message", "give a text, bytes, or an address that is not 0")
            self._live[stamp].message = data[:length]
            return OK

    def mark(self, stamp: int) -> int:
        """Write a mark of the present time."""
        now = time.time_ns()
        with self._lock:
            found = self._find_usable("mark", stamp)
        if found is None:
            return FAILED
        marks.WRITER.write(Kind.MARK, found.message, now, now)
        return OK

    def push(self, stamp: int) -> int:
        """Begin a span, inside the one that was pushed before."""
        with self._lock:
            found = self._find_usable("push", stamp)
            if found is None:
                return FAILED
            self._stack.append((stamp, time.time_ns()))
            return OK

    def pop(self) -> int:
        """End the span that was pushed last."""
        now = time.time_ns()
        with self._lock:
            if not self._stack:
                return _refused("pop", "call push first")
            stamp, begin_ns = self._stack.pop()
            found = self._find_usable("pop", stamp)
        if found is None:
            return FAILED
        marks.WRITER.write(Kind.SPAN, found.message, begin_ns, now)
        return OK

    def range_start(self, stamp: int) -> tuple[int, int]:
        """Begin a range, which may end in another thread. Return its id, and 0 or -1."""
        with self._lock:
            found = self._find_usable("range_start", stamp)
            if found is None:
                return 0, FAILED
            if found.range_begin_ns is not None:
                return 0, _refused("range_start", f"range {stamp} is started: call range_stop first")
            found.range_begin_ns = time.time_ns()
            return stamp, OK

    def range_stop(self, range_id: int) -> int:
        """End a range and write its mark; return 0 or -1."""
        now = time.time_ns()
        with self._lock:
            found = self._find_usable("range_stop", range_id)
            if found is None:
                return FAILED
            # Under the lock, so that of two threads that stop a range only one gets its begin.
            begin_ns, found.range_begin_ns = found.range_begin_ns, None
            if begin_ns is None:
                is_pushed = any(range_id == stamp for stamp, _ in self._stack)
                hint = ": its stamp was pushed, call pop to end that" if is_pushed else ""
                return _refused("range_stop", f"range {range_id} was not started{hint}")
        marks.WRITER.write(Kind.RANGE, found.message, begin_ns, now, range_id)
        return OK

    def destroy(self, stamp: int) -> int:
        """Free a stamp; return 0 or -1."""
        with self._lock:
            found = self._live.pop(stamp, None)
            if found is None:
                return _refused("destroy_stamp", f"there is no stamp {stamp}")
            pushed = len(self._stack)
            # A destroyed stamp leaves the stack as well: its number may soon stand for another one.
            self._stack = [each for each in self._stack if each[0] != stamp]
            if len(self._stack) < pushed or found.range_begin_ns is not None:
                _refused("destroy_stamp", f"stamp {stamp} was not ended by pop or range_stop: its time is lost")
            self._free.append(stamp)
            return OK

    def _find_usable(self, function: str, stamp: int) -> _Stamp | None:
        if not self._is_running():
            _refused(function, "call prof.start first")
            return None
        found = self._live.get(stamp)
        if found is None:
            _refused(function, f"there is no stamp {stamp}")
        return found


def _refused(function: str, why: str, answer: int = FAILED) -> int:
    _log.warning("acl.prof.%s: %s", function, why)
    return answer

"""`acl.util`: addresses and threads."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from typing import Any, Callable

from profagent_app.acl.binding import INVALID_PARAM, refusing, runtime

# A thread that waits for its pipe cannot be ended from outside: it is left to end with the process.
LONGEST_STOP_S = 0.2
LONGEST_DRAIN_S = 5.0  # for what a subscription has written and the thread has not read
_POLL_S = 0.01

_log = logging.getLogger("profagent_app")
_threads: dict[int, _Thread] = {}


class _Thread(threading.Thread):
    """A thread that may fail once it is stopped: the pages' sample closes the pipe that it waits for."""

    is_stopped = False

    def run(self) -> None:
        try:
            super().run()
        except OSError:
            if not self.is_stopped:
                raise


def numpy_to_ptr(array: Any) -> int:
    """The address of a NumPy array's data; the array must outlive its use."""
    return int(array.__array_interface__["data"][0])


def bytes_to_ptr(data: bytes) -> int:
    """The address of bytes; they must outlive its use."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def ptr_to_bytes(address: int, size: int) -> bytes:
    """Return a copy of `size` bytes at an address."""
    return ctypes.string_at(address, size)


def start_thread(function: Callable[[Any], Any], arguments: Any) -> tuple[int, int]:
    """Call the function with the one list `arguments` in a thread: the thread's id, and a code."""
    thread = _Thread(target=function, args=(arguments,), daemon=True)
    thread.start()
    _threads[thread.ident or 0] = thread
    return thread.ident or 0, 0


def stop_thread(thread_id: int) -> int:
    """Wait until the thread has ended, or has read what subscriptions wrote; a code.

    One that waits for a pipe ends when the pipe's write end is closed, or with the process.
    """
    thread = _threads.pop(thread_id, None)
    if thread is None:
        _log.warning("acl.util.stop_thread: there is no thread %r that start_thread began", thread_id)
        return INVALID_PARAM
    end = time.monotonic() + LONGEST_DRAIN_S
    while thread.is_alive() and runtime().has_unread() and time.monotonic() < end:
        thread.join(_POLL_S)
    thread.join(LONGEST_STOP_S)
    thread.is_stopped = True
    return 0


__getattr__ = refusing("acl.util")

"""`acl.util`: addresses and threads."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from typing import Any, Callable

from profagent_app.acl.binding import INVALID_PARAM, refusing, runtime

# Longest wait for a stopped thread. One that waits for its pipe cannot be ended from outside.
LONGEST_STOP_S = 0.2
# Longest wait for a thread to read what subscriptions have written.
LONGEST_DRAIN_S = 5.0
_POLL_S = 0.01

_log = logging.getLogger("profagent_app")
_threads: dict[int, _Thread] = {}  # by id, until `stop_thread`


class _Thread(threading.Thread):
    """Thread that may fail once it is stopped: the pages' sample closes the pipe that the thread reads."""

    is_stopped = False  # set by `stop_thread`

    def run(self) -> None:
        try:
            super().run()
        except OSError:
            if not self.is_stopped:
                raise


def numpy_to_ptr(array: Any) -> int:
    """Return the address of a NumPy array's data. The array must outlive the address."""
    return int(array.__array_interface__["data"][0])


def bytes_to_ptr(data: bytes) -> int:
    """Return the address of bytes. They must outlive the address."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def ptr_to_bytes(address: int, size: int) -> bytes:
    """Return a copy of `size` bytes at an address."""
    return ctypes.string_at(address, size)


def start_thread(function: Callable[[Any], Any], arguments: Any) -> tuple[int, int]:
    """Call the function with the one argument `arguments` in a thread. Return the thread's id, and a code."""
    thread = _Thread(target=function, args=(arguments,), daemon=True)
    thread.start()
    _threads[thread.ident or 0] = thread
    return thread.ident or 0, 0


def stop_thread(thread_id: int) -> int:
    """Wait until the thread has ended, or has read what subscriptions wrote. Return a code.

    A thread that waits for a pipe ends when the pipe's write end is closed, or with the process.
    """
    thread = _threads.pop(thread_id, None)
    if thread is None:
        _log.warning("acl.util.stop_thread: there is no thread %r that start_thread began", thread_id)
        return INVALID_PARAM
    end = time.monotonic() + LONGEST_DRAIN_S
    # The last descriptors may still be in the pipe, and would be lost if the thread ended now.
    while thread.is_alive() and runtime().has_unread() and time.monotonic() < end:
        thread.join(_POLL_S)
    thread.join(LONGEST_STOP_S)
    thread.is_stopped = True
    return 0


__getattr__ = refusing("acl.util")

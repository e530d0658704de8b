"""`acl.util`: addresses and threads."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable

# A thread that waits for its pipe cannot be ended from outside: it is left to end with the process.
LONGEST_STOP_S = 0.2

_threads: dict[int, threading.Thread] = {}


def numpy_to_ptr(array: Any) -> int:
    """The address of a NumPy array's data; the array must outlive its use."""
    return int(array.__array_interface__["data"][0])


def bytes_to_ptr(data: bytes) -> int:
    """The address of bytes; they must outlive its use."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def start_thread(function: Callable[[Any], Any], arguments: Any) -> tuple[int, int]:
    """Call the function with the one list `arguments` in a thread: the thread's id, and a code."""
    thread = threading.Thread(target=function, args=(arguments,), daemon=True)
    thread.start()
    _threads[thread.ident or 0] = thread
    return thread.ident or 0, 0


def stop_thread(thread_id: int) -> int:
    """Wait shortly for a thread's end. One that waits for a pipe ends when the pipe's write end is closed."""
    thread = _threads.pop(thread_id, None)
    if thread is None:
        return 100000
    thread.join(LONGEST_STOP_S)
    return 0

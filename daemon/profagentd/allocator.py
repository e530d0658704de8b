"""Keeping the C library from holding on to memory that the daemon has given back."""

from __future__ import annotations

import ctypes

# Parameters of glibc's mallopt.
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_ARENA_MAX = -8
_TRIM_BYTES = 128 * 1024
# Messages larger than that go back to the system one by one.
_MMAP_BYTES = 64 * 1024


def keep_little() -> None:
    """One heap for all threads, and nothing large kept in it; another C library than glibc is left as it is."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
        mallopt(_TRIM_THRESHOLD, _TRIM_BYTES)
        mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)

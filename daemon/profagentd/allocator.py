"""Keeping the C library from holding on to memory that the daemon has given back."""

from __future__ import annotations

import ctypes

# Parameters of glibc's mallopt.
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_ARENA_MAX = -8
# What a few messages take stays: given back, the kernel would have to find and clear it again with the next ones.
_TRIM_BYTES = 1024 * 1024
_MMAP_BYTES = 1024 * 1024


def keep_little() -> None:
    """One heap for all threads, and nothing large kept in it; another C library than glibc is left as it is."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
        mallopt(_TRIM_THRESHOLD, _TRIM_BYTES)
        mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)


def give_back() -> None:
    """Give back what is free: 4 MB where modules were compiled as they were imported, as on a board's first start."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)

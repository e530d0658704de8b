"""What the C library gives back, in a process of its own."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from tests.daemon.daemon_process import environment

# Every other piece of 32 MB is freed: what is free lies between what is not.
SCRIPT = """
import ctypes, os
from pathlib import Path
from profagentd.allocator import give_back, keep_little

def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

keep_little()
malloc, free = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
malloc.restype = ctypes.c_void_p
free.argtypes = [ctypes.c_void_p]
pieces = [malloc(32768) for _ in range(1024)]
for piece in pieces:
    ctypes.memset(ctypes.c_void_p(piece), 1, 32768)
for piece in pieces[::2]:
    free(piece)
before = resident_bytes()
give_back()
print(before - resident_bytes())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps what it keeps")
def test_what_is_free_is_given_back() -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment(), capture_output=True, text=True, check=True
    )
    assert int(result.stdout) > 8 << 20

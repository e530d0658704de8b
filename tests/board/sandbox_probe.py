"""What a program may do in the service's sandbox: tries each thing, and writes down how it went. Runs on the board."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from profagentd.sources.state import is_npu_open, since_boot_us

if TYPE_CHECKING:
    from collections.abc import Callable

_LIBC = ctypes.CDLL(None, use_errno=True)
_PTRACE_SEIZE = 0x4206
_CLONE_NEWUSER = 0x10000000


def _call(name: str, *arguments: object) -> None:
    if getattr(_LIBC, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _write(path: str) -> None:
    Path(path).write_text("x")


def _write_memory() -> None:
    os.close(os.open("/proc/1/mem", os.O_RDWR))


def _map_executable() -> None:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()


def _chown() -> None:
    os.chown("/var/lib/profagentd", 0, 0)


def _program_of_root() -> None:
    path = Path("/var/lib/profagentd/program")
    path.write_text("#!/bin/sh\n")
    path.chmod(0o4755)


TRIES: dict[str, Callable[[], object]] = {
    # What it must be able to do.
    "read a JOB of root": lambda: Path(sys.argv[1]).read_bytes(),
    "read below /tmp": lambda: Path("/tmp/job").read_bytes(),
    "see what is no process": lambda: Path("/proc/meminfo").read_bytes(),
    "keep its state": lambda: _write("/var/lib/profagentd/state"),
    "serve hosts": lambda: socket.socket(socket.AF_INET).close(),
    "serve this machine": lambda: socket.socket(socket.AF_UNIX).close(),
    # What it must not.
    "read a secret of root": lambda: Path("/root/.ssh/key").read_bytes(),
    "write to /etc": lambda: _write("/etc/written"),
    "write to its settings": lambda: _write("/etc/profagent/profagentd.toml"),
    "write to its code": lambda: _write("/opt/profagent/current/bin/profagentd"),
    "write where JOBs are": lambda: _write("/root/jobs/written"),
    "write to /tmp": lambda: _write("/tmp/written"),
    "write to the kernel": lambda: _write("/proc/sys/kernel/hostname"),
    "write to another's memory": _write_memory,
    "trace another": lambda: _call("ptrace", _PTRACE_SEIZE, 1, 0, 0),
    "read another's memory": lambda: _call("process_vm_readv", 1, None, 0, None, 0, 0),
    "end another": lambda: os.kill(1, signal.SIGHUP),
    "speak to the kernel": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
    "speak to the wire": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close(),
    "make a namespace": lambda: _call("unshare", _CLONE_NEWUSER),
    "mount": lambda: _call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "become another": lambda: os.setuid(0),
    "give files away": _chown,
    "make a program of root": _program_of_root,
    "run what it has written": _map_executable,
    "take a core for itself": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    "name the machine": lambda: socket.sethostname("other"),
    "set the clock": lambda: time.clock_settime(time.CLOCK_REALTIME, 0),
}


def main() -> None:
    """Try everything."""
    results: dict[str, object] = {}
    for name, attempt in TRIES.items():
        try:
            attempt()
        except OSError as error:
            results[name] = error.strerror
        else:
            results[name] = "done"
    results["who has the NPU open"] = is_npu_open(since_boot_us(time.time_ns() // 1000))
    Path("/var/lib/profagentd/probe.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()

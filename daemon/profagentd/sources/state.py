"""States of a JOB, and the processes that have the NPU open."""

from __future__ import annotations

import enum
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


DEVICE = "/dev/svp_npu"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_US_PER_S = 1_000_000


def since_boot_us(wall_us: int) -> int:
    """Return the microseconds from boot to a wall-clock time, which stay right when that clock is set later."""
    return wall_us - (time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) // 1000


def is_npu_open(before_us: int, proc: Path = Path("/proc"), device: str = DEVICE) -> bool | None:
    """Return True if a process started before `before_us` since boot has the NPU open; None if not all can be seen."""
    try:
        processes = [each for each in proc.iterdir() if each.name.isdigit()]
    except OSError:
        return None
    can_see = True
    for process in _with_npu(processes, device):
        try:
            if process is None:
                can_see = False
            elif _started_us(process) <= before_us:
                return True
        except OSError:
            continue  # it has just ended
    return False if can_see else None


@dataclass(frozen=True)
class NpuProcess:
    """Process that has the NPU open; `umask` in octal as the kernel prints it, empty where it does not."""

    pid: int
    name: str
    uid: int
    umask: str


def npu_processes(proc: Path) -> tuple[list[NpuProcess], bool]:
    """Return the processes that have the NPU open, and True if none could be hidden. Raises OSError without /proc."""
    found: list[NpuProcess] = []
    can_see = True
    for process in _with_npu([each for each in proc.iterdir() if each.name.isdigit()], DEVICE):
        if process is None:
            can_see = False
            continue
        with suppress(OSError):  # it may just have ended
            found.append(_described(process))
    return found, can_see


def _described(process: Path) -> NpuProcess:
    lines = (line.partition(":") for line in (process / "status").read_text("utf-8", "replace").splitlines())
    status = {key: value.strip() for key, _, value in lines}
    return NpuProcess(
        pid=int(process.name),
        name=status.get("Name", ""),
        uid=int(status.get("Uid", "0").split()[0]),
        umask=status.get("Umask", ""),
    )


def _with_npu(processes: list[Path], device: str) -> Iterator[Path | None]:
    for process in processes:
        try:
            if _has_open(process, device):
                yield process
        # The kernel hides other users' descriptors from a daemon without CAP_SYS_PTRACE.
        except PermissionError:
            yield None
        except OSError:
            continue  # it has just ended


def _has_open(process: Path, device: str) -> bool:
    # Strings: a path object for each descriptor of the board would take three times as long.
    directory = f"{process}/fd"
    return any(_target(f"{directory}/{name}") == device for name in os.listdir(directory))


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return ""  # the descriptor has just been closed


def _started_us(process: Path) -> int:
    """Return the time from boot to the process's start: field 22 of its stat, after a name that may hold spaces."""
    # The name in brackets may hold brackets itself, so the last one counts.
    fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[19]) * _US_PER_S // _TICKS_PER_S


class JobState(enum.Enum):
    """State of a JOB directory; the numbers are the wire's."""

    OPEN = 1  # it grows, or may grow
    FINISHED = 2  # every expected log is complete, and nothing changed for FINISHED_AFTER_S
    QUIET = 3  # nothing changed for `quiet_after_s`, and no process may write
    REMOVED = 4  # the directory is gone

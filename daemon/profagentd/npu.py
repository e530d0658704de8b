"""Whether a program that may still write to a JOB has the NPU open."""

from __future__ import annotations

import os
from pathlib import Path

DEVICE = "/dev/svp_npu"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_US_PER_S = 1_000_000


def is_npu_open(before_wall_us: int, proc: Path = Path("/proc"), device: str = DEVICE) -> bool | None:
    """Whether a process that started before then has the NPU open; None where that cannot be seen.

    Start times follow the wall clock as it is now; a JOB made before the clock was set looks older than its program.
    """
    try:
        booted_us = _booted_wall_us(proc)
        processes = [each for each in proc.iterdir() if each.name.isdigit()]
    except OSError:
        return None
    can_see = True
    for process in processes:
        try:
            if _has_open(process, device) and booted_us + _started_us(process) <= before_wall_us:
                return True
        except PermissionError:
            can_see = False
        except OSError:
            continue  # it has just ended
    return False if can_see else None


def _has_open(process: Path, device: str) -> bool:
    return any(_target(each) == device for each in (process / "fd").iterdir())


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:
        return ""  # it was closed just now


def _started_us(process: Path) -> int:
    """Time from boot to the process's start; field 22 of its stat, after a name that may hold spaces."""
    fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[19]) * _US_PER_S // _TICKS_PER_S


def _booted_wall_us(proc: Path) -> int:
    for line in (proc / "stat").read_bytes().splitlines():
        if line.startswith(b"btime "):
            return int(line.split()[1]) * _US_PER_S
    raise FileNotFoundError(proc / "stat")

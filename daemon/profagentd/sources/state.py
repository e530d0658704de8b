"""What a JOB is doing, from when it changed and what was found in it; no I/O, and only the monotonic clock."""

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
    """How long after the boot that was, by the wall clock as it is; it stays so when that clock is set."""
    return wall_us - (time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) // 1000


def is_npu_open(before_us: int, proc: Path = Path("/proc"), device: str = DEVICE) -> bool | None:
    """Whether a process that started before then, since the boot, has the NPU open; None where that cannot be seen."""
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
    """A process that has the NPU open; `umask` in octal as the kernel prints it, empty where it does not."""

    pid: int
    name: str
    uid: int
    umask: str
    started_wall_us: int


def npu_processes(proc: Path) -> tuple[list[NpuProcess], bool]:
    """The processes that have the NPU open, and whether none could hide from the look. OSError without a /proc."""
    booted_us = _booted_wall_us(proc)
    found: list[NpuProcess] = []
    can_see = True
    for process in _with_npu([each for each in proc.iterdir() if each.name.isdigit()], DEVICE):
        if process is None:
            can_see = False
            continue
        with suppress(OSError):  # it may just have ended
            found.append(_described(process, booted_us))
    return found, can_see


def _described(process: Path, booted_us: int) -> NpuProcess:
    lines = (line.partition(":") for line in (process / "status").read_text("utf-8", "replace").splitlines())
    status = {key: value.strip() for key, _, value in lines}
    return NpuProcess(
        pid=int(process.name),
        name=status.get("Name", ""),
        uid=int(status.get("Uid", "0").split()[0]),
        umask=status.get("Umask", ""),
        started_wall_us=booted_us + _started_us(process),
    )


def _with_npu(processes: list[Path], device: str) -> Iterator[Path | None]:
    """Those that have it open; None for each that may not be looked into."""
    for process in processes:
        try:
            if _has_open(process, device):
                yield process
        except PermissionError:
            yield None
        except OSError:
            continue  # it has just ended


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


# A JOB whose logs are complete is finished after so long without a change (format page 1).
FINISHED_AFTER_S = 2.0
# How often it is looked whether a process still has the NPU open.
NPU_LOOK_S = 5.0


class JobState(enum.Enum):
    """What a JOB directory is doing; the numbers are the wire's."""

    OPEN = 1  # it grows, or may grow
    FINISHED = 2  # every expected log is complete, and nothing changed for FINISHED_AFTER_S
    QUIET = 3  # nothing changed for long
    REMOVED = 4  # the directory is gone


class JobStateTracker:
    """One JOB's changes and what a survey found.

    open → finished  nothing changed for FINISHED_AFTER_S, and a survey since then found everything complete
    open → quiet     nothing changed for `quiet_after_s`, and no process that may write has the NPU open
    quiet → finished a survey found everything complete
    finished, quiet → open   a change
    any → removed    the directory is gone
    """

    def __init__(self, changed: float, quiet_after_s: float) -> None:
        self._changed = changed  # of the newest change
        self._quiet_after_s = quiet_after_s
        self._seen_until = changed  # changes up to then would have been seen
        self._complete: bool | None = None  # None: not surveyed since the newest change
        self._npu_open = False
        self._npu_looked = float("-inf")
        self._removed = False

    def change(self, at: float) -> None:
        """Something changed."""
        self._changed = max(self._changed, at)
        self._seen_until = max(self._seen_until, at)
        self._complete = None

    def lose(self) -> None:
        """Names are gone, which is no sign of work; what was waited for may be among them."""
        if not self._complete:
            self._complete = None

    def see(self, until: float) -> None:
        """Nothing else has changed until then."""
        self._seen_until = max(self._seen_until, until)

    def survey(self, *, complete: bool, begun: float) -> None:
        """A survey that began then found all expected logs complete, or not."""
        if begun >= self._changed:
            self._complete = complete

    def npu(self, is_open: bool, at: float) -> None:
        """Whether a process that may write has the NPU open."""
        self._npu_open = is_open
        self._npu_looked = at

    def remove(self) -> None:
        """The directory is gone."""
        self._removed = True

    @property
    def wants_survey(self) -> bool:
        """Whether it is time to look whether everything is complete."""
        return not self._removed and self._complete is None and self.rest_s >= FINISHED_AFTER_S

    def wants_npu(self, now: float) -> bool:
        """Whether the state depends on who has the NPU open, and that was not looked at lately."""
        would_be_quiet = self.rest_s >= self._quiet_after_s and not self._complete
        return would_be_quiet and not self._removed and now - self._npu_looked >= NPU_LOOK_S

    @property
    def is_settled(self) -> bool:
        """Whether the state stays as it is until something changes."""
        return self._removed or (self._complete is not None and self.state is not JobState.OPEN)

    @property
    def state(self) -> JobState:
        """What the JOB is doing."""
        if self._removed:
            return JobState.REMOVED
        if self._complete and self.rest_s >= FINISHED_AFTER_S:
            return JobState.FINISHED
        if self.rest_s >= self._quiet_after_s and not self._npu_open:
            return JobState.QUIET
        return JobState.OPEN

    @property
    def rest_s(self) -> float:
        """How long nothing changed, as far as it was seen."""
        return self._seen_until - self._changed

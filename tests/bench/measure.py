"""What the benchmarks share: the machine in words, child processes with their time and memory, figures in lines."""

from __future__ import annotations

import math
import os
import platform
import resource
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.daemon import daemon_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

CHECKOUT = Path(__file__).parents[2]
PROFAGENT = (sys.executable, "-c", "from profagent.cli.main import main; main()")
MIB = 1 << 20
# How long a child process may take to end when it is asked to.
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    """A child process that has ended. The peak is never below what this process itself takes: it starts as its copy."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


class Child:
    """A running child process, and what it has taken so far."""

    def __init__(self, pid: int) -> None:
        self._proc = Path("/proc") / str(pid)

    def cpu_s(self) -> float:
        """Processor time of its threads, user and system."""
        fields = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def share_of_a_core(self) -> Callable[[], float]:
        """Begin to measure; the share of one core that was taken since is what the answer gives."""
        begin, before_s = time.monotonic(), self.cpu_s()
        return lambda: (self.cpu_s() - before_s) / (time.monotonic() - begin)

    def rss_bytes(self) -> int:
        """Resident memory now."""
        return self._status_bytes("VmRSS")

    def peak_bytes(self) -> int:
        """The most resident memory that it ever had."""
        return self._status_bytes("VmHWM")

    def _status_bytes(self, key: str) -> int:
        lines = (self._proc / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":"))


def environment() -> dict[str, str]:
    """Variables with which a child finds this checkout's code, whether it is installed or not."""
    return daemon_process.environment("protos", "daemon", "agent")


def run(*command: str | Path, variables: Mapping[str, str] | None = None) -> Run:
    """Run a command to its end, with this checkout's code unless told otherwise; it must end well."""
    with tempfile.TemporaryFile() as errors:
        started = time.monotonic()
        process = subprocess.Popen(
            list(command), env=variables or environment(), stdout=subprocess.DEVNULL, stderr=errors
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        assert process.returncode == 0, errors.read().decode(errors="replace")
    return Run(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


@contextmanager
def started(
    *command: str | Path, stdout: int = subprocess.DEVNULL, variables: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A child process; where it still runs in the end, it is asked to end, then ended."""
    process = subprocess.Popen(list(command), env=variables or environment(), stdout=stdout, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def spread(values: Sequence[float], unit: str = "", digits: int = 1) -> str:
    """Median, and least to most."""
    lowest, middle, highest = (f"{each:.{digits}f}" for each in (min(values), statistics.median(values), max(values)))
    return f"{f'{middle} {unit}'.rstrip()} ({lowest}–{highest}, n={len(values)})"


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the values are, by nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def latency_figures(what: str, values_ms: Sequence[float]) -> dict[str, str]:
    """The usual percentiles of delays, and the extremes."""
    percents = ", ".join(f"{percentile(values_ms, percent):.0f}" for percent in (50, 95, 99))
    return {
        f"{what}: p50, p95, p99": f"{percents} ms",
        f"{what}: least, most": f"{min(values_ms):.0f}, {max(values_ms):.0f} ms (n={len(values_ms)})",
    }


def size_text(size_bytes: float) -> str:
    """A size for people."""
    return f"{size_bytes / MIB:.0f} MiB" if size_bytes >= MIB else f"{size_bytes / 1024:.0f} KiB"


def report(title: str, figures: Mapping[str, str]) -> None:
    """Print figures as a table of Markdown, a line each."""
    report_table(title, ["", ""], [[name, value] for name, value in figures.items()])


def report_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    print(f"\n**{title}**\n")
    print("\n".join(f"| {' | '.join(line)} |" for line in lines), flush=True)


def machine(directory: Path) -> dict[str, str]:
    """What the figures were measured on; `directory` is where the benchmarks write."""
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    return {
        "processor": f"{cpu}, {len(os.sched_getaffinity(0))} cores",
        "memory": size_text(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "system": f"{platform.system()} {platform.release()}, files on {_file_system(directory)}",
        "Python, SQLite": f"{platform.python_version()}, {sqlite3.sqlite_version}",
        "load before (1, 5, 15 min)": ", ".join(f"{each:.2f}" for each in os.getloadavg()),
        "this process": size_text(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024),
    }


def _file_system(directory: Path) -> str:
    """The type of the file system that holds a directory: of its mount points, the deepest and last counts."""
    path = os.path.realpath(directory)
    mounts = [line.split() for line in _lines("/proc/self/mounts")]
    holders = [mount for mount in mounts if path == mount[1] or path.startswith(mount[1].rstrip("/") + "/")]
    return max(holders, key=lambda mount: len(mount[1]))[2]


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()

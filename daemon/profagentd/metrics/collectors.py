"""Collectors of metrics, one for each subsystem. They read files directly, and start no process.

A collector is called with the root of the board's files (`/`, or a test's directory) and returns its samples, mostly as
a generator. OSError, from the call or while the samples are read, means that the board lacks the subsystem or that it
cannot be read now. A collector's docstring is printed into docs/reference/metrics.md, where it describes its metrics.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Callable, NamedTuple

from profagentd.sources.state import npu_processes

# Units of samples; a collector with another unit adds it here.
UNITS = {
    "%": "per cent: of a process's processor time per cent of one core",
    "B": "bytes",
    "B/s": "bytes a second",
    "/s": "times a second",
    "C": "degrees Celsius",
    "mV": "millivolts",
    "us": "microseconds",
    "": "a number",
}


class Sample(NamedTuple):
    """Present value of a metric, with a unit of UNITS.

    Its name is `collector.thing`; samples of a process are named by its label instead, as in `program.NAME-PID.rss`.
    """

    name: str
    unit: str
    value: float


_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Interval of searching for programs that have the NPU open, which walks all processes.
PROGRAMS_S = 10.0
# Columns of svp_npu that are worth a series over time, and their units.
NPU_COLUMNS = {
    ("runtime info", "hw_utilization"): "%",
    ("runtime info", "last_hw_task_time"): "us",
    ("runtime info", "timeout_err_cnt"): "",
    ("runtime info", "hw_err_cnt"): "",
    ("runtime info", "aicpu_err_cnt"): "",
    ("runtime info", "mac_utilization"): "%",
    ("irq info", "irq_cnt_last_sec"): "",
    ("irq info", "irq_time_last_sec"): "us",
    ("resource info", "free_model_num"): "",
    ("resource info", "free_task_node_num"): "",
    ("sync model task info", "task_finish_num"): "",
}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?%?")
_SECTION = re.compile(r"-{3,}\s*(.*?)\s*-{3,}")
_TOTAL = re.compile(r"total size=(\d+)KB.*?used=(\d+)KB.*?remain=(\d+)KB")
_PM = re.compile(r"\b(cur_temp|(?:core|cpu|npu)_cur_volt)[ \t]*:[ \t]*(-?\d+(?:\.\d+)?)")


def npu(board: Path) -> Iterator[Sample]:
    """Utilisation, errors and tasks of the NPU, from /proc/umap/svp_npu (svp_nnn in some SDKs)."""
    node = board / "proc/umap/svp_npu"
    for section, columns in umap_tables(_text(node if node.exists() else node.with_name("svp_nnn"))):
        for column, value in columns.items():
            name = column.replace("aacpu", "aicpu")  # the name in SDKs of 2025
            unit = NPU_COLUMNS.get((section, name))
            if unit is not None:
                yield Sample(f"npu.{name}", unit, value)


def umap_tables(text: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each row of values, with its section's name (`runtime info`) and columns (`hw_utilization` → 12.0).

    A line of names has its values in the line below; columns and sections are found by name alone. Long tables are
    wrapped into several pairs of lines, each of which is a row here.
    """
    section, names = "", list[str]()
    for line in text.splitlines():
        title = _SECTION.fullmatch(line.strip())
        words = line.split()
        if title:
            section, names = re.sub(r"^svp_(npu|nnn) ", "", title.group(1)), []
        elif words and all(_NUMBER.fullmatch(each) for each in words):
            if len(words) == len(names):
                yield section, {name: float(value.rstrip("%")) for name, value in zip(names, words)}
        else:
            names = words


def media_memory(board: Path) -> Iterator[Sample]:
    """Size of the media memory (MMZ), which holds models and buffers, from the last summary line."""
    found = _TOTAL.findall(_text(board / "proc/umap/media-mem"))
    for name, kilobytes in zip(("total", "used", "free"), found[-1] if found else ()):
        yield Sample(f"media_memory.{name}", "B", 1024.0 * int(kilobytes))


def power(board: Path) -> Iterator[Sample]:
    """Chip temperature and voltages, from /proc/umap/pm, which has several `name: value` pairs on a line."""
    for name, value in _PM.findall(_text(board / "proc/umap/pm")):
        is_temperature = name == "cur_temp"
        label = "temperature" if is_temperature else f"{name.partition('_')[0]}_voltage"
        yield Sample(f"power.{label}", "C" if is_temperature else "mV", float(value))


def thermal(board: Path) -> Iterable[Sample]:
    """Temperature of each of the kernel's thermal zones that can be read."""
    pattern = board / "sys/class/thermal/thermal_zone*"
    problem: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(pattern))
    samples: list[Sample] = []
    for zone in sorted(pattern.parent.glob(pattern.name)):
        try:
            value = int(_text(zone / "temp")) / 1000
        except OSError as error:  # e.g. of a unit that is switched off
            problem = error
            continue
        samples.append(Sample(f"thermal.{zone.name[len('thermal_zone') :]}", "C", value))
    if not samples:
        raise problem
    return samples


def memory(board: Path) -> Iterator[Sample]:
    """Memory of the system."""
    fields = dict(line.split(":", 1) for line in _text(board / "proc/meminfo").splitlines() if ":" in line)
    for field, name in (("MemTotal", "total"), ("MemAvailable", "available"), ("SwapFree", "swap_free")):
        if field in fields:
            yield Sample(f"memory.{name}", "B", 1024.0 * int(fields[field].split()[0]))


def load(board: Path) -> Iterator[Sample]:
    """Load average of the last minute."""
    yield Sample("load.1min", "", float(_text(board / "proc/loadavg").split()[0]))


class Rates:
    """Rates of growing counters, from the differences between two calls."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before: tuple[float, dict[str, float]] = (0.0, {})  # time and counters of the last call

    def of(self, counters: dict[str, float]) -> Iterator[tuple[str, float]]:
        """Yield the rate a second of each counter that was there at the last call and has not been reset since."""
        now, (then, before) = self._clock(), self._before
        self._before = now, counters
        for name, value in counters.items():
            # A counter that fell was reset; `value + 1` makes a new one fail the comparison.
            if now > then and value >= before.get(name, value + 1):
                yield name, (value - before[name]) / (now - then)


class Processors:
    """Busy share of each core's time, from /proc/stat."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, int]] = {}  # total and idle ticks of each core at the last call

    def __call__(self, board: Path) -> Iterator[Sample]:
        """Yield the shares since the last call; none at the first."""
        for line in _text(board / "proc/stat").splitlines():
            if not line.startswith("cpu"):
                break
            name, *fields = line.split()
            numbers = [int(each) for each in fields[:8]]
            # Guest time, in the fields after these eight, is contained in user time.
            total, idle = sum(numbers), numbers[3] + numbers[4]
            last_total, last_idle = self._before.get(name, (total, idle))
            self._before[name] = total, idle
            if total > last_total:
                label = "all" if name == "cpu" else name[3:]
                yield Sample(f"cpu.{label}", "%", 100 * (1 - (idle - last_idle) / (total - last_total)))


class Network:
    """Bytes a second of each interface but loopback."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = Rates(clock)

    def __call__(self, board: Path) -> Iterator[Sample]:
        """Yield the rates since the last call; none at the first."""
        counters: dict[str, float] = {}
        for line in _text(board / "proc/net/dev").splitlines()[2:]:
            name, _, numbers = line.partition(":")
            if name.strip() != "lo":
                fields = numbers.split()
                counters[f"network.{name.strip()}.received"] = int(fields[0])
                counters[f"network.{name.strip()}.sent"] = int(fields[8])
        for name, rate in self._rates.of(counters):
            yield Sample(name, "B/s", rate)


class Disks:
    """Free bytes and inodes of the roots' file systems.

    The spools' own root is called `spool`: a temporary daemon has it at another path each time, and the metric would
    have another name each time.
    """

    def __init__(self, roots: Iterable[bytes], spools: bytes) -> None:
        self._roots, self._spools = roots, spools

    def __call__(self, _board: Path) -> Iterator[Sample]:
        """Yield two samples for each root that can be read."""
        for root in self._roots:
            name = "spool" if root == self._spools else os.fsdecode(root)
            try:
                state = os.statvfs(root)
            except OSError:
                continue  # the search for JOBs reports such a root
            yield Sample(f"disk.{name}.free", "B", float(state.f_bavail * state.f_frsize))
            yield Sample(f"disk.{name}.free_inodes", "", float(state.f_favail))


class Profiled:
    """Table of the daemon and the programs that have the NPU open, searched at most once in PROGRAMS_S."""

    def __init__(self) -> None:
        self._next_look = float("-inf")  # monotonic time of the next search
        self._programs: dict[str, str] = {}  # result of the last search: label → process number

    def __call__(self, board: Path) -> dict[str, str]:
        """Return the label of each process and its directory's name in /proc."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + PROGRAMS_S
            found, _ = npu_processes(board / "proc")
            self._programs = {f"program.{each.name}-{each.pid}": str(each.pid) for each in found}
        return {"daemon": "self", **self._programs}


class Processes:
    """Processor time, memory, threads and page faults of processes."""

    def __init__(self, named: Callable[[Path], Mapping[str, str]], clock: Callable[[], float] = time.monotonic) -> None:
        self._named, self._rates = named, Rates(clock)

    def __call__(self, board: Path) -> Iterator[Sample]:
        """Yield samples of each process that exists."""
        counters: dict[str, float] = {}
        for label, pid in self._named(board).items():
            try:
                fields = _text(board / f"proc/{pid}/stat").rpartition(")")[2].split()
            except OSError:
                continue  # the process has ended
            yield Sample(f"{label}.threads", "", int(fields[17]))
            yield Sample(f"{label}.rss", "B", int(fields[21]) * _PAGE)
            counters[f"{label}.cpu"] = 100 * _TICK_S * (int(fields[11]) + int(fields[12]))
            counters[f"{label}.page_faults"] = int(fields[7]) + int(fields[9])
        for name, rate in self._rates.of(counters):
            yield Sample(name, "%" if name.endswith(".cpu") else "/s", rate)


Collector = Callable[[Path], Iterable[Sample]]


def all_collectors(roots: Iterable[bytes], spool_root: bytes) -> dict[str, Collector]:
    """Return new collectors by name; some hold the values of their last call. A new collector gets its line here."""
    return {
        "npu": npu,
        "media_memory": media_memory,
        "power": power,
        "thermal": thermal,
        "memory": memory,
        "load": load,
        "cpu": Processors(),
        "network": Network(),
        "disk": Disks(roots, spool_root),
        "process": Processes(Profiled()),
    }


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace")

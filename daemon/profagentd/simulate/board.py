"""The simulated board's files in /proc and /sys, as far as metrics are read from them. All figures are made up."""

from __future__ import annotations

import math
import os
from pathlib import Path
from random import Random

from profagentd.sources.files import replace_file

PID = 4711
_NPU = """\
[SVP_NPU] Version:  [simulated]

---------------------------svp_npu resource info------------------------
  free_model_num
              63

---------------------------svp_npu sync model task info-----------------
  device_id  task_send_num  task_send_num_wrap  task_finish_num  task_finish_num_wrap
          0  {tasks}  0  {tasks}  0

---------------------------svp_npu irq info------------------------------
  device_id   irq_cnt_last_sec   max_irq_cnt_per_sec   total_irq_cnt
          0   {rate}   {rate}   {tasks}

---------------------------svp_npu runtime info--------------------------
  timeout_err_cnt   hw_err_cnt   aicpu_err_cnt   last_hw_task_time   hw_utilization   total_running_time
                0            0               0   {last_us}   {busy}%   {total}
"""
_MEDIA_MEMORY = """\
---MMZ_USE_INFO:
 total size={total}KB({total_mb}MB),used={used}KB({used_mb}MB),remain={rest}KB({rest_mb}MB),zone_number=1,block_number=9
"""
# Boards print several pairs on a line, and whole degrees.
_PM = """\
[PM] Version:[simulated]

-----temperature compensation-----
  core_tcomp_en:         Y    cpu_tcomp_en:         Y    npu_tcomp_en:        Y
  cur_temp:        {temperature}     core_cur_volt:       800      cpu_cur_volt:       900      npu_cur_volt:      850
  core_temp_comp:   0   cpu_temp_comp:   0   npu_temp_comp:   0
"""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_CORES = 4
_LEAST_S = 0.2  # shortest interval between two changes of the files
# Temperature when idle, its rise at full load, and the time constant of its change.
_IDLE_C, _RISE_C, _SLOW_S = 41.0, 22.0, 20.0


class SimulatedBoard:
    """Writer of the files below `directory`, in the place of `/`; `pid` is the simulated program's process."""

    pid = PID

    def __init__(self, directory: Path, seed: int = 0) -> None:
        self.directory = directory
        self._rng = Random(f"board {seed}")
        self._since_us = self._begun_us = 0  # times of the last change of the files, and of the first inference
        # Busy time since the last change, all tasks, the tasks at the last change, and the last task's duration.
        self._busy_us = self._tasks = self._tasks_before = self._last_us = 0
        self._temperature = _IDLE_C
        self._put("proc/meminfo", "MemTotal: 4014080 kB\nMemAvailable: 2871296 kB\nSwapFree: 0 kB\n")
        self._put(f"proc/{PID}/status", f"Name:\tdetector\nUid:\t0\t0\t0\t0\nPid:\t{PID}\n")
        device = directory / f"proc/{PID}/fd/3"
        device.parent.mkdir()
        device.symlink_to("/dev/svp_npu")
        # The daemon's own figures are the real ones.
        (directory / "proc/self").symlink_to("/proc/self")
        self._write(0.0, 0.0)

    def note_work(self, begin_us: int, end_us: int) -> None:
        """Count a task of the NPU; rewrite the files if it is time."""
        self._begun_us = self._begun_us or begin_us
        self._since_us = self._since_us or begin_us
        self._tasks += 1
        self._last_us = end_us - begin_us
        self._busy_us += self._last_us
        elapsed_s = (end_us - self._since_us) / 1e6
        # Not after each inference, as a fast model would spend its time on these files.
        if elapsed_s >= _LEAST_S:
            self._write(min(1.0, self._busy_us / 1e6 / elapsed_s), (end_us - self._begun_us) / 1e6, elapsed_s)
            self._since_us, self._busy_us, self._tasks_before = end_us, 0, self._tasks

    def note_idle(self, at_us: int) -> None:
        """Rewrite the files as of a board without a loaded model."""
        self._write(0.0, (at_us - self._begun_us) / 1e6)

    def _write(self, busy: float, up_s: float, elapsed_s: float = 1.0) -> None:
        warmth = _IDLE_C + _RISE_C * busy + self._rng.gauss(0.0, 0.2)
        self._temperature += (warmth - self._temperature) * (1 - math.exp(-elapsed_s / _SLOW_S))
        rate = round((self._tasks - self._tasks_before) / elapsed_s)
        numbers = {"tasks": self._tasks, "rate": rate, "last_us": self._last_us}
        self._put("proc/umap/svp_npu", _NPU.format(busy=round(100 * busy), total=round(up_s * 1e6), **numbers))
        self._put("proc/umap/pm", _PM.format(temperature=round(self._temperature)))
        self._put("sys/class/thermal/thermal_zone0/temp", f"{round(1000 * self._temperature)}\n")
        used = 98304 + 2048 * round(8 * busy)
        sizes = {"total": 524288, "used": used, "rest": 524288 - used}
        sizes.update({f"{name}_mb": size // 1024 for name, size in list(sizes.items())})
        self._put("proc/umap/media-mem", _MEDIA_MEMORY.format(**sizes))
        self._put("proc/loadavg", f"{0.2 + busy:.2f} 0.30 0.20 1/97 {PID}\n")
        ticks = round(up_s * _TICKS_PER_S)
        own = round(ticks * (0.05 + 0.15 * busy))
        core = f"{own} 0 {own // 3} {max(0, ticks - own - own // 3)} 0 0 0 0"
        everything = " ".join(str(_CORES * int(each)) for each in core.split())
        cores = "".join(f"cpu{each} {core}\n" for each in range(_CORES))
        self._put("proc/stat", f"cpu  {everything}\n{cores}btime 1700000000\n")
        received = round(up_s * 1_250_000)
        network = f"eth0: {received} {received // 900} 0 0 0 0 0 0 {received // 50} {received // 9000} 0 0 0 0 0 0\n"
        self._put("proc/net/dev", f"Inter-|   Receive\n face |bytes\n  {network}")
        faults = 900 + ticks
        self._put(
            f"proc/{PID}/stat",
            f"{PID} (detector) S 1 1 1 0 -1 0 {faults} 0 3 0 {own} {own // 3} 0 0 20 0 6 0 1000 0 9216 0\n",
        )

    def _put(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())

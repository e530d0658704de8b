"""Reading a simulated JOB by the format page alone, and a clock that tests turn."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from profagentd.simulate.npu import Npu

if TYPE_CHECKING:
    from profagentd.simulate.run import SimulationOptions


class TurnedClock:
    """A clock that only sleeping moves; each sleep wakes `overslept_s` too late."""

    def __init__(self, wall_us: int = 1_800_000_000_000_000, overslept_s: float = 0.0) -> None:
        self._wall_us = wall_us
        self.now = 50.0
        self.overslept_s = overslept_s
        self.sleeps = 0

    def wall_us(self) -> int:
        return self._wall_us + round((self.now - 50.0) * 1_000_000)

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, delay_s: float) -> None:
        self.sleeps += 1
        self.now += delay_s + self.overslept_s
        await asyncio.sleep(0)


START_US = 1_767_225_600_000_000  # 2026-01-01 00:00:00 UTC


def write_job(root: Path, options: SimulationOptions, inferences: int, *, loads: int = 1, gaps: bool = True) -> Path:
    """Write a JOB at once, its times from START_US on; without `gaps` each layer leaves its record."""
    npu = Npu(replace(options, root=root), gaps=gaps)
    now_us = START_US
    for _ in range(loads):
        first_us = now_us = npu.load(now_us)
        for number in range(inferences):
            now_us = npu.infer(max(now_us, first_us + round(number * 1_000_000 / options.rate)))
        now_us = npu.unload(now_us)
    assert npu.directory is not None
    return npu.directory


def only_job(root: Path) -> Path:
    (job,) = root.iterdir()
    return job


def contents(job: Path) -> dict[str, bytes]:
    """Every file of a JOB by its path inside it."""
    return {str(path.relative_to(job)): path.read_bytes() for path in job.rglob("*") if path.is_file()}


def done(data: bytes) -> dict[str, str]:
    """A .done as {key: text}."""
    return dict(line.split(":") for line in data.decode("ascii").splitlines())


def aicore(data: bytes) -> list[tuple[int, ...]]:
    """Records of aicore as (sequence, ticks, segment)."""
    assert len(data) % 256 == 0
    return [
        struct.unpack_from("<II", data, offset) + struct.unpack_from("<I", data, offset + 0xFC)
        for offset in range(0, len(data), 256)
    ]


def api(data: bytes) -> list[tuple[int, ...]]:
    """acl_api records as (id, begin, end, pid, tid)."""
    assert len(data) % 32 == 0
    records = list(struct.iter_unpack("<IIQQII", data))
    assert {record[0] for record in records} <= {0x5A5A}
    return [record[1:] for record in records]


def write_network(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


BATCHED = """
name = "batched"
batch_num = 2
online_batch = true
[[segments]]
unit = "aicore"
runs = [
    { time_us = 10.0, layers = ["a:Convolution"] },
    { time_us = 20.0, layers = ["b:Convolution"] },
    { time_us = 40.0, batch = true, layers = ["c:InnerProduct"] },
    { time_us = 80.0, layers = ["d:Convolution"] },
    { time_us = 160.0, layers = ["e:Convolution"] },
]
"""
"""The worked example of the-format.md 3.1."""

THREE_SEGMENTS = """
name = "three"
[counters.Convolution]
mac_busy = 0.5
mac_ppen = 0.25
dld = 0.125
ddr_read_bytes_per_us = 640.0
ddr_write_bytes_per_us = 320.0
[[segments]]
unit = "aicore"
runs = [
    { time_us = 100.0, layers = ["conv:Convolution", "relu:Relu", "split:Split:2"] },
    { time_us = 50.0, layers = ["pool:Pooling"] },
]
[[segments]]
unit = "aicpu"
runs = [{ time_us = 30.0, layers = ["one:Resize"] }, { time_us = 70.0, layers = ["two:Custom"] }]
[[segments]]
unit = "aicore"
runs = [{ time_us = 200.0, layers = ["last:Convolution"] }]
"""

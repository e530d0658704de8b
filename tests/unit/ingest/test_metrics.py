"""Sweeps come back from the lines that the daemon writes, from any segment and any piece of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.ingest.metrics import MetricSample, decode
from profagentd.metrics.collectors import Sample
from profagentd.metrics.sampler import Lines, Sweep
from profagentd.spools.spool import Spool

SWEEPS = [
    Sweep(1_000_000, [Sample("npu.hw_utilization", "%", 12.0), Sample("load.1min", "", 0.25)], {}),
    Sweep(2_000_000, [Sample("load.1min", "", 0.5)], {"thermal": "No such\nfile"}),
    Sweep(3_000_000, [Sample("load.1min", "", 1e9), Sample("disk./a b.free", "B", 3.5)], {}),
]
EXPECTED = [
    MetricSample("npu.hw_utilization", "%", 1_000_000, 12.0),
    MetricSample("load.1min", "", 1_000_000, 0.25),
    MetricSample("load.1min", "", 2_000_000, 0.5),
    MetricSample("load.1min", "", 3_000_000, 1e9),
    MetricSample("disk./a b.free", "B", 3_000_000, 3.5),
]


def test_sweeps_come_back() -> None:
    lines = Lines()
    assert decode(b"".join(lines.of(each) for each in SWEEPS), {}) == (EXPECTED, 0)


def test_each_segment_can_be_read_by_itself(tmp_path: Path) -> None:
    lines = Lines()
    spool = Spool(str(tmp_path), "metrics", "board", segment_bytes=60, preamble=lines.names)
    for each in SWEEPS:
        spool.write(lines.of(each))
    spool.close()
    segments = sorted(each for each in tmp_path.glob("METRICS-*/*") if each.name.isdigit())
    assert len(segments) > 1
    assert [sample for each in segments for sample in decode(each.read_bytes(), {})[0]] == EXPECTED


@pytest.mark.parametrize("cut", range(0, 120, 7))
def test_a_piece_is_no_error(cut: int) -> None:
    lines = Lines()
    data = b"".join(lines.of(each) for each in SWEEPS)
    assert decode(data[:cut], {})[1] == 0
    assert decode(data[cut:], {})[0] is not None
    assert decode(b"x\nn\ns 1 0=1\ns x\n", {})[1] == 4

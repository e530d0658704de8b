"""What the runtime library's filter leaves of a sequence."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from profagent.formats.records import AICORE_DTYPE, Splitter, view_records

EDGE = next((Path(__file__).resolve().parents[2] / "data" / "jobs" / "runtime-edge").glob("JOB*"))


def test_the_runtimes_sequence_filter_leaves_the_gaps_that_the_splitter_finds() -> None:
    records = view_records((EDGE / "data" / "aicore.0.demo_a.3.0.1.1.4").read_bytes(), AICORE_DTYPE)
    first = [0, 5, 14, 24, 24, 25, 26, 27, 28, 38, 48]
    assert records["net"].tolist() == [0] * 11 + [1, 1]
    assert records["sequence"].tolist() == [*first, 10, 12]
    split = Splitter().feed(records["sequence"], records["net"])
    assert split.segment.tolist() == [0] * 11 + [1, 1]
    assert set(split.load.tolist()) == {0}
    missing = [after - before - 1 for before, after in pairwise(first) if after - before > 1]
    assert split.gap_missing.tolist() == [*missing, 10, 1]
    assert not split.is_gap_odd.any()

"""The ring of calls between two flushes."""

from __future__ import annotations

import pytest

from profagentd.simulate.npu import CallRing
from tests.daemon.simulated_job import api


@pytest.mark.parametrize(("calls", "kept"), [(0, 0), (1, 1), (510, 510), (511, 511), (512, 511), (600, 511)])
def test_the_newest_511_calls_survive(calls: int, kept: int) -> None:
    ring = CallRing(pid=4, tid=5)
    for number in range(calls):
        ring.add(2, number, number + 1)
    records = api(ring.flush())
    assert records == [(2, number, number + 1, 4, 5) for number in range(calls - kept, calls)]


def test_a_flush_empties_the_ring() -> None:
    ring = CallRing(pid=4, tid=5)
    ring.add(0, 1, 2)
    ring.flush()
    assert ring.flush() == b""

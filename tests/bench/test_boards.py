"""Several boards, live, in one `record`: its share of a core, its memory, and that of each daemon."""

from __future__ import annotations

import sqlite3
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.bench.checkouts import Checkout, in_turns, report_compared
from tests.bench.measure import MIB, Child, started
from tests.bench.programs import program

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RATE, LAYERS, TURNS = 100.0, 100, 2
SETTLING_S, WINDOW_S = 4.0, 10.0


class Load(NamedTuple):
    """What a capture takes while it goes on; shares are of one core."""

    record: float
    record_mib: float
    rows_per_s: float
    daemon: float
    daemon_mib: float


@pytest.mark.parametrize("number", [8, 16])
def test_live_boards(number: int, memory: Path, checkouts: Sequence[Checkout]) -> None:
    loads = in_turns(checkouts, lambda checkout: _load(checkout, memory, number), TURNS)
    report_compared(
        f"record of {number} boards, each {RATE * LAYERS:,.0f} records/s in {2 * RATE:g} files/s, all in memory",
        checkouts,
        {
            "record: share of a core, %": [[100 * each.record for each in of_one] for of_one in loads],
            "record: aicore rows committed, thousand/s": [
                [each.rows_per_s / 1000 for each in of_one] for of_one in loads
            ],
            "record: peak RSS, MiB": [[each.record_mib for each in of_one] for of_one in loads],
            "each daemon: share of a core, %": [[100 * each.daemon for each in of_one] for of_one in loads],
            "the largest daemon: peak RSS, MiB": [[each.daemon_mib for each in of_one] for of_one in loads],
        },
        digits=1,
    )


def _load(checkout: Checkout, memory: Path, number: int) -> Load:
    with ExitStack() as stack:
        run = memory / f"{checkout.name}-{time.monotonic_ns()}"
        boards = [run / f"board-{place}" for place in range(number)]
        for board in boards:
            board.mkdir(parents=True)
        daemons = [stack.enter_context(checkout.daemon(board)) for board in boards]
        named = [argument for address, _ in daemons for argument in ("--board", address)]
        command = checkout.command("record", *named, "--workspace", run / "workspace")
        record = Child(stack.enter_context(started(*command, variables=checkout.variables)).pid)
        with program(*boards, rate=RATE, layers=LAYERS):
            time.sleep(SETTLING_S)
            shares = [child.share_of_a_core() for child in (record, *(daemon for _, daemon in daemons))]
            before, begin = _inferences(run / "workspace"), time.monotonic()
            time.sleep(WINDOW_S)
            of_record, *of_daemons = (share() for share in shares)
            rows_per_s = (_inferences(run / "workspace") - before) * LAYERS / (time.monotonic() - begin)
        mib = [child.peak_bytes() / MIB for child in (record, *(daemon for _, daemon in daemons))]
        return Load(of_record, mib[0], rows_per_s, sum(of_daemons) / number, max(mib[1:]))


def _inferences(workspace: Path) -> int:
    with closing(sqlite3.connect(f"file:{workspace / 'profagent.db'}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM inference").fetchone()[0])

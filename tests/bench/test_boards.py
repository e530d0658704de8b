"""Several boards, live, in one `record`: its share of a core, its memory, and that of each daemon."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from tests.bench.checkouts import Checkout, in_turns, report_compared
from tests.bench.measure import MIB, Child, started
from tests.bench.programs import program

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BOARDS, RATE, LAYERS, TURNS = 8, 100.0, 100, 2
SETTLING_S, WINDOW_S = 4.0, 10.0


class Load(NamedTuple):
    """What a capture takes while it goes on; shares are of one core."""

    record: float
    record_mib: float
    daemon: float
    daemon_mib: float


def test_live_boards(memory: Path, checkouts: Sequence[Checkout]) -> None:
    loads = in_turns(checkouts, lambda checkout: _load(checkout, memory), TURNS)
    report_compared(
        f"record of {BOARDS} boards, each {RATE * LAYERS:,.0f} records/s in {2 * RATE:g} files/s, all in memory",
        checkouts,
        {
            "record: share of a core, %": [[100 * each.record for each in of_one] for of_one in loads],
            "record: peak RSS, MiB": [[each.record_mib for each in of_one] for of_one in loads],
            "each daemon: share of a core, %": [[100 * each.daemon for each in of_one] for of_one in loads],
            "the largest daemon: peak RSS, MiB": [[each.daemon_mib for each in of_one] for of_one in loads],
        },
        digits=1,
    )


def _load(checkout: Checkout, memory: Path) -> Load:
    with ExitStack() as stack:
        run = memory / f"{checkout.name}-{time.monotonic_ns()}"
        boards = [run / f"board-{number}" for number in range(BOARDS)]
        for board in boards:
            board.mkdir(parents=True)
        daemons = [stack.enter_context(checkout.daemon(board)) for board in boards]
        named = [argument for address, _ in daemons for argument in ("--board", address)]
        command = checkout.command("record", *named, "--workspace", run / "workspace")
        record = Child(stack.enter_context(started(*command, variables=checkout.variables)).pid)
        with program(*boards, rate=RATE, layers=LAYERS):
            time.sleep(SETTLING_S)
            shares = [child.share_of_a_core() for child in (record, *(daemon for _, daemon in daemons))]
            time.sleep(WINDOW_S)
            of_record, *of_daemons = (share() for share in shares)
        mib = [child.peak_bytes() / MIB for child in (record, *(daemon for _, daemon in daemons))]
        return Load(of_record, mib[0], sum(of_daemons) / BOARDS, max(mib[1:]))

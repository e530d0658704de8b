"""JOBs of the other SoC on the way from a board: refused by name, and no one else suffers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.integration.board import running, simulated
from tests.integration.host import is_event, profagent, started
from tests.integration.rows import query

if TYPE_CHECKING:
    from pathlib import Path

OTHER = "JOB" + "D" * 29
FAST = ("--quiet-after", "1")
RECORD = ("record", "--backlog", "--until-finished", "--json")


def write_other(root: Path) -> None:
    """A JOB as a Hi3519DV500 writes it (the-format.md 9)."""
    data = root / OTHER / "data"
    data.mkdir(parents=True)
    (data / "aicore.0.1.1").write_bytes(bytes(512))
    (root / OTHER / "info.json.0").write_text('{"DeviceInfo": [{"aic_frequency": "594"}], "magic_num": "6A6A"}')


def test_a_board_with_nothing_else_is_refused_and_its_session_ends(root: Path, tmp_path: Path) -> None:
    write_other(root)
    with running("--root", root, *FAST) as board:
        ended = profagent(*RECORD, "--board", board.address, "--workspace", tmp_path / "ws")
    assert ended.code == 2
    assert OTHER in ended.err
    assert query(tmp_path / "ws" / "profagent.db", "SELECT count(*) FROM session WHERE ended_us IS NULL") == [(0,)]


def test_a_watch_goes_on_with_the_others(root: Path) -> None:
    next(simulated(root).glob("data/aicore.*.done")).unlink()  # so it is open
    write_other(root)
    with (
        running("--root", root, "--quiet-after", "300") as board,
        started("watch", "--from-start", "--json", "--board", board.address) as host,
    ):
        simulated(root, 3, seed=9)
        host.out.until(is_event("ledger"))
        host.out.until(is_event("inference"), 3)
        ended = host.interrupt()
    assert ended.code == 0
    events = [json.loads(line) for line in ended.out.splitlines()]
    assert [event["job"] for event in events if event.get("reason") == "unsupported-soc"] == [OTHER]

"""A lake behind an address, as one in an object store, is read through the store by which it is written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from profagent.lake import engines
from profagent.lake.engines import engine_of
from profagent.lake.lake import SESSIONS, Lake, Push

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

QUERY = "SELECT date, session, count(*), sum(value) FROM records GROUP BY date, session ORDER BY date, session"


def pushed(lake: Lake, number: int) -> None:
    """Push a session of so many rows, of a day of its own."""
    push = Push(f"push {number}", f"session {number}")
    owners = {"date": f"2026-11-{number + 1:02}", "session": push.session, "push": push.name}
    for table in ("records", "calls"):
        batch = pa.RecordBatch.from_pylist([{**owners, "value": value} for value in range(number + 1)])
        lake.append(table, push, batch.schema, partial(iter, [batch]))
    lake.name_session(push, pa.RecordBatch.from_pylist([owners]))


def asked(lake: Lake) -> list[tuple[Any, ...]]:
    with engine_of(lake) as engine:
        return engine.ask(QUERY).rows


def test_several_push_at_once_and_are_read_as_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_ORDER", (SESSIONS, "records", "calls"))
    # A blank is written otherwise in addresses.
    folder = tmp_path / "in it"
    lakes = Lake(f"file://{folder}"), Lake(str(folder))
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(partial(pushed, lakes[0]), range(4))] == [None] * 4
    wanted = [
        (f"2026-11-{number + 1:02}", f"session {number}", number + 1, sum(range(number + 1))) for number in range(4)
    ]
    assert asked(lakes[0]) == asked(lakes[1]) == wanted

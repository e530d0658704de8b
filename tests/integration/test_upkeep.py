"""Upkeep of a lake takes what no push can name any more, and nothing else."""

from __future__ import annotations

import os
import time
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from profagent.errors import LakeError
from profagent.lake import engines, upkeep
from profagent.lake import lake as lakes
from profagent.lake.engines import engine_of
from profagent.lake.lake import SESSIONS, Lake, Push
from profagent.lake.upkeep import RETENTION_H, compact

if TYPE_CHECKING:
    from collections.abc import Sequence

TODAY = datetime.now(UTC).date()
LONG_AGO = TODAY - timedelta(days=16)
ROWS = 3
# The others are as these.
TABLES = ("records", "calls", SESSIONS)
SESSION = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


def push_on(day: date, after: str = "") -> Push:
    return Push.on(day, SESSION, "content", after)


def row_of(push: Push) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"date": "2026-11-01", "session": push.session, "push": push.name}])


def appended(lake: Lake, push: Push, tables: Sequence[str] = TABLES[:-1]) -> None:
    for table in tables:
        batch = pa.RecordBatch.from_pylist(row_of(push).to_pylist() * ROWS)
        lake.append(table, push, batch.schema, partial(iter, [batch]))


def named(lake: Lake, push: Push) -> None:
    appended(lake, push)
    assert lake.name_session(push, row_of(push))


def removed(lake: Lake) -> dict[str, int]:
    return {table.table: table.rows for table in compact(lake) if table.rows}


def seen(lake: Lake) -> list[tuple[Any, ...]]:
    with engine_of(lake) as engine:
        return engine.ask("SELECT push, count(*) FROM records GROUP BY push ORDER BY push").rows


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """It has a session that was pushed long ago, and whose rows are in one file with those that others leave."""
    monkeypatch.setattr(upkeep, "TABLES", TABLES)
    monkeypatch.setattr(engines, "_ORDER", TABLES[::-1])
    found = Lake(str(tmp_path / "lake"))
    named(found, Push(f"{LONG_AGO} other", "other"))
    return found


def test_rows_go_that_no_push_can_name_any_more(lake: Lake) -> None:
    """A push of today may go on, and one whose name tells no day is of somebody else."""
    left, young, foreign = push_on(LONG_AGO), push_on(TODAY), Push("of 'somebody'", SESSION)
    appended(lake, left, ["records", "calls"])
    appended(lake, young)
    appended(lake, foreign, ["records"])
    assert lake.change("records", lambda found: found.optimize.compact())["numFilesAdded"] == 1
    assert removed(lake) == {"records": ROWS, "calls": ROWS}
    assert lake.pushes("records") == {f"{LONG_AGO} other", young.name, foreign.name}
    assert lake.name_session(young, row_of(young))
    assert seen(lake) == [(f"{LONG_AGO} other", ROWS), (young.name, ROWS)]
    assert removed(lake) == {}
    for table in TABLES:
        assert lakes.RETENTION.items() <= lake.required(table).metadata().configuration.items()


def test_a_push_that_is_still_at_work_cannot_name_what_went(lake: Lake) -> None:
    late = push_on(LONG_AGO)
    appended(lake, late)
    assert removed(lake) == dict.fromkeys(TABLES[:-1], ROWS)
    with pytest.raises(LakeError, match="took so long"):
        lake.name_session(late, row_of(late))
    named(lake, push_on(TODAY))
    assert seen(lake) == [(f"{LONG_AGO} other", ROWS), (push_on(TODAY).name, ROWS)]


def test_a_push_that_names_its_session_at_the_same_time_keeps_its_rows(lake: Lake) -> None:
    late = push_on(LONG_AGO)
    appended(lake, late)
    asked = []

    def unnamed(found: deltalake.DeltaTable) -> set[str]:
        asked.append(found.version())
        if len(asked) == 1:
            assert Lake(lake.address).name_session(late, row_of(late))
        return {late.name} - lake.pushes(SESSIONS, found)

    assert lake.give_up(unnamed) == []
    assert len(asked) == 2
    assert (late.name, ROWS) in seen(lake)


def test_a_push_is_refused_that_is_given_up_while_it_names_its_session(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = push_on(LONG_AGO)
    appended(lake, late)
    write = deltalake.write_deltalake

    def after_others(*arguments: Any, **more: Any) -> None:
        monkeypatch.setattr(lakes, "write_deltalake", write)
        assert Lake(lake.address).give_up(lambda _: [late.name]) == [late.name]
        write(*arguments, **more)

    monkeypatch.setattr(lakes, "write_deltalake", after_others)
    with pytest.raises(LakeError, match="took so long"):
        lake.name_session(late, row_of(late))
    assert seen(lake) == [(f"{LONG_AGO} other", ROWS)]


def test_what_was_replaced_stays_as_long_as_files_do(lake: Lake) -> None:
    """Whoever read `sessions` before finds the rows of a push that has been replaced since."""
    first = push_on(LONG_AGO)
    named(lake, first)
    _age(lake, RETENTION_H + 1)
    second = push_on(TODAY, first.name)
    named(lake, second)
    assert removed(lake) == {}
    assert seen(lake) == [(f"{LONG_AGO} other", ROWS), (second.name, ROWS)]
    _age(lake, RETENTION_H + 1)
    assert removed(lake) == dict.fromkeys(TABLES[:-1], ROWS)
    assert seen(lake) == [(f"{LONG_AGO} other", ROWS), (second.name, ROWS)]


def _age(lake: Lake, hours: int) -> None:
    """Have all that is in `sessions` be so old."""
    then = time.time() - hours * 3600
    for file in Path(lake.address, SESSIONS, "_delta_log").iterdir():
        os.utime(file, (then, then))

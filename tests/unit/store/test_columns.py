"""Records as columns are those that the tables have: of any inferences, in chunks and pages of any size."""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import profagent
from profagent.formats.names import LogKind
from profagent.store import columns, database
from profagent.store.calls import CallNames, CallTable, call_tables
from profagent.store.columns import UNITS, PageQuery, RecordTable, Segments, chunks, pages
from tests.golden.write_exports import job_copy
from tests.unit.store.database import START_US
from tests.unit.store.test_events import changes_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.unit.store.database import DatabaseBuilder
    from tests.unit.store.rows import Rows

COLUMNS = {
    LogKind.AICORE: ("record", "sequence", "layer_index", "ticks", "ticks_before"),
    LogKind.AICPU: ("record", "sequence", "layer_index", "begin_us", "end_us"),
}
COUNTERS = ("ticks", "mac_busy", "ddr_read_bytes")


@pytest.fixture(params=["runtime-reload", "runtime-edge", "simulated"])
def filled(request: pytest.FixtureRequest, rows: Rows, tmp_path: Path) -> Rows:
    """The rows of a JOB, of which some logs have several inferences."""
    rows.apply(*changes_of(job_copy(request.param, tmp_path)))
    rows.finish()
    return rows


def inferences(connection: sqlite3.Connection) -> list[int]:
    """All of them, in an order that is not that of their rows."""
    query = "SELECT inference FROM inference ORDER BY current_pic_count % 3, start_us DESC, inference"
    return [number for (number,) in connection.execute(query)]


def expected(connection: sqlite3.Connection, kind: LogKind, names: Iterable[str]) -> dict[int, list[tuple[Any, ...]]]:
    """Rows of records by inference, as they stand in the log."""
    shown = ", ".join("ifnull(layer_index, -1)" if name == "layer_index" else f"r.{name}" for name in names)
    query = f"SELECT inference, g.segment, g.net, {shown} FROM {kind} r JOIN segment g USING (segment) ORDER BY record"
    found = defaultdict(list)
    for inference, *row in connection.execute(query):
        found[inference].append(tuple(row))
    return found


def by_inference(table: RecordTable, asked: list[int]) -> dict[int, list[tuple[Any, ...]]]:
    found = defaultdict(list)
    shown = [table.segments.number[table.segment], table.net, *table.columns.values()]
    for inference, *row in zip(table.inference.tolist(), *(column.tolist() for column in shown), strict=True):
        found[asked[inference]].append(tuple(None if value != value else value for value in row))  # noqa: PLR0124 - NaN
    return found


@pytest.mark.parametrize("most", [1, 7, 10_000])
def test_pages_have_whole_inferences(filled: Rows, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "ROWS_PER_PAGE", 3)
    connection, asked = filled.connection, inferences(filled.connection)[1:]
    groups = [number % 5 for number in asked]
    segments = Segments.of(connection, asked)
    planned = [*pages(connection, segments, COLUMNS, groups, most)]
    assert [(page.first, page.end) for page in planned] == [*_pages_of(planned)]
    for kind in UNITS:
        wanted = expected(connection, kind, COLUMNS[kind])
        found: dict[int, list[tuple[Any, ...]]] = {}
        for query in planned:
            page = query.read(connection)
            table = page.aicore if kind is LogKind.AICORE else page.aicpu
            assert (table.inference[1:] >= table.inference[:-1]).all()
            assert len({*groups[query.first : query.end]}) == 1
            assert page.records <= most or query.end == query.first + 1
            of_page = by_inference(table, asked)
            assert of_page.keys() <= {*asked[query.first : query.end]}
            found |= of_page
        assert found == {number: rows for number, rows in wanted.items() if number in asked}


def _pages_of(planned: list[PageQuery]) -> Iterable[tuple[int, int]]:
    ends = [page.end for page in planned]
    return pairwise([0, *ends])


@pytest.mark.parametrize("most", [2, 250_000])
@pytest.mark.parametrize("kind", UNITS)
def test_chunks_have_all_records(filled: Rows, kind: LogKind, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "RECORDS_PER_CHUNK", most)
    connection, asked = filled.connection, inferences(filled.connection)
    names = COLUMNS[kind]
    segments = Segments.of(connection, asked)
    tables = [query.read(connection) for query in chunks(connection, segments, kind, names)]
    found = np.concatenate([np.empty(0, np.int64), *(table.columns["record"] for table in tables)])
    assert sorted(found.tolist()) == [
        number for (number,) in connection.execute(f"SELECT record FROM {kind} ORDER BY record")
    ]
    wanted = expected(connection, kind, names)
    for table in tables:
        for number, rows in by_inference(table, asked).items():
            assert rows == [row for row in wanted[number] if row in rows]


def test_counters_are_exact_and_nan_where_they_are_not_known(filled: Rows) -> None:
    connection, asked = filled.connection, inferences(filled.connection)
    segments = Segments.of(connection, asked)
    wanted = expected(connection, LogKind.AICORE, COUNTERS)
    tables = [query.read(connection) for query in chunks(connection, segments, LogKind.AICORE, COUNTERS)]
    found = [each for table in tables for each in by_inference(table, asked).items()]
    assert dict(found) == wanted


def test_what_nobody_asked_for_is_left_out(rows: Rows) -> None:
    none = Segments.of(rows.connection, [])
    assert [*pages(rows.connection, none, COLUMNS, [])] == []
    assert [query.read(rows.connection) for kind in UNITS for query in chunks(rows.connection, none, kind, ())] == []


def test_records_that_are_not_as_many_as_their_segments_have_are_told_apart(filled: Rows) -> None:
    connection, asked = filled.connection, inferences(filled.connection)
    segments = Segments.of(connection, asked)
    names = ("record", "ticks")
    (query,) = chunks(connection, segments, LogKind.AICORE, names)
    assert query.runs is not None
    connection.execute("SAVEPOINT whole")
    connection.execute("DELETE FROM aicore WHERE record = (SELECT min(record) + 1 FROM aicore)")
    assert by_inference(query.read(connection), asked) == expected(connection, LogKind.AICORE, names)
    connection.execute("ROLLBACK TO whole")


@pytest.mark.parametrize("most", [2, 100_000])
def test_calls_are_those_of_a_session_a_job_or_a_log(
    builder: DatabaseBuilder, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "RECORDS_PER_CHUNK", most)
    one, other = builder.session(), builder.session()
    job, second = builder.job(one, other), builder.job(one, name="JOB" + "Z" * 29)
    model, of_second = builder.model(job), builder.model(second)
    log = builder.log(job, model, "acl_api", "data/calls", size=5 * 32)
    parts = [
        builder.part(one, log),
        builder.part(other, log, first_record=3),
        builder.new_part(one, of_second, "acl_api"),
    ]
    for number, part in enumerate(parts):
        builder.calls(part, [(place, None if place == 1 else place, 9 + number) for place in range(3)], pid=7 + number)
    builder.aicore(builder.inference(one, model), builder.new_part(one, model, "aicore"), [1, 2])
    with closing(sqlite3.connect(builder.close())) as connection:

        def found(**chosen: int) -> list[tuple[int, ...]]:
            table = CallTable.joined(call_tables(connection, **chosen))
            return [*zip(table.pid.tolist(), table.model.tolist(), table.api.tolist(), strict=True)]

        first, again, of_other = (
            [(7 + place, (model, model, of_second)[place], api) for api in range(3)] for place in range(3)
        )
        assert found(session=one) == [*first, *of_other]
        assert found(job=job) == found(log=log) == [*first, *again]
        assert found(session=other, job=job) == again
        assert found(session=other, job=second) == []
        (table, *_) = call_tables(connection, session=other)
        begins, ends = (table.begin_us[:2] - START_US).tolist(), (table.end_us[:2] - START_US).tolist()
        assert (begins, ends, table.log[0]) == ([0, -START_US], [10, 10], log)
        assert [CallNames.of(connection)[api] for api in (2, 7)] == [
            ("svp_acl_mdl_execute", "model"),
            ("unknown(7)", "N/A"),
        ]


def test_one_module_says_which_keys_the_records_of_a_part_have() -> None:
    idiom = re.compile(r"<< 24|BETWEEN .*(?:RECORDS_PER_PART|0xFFFFFF)", re.IGNORECASE)
    modules = [*Path(profagent.__file__).parent.rglob("*.py")]
    assert [each for each in modules if idiom.search(each.read_text("utf-8"))] == [Path(database.__file__)]

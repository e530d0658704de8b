"""Tables: other libraries read what the database has, batch by batch, with types, units and provenance."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import profagent
from profagent.api.table import Table
from profagent.limits import ROWS_IN_REPR
from profagent.store import columns
from profagent.tables import arrow
from profagent.tables.arrow import ArrowStream, ColumnValues, Field
from tests.unit.api.lab import copy_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from profagent.tables.arrow import Batch

VIEWS = {
    "inferences": "inferences",
    "records": "op_records",
    "calls": "api_records",
    "ranges": "ranges",
    "metrics": "metrics",
    "ledger": "ledger",
    "coverage": "coverage",
}
FIELDS = [
    Field("whole", "int64"),
    Field("large", "uint64"),
    Field("time", "float64", "us"),
    Field("text", "text"),
    Field("name", "category"),
]
ROWS = [
    (1, "18446744073709551615", 0.5, "ä", "conv"),
    (None, None, None, None, None),
    (-3, 7, 2.0, "", "conv"),
]


@pytest.fixture
def session(lab: Path) -> profagent.Session:
    return profagent.open(lab).session(1)


def table(*batches: Sequence[Sequence[object]], about: profagent.Provenance) -> Table:
    """A table of several batches."""
    return Table(
        tuple(FIELDS),
        about,
        lambda: iter([arrow.columns_from(FIELDS, rows) for rows in batches]),
        lambda: sum(map(len, batches)),
    )


def test_arrow_has_each_type_its_unknown_values_and_its_unit(session: profagent.Session) -> None:
    found = pa.table(table(ROWS, ROWS[1:], about=session.provenance))
    found.validate(full=True)
    expected = [{**dict(zip((field.name for field in FIELDS), row, strict=True))} for row in [*ROWS, *ROWS[1:]]]
    expected[0]["large"] = 2**64 - 1
    assert found.to_pylist() == expected
    types = [pa.int64(), pa.uint64(), pa.float64(), pa.string(), pa.dictionary(pa.int32(), pa.string())]
    assert found.schema.types == types
    assert found.schema.field("time").metadata == {b"unit": b"us"}
    assert found.schema.metadata[b"session"] == b"1"
    assert found.schema.metadata[b"simulated"] == b"false"
    assert table(ROWS, ROWS[1:], about=session.provenance).to_dicts() == expected


def test_no_rows_have_their_columns_all_the_same(session: profagent.Session) -> None:
    found = pa.table(session.metrics())
    assert found.num_rows == 0
    assert found.schema.names == list(session.metrics().names)
    assert pa.schema(session.metrics()).field("value").type == pa.float64()


@pytest.mark.parametrize("method", VIEWS)
def test_a_table_has_the_rows_of_its_view(method: str, session: profagent.Session) -> None:
    found = getattr(session, method)()
    expected = session.sql(f"SELECT * FROM {VIEWS[method]} WHERE session = :session")
    assert found.names == expected.names
    assert found.to_dicts() == pa.table(found).to_pylist() == expected.to_dicts()
    assert len(found) == len(expected)


async def test_a_notebooks_running_loop_may_ask(lab: Path) -> None:
    """Also after an error, and again."""
    session = profagent.open(lab).session(1)
    with pytest.raises(profagent.UsageError):
        profagent.open(lab).session(9)
    assert session.layers()["layer"][:2] == ["conv2", "fc"]
    assert profagent.diff(session, session).verdict


def test_duckdb_reads_a_table_by_its_name(session: profagent.Session) -> None:
    records = session.records()
    found = duckdb.sql("SELECT layer_name, count(*), max(duration_us) FROM records GROUP BY 1 ORDER BY 3")
    assert found is not None
    assert found.fetchall() == [("conv1", 20, 1419 / 7), ("fc", 20, 2119 / 7), ("conv2", 20, 4219 / 7)]
    assert records  # the name in the query


def test_polars_and_pandas_have_the_same_rows(session: profagent.Session) -> None:
    for found in (session.records(), session.layers(), table(ROWS, ROWS[1:], about=session.provenance)):
        assert pl.DataFrame(found).to_dicts() == found.to_dicts()
        frame = found.to_pandas()
        assert [
            {name: None if pd.isna(value) else value for name, value in row.items()} for row in frame.to_dict("records")
        ] == found.to_dicts()
        assert frame.attrs["session"] == "1"
    assert session.layers().to_pandas().attrs["units"]["in_inference"] == "us"
    assert session.metrics().to_pandas().empty


def test_rows_come_in_bounded_batches(session: profagent.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "RECORDS_PER_CHUNK", 7)
    records = session.records(columns=["layer_name", "ticks"])
    sizes = [len(batch) for batch in records.batches()]
    assert max(sizes) <= 9
    assert sum(sizes) == len(records) == 60
    reader = pa.RecordBatchReader.from_stream(records)
    assert [len(batch) for batch in reader] == sizes


def test_what_a_consumer_was_given_is_freed_with_it(session: profagent.Session) -> None:
    """Also of a stream that nobody read, or read in part, and of children that live longer than their parent."""
    ended: list[str] = []
    read: list[weakref.ref[np.ndarray]] = []

    def batches() -> Iterator[Batch]:
        try:
            while True:
                values = ColumnValues(np.arange(3))
                read.append(weakref.ref(values.numbers))
                yield [values]
        finally:
            ended.append("ended")

    stream = ArrowStream([Field("n", "int64")], batches)
    capsule = stream.__arrow_c_stream__()
    del capsule
    reader = pa.RecordBatchReader.from_stream(stream)
    column = reader.read_next_batch().column("n")
    reader.read_next_batch()
    del reader
    # A generator that never began has nothing to end.
    assert (ended, arrow._readings) == (["ended"], {})
    assert column.to_pylist() == [0, 1, 2]
    assert [each() is None for each in read] == [False, True]
    del column
    assert read[0]() is None


def test_an_error_on_the_way_reaches_the_consumer() -> None:
    def batches() -> Iterator[Batch]:
        yield [ColumnValues.of("int64", [1])]
        raise ValueError("the disk is gone")

    reader = pa.RecordBatchReader.from_stream(ArrowStream([Field("n", "int64")], batches))
    assert len(reader.read_next_batch()) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        reader.read_next_batch()


def test_a_database_that_is_gone_is_told(lab: Path, tmp_path: Path) -> None:
    copy_of(lab, tmp_path)
    records = profagent.open(tmp_path).session().records()
    (tmp_path / "profagent.db").unlink()
    with pytest.raises(profagent.StoreError, match="cannot read"):
        records.to_dicts()
    with pytest.raises(OSError, match="cannot read"):
        pa.table(records)


def test_a_query_only_reads(session: profagent.Session) -> None:
    assert session.sql("SELECT :n + 1 AS n, NULL AS x_us, x'00ff' AS b", n=1).to_dicts() == [
        {"n": 2, "x_us": None, "b": "00ff"}
    ]
    for query in (
        "DELETE FROM session",
        "ATTACH 'other.db' AS other",
        "PRAGMA user_version = 9",
        "CREATE TABLE t(x)",
        "SELECT 1; SELECT 2",
        "SELECT load_extension('x')",
        "SELECT nothing",
        "SELECT printf('%.*c', 900000000, 'x')",
        "WITH v AS (SELECT format('%d', 1)) SELECT * FROM v",
        "SELECT zeroblob(100000000)",
        "SELECT :unknown",
    ):
        with pytest.raises(profagent.UsageError, match="the query fails"):
            session.sql(query)
    for query in ("", "-- c"):
        with pytest.raises(profagent.UsageError, match="the query is empty"):
            session.sql(query)


def test_places_of_the_ledger_are_bytes(session: profagent.Session) -> None:
    assert {field.name for field in session.ledger().fields if field.unit == "bytes"} == {"first", "last"}


def test_an_unknown_column_is_refused(session: profagent.Session) -> None:
    with pytest.raises(profagent.UsageError, match="op_records has no column 'tick'"):
        session.records(columns=["tick"])
    with pytest.raises(KeyError, match="no column 'tick'"):
        session.records()["tick"]


def test_a_table_shows_its_first_rows_and_what_it_is_of(session: profagent.Session) -> None:
    records = session.records()
    lines = repr(records).splitlines()
    assert lines[0] == "session 1: 60 rows of 32 columns"
    assert len(lines) == 3 + ROWS_IN_REPR + 2
    assert lines[-2] == "… 50 more"
    assert records._repr_html_().count("<tr>") == 1 + ROWS_IN_REPR
    layers = repr(session.layers())
    assert "in_inference(us)" in layers
    assert "conv2" in layers


def test_a_table_says_that_its_capture_is_incomplete_and_invented(lab: Path, tmp_path: Path) -> None:
    copy_of(lab, tmp_path, "UPDATE session SET ended_us = NULL, simulated = 1 WHERE session = 1")
    workspace = profagent.open(tmp_path)
    about = workspace.session(1).provenance
    assert (about.complete, about.simulated, about.caveats[0]) == (False, True, f"INCOMPLETE: {about.incomplete[0]}")
    assert repr(workspace.session(1).layers()).startswith("session 1: 4 rows of 14 columns, INCOMPLETE, simulated\n")
    joined = workspace.sessions().provenance
    assert (joined.session, joined.complete, joined.simulated) == (None, False, True)
    assert joined.incomplete == (f"session 1: {about.incomplete[0]}",)
    assert [part.complete for part in joined.parts] == [False, True]
    with pytest.raises(TypeError):
        about.ledger["loss"] = {}  # type: ignore[index]


def test_values_of_batches_are_joined() -> None:
    parts = [
        ColumnValues.of("category", ["a", None, "b"]),
        ColumnValues.of("category", ["b", "a"]),
        ColumnValues.of("category", []),
    ]
    assert ColumnValues.joined("category", parts).cells("category") == ["a", None, "b", "b", "a"]
    numbers = [ColumnValues.of("int64", [1, None]), ColumnValues(np.array([3]))]
    assert ColumnValues.joined("int64", numbers).cells("int64") == [1, None, 3]
    assert ColumnValues.joined("text", []).cells("text") == []

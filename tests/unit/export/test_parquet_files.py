"""A Parquet file of a view has what SQLite shows of it, whether it is written from rows or by columns."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet  # type: ignore[import-untyped]

from profagent.export.parquet import exported_views
from profagent.export.parquet_files import write_view
from profagent.store import columns
from tests.golden.write_exports import job_copy
from tests.unit.store.rows import Rows
from tests.unit.store.test_events import changes_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from profagent.ingest.source import View
VIEWS = {view.name: view for view in exported_views()}
OF_UNITS = [view.name for view in VIEWS.values() if view.unit is not None]
# What is odd, and one session that fetched a few of the JOB's records.
ODD = """
UPDATE part SET session = 2 WHERE part % 3 = 1;
UPDATE aicore SET layer_index = NULL WHERE record % 7 = 0;
UPDATE aicore SET mac_busy = NULL, dld = 0.1 + record / 3.0 WHERE record % 5 = 0;
UPDATE aicpu SET layer_index = 99 WHERE record % 2 = 0;
UPDATE inference SET current_pic_count = '18446744073709' || (500000 + inference) WHERE inference % 4 = 1;
UPDATE segment SET start_us = NULL, end_us = NULL WHERE segment % 5 = 2;
"""


@pytest.fixture(params=["runtime-reload", "runtime-edge"])
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rows]:
    rows = Rows(tmp_path)
    with closing(rows.runner), closing(rows.connection):
        rows.apply(*changes_of(job_copy(request.param, tmp_path)))
        rows.finish()
        rows.close()
        rows.connection.executescript(ODD)
        yield rows


def shown(rows: Rows, view: View, session: int) -> list[tuple[Any, ...]]:
    cursor = rows.connection.execute(f"SELECT * FROM {view.name} WHERE session = ?", (session,))
    names = [each[0] for each in cursor.description]
    return _sorted(dict(zip(names, row, strict=True)) for row in cursor)


def _sorted(rows: Any) -> list[tuple[Any, ...]]:
    """Counts above 2^63 are texts in the database; the board stands in the name of a folder."""
    found = [{**row, "current_pic_count": int(row["current_pic_count"])} for row in rows]
    return sorted((tuple(value for name, value in row.items() if name != "board") for row in found), key=repr)


@pytest.mark.parametrize(("most", "clock"), [(3, 1000), (100_000, None)])
@pytest.mark.parametrize("name", OF_UNITS)
def test_records_by_columns_are_those_of_their_view(
    filled: Rows, tmp_path: Path, name: str, most: int, clock: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a JOB without its info.json, and without a table of layers, as well."""
    monkeypatch.setattr(columns, "RECORDS_PER_CHUNK", most)
    filled.connection.execute("UPDATE job SET frequency_mhz = ?", (clock,))
    if clock is None:
        filled.connection.execute("DELETE FROM layer")
    for session in (1, 2, 3):
        file = tmp_path / f"{session}.parquet"
        wanted = shown(filled, VIEWS[name], session)
        assert write_view(filled.connection, VIEWS[name], session, file, {"session": session}) == len(wanted)
        assert file.exists() == bool(wanted)
        if wanted:
            found = parquet.read_table(file)
            assert found.schema.metadata[b"session"] == str(session).encode()
            assert _sorted(found.to_pylist()) == wanted

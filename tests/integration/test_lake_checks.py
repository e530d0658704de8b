"""`doctor --lake` tries what a lake's folder must do, says how its tables are, and leaves nothing behind."""

from __future__ import annotations

import errno
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from profagent.lake import checks
from profagent.lake.lake import Lake, Push
from profagent.limits import LAKE_FILES_PER_DAY
from tests.integration.host import profagent

if TYPE_CHECKING:
    import pytest
    from deltalake import DeltaTable

ROW = {"date": "2026-11-01", "session": "one", "push": "one"}


def marks(lake: Path, code: int = 0) -> dict[str, tuple[str, str]]:
    ended = profagent("doctor", "--lake", lake, "--json")
    assert ended.code == code, ended.err
    (section,) = ended.document["sections"]
    return {each["check"]: (each["mark"], each["evidence"]) for each in section["findings"]}


def test_a_folder_that_will_do_and_tables_in_it(tmp_path: Path) -> None:
    named = {check: mark for check, (mark, _) in marks(tmp_path).items()}
    good = dict.fromkeys(("packages", "lake-space", "commit", "hard-links"), "good")
    assert named == {**good, "tables": "unknown"}
    assert [*tmp_path.iterdir()] == []
    for number in range(LAKE_FILES_PER_DAY + 1):
        batch = pa.RecordBatch.from_pylist([ROW])
        Lake(str(tmp_path)).append("calls", Push(str(number), "one"), batch.schema, partial(iter, [batch]))
    before = {*tmp_path.iterdir()}
    found = marks(tmp_path)
    assert found["tables"][0] == "good"
    assert found["files"] == ("unknown", f"many small ones: calls {LAKE_FILES_PER_DAY + 1}")
    assert {*tmp_path.iterdir()} == before


def test_what_will_not_do_is_to_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert marks(tmp_path / "none", code=1)["address"][0] == "bad"
    committed = checks._committed

    def overwriting(table: DeltaTable, rows: pa.Table) -> bool:
        """As where a name that stands can be taken: each believes that it has come."""
        committed(table, rows)
        return True

    def unlinked(*_: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(checks, "_committed", overwriting)
    monkeypatch.setattr(Path, "hardlink_to", unlinked)
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "_delta_log").write_text("nonsense")
    found = marks(tmp_path, code=1)
    assert found["commit"] == ("bad", "of 4 commits of one version 4 came; 1 are there")
    assert found["hard-links"] == ("bad", "cannot be made: Operation not permitted")
    monkeypatch.setattr(checks, "LEAST_FREE_BYTES", 1 << 60)
    assert marks(tmp_path, code=1)["lake-space"][0] == "bad"

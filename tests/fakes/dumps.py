"""Everything that a database says of a JOB, in a form in which two databases can be compared."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from profagent.formats.counter_maps import CounterMaps
from profagent.importing.importing import import_job

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from profagent.formats.countermap import CounterMap

Dump = dict[str, list[tuple[Any, ...]]]

VIEWS = ("inferences", "op_records", "aicpu_records", "api_records")
# Which session, which board and which row numbers is not about the JOB's content.
_LEFT_OUT = {"session", "board", "inference"}
_QUERIES = {
    "layers": "SELECT m.name, m.model_id, l.layer_index, l.segment, l.layer_id, l.name, l.type"
    " FROM layer l JOIN model m USING (model)",
    "logs": "SELECT path, kind, offset, complete, digest FROM log",
    "job": "SELECT name, frequency_mhz FROM job",
    "sampling": "SELECT model, model_id, sampled, passed_over, interval, interval_from, due, late, never_came, why"
    " FROM sampling_by_model",
    "segments": "SELECT path, g.kind, ordinal, net, start_us, end_us, ticks FROM segment g JOIN log USING (log)",
    "ledger": "SELECT path, grade, reason, detail, first, last, count FROM ledger_entry LEFT JOIN log USING (log)"
    " WHERE origin <> 'link'",
}
_FAULTS = {
    "models whose samples are not as many as told": "SELECT model FROM sampling s"
    " WHERE session NOT IN (SELECT session FROM cleared_session) AND (sampled"
    " - (SELECT count(*) FROM sample x WHERE x.model = s.model AND x.session = s.session) NOT BETWEEN 0 AND"
    " (SELECT count(*) FROM inference i WHERE i.model = s.model AND load > 0)"
    " OR passed_over <> (SELECT count(*) FROM sample x"
    " WHERE x.model = s.model AND x.session = s.session AND NOT kept))",
    "passed over logs with rows": "SELECT path FROM log JOIN part USING (log) WHERE NOT kept",
    "segments whose ticks are not those of their records": "SELECT segment FROM segment g WHERE kind = 'aicore'"
    " AND ticks <> (SELECT ifnull(sum(ticks), 0) FROM aicore r WHERE r.segment = g.segment)",
    "segments without records": "SELECT segment FROM segment WHERE segment NOT IN (SELECT segment FROM aicore)"
    " AND segment NOT IN (SELECT segment FROM aicpu)",
    "inferences without segments": "SELECT inference FROM inference WHERE inference NOT IN"
    " (SELECT inference FROM segment)",
    "aicore records of no part": "SELECT record FROM aicore WHERE record >> 24 NOT IN (SELECT part FROM part)",
    "aicpu records of no part": "SELECT record FROM aicpu WHERE record >> 24 NOT IN (SELECT part FROM part)",
    "calls of no part": "SELECT record FROM api WHERE record >> 24 NOT IN (SELECT part FROM part)",
}


def dump(database: Path) -> Dump:
    """The public views and what they do not show, sorted; fails when the database contradicts itself."""
    with closing(sqlite3.connect(database)) as connection:
        check(connection)
        found = {name: in_order(connection.execute(sql)) for name, sql in _QUERIES.items()}
        for view in VIEWS:
            found[view] = view_rows(connection, view)
        return found


def view_rows(connection: sqlite3.Connection, view: str, job: str | None = None) -> list[tuple[Any, ...]]:
    """What a public view says of a JOB, or of all, sorted."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({view})") if row[1] not in _LEFT_OUT]
    of_job, parameters = ("", ()) if job is None else (" WHERE job = ?", (job,))
    return in_order(connection.execute(f"SELECT {', '.join(columns)} FROM {view}{of_job}", parameters))


def check(connection: sqlite3.Connection) -> None:
    """Fail when rows contradict each other."""
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    for fault, sql in _FAULTS.items():
        assert connection.execute(sql).fetchall() == [], fault


def assert_same(found: Dump, expected: Dump) -> None:
    """Fail with the rows in which they differ."""
    differing: dict[str, Any] = {
        name: (sorted(set(found[name]) - set(rows), key=repr), sorted(set(rows) - set(found[name]), key=repr))
        for name, rows in expected.items()
        if found[name] != rows
    }
    assert differing == {}, "rows that are too many, and rows that are missing"


def without_states(found: Dump) -> Dump:
    """A dump without what is known of figures, and the times that hang on it: of a JOB that need not have ended."""
    return {
        **found,
        "segments": sorted((row[:4] + row[6:] for row in found["segments"]), key=repr),
        "inferences": sorted((row[:9] for row in found["inferences"]), key=repr),
        "op_records": sorted((row[:15] + row[16:-1] for row in found["op_records"]), key=repr),
        "aicpu_records": sorted((row[:-1] for row in found["aicpu_records"]), key=repr),
    }


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    """A JOB directory with these files."""
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return folder


def imported(folder: Path, files: Mapping[str, bytes], counter_map: CounterMap | None = None) -> Dump:
    """What a plain import of these files gives."""
    return dump(asyncio.run(import_job(write_files(folder, files), CounterMaps(counter_map))).database)


def files_of(job: Path) -> dict[str, bytes]:
    """Every file of a JOB directory by its path inside it."""
    return {str(path.relative_to(job)): path.read_bytes() for path in sorted(job.rglob("*")) if path.is_file()}


def in_order(rows: sqlite3.Cursor) -> list[tuple[Any, ...]]:
    """Rows, sorted."""
    return sorted(rows.fetchall(), key=repr)

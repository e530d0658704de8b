"""Databases of msprof, torch_npu and MindSpore: every table row by row, and kernels, steps and calls by SQL."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from profagent.ascend.draft import Draft, encoded
from profagent.ascend.families import families
from profagent.ascend.kernels import Called, Kernels
from profagent.errors import ResultError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

ROWS_PER_BLOCK = 5_000
BUSY_MS = 2_000
MAGIC = b"SQLite format 3\0"
# In its header: how it is written.
WAL_PLACE, WAL_MODE = 18, b"\x02"
# What another tool, or SQLite itself, keeps there for itself.
_OWN_TABLES = frozenset({"status_info", "connectionCats", "sqlite_sequence"})
# By a word of each database: any of these tables makes it one of a profiler.
_KNOWN_TABLES = frozenset({"STRING_IDS", "TASK", "CANN_API", "StepTraceTime", "CommAnalyzerTime", "SESSION_TIME_INFO"})
_TASKS = (
    "SELECT c.name, c.opType, c.taskType, t.startNs, t.endNs - t.startNs, t.deviceId, t.streamId, t.modelId{step}"
    " FROM TASK t CROSS JOIN COMPUTE_TASK_INFO c ON c.globalTaskId = t.globalTaskId"
)
_STEP = ", ifnull((SELECT CAST(s.id AS TEXT) FROM STEP_TIME s WHERE t.startNs BETWEEN s.startNs AND s.endNs), '')"
_CALLS = (
    "SELECT ifnull(s.value, 'N/A'), ifnull(e.name, 'N/A'), count(*), total(endNs - startNs) / 1000,"
    " avg(endNs - startNs) / 1000, max(endNs - startNs) / 1000.0 FROM CANN_API a"
    " LEFT JOIN STRING_IDS s ON s.id = a.name LEFT JOIN ENUM_API_TYPE e ON e.id = a.type GROUP BY a.name, a.type"
)


def is_database(beginning: bytes) -> bool:
    """Whether a file that begins so is a database."""
    return beginning.startswith(MAGIC)


def import_database(draft: Draft, file: Path, path: str, *, has_kernels: bool) -> list[str]:
    """Bring its tables into the draft, each as a file of its own; returns those with kernels, steps or calls.

    Raises ResultError where it cannot be read, or is no profiler's.
    """
    try:
        with closing(_opened(file)) as connection:
            names = [
                name
                for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
            ]
            tables = [name for name in names if name not in _OWN_TABLES]
            if not _KNOWN_TABLES & {*tables}:
                raise ResultError(file, 1, f"its tables are of no profiler: {', '.join(tables[:5]) or 'none'}")
            for name in tables:
                _import_table(draft, connection, file, f"{path}/{name}", name, has_kernels=has_kernels)
            return _add_meaning(draft, connection, {*tables})
    except sqlite3.Error as error:
        hint = "close what else has it open, or copy it; a damaged one is exported anew with `msprof --export=on`"
        raise ResultError(file, 1, f"the database cannot be read: {error}", hint=hint) from error


def _opened(file: Path) -> sqlite3.Connection:
    # SQLite makes files beside a database of this mode, even to read it. Where nobody has it open they are not there,
    # and it is told that nothing changes; else what another program writes meanwhile is not seen half.
    with file.open("rb") as data:
        has_write_ahead_log = data.read(WAL_PLACE + 1)[WAL_PLACE:] == WAL_MODE
    is_still = has_write_ahead_log and not file.with_name(f"{file.name}-wal").exists()
    uri = f"{file.absolute().as_uri()}?mode=ro{'&immutable=1' if is_still else ''}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    connection.execute("BEGIN")
    return connection


def _import_table(
    draft: Draft, connection: sqlite3.Connection, file: Path, path: str, name: str, *, has_kernels: bool
) -> None:
    family = families().of_table(name)
    is_tasks = has_kernels and name == "TASK"
    log = draft.begin_file(path, file.stat().st_size if name == "STRING_IDS" else 0, has_kernels=is_tasks)
    cursor = connection.execute(f'SELECT * FROM "{name}"')  # noqa: S608 - a table's name
    header = [column[0] for column in cursor.description]
    count = 0
    for rows in _fetched(cursor):
        draft.add_block(log, count + 1, len(rows), encoded(rows))
        count += len(rows)
    draft.end_file(log, "table", name if family is None else family.name, header, count)
    if is_tasks and _has(connection, "COMPUTE_TASK_INFO"):
        step = _STEP if _has(connection, "STEP_TIME") else ", ''"
        # As a join it takes several times as long.
        texts: dict[int | None, str] = dict(connection.execute("SELECT id, value FROM STRING_IDS"))
        for rows in _fetched(connection.execute(_TASKS.format(step=step))):
            draft.add_kernels(log, _kernels(rows, texts))


def _kernels(rows: Sequence[tuple[Any, ...]], texts: Mapping[int | None, str]) -> Kernels:
    """Rows of the tasks, with names in the place of their numbers; a name that is missing is that of the unit."""
    names, types, units, starts, durations, devices, streams, models, steps = zip(*rows, strict=True)
    numbers = {number: str(number) for number in {*devices, *streams, *models}}
    unit_of = [texts.get(unit, "N/A") for unit in units]
    return Kernels(
        [texts.get(name, unit) for name, unit in zip(names, unit_of, strict=True)],
        [texts.get(kind, unit) for kind, unit in zip(types, unit_of, strict=True)],
        starts,
        durations,
        [numbers[device] for device in devices],
        [numbers[stream] for stream in streams],
        [numbers[model] for model in models],
        steps,
    )


def _add_meaning(draft: Draft, connection: sqlite3.Connection, tables: set[str]) -> list[str]:
    found = []
    if "CANN_API" in tables and not draft.has_calls():
        for row in connection.execute(_CALLS):
            draft.add_calls(Called(*row))
        found.append("calls")
    if "StepTraceTime" in tables and not draft.has_steps():
        for step, parts in _steps(connection):
            draft.add_step(step, parts)
        found.append("steps")
    return found


def _steps(connection: sqlite3.Connection) -> Iterator[tuple[str, dict[str, float]]]:
    """Steps of `analysis.db`, in µs."""
    cursor = connection.execute("SELECT * FROM StepTraceTime")
    header = [column[0].lower() for column in cursor.description]
    names = {
        "computing": "Computing",
        "communication": "Communication",
        "communication_not_overlapped": "Communication(Not Overlapped)",
        "overlapped": "Overlapped",
        "free": "Free",
        "preparing": "Preparing",
    }
    for row in cursor:
        values = dict(zip(header, row, strict=True))
        parts = {name: float(values[key]) for key, name in names.items() if values.get(key) is not None}
        whole = sum(parts.get(name, 0.0) for name in ("Computing", "Communication(Not Overlapped)", "Free"))
        yield f"step {values.get('step')}", {"": whole, **parts}


def _fetched(cursor: sqlite3.Cursor) -> Iterator[list[tuple[Any, ...]]]:
    while rows := cursor.fetchmany(ROWS_PER_BLOCK):
        yield rows


def _has(connection: sqlite3.Connection, table: str) -> bool:
    found: Sequence[Any] | None = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    return found is not None

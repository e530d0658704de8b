"""Databases of msprof, torch_npu and MindSpore: all tables row by row, and kernels, steps and calls by SQL."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from contextlib import closing
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import numpy as np

from profagent.ascend.families import NO_MODEL, NOT_KNOWN, families, places
from profagent.ascend.kernels import CallTotals, Kernels, TextColumn, counters_in, largest_shares, type_on
from profagent.ascend.texts import ODD_VALUES, UNKNOWN_NS, encoded
from profagent.errors import ResultError
from profagent.limits import BLOCK_BYTES, LONGEST_ROW_BYTES, OTHERS_BUSY_MS, ROWS_PER_BLOCK, ROWS_PER_FETCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from profagent.ascend.draft import Draft

MAGIC = b"SQLite format 3\0"
# Offset in the header of the mode in which the database is written.
WAL_PLACE, WAL_MODE = 18, b"\x02"
# All tables, except those that SQLite keeps for itself.
_ALL_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
# Only tables count: a view with the name of a table may yield rows without end.
_TABLE = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
# Tables of profilers' databases: any of them marks a database as a profiler's.
_KNOWN_TABLES = frozenset({"STRING_IDS", "TASK", "CANN_API", "StepTraceTime", "CommAnalyzerTime", "SESSION_TIME_INFO"})
_TASKS = (
    "SELECT c.name, c.opType, c.taskType, {times}, t.deviceId, t.streamId, t.modelId, {step}{pipes}"
    " FROM TASK t CROSS JOIN COMPUTE_TASK_INFO c ON c.globalTaskId = t.globalTaskId"
)
# A task that had not ended has no end.
_TIMES = f"ifnull(t.startNs, {UNKNOWN_NS}), ifnull(t.endNs - t.startNs, {UNKNOWN_NS})"
# As in a summary, an operator of communication stands for its tasks. Tasks and operators are ordered by their begin.
_COMMUNICATION = (
    " UNION ALL SELECT t.opName, {kind}, NULL, {times}, {device}, 'N/A', {model}, {step}{pipes}"
    " FROM COMMUNICATION_OP t ORDER BY 4"
)
# A task that begins at the end of a step belongs to the next one.
_STEP = "(SELECT s.id FROM STEP_TIME s WHERE t.startNs >= s.startNs AND t.startNs < s.endNs)"
_STEP_TIMES = "SELECT id, (endNs - startNs) / 1000.0 FROM STEP_TIME ORDER BY startNs"
_STEP_PARTS = (
    "SELECT s.id, o.deviceId, o.type, total(o.endNs - o.startNs) / 1000 FROM STEP_TIME s"
    " JOIN OVERLAP_ANALYSIS o ON o.startNs >= s.startNs AND o.startNs < s.endNs WHERE o.type < 4"
    " GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
)
# Parts of a step by the type in OVERLAP_ANALYSIS.
_OVERLAPS = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
_COUNTERS = "SELECT s.value, s.id FROM STRING_IDS s WHERE s.id IN (SELECT name FROM TASK_PMU_INFO)"
# Counters by task, in a temporary table that SQLite keeps in a file. A task with one counter twice was executed several
# times, and its counters cannot be assigned to an execution, so it has none.
_COUNTERS_TABLE = "CREATE TEMP TABLE pmu (task INTEGER PRIMARY KEY, {})"
_GATHERED = (
    "INSERT INTO pmu SELECT globalTaskId, {columns} FROM TASK_PMU_INFO"
    " WHERE name IN ({wanted}) AND globalTaskId IS NOT NULL AND typeof(value) != 'text'"
    " GROUP BY globalTaskId HAVING count(*) = count(DISTINCT name)"
)
_WITH_COUNTERS = " LEFT JOIN pmu p ON p.task = t.globalTaskId"
_CALLS = (
    "SELECT ifnull(s.value, 'N/A'), ifnull(e.name, 'N/A'), count(*), total(endNs - startNs) / 1000,"
    " avg(endNs - startNs) / 1000, max(endNs - startNs) / 1000.0 FROM CANN_API a"
    " LEFT JOIN STRING_IDS s ON s.id = a.name LEFT JOIN ENUM_API_TYPE e ON e.id = a.type"
    " WHERE endNs - startNs IS NOT NULL GROUP BY a.name, a.type"
)


def is_database(beginning: bytes) -> bool:
    """Return True if a file that begins with these bytes is an SQLite database."""
    return beginning.startswith(MAGIC)


def has_known_table(file: Path) -> bool:
    """Return True if a database has a profiler's table, or cannot be read."""
    try:
        with closing(_opened(file)) as connection:
            return any(_has(connection, name) for name in _KNOWN_TABLES)
    except sqlite3.Error:
        return True


def import_database(draft: Draft, file: Path, path: str, *, has_kernels: bool) -> None:
    """Add the tables of a database to the draft, each as a file of its own.

    Raises ResultError if the database cannot be read, and at the end for its damaged tables.
    """
    hint = (
        "close other programs that have it open, or copy it; if it is damaged, export it again with"
        " `msprof --export=on`"
    )
    problems: list[str] = []
    damaged: set[bytes] = set()

    def text(data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            damaged.add(data)
            return data.decode(errors="replace")

    try:
        with closing(_opened(file)) as connection:
            connection.text_factory = text
            tables = [name for (name,) in connection.execute(_ALL_TABLES)]
            for name in tables:
                try:
                    log = draft.begin_file(
                        f"{path}/{name}",
                        file.stat().st_size if name == "TASK" else 0,
                        has_kernels=has_kernels and name == "TASK",
                    )
                    _import_table(draft, log, connection, name, has_kernels=has_kernels)
                except (sqlite3.Error, *ODD_VALUES) as error:
                    problems.append(f"{name}: {error}")
            end, size = _end_of(connection, file), file.stat().st_size
    except sqlite3.Error as error:
        raise ResultError(file, 0, f"cannot read the database: {error}", hint=hint) from error
    if damaged:
        problems.append(f"{len(damaged):,} texts are not UTF-8, which are here with \N{REPLACEMENT CHARACTER} in them")
    if size > end:
        problems.append(f"{size - end:,} bytes from byte {end:,} on stand behind the end of the database")
    if problems:
        what = f"what cannot be read, or is not understood: {'; '.join(problems)}; what else it has is here"
        unread = (end, size, size - end) if size > end else (None, None, len(problems))
        raise ResultError(file, 0, what, hint=hint, unread=unread)


def _end_of(connection: sqlite3.Connection, file: Path) -> int:
    """Return the offset at which the database ends in its file; the file's size if a log may still extend it."""
    if file.with_name(f"{file.name}-wal").exists():
        return file.stat().st_size
    (pages,), (page_bytes,) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    return int(pages * page_bytes)


def _opened(file: Path) -> sqlite3.Connection:
    # SQLite creates files beside a database in this mode even to read it. If these files are missing, no program has
    # the
    # database open: it is opened as immutable, which creates nothing. Otherwise SQLite's own locking shows whole
    # transactions of a program that writes meanwhile.
    with file.open("rb") as data:
        has_write_ahead_log = data.read(WAL_PLACE + 1)[WAL_PLACE:] == WAL_MODE
    is_still = has_write_ahead_log and not file.with_name(f"{file.name}-wal").exists()
    uri = f"{file.absolute().as_uri()}?mode=ro{'&immutable=1' if is_still else ''}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    # The schema comes from a stranger, and must not call functions that could do harm.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_ROW_BYTES)
    connection.execute(f"PRAGMA busy_timeout = {OTHERS_BUSY_MS}")
    # One transaction shows the same state of the database to all queries.
    connection.execute("BEGIN")
    return connection


def _import_table(draft: Draft, log: int, connection: sqlite3.Connection, name: str, *, has_kernels: bool) -> None:
    cursor = connection.execute(f'SELECT * FROM "{name}"')  # noqa: S608 - a table's name
    header = [column[0] for column in cursor.description]
    count = 0
    try:
        for rows, cells in _blocks(cursor):
            draft.add_block(log, count + 1, rows, cells)
            count += rows
    finally:
        draft.end_file(log, "table", name, header, count)
    if has_kernels and name == "TASK" and _has(connection, "COMPUTE_TASK_INFO"):
        named = _KernelNames(connection.execute("SELECT id, ifnull(value, 'N/A') FROM STRING_IDS"))
        counters = _gather_counters(connection)
        for tasks in _fetched(connection.execute(_kernels_query(connection, counters))):
            draft.add_kernels(log, _kernels(tasks, named, counters))
    elif name == "CANN_API" and "calls" not in draft.figures_taken():
        for row in connection.execute(_CALLS):
            draft.add_calls(CallTotals(*row))
    elif name == "StepTraceTime" and "steps" not in draft.figures_taken():
        _add_steps(draft, log, connection)
    elif name == "STEP_TIME" and "steps" not in draft.figures_taken() and not _has(connection, "StepTraceTime"):
        _add_timed_steps(draft, log, connection)


def _kernels_query(connection: sqlite3.Connection, counters: Sequence[str]) -> str:
    step = _STEP if _has(connection, "STEP_TIME") else "NULL"
    tasks = _TASKS.format(times=_TIMES, step=step, pipes="".join(f", p.c{place}" for place in range(len(counters))))
    columns = {name for _, name, *_ in connection.execute("PRAGMA table_info(COMMUNICATION_OP)")}
    tasks += _WITH_COUNTERS if counters else ""
    if not columns:
        return tasks
    kind = "t.opType" if "opType" in columns else "NULL"
    # Older databases lack the device, and come from one device.
    device = "t.deviceId" if "deviceId" in columns else "(SELECT deviceId FROM TASK LIMIT 1)"
    pipes = ", NULL" * len(counters)
    more = {"kind": kind, "device": device, "model": NO_MODEL}
    return tasks + _COMMUNICATION.format(times=_TIMES, step=step, pipes=pipes, **more)


class _KernelNames(dict[tuple[Any, ...], tuple[str, str]]):
    """Name and type of a kernel by the numbers of both and of its unit; the unit replaces a missing text.

    A join in SQL takes several times as long.
    """

    def __init__(self, texts: Iterable[tuple[int, str]]) -> None:
        super().__init__()
        self._texts = dict(texts)

    def __missing__(self, key: tuple[Any, ...]) -> tuple[str, str]:
        """Return the name and type for numbers that come for the first time."""
        name, kind, unit = key
        unit_text = self._texts.get(unit, "N/A")
        type_text = type_on(unit_text, self._texts.get(kind, unit_text))
        found = self[key] = self._texts.get(name, unit_text), type_text
        return found


def _kernels(rows: Sequence[tuple[Any, ...]], named: _KernelNames, counters: Sequence[str]) -> Kernels:
    names, types, units, starts, durations, devices, streams, models, steps, *values = zip(*rows, strict=True)
    there = {*devices, *streams, *models, *steps}
    texts = {number: "" if number is None else str(number) for number in there}.__getitem__
    name_texts, type_texts = zip(*map(named.__getitem__, zip(names, types, units, strict=True)), strict=True)
    by_name = {name: np.array(column, np.float64) for name, column in zip(counters, values, strict=True)}
    return Kernels(
        TextColumn.of(name_texts),
        TextColumn.of(type_texts),
        np.array(starts, np.int64),
        np.array(durations, np.int64),
        TextColumn.of(list(map(texts, devices))),
        TextColumn.of(list(map(texts, streams))),
        TextColumn.of(list(map(texts, models))),
        TextColumn.of(list(map(texts, steps))),
        largest_shares(by_name, len(rows)) if by_name else [],
    )


def _add_steps(draft: Draft, log: int, connection: sqlite3.Connection) -> None:
    cursor = connection.execute("SELECT * FROM StepTraceTime")
    header = [column[0] for column in cursor.description]
    known, at = places(header, families().steps), places(header, families().columns)
    for row in cursor:
        parts = {name: float(row[place]) for name, place in known.items() if row[place] is not None}
        device, step = str(row[at["device"]]) if "device" in at else "", str(row[at["step"]])
        draft.add_step(log, "N/A" if step in NOT_KNOWN else step, {"": _sum_of_parts(parts), **parts}, device=device)


def _add_timed_steps(draft: Draft, log: int, connection: sqlite3.Connection) -> None:
    """Add steps by their begins and ends, in µs.

    A step with known parts is as long as the sum of these, as in `analysis.db`.
    """
    parts: dict[tuple[Any, str], dict[str, float]] = defaultdict(dict)
    known = connection.execute(_STEP_PARTS) if _has(connection, "OVERLAP_ANALYSIS") else ()
    for number, device, kind, time_us in known:
        parts[number, str(device)][_OVERLAPS[kind]] = time_us
    devices = {device for _, device in parts} or {""}
    for (number, time_us), device in product(connection.execute(_STEP_TIMES), sorted(devices)):
        of_device = parts[number, device]
        whole = _sum_of_parts(of_device) or (math.nan if time_us is None else time_us)
        draft.add_step(log, str(number), {"": whole, **of_device}, device=device)


def _sum_of_parts(parts: Mapping[str, float]) -> float:
    return sum(parts.get(name, 0.0) for name in ("Computing", "Communication(Not Overlapped)", "Free"))


def _fetched(cursor: sqlite3.Cursor) -> Iterator[list[tuple[Any, ...]]]:
    while rows := cursor.fetchmany(ROWS_PER_BLOCK):
        yield rows


def _blocks(cursor: sqlite3.Cursor) -> Iterator[tuple[int, str]]:
    count, size, parts = 0, 0, list[str]()
    error: sqlite3.Error | None = None
    is_over = False
    while not is_over:
        rows: list[tuple[Any, ...]] = []
        try:
            # `extend` has the rows before a damage in the list when the error comes.
            rows.extend(islice(cursor, ROWS_PER_FETCH))
        except sqlite3.Error as damage:
            error = damage
        is_over = error is not None or not rows
        if rows:
            parts.append(encoded(rows)[1:-1])
            count, size = count + len(rows), size + len(parts[-1])
        if parts and (is_over or count >= ROWS_PER_BLOCK or size >= BLOCK_BYTES):
            yield count, f"[{','.join(parts)}]"
            count, size, parts = 0, 0, []
    if error is not None:
        raise error


def _has(connection: sqlite3.Connection, table: str) -> bool:
    found: Sequence[Any] | None = connection.execute(_TABLE, (table,)).fetchone()
    return found is not None


def _gather_counters(connection: sqlite3.Connection) -> list[str]:
    """Create a temporary table of counters by task, with a column c0, c1… for each known counter.

    Returns the names of the counters in these columns, which are those in the columns of summaries.
    """
    if not _has(connection, "TASK_PMU_INFO"):
        return []
    there: dict[str, int] = dict(connection.execute(_COUNTERS))
    names = counters_in(there)
    if not names:
        return []
    connection.execute(_COUNTERS_TABLE.format(", ".join(f"c{place}" for place in range(len(names)))))
    columns = ", ".join(f"max(value) FILTER (WHERE name = {there[name]})" for name in names)
    query = _GATHERED.format(columns=columns, wanted=", ".join(str(there[name]) for name in names))
    return names if connection.execute(query).rowcount > 0 else []

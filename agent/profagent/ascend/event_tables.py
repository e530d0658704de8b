"""Slices of a profiler's database, from its tables as they were kept: host calls, communication, overlap, steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from profagent.ascend.texts import encoded

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from profagent.store.database import Row


class TableSlice(NamedTuple):
    """A row that is drawn; `device` is empty for one of the host, -1 is a time that is not known."""

    database: str
    process: str
    device: str
    thread: str
    start_ns: int
    end_ns: int
    name: str
    args: str


class _Drawn(NamedTuple):
    """How rows of a table are drawn: as which process, and which columns tell name and thread.

    `noun` stands before a name that is a number, because the database has no text for it.
    """

    process: str
    name: str
    thread: str
    noun: str = "id"


_TABLES = {
    "CANN_API": _Drawn("CANN", "name", "globalTid"),
    "PYTORCH_API": _Drawn("Python", "name", "globalTid"),
    "OSRT_API": _Drawn("OS Runtime API", "name", "globalTid"),
    "MSTX_EVENTS": _Drawn("MsprofTx", "message", "globalTid"),
    "COMMUNICATION_OP": _Drawn("Communication", "opName", "groupName"),
    "OVERLAP_ANALYSIS": _Drawn("Overlap Analysis", "type", "type", noun="type"),
    "STEP_TIME": _Drawn("Steps", "id", "", noun="step"),
}
# The upper half is the process.
_TID_BITS = 0xFFFFFFFF
# Columns that are numbers of texts, by the table that has these.
_STRINGS = "STRING_IDS"
_TEXTS = dict.fromkeys(
    ("name", "message", "opName", "groupName", "opType", "algType", "inputShapes", "inputDtypes"), _STRINGS
)
_KINDS = {"OVERLAP_ANALYSIS": "ENUM_OVERLAP_ANALYSIS_TYPE"}
_API_KINDS = "ENUM_API_TYPE"
_LEFT_OUT = frozenset({"startNs", "endNs", "id", "depth"})
# By database and table.
_Texts = dict[tuple[str, str], dict[Any, str]]


def slices_of_tables(connection: sqlite3.Connection, session: int) -> Iterator[list[TableSlice]]:
    """Yield those of a session, a block of a table after the other."""
    texts: _Texts = {}
    for database, table, columns, rows in _blocks(connection, session, (_STRINGS, _API_KINDS, *_KINDS.values())):
        if "id" not in columns or not {"name", "value"} & {*columns}:
            continue
        number, text = columns.index("id"), columns.index("name" if "name" in columns else "value")
        texts.setdefault((database, table), {}).update({row[number]: str(row[text]) for row in rows})
    for database, table, columns, rows in _blocks(connection, session, (*_TABLES,)):
        of = {
            column: found
            for column in columns
            if (found := texts.get((database, _text_table(table, column)))) is not None
        }
        yield [*_slices(database, _TABLES[table], columns, rows, of)]


def _blocks(
    connection: sqlite3.Connection, session: int, tables: Iterable[str]
) -> Iterator[tuple[str, str, list[str], list[Row]]]:
    # A block is large enough to be a page.
    for path, table, columns, cells in connection.execute(_blocks_of_tables(tables), (session,)):
        yield path.rpartition("/")[0], table, msgspec.json.decode(columns), msgspec.json.decode(cells)


def _blocks_of_tables(tables: Iterable[str]) -> str:
    """SQL for rows of a database's tables, a block after the other: path, table, columns and JSON array."""
    names = ", ".join(f"'{table}'" for table in tables)
    return f"""
SELECT l.shown_path, f.family, f.columns, t.cells
FROM ascend_file f JOIN log l USING (log) JOIN ascend_block t ON t.log = f.log
WHERE f.session = ? AND f.kind = 'table' AND f.family IN ({names}) ORDER BY f.log, t.number
"""  # noqa: S608 - names are code


def _text_table(table: str, column: str) -> str:
    return _KINDS.get(table, _API_KINDS) if column == "type" else _TEXTS.get(column, "")


def _slices(
    database: str, drawn: _Drawn, columns: Sequence[str], rows: Sequence[Row], texts: Mapping[str, Mapping[Any, str]]
) -> Iterator[TableSlice]:
    at = {column: place for place, column in enumerate(columns)}
    if not {"startNs", "endNs", drawn.name} <= at.keys():
        return

    def shown(row: Row, column: str) -> Any:
        value = row[at[column]]
        return texts[column].get(value, value) if column in texts else value

    told = [column for column in columns if column not in {*_LEFT_OUT, drawn.name, drawn.thread}]
    for row in rows:
        start, end = (_time_ns(row[at[column]]) for column in ("startNs", "endNs"))
        name = shown(row, drawn.name)
        args = {column: value for column in told if (value := shown(row, column)) is not None}
        yield TableSlice(
            database,
            drawn.process,
            str(row[at["deviceId"]]) if "deviceId" in at else "",
            _thread(drawn, shown(row, drawn.thread) if drawn.thread in at else drawn.process),
            start,
            max(start, end),
            name if isinstance(name, str) else f"{drawn.noun} {name}",
            encoded(args),
        )


def _thread(drawn: _Drawn, value: Any) -> str:
    if drawn.thread == "globalTid" and isinstance(value, int):
        return f"thread {value & _TID_BITS}"
    return value if isinstance(value, str) else f"{drawn.noun} {value}"


def _time_ns(value: Any) -> int:
    """A time, which some tables have as a text."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return -1

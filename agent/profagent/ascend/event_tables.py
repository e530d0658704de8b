"""Slices of a profiler's database from its stored tables: host calls, communication, overlap, steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from profagent.ascend.texts import encoded

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from profagent.store.database import Row


class TableSlice(NamedTuple):
    """Slice that a row is drawn as; `device` is empty for slices of the host, and a time of -1 is unknown."""

    database: str
    process: str
    device: str
    thread: str
    start_ns: int
    end_ns: int
    name: str
    args: str


class _RowDrawing(NamedTuple):
    """Drawing of a table's rows: their process, and the columns with their name and thread.

    `noun` precedes a name that is a number because the database has no text for it.
    """

    process: str
    name: str
    thread: str
    noun: str = "id"


_TABLES = {
    "CANN_API": _RowDrawing("CANN", "name", "globalTid"),
    "PYTORCH_API": _RowDrawing("Python", "name", "globalTid"),
    "OSRT_API": _RowDrawing("OS Runtime API", "name", "globalTid"),
    "MSTX_EVENTS": _RowDrawing("MsprofTx", "message", "globalTid"),
    "COMMUNICATION_OP": _RowDrawing("Communication", "opName", "groupName"),
    "OVERLAP_ANALYSIS": _RowDrawing("Overlap Analysis", "type", "type", noun="type"),
    "STEP_TIME": _RowDrawing("Steps", "id", "", noun="step"),
}
# A global thread id has the process in its upper half.
_TID_BITS = 0xFFFFFFFF
# Table with the texts of each column that holds their numbers.
_STRINGS = "STRING_IDS"
_TEXTS = dict.fromkeys(
    ("name", "message", "opName", "groupName", "opType", "algType", "inputShapes", "inputDtypes"), _STRINGS
)
_KINDS = {"OVERLAP_ANALYSIS": "ENUM_OVERLAP_ANALYSIS_TYPE"}
_API_KINDS = "ENUM_API_TYPE"
_LEFT_OUT = frozenset({"startNs", "endNs", "id", "depth"})
# Texts by their number, by database and table.
_TextTables = dict[tuple[str, str], dict[Any, str]]


def slices_of_tables(connection: sqlite3.Connection, session: int) -> Iterator[list[TableSlice]]:
    """Yield the slices of a session's tables, block by block."""
    texts: _TextTables = {}
    # The texts of all databases are needed before the first slice, and may stand after its table.
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
    # Rows are fetched one by one, because each is a whole block of rows.
    for path, table, columns, cells in connection.execute(_blocks_of_tables(tables), (session,)):
        yield path.rpartition("/")[0], table, msgspec.json.decode(columns), msgspec.json.decode(cells)


def _blocks_of_tables(tables: Iterable[str]) -> str:
    names = ", ".join(f"'{table}'" for table in tables)
    return f"""
SELECT l.shown_path, f.family, f.columns, t.cells
FROM ascend_file f JOIN log l USING (log) JOIN ascend_block t ON t.log = f.log
WHERE f.session = ? AND f.kind = 'table' AND f.family IN ({names}) ORDER BY f.log, t.number
"""  # noqa: S608 - names are code


def _text_table(table: str, column: str) -> str:
    return _KINDS.get(table, _API_KINDS) if column == "type" else _TEXTS.get(column, "")


def _slices(
    database: str,
    drawn: _RowDrawing,
    columns: Sequence[str],
    rows: Sequence[Row],
    texts: Mapping[str, Mapping[Any, str]],
) -> Iterator[TableSlice]:
    at = {column: place for place, column in enumerate(columns)}
    if not {"startNs", "endNs", drawn.name} <= at.keys():
        return

    def shown(row: Row, column: str) -> Any:
        value = row[at[column]]
        return texts[column].get(value, value) if column in texts else value

    argument_columns = [column for column in columns if column not in {*_LEFT_OUT, drawn.name, drawn.thread}]
    for row in rows:
        start, end = (_time_ns(row[at[column]]) for column in ("startNs", "endNs"))
        name = shown(row, drawn.name)
        args = {column: value for column in argument_columns if (value := shown(row, column)) is not None}
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


def _thread(drawn: _RowDrawing, value: Any) -> str:
    if drawn.thread == "globalTid" and isinstance(value, int):
        return f"thread {value & _TID_BITS}"
    return value if isinstance(value, str) else f"{drawn.noun} {value}"


def _time_ns(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return -1

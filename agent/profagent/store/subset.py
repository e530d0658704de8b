"""Rows of chosen sessions in all tables, by the foreign keys that the schema declares.

A session names its board, and by `session_job` its JOBs. A row of any other table belongs to its session where the
table requires one, else to the rows that its required references name: a layer to its model, a model to its JOB. A
record belongs to the part that its key names. A reference that may be NULL makes no row belong to another. A new table
of the schema or of a source needs no code here.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from profagent.limits import ROWS_PER_PAGE
from profagent.store.database import OF_PART, PAGE_BYTES, RECORDS_PER_PART, SCHEMA_VERSION, keys_of, read_only

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

_SESSIONS = "(SELECT value FROM json_each(:sessions))"
# Conditions for tables whose rows a session names itself, in place of those that would follow from references.
_NAMED = {
    "session": f"session IN {_SESSIONS}",
    "board": f"board IN (SELECT board FROM {{database}}.session WHERE session IN {_SESSIONS})",  # noqa: S608 - names of the schema, as all below
    "job": f"job IN (SELECT job FROM {{database}}.session_job WHERE session IN {_SESSIONS})",  # noqa: S608
}
_SHARING = """
WITH RECURSIVE together (session) AS (
    VALUES (?1) UNION
    SELECT other.session FROM together t JOIN {database}.session_job own ON own.session = t.session
    JOIN {database}.session_job other ON other.job = own.job
)
SELECT session FROM together ORDER BY session
"""
_DECLARATIONS = """
SELECT sql FROM source.sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'
ORDER BY type = 'view', type <> 'table', rowid
"""
# Column that is the key of a record: RECORDS_PER_PART successive keys belong to one part.
_RECORD = "record"
# A board keeps its identity in every database, so its row is matched by that and not by number.
_BOARD, _IDENTITY = "board", "identity"


@dataclass(frozen=True, slots=True)
class Table:
    """Table of the schema: its columns, and the table to which each column refers."""

    name: str
    columns: tuple[str, ...]
    # The column that numbers its rows; None where they have another key.
    key: str | None
    references: Mapping[str, str]
    # Columns that are never NULL.
    required: frozenset[str]
    # True where no foreign key leads to the table or from it: its rows are the same in every database.
    is_constant: bool

    def owners(self) -> dict[str, str]:
        """Return the columns that make a row belong to other rows, with the tables of these rows."""
        if _RECORD in self.columns:
            return {_RECORD: "part"}
        return {column: table for column, table in self.references.items() if column in self.required}


def tables_of(connection: sqlite3.Connection, database: str = "main") -> dict[str, Table]:
    """Return the tables of an attached database by name, each after those to which it refers."""
    sql = f"SELECT name FROM {database}.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"  # noqa: S608
    # Of a row of foreign_key_list, 3 is the column that refers, and 2 the table to which it does.
    references = {
        name: {row[3]: row[2] for row in connection.execute(f"PRAGMA {database}.foreign_key_list({name})")}
        for (name,) in connection.execute(sql).fetchall()
    }
    referred = {table for each in references.values() for table in each.values()}
    tables = {
        name: _table(connection, database, name, of_name, is_referred=name in referred)
        for name, of_name in references.items()
    }
    # Rows are chosen and numbered by the rows to which they refer, so the tables of these come first.
    depends_on = {name: {*table.references.values(), *table.owners().values()} for name, table in tables.items()}
    return {name: tables[name] for name in TopologicalSorter(depends_on).static_order()}


def last_numbers(connection: sqlite3.Connection, database: str) -> dict[str, int]:
    """Return by table the largest row number, 0 without rows: copied rows are numbered behind it."""
    return {
        table.name: connection.execute(f"SELECT ifnull(max({table.key}), 0) FROM {database}.{table.name}").fetchone()[0]  # noqa: S608
        for table in tables_of(connection, database).values()
        if table.key not in {None, _RECORD}
    }


def sharing(connection: sqlite3.Connection, database: str, session: int) -> list[int]:
    """Return the session and all others that share JOBs with it, directly or through one another, in order.

    An inference belongs to the session that fetched its first record, while further records may belong to others: none
    of these sessions has a whole JOB by itself.
    """
    return [number for (number,) in connection.execute(_SHARING.format(database=database), (session,))]


@contextmanager
def copied(
    database: Path, target: str, session: int, without: Collection[str] = ()
) -> Iterator[tuple[sqlite3.Connection, list[int]]]:
    """Yield a new database with all rows of a session and of those that share JOBs with it, and their numbers.

    `target` is the URI of its file. Rows keep their numbers; tables in `without` stay empty. What the caller writes is
    part of the same transaction.
    """
    with closing(sqlite3.connect(target, isolation_level=None, uri=True)) as connection:
        for pragma in (f"page_size = {PAGE_BYTES}", "journal_mode = OFF", "synchronous = OFF"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("ATTACH ? AS source", (read_only(database),))
        # One read transaction for all tables: they are copied from one state of the source.
        connection.execute("BEGIN")
        for (sql,) in connection.execute(_DECLARATIONS).fetchall():
            connection.execute(sql)
        sessions = sharing(connection, "source", session)
        copy_sessions(connection, "source", "main", sessions, without)
        yield connection, sessions
        connection.execute("COMMIT")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def copy_sessions(
    connection: sqlite3.Connection, source: str, target: str, sessions: Collection[int], without: Collection[str] = ()
) -> None:
    """Copy all rows of sessions between two attached databases of one schema, in the open transaction.

    Rows get new numbers behind those of the target, and so keep their numbers where it is empty. A board that the
    target has is not copied. A reference that may be NULL becomes NULL if its row is not copied. Tables in `without`
    are left out.
    """
    tables = tables_of(connection, source)
    last = last_numbers(connection, target)
    for table in tables.values():
        if table.name in without:
            continue
        columns = ", ".join(table.columns)
        values = ", ".join(_value(table, column, tables, last, source, target) for column in table.columns)
        verb = "INSERT OR IGNORE" if table.is_constant or table.name == _BOARD else "INSERT"
        connection.execute(
            f"{verb} INTO {target}.{table.name} ({columns}) SELECT {values} FROM {_rows(table, tables, source)}",  # noqa: S608
            {"sessions": json.dumps([*sessions])},
        )


def digests_of(connection: sqlite3.Connection, sessions: Collection[int], *owners: str) -> dict[str, tuple[int, str]]:
    """Return by table the number of rows of sessions and their digest, for `owners` and everything below them."""
    tables = tables_of(connection)
    below = {*owners}
    for each in tables.values():
        below |= {each.name} if below & {*each.owners().values()} else set()
    found = {}
    for name in sorted(below):
        order = "r.rowid" if tables[name].key else ", ".join(f"r.{column}" for column in tables[name].columns)
        query = f"SELECT r.* FROM {_rows(tables[name], tables, 'main')} ORDER BY {order}"  # noqa: S608
        cursor = connection.execute(query, {"sessions": json.dumps([*sessions])})
        digest, count = hashlib.blake2b(digest_size=16), 0
        while rows := cursor.fetchmany(ROWS_PER_PAGE):
            count += len(rows)
            # Version 2 writes equal values as equal bytes, whether or not they are one object.
            digest.update(marshal.dumps(rows, 2))
        found[name] = (count, digest.hexdigest())
    return found


def delete_below(connection: sqlite3.Connection, table: str, condition: str) -> None:
    """Delete all rows that belong to rows of a table that meet a condition in SQL; these rows themselves stay."""
    tables = tables_of(connection)
    below = {table: condition}
    for each in tables.values():
        owned = [
            f"{column} IN (SELECT {tables[owner].key} FROM {owner} WHERE {below[owner]})"  # noqa: S608
            for column, owner in each.owners().items()
            if owner in below
        ]
        if owned:
            below[each.name] = " OR ".join(owned)
    parts = connection.execute(f"SELECT part FROM part WHERE {below.get('part', 'FALSE')}").fetchall()  # noqa: S608
    keys = [keys_of(part) for (part,) in parts]
    # Children first: the conditions of owners must still find their rows.
    for name in reversed([*below][1:]):
        if _RECORD in tables[name].columns:
            connection.executemany(f"DELETE FROM {name} WHERE {_RECORD} BETWEEN ? AND ?", keys)  # noqa: S608
        else:
            connection.execute(f"DELETE FROM {name} WHERE {below[name]}")  # noqa: S608


def _table(
    connection: sqlite3.Connection, database: str, name: str, references: Mapping[str, str], *, is_referred: bool
) -> Table:
    info = connection.execute(f"PRAGMA {database}.table_info({name})").fetchall()
    keys = [(column, kind) for _, column, kind, *_, place in info if place]
    is_numbered = len(keys) == 1 and keys[0][1] == "INTEGER" and keys[0][0] not in references
    columns = tuple(row[1] for row in info)
    return Table(
        name,
        columns,
        keys[0][0] if is_numbered else None,
        references,
        frozenset(column for _, column, _, is_required, _, place in info if is_required or place),
        is_constant=not references and not is_referred and _RECORD not in columns,
    )


def _rows(table: Table, tables: Mapping[str, Table], source: str) -> str:
    if _RECORD in table.columns:
        # CROSS JOIN keeps SQLite from reordering the loops: parts come first, and their records by key.
        records = f"{source}.{table.name} r ON r.{_RECORD} {OF_PART}"
        return f"{source}.part p CROSS JOIN {records} WHERE p.session IN {_SESSIONS}"
    return f"{source}.{table.name} r WHERE {_condition(table, tables, source)}"


def _condition(table: Table, tables: Mapping[str, Table], source: str) -> str:
    if table.name in _NAMED:
        return _NAMED[table.name].format(database=source)
    owners = table.owners()
    if "session" in owners:
        return f"session IN {_SESSIONS}"
    return " AND ".join(_is_chosen(column, tables[owner], tables, source) for column, owner in owners.items()) or "1"


def _is_chosen(column: str, owner: Table, tables: Mapping[str, Table], source: str) -> str:
    condition = _condition(owner, tables, source)
    return f"{column} IN (SELECT {owner.key} FROM {source}.{owner.name} WHERE {condition})"  # noqa: S608


def _value(
    table: Table, column: str, tables: Mapping[str, Table], last: Mapping[str, int], source: str, target: str
) -> str:
    owner = table.references.get(column)
    if column == _RECORD:
        return _moved(column, last["part"] * RECORDS_PER_PART)
    if owner is None:
        return _moved(column, last[table.name] if column == table.key and not table.is_constant else 0)
    if owner == _BOARD:
        boards = f"{target}.{_BOARD} t JOIN {source}.{_BOARD} s USING ({_IDENTITY})"
        return f"(SELECT t.{_BOARD} FROM {boards} WHERE s.{_BOARD} = r.{column})"  # noqa: S608
    value = _moved(column, last[owner])
    if column in table.required:
        return value
    return f"CASE WHEN r.{_is_chosen(column, tables[owner], tables, source)} THEN {value} END"


def _moved(column: str, offset: int) -> str:
    return f"r.{column} + {offset}" if offset else f"r.{column}"

"""A lake: Delta tables below one address, into which the rows of a push come exactly once.

All rows of a push carry its name. The table `sessions` is written last, and a push counts once its row stands there: a
reader takes the pushes of that table first, and of the other tables the rows of these alone. What a push that ended
midway has left behind is so never seen.

What goes on with such a push has its name, for a day: the next day a push of the session has another one. So a table
may forget names (KEPT), and rows may go whose name is an old one and does not stand in `sessions`. Somebody may still
be at work on them, whatever the clocks say: the name is given up in `sessions` first (`give_up`), where it then cannot
be written any more. Of the two commits one is first, and the other is refused by it.
"""

from __future__ import annotations

import re
import time
import uuid
from datetime import date
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from profagent.errors import ProfagentError
from profagent.limits import LONGEST_TEXT, PUSH_ATTEMPTS, ROWS_PER_LAKE_GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Batches = Callable[[], Iterator[pa.RecordBatch]]

T = TypeVar("T")
SESSIONS = "sessions"
PARTITION = "date"
MS_PER_S = 1000
_ORNAMENTS = re.compile(r"\x1b\[[0-9;]*m|↳")
_MESSAGE = re.compile("<Message>(.+?)</Message>")
# Versions of a push's name among the transactions of a table: its rows have come, or are never to be read.
_THERE, _GIVEN_UP = 1, 2
# How long a table remembers: names of pushes, commits, and files that are to go, which `vacuum` knows by this alone.
KEPT = {
    "delta.setTransactionRetentionDuration": "interval 90 days",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 30 days",
}
# Each commit reads what the log says of all files: figures of the columns that say whose rows these are, are enough of
# it, and are not read from the beginning.
_LOG = {"delta.dataSkippingNumIndexedCols": "4", "delta.checkpointInterval": "20"}
# A least and a greatest value are in the file as they are: those of `databases` would be larger than its rows.
PROPERTIES = WriterProperties(compression="ZSTD", max_row_group_size=ROWS_PER_LAKE_GROUP, statistics_truncate_length=64)


class LakeError(ProfagentError):
    """A lake that cannot be read or written."""


class Push(NamedTuple):
    """A push: its own name, and that of its session, which no other session of any workspace has."""

    name: str
    session: str

    @classmethod
    def on(cls, day: date, session: str, content: str, after: str) -> Self:
        """Return the push that brings a session's content in place of another push, by whomever, if it begins today."""
        return cls(f"{day.isoformat()} {uuid.uuid5(uuid.UUID(session), f'{content} after {after}')}", session)


def day_of(push: str) -> date | None:
    """Return the day (UTC) on which a push of this name began; None for a name that has none."""
    try:
        return date.fromisoformat(push.partition(" ")[0])
    except ValueError:
        return None


class Lake:
    """The tables below an address: a folder, or a prefix in an object store."""

    def __init__(self, address: str) -> None:
        # An engine elsewhere has another folder at hand.
        self.address = address.rstrip("/") if "://" in address else str(Path(address).absolute())
        # Tables that pushes append to, as they were last seen: each is read on from there, not from its beginning.
        self._appended: dict[str, DeltaTable] = {}

    def uri(self, table: str) -> str:
        """Return the address of a table."""
        return f"{self.address}/{table}"

    def opened(self, table: str) -> DeltaTable | None:
        """Return a table as it is now; None where there is none. Raises LakeError."""
        try:
            found = DeltaTable(self.uri(table))
            features = found.protocol().reader_features
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise self._failed(table, error) from error
        if features:
            unread = f"the table {self.uri(table)} has features that are not read here: {', '.join(features)}"
            raise LakeError(unread, hint="read it by an engine that knows them, or write it anew without")
        return found

    def required(self, table: str) -> DeltaTable:
        """Return a table as it is now. Raises LakeError, where there is none as well."""
        found = self.opened(table)
        if found is None:
            raise LakeError(f"there is no lake in {self.address}", hint="`profagent push` makes one")
        return found

    def pushed(self, session: str) -> dict[str, Any] | None:
        """Return the row of a session in `sessions`; None where the lake has none. Raises LakeError."""
        table = self.opened(SESSIONS)
        if table is None:
            return None
        query = f"SELECT * FROM {SESSIONS} WHERE session = '{session}'"  # noqa: S608 - a UUID
        rows = (row for batch in self._asked(SESSIONS, table, query) for row in batch.to_pylist())
        return next(rows, None)

    def rows(self, table: str, row: Mapping[str, Any], query: str) -> Iterator[pa.RecordBatch]:
        """Give what a query finds in the `rows` of a table that belong to a row of `sessions`. Raises LakeError."""
        whose = f"{PARTITION} = '{row[PARTITION]}' AND push = '{row['push']}'"
        text = f"WITH rows AS (SELECT * FROM {table} WHERE {whose}) {query}"  # noqa: S608 - names of ours
        yield from self._asked(table, self.required(table), text)

    def count(self, table: str, row: Mapping[str, Any]) -> int:
        """Return how many rows of a table belong to a row of `sessions`. Raises LakeError."""
        (batch,) = self.rows(table, row, "SELECT count(*) FROM rows")
        return int(batch.column(0)[0].as_py())

    def pushes(self, table: str, found: DeltaTable | None = None) -> set[str]:
        """Return the names of pushes that have rows in a table, as it is now or was opened. Raises LakeError."""
        query = f"SELECT DISTINCT push FROM {table}"  # noqa: S608 - a name of ours
        batches = self._asked(table, found or self.required(table), query)
        return {name for batch in batches for name in batch.column(0).to_pylist()}

    def _asked(self, name: str, table: DeltaTable, query: str) -> Iterator[pa.RecordBatch]:
        # pyarrow's own reader of data sets may abort the process at its end.
        try:
            for batch in QueryBuilder().register(name, table).execute(query):
                yield pa.record_batch(batch)
        except (DeltaError, OSError) as error:
            raise self._failed(name, error) from error

    def change(self, table: str, how: Callable[[DeltaTable], T]) -> T:
        """Change a table as it is now, and again when another commit was in the way. Raises LakeError."""
        return self._tried(table, lambda: how(self.required(table)))

    def give_up(self, unnamed: Callable[[DeltaTable], Iterable[str]]) -> list[str]:
        """Have pushes never come into `sessions`: those that a call gives for a state of it; return them.

        One that comes into it meanwhile is refused by that state, and the call is asked again. Raises LakeError.
        """

        def refuse(found: DeltaTable) -> list[str]:
            names = sorted(unnamed(found))
            if names:
                empty = pa.schema(found.schema().to_arrow()).empty_table()
                write_deltalake(found, empty, mode="append", commit_properties=_commit_of(_GIVEN_UP, names))
            return names

        return self.change(SESSIONS, refuse)

    def append(self, table: str, push: Push, schema: pa.Schema, batches: Batches) -> bool:
        """Append the rows of a push, unless they have come; return True if they came by this call. Raises LakeError.

        Of several that push the same at once, one appends. `batches` is called again when another commit was in the
        way.
        """
        return self._commit(table, push, schema, batches)

    def name_session(self, push: Push, row: pa.RecordBatch) -> bool:
        """Write the row of a push into `sessions`, in place of that of the session's earlier push; as `append`."""
        how = {"mode": "overwrite", "predicate": f"session = '{push.session}'", "partition_by": None}
        return self._commit(SESSIONS, push, row.schema, lambda: iter([row]), **how)

    def _commit(self, table: str, push: Push, schema: pa.Schema, batches: Batches, **more: Any) -> bool:
        how: dict[str, Any] = {
            "mode": "append",
            "partition_by": [PARTITION],
            "schema_mode": "merge",
            "writer_properties": PROPERTIES,
            "commit_properties": _commit_of(_THERE, [push.name]),
        }
        how |= more

        def append() -> bool:
            if (found := self._appended.get(table)) is None:
                found = self.opened(table) or self._made(table, schema, how["partition_by"])
                self._appended[table] = found
            found.update_incremental()
            # A table takes a transaction that it has in silence. So it is asked, and what is written must follow on the
            # very state that was asked: another commit of this push since makes this one fail.
            version = found.transaction_version(push.name)
            if version == _GIVEN_UP:
                raise LakeError("the push took so long that its rows were let go", hint="push the session again")
            if version is not None:
                return False
            rows = filter(len, batches())
            # Nothing needs no file: tables without are faster to commit to, and to read.
            if (first := next(rows, None)) is not None:
                write_deltalake(found, pa.RecordBatchReader.from_batches(schema, chain([first], rows)), **how)
            return True

        return self._tried(table, append)

    def _tried(self, table: str, change: Callable[[], T]) -> T:
        """Call what changes a table; again when another commit was in the way."""
        failed: Exception | None = None
        for _ in range(PUSH_ATTEMPTS):
            try:
                return change()
            except CommitFailedError as error:
                failed = error
            except (DeltaError, OSError) as error:
                raise self._failed(table, error) from error
        raise self._failed(table, failed) from failed

    def _made(self, table: str, schema: pa.Schema, partition_by: list[str] | None) -> DeltaTable:
        """Make a table without rows, unless others just have; CommitFailedError where they do so at the same time."""
        plain = pa.schema([(each.name, getattr(each.type, "value_type", each.type)) for each in schema])
        how: dict[str, Any] = {"partition_by": partition_by, "configuration": {**KEPT, **_LOG}}
        return DeltaTable.create(self.uri(table), plain, mode="ignore", **how)

    def _failed(self, table: str, error: Exception | None) -> LakeError:
        hint = "check the address, its permissions and the free space; a push that is called again goes on"
        return LakeError(f"the table {self.uri(table)} cannot be used: {reason_of(error)}", hint=hint)


def reason_of(error: Exception | None) -> str:
    """Return in one line what an error of a table says, or the message of its store, which has colours and lines."""
    text = _ORNAMENTS.sub("", str(error))
    message = _MESSAGE.search(text)
    return " ".join((message[1] if message else text).split())[:LONGEST_TEXT] or type(error).__name__


def listed(texts: Iterable[str]) -> str:
    """Return texts as SQL has them in a list."""
    return ", ".join("'" + text.replace("'", "''") + "'" for text in texts)


def _commit_of(version: int, names: Iterable[str]) -> CommitProperties:
    now_ms = int(time.time() * MS_PER_S)
    return CommitProperties(app_transactions=[Transaction(name, version, now_ms) for name in names])

"""Lake of Delta tables below one address, into which the rows of a push are written exactly once.

All rows of a push carry its name. The table `sessions` is written last, and a push counts once its row is there: a
reader first takes the pushes of that table, and from the other tables only the rows of these pushes. Rows that an
interrupted push has left are therefore never visible.

A push that is repeated on the same day has the same name, and continues the interrupted one; on the next day the name
is another. A table may therefore forget names (RETENTION), and rows whose name is old and not in `sessions` may go.
A slow push may still be writing them, whatever the clocks say: its name is first given up in `sessions` (`give_up`),
which then refuses it. One of the two commits is first, and it makes the other fail.
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

from profagent.errors import LakeError
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
# Versions of a push's transaction in a table: its rows are there, or are never to be read.
_THERE, _GIVEN_UP = 1, 2
# How long a table remembers names of pushes, commits and removed files; `vacuum` knows removed files only by this.
RETENTION = {
    "delta.setTransactionRetentionDuration": "interval 90 days",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 30 days",
}
# Each commit reads the log of all files. It stays small with statistics of the owner columns alone, and frequent
# checkpoints spare reading it from the beginning.
_LOG = {"delta.dataSkippingNumIndexedCols": "4", "delta.checkpointInterval": "20"}
# A file stores minimum and maximum of a column: without truncation those of `databases` would exceed its rows.
PROPERTIES = WriterProperties(compression="ZSTD", max_row_group_size=ROWS_PER_LAKE_GROUP, statistics_truncate_length=64)


class Push(NamedTuple):
    """Name of a push, and the name of its session, which is unique among the sessions of all workspaces."""

    name: str
    session: str

    @classmethod
    def on(cls, day: date, session: str, content: str, after: str) -> Self:
        """Return the push that begins on `day` and brings a session's content in place of the push `after`.

        The same arguments give the same name on every host.
        """
        return cls(f"{day.isoformat()} {uuid.uuid5(uuid.UUID(session), f'{content} after {after}')}", session)


def day_of(push: str) -> date | None:
    """Return the day (UTC) on which a push of this name began; None if the name has no day."""
    try:
        return date.fromisoformat(push.partition(" ")[0])
    except ValueError:
        return None


class Lake:
    """Tables below an address: a folder, or a prefix in an object store."""

    def __init__(self, address: str) -> None:
        # A path must be absolute, because an engine elsewhere has another working directory.
        self.address = address.rstrip("/") if "://" in address else str(Path(address).absolute())
        # Last seen states of the tables that pushes append to: a commit reads the log from there on only.
        self._appended: dict[str, DeltaTable] = {}

    def uri(self, table: str) -> str:
        """Return the address of a table."""
        return f"{self.address}/{table}"

    def opened(self, table: str) -> DeltaTable | None:
        """Return the present state of a table; None if it does not exist. Raises LakeError."""
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
        """Return the present state of a table. Raises LakeError, also if the table does not exist."""
        found = self.opened(table)
        if found is None:
            raise LakeError(f"there is no lake in {self.address}", hint="`profagent push` makes one")
        return found

    def pushed(self, session: str) -> dict[str, Any] | None:
        """Return the row of a session in `sessions`; None if the lake has none. Raises LakeError."""
        table = self.opened(SESSIONS)
        if table is None:
            return None
        query = f"SELECT * FROM {SESSIONS} WHERE session = '{session}'"  # noqa: S608 - a UUID
        rows = (row for batch in self._asked(SESSIONS, table, query) for row in batch.to_pylist())
        return next(rows, None)

    def rows(self, table: str, row: Mapping[str, Any], query: str) -> Iterator[pa.RecordBatch]:
        """Yield the result of a query over `rows`, a table's rows of one row of `sessions`. Raises LakeError."""
        whose = f"{PARTITION} = '{row[PARTITION]}' AND push = '{row['push']}'"
        text = f"WITH rows AS (SELECT * FROM {table} WHERE {whose}) {query}"  # noqa: S608 - names of ours
        yield from self._asked(table, self.required(table), text)

    def count(self, table: str, row: Mapping[str, Any]) -> int:
        """Return the number of a table's rows that belong to a row of `sessions`. Raises LakeError."""
        (batch,) = self.rows(table, row, "SELECT count(*) FROM rows")
        return int(batch.column(0)[0].as_py())

    def pushes(self, table: str, found: DeltaTable | None = None) -> set[str]:
        """Return the names of all pushes that have rows in a table, or in an opened state of it. Raises LakeError."""
        query = f"SELECT DISTINCT push FROM {table}"  # noqa: S608 - a name of ours
        batches = self._asked(table, found or self.required(table), query)
        return {name for batch in batches for name in batch.column(0).to_pylist()}

    def _asked(self, name: str, table: DeltaTable, query: str) -> Iterator[pa.RecordBatch]:
        # pyarrow's own dataset reader is not used, because it may abort the process at exit.
        try:
            for batch in QueryBuilder().register(name, table).execute(query):
                yield pa.record_batch(batch)
        except (DeltaError, OSError) as error:
            raise self._failed(name, error) from error

    def change(self, table: str, how: Callable[[DeltaTable], T]) -> T:
        """Apply a change to the present state of a table, and retry after a conflicting commit. Raises LakeError."""
        return self._tried(table, lambda: how(self.required(table)))

    def give_up(self, unnamed: Callable[[DeltaTable], Iterable[str]]) -> list[str]:
        """Bar pushes from `sessions` for ever: those that `unnamed` returns for a state of it; return their names.

        If one of them enters `sessions` meanwhile, this commit fails, and `unnamed` is called again. Raises LakeError.
        """

        def refuse(found: DeltaTable) -> list[str]:
            names = sorted(unnamed(found))
            if names:
                empty = pa.schema(found.schema().to_arrow()).empty_table()
                write_deltalake(found, empty, mode="append", commit_properties=_commit_of(_GIVEN_UP, names))
            return names

        return self.change(SESSIONS, refuse)

    def append(self, table: str, push: Push, schema: pa.Schema, batches: Batches) -> bool:
        """Append the rows of a push, unless they are there; return True if this call appended them. Raises LakeError.

        Of several concurrent calls for one push, one appends. `batches` is called again after a conflicting commit.
        """
        return self._commit(table, push, schema, batches)

    def name_session(self, push: Push, row: pa.RecordBatch) -> bool:
        """Write the row of a push into `sessions`, replacing that of the session's earlier push; return as `append`."""
        how = {"mode": "overwrite", "predicate": f"session = '{push.session}'", "partition_by": None}
        return self._commit(SESSIONS, push, row.schema, lambda: iter([row]), **how)

    def _commit(self, table: str, push: Push, schema: pa.Schema, batches: Batches, **options: Any) -> bool:
        """Write a push once, under its name as transaction; `options` go to `write_deltalake`. Returns as `append`."""
        how: dict[str, Any] = {
            "mode": "append",
            "partition_by": [PARTITION],
            # A table that an older version made lacks later columns: the write adds them.
            "schema_mode": "merge",
            "writer_properties": PROPERTIES,
            "commit_properties": _commit_of(_THERE, [push.name]),
        }
        how |= options

        def append() -> bool:
            if (found := self._appended.get(table)) is None:
                found = self.opened(table) or self._made(table, schema, how["partition_by"])
                self._appended[table] = found
            found.update_incremental()
            # Delta accepts a transaction twice without an error. So the push's name is looked up in this state of the
            # table, and the write must follow on this very state: if another process has committed the push since, the
            # write conflicts and fails.
            version = found.transaction_version(push.name)
            if version == _GIVEN_UP:
                raise LakeError("the push took so long that its rows were discarded", hint="push the session again")
            if version is not None:
                return False
            rows = filter(len, batches())
            # A push without rows writes no file, because every file slows commits and queries.
            if (first := next(rows, None)) is not None:
                write_deltalake(found, pa.RecordBatchReader.from_batches(schema, chain([first], rows)), **how)
            return True

        return self._tried(table, append)

    def _tried(self, table: str, change: Callable[[], T]) -> T:
        """Return the result of a change to a table, retried up to PUSH_ATTEMPTS times after conflicting commits."""
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
        """Create a table without rows, or return one that exists.

        Raises CommitFailedError if another writer creates it at the same time.
        """
        plain = pa.schema([(each.name, getattr(each.type, "value_type", each.type)) for each in schema])
        how: dict[str, Any] = {"partition_by": partition_by, "configuration": {**RETENTION, **_LOG}}
        return DeltaTable.create(self.uri(table), plain, mode="ignore", **how)

    def _failed(self, table: str, error: Exception | None) -> LakeError:
        hint = "check the address, its permissions and the free space; a repeated push continues"
        return LakeError(f"the table {self.uri(table)} cannot be used: {reason_of(error)}", hint=hint)


def reason_of(error: Exception | None) -> str:
    """Return the text of a table's error in one line, or only its store's message, which has colours and lines."""
    text = _ORNAMENTS.sub("", str(error))
    message = _MESSAGE.search(text)
    return " ".join((message[1] if message else text).split())[:LONGEST_TEXT] or type(error).__name__


def listed(texts: Iterable[str]) -> str:
    """Return texts as the quoted items of an SQL list."""
    return ", ".join("'" + text.replace("'", "''") + "'" for text in texts)


def _commit_of(version: int, names: Iterable[str]) -> CommitProperties:
    now_ms = int(time.time() * MS_PER_S)
    return CommitProperties(app_transactions=[Transaction(name, version, now_ms) for name in names])

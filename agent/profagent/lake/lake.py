"""A lake: Delta tables below one address, into which the rows of a push come exactly once.

All rows of a push carry its name. The table `sessions` is written last, and a push counts once its row stands there: a
reader takes the pushes of that table first, and of the other tables the rows of these alone. What a push that ended
midway has left behind is so never seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from profagent.errors import ProfagentError
from profagent.limits import LONGEST_TEXT, PUSH_ATTEMPTS, ROWS_PER_LAKE_GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Batches = Callable[[], Iterator[pa.RecordBatch]]

T = TypeVar("T")
SESSIONS = "sessions"
PARTITION = "date"
_PROPERTIES = WriterProperties(compression="ZSTD", max_row_group_size=ROWS_PER_LAKE_GROUP)


class LakeError(ProfagentError):
    """A lake that cannot be read or written."""


class Push(NamedTuple):
    """A push: its own name, and that of its session, which no other session of any workspace has."""

    name: str
    session: str


class Lake:
    """The tables below an address: a folder, or a prefix in an object store."""

    def __init__(self, address: str) -> None:
        # An engine elsewhere has another folder at hand.
        self.address = address.rstrip("/") if "://" in address else str(Path(address).absolute())

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
            raise LakeError(
                f"the table {self.uri(table)} has features that are not read here: {', '.join(features)}",
                hint="read it by an engine that knows them, or write it anew without",
            )
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
        # pyarrow's own reader of data sets may abort the process at its end.
        query = f"SELECT * FROM {SESSIONS} WHERE session = '{session}'"  # noqa: S608 - a UUID
        rows = [row for batch in self._asked(SESSIONS, table, query) for row in batch.to_pylist()]
        return rows[0] if rows else None

    def rows(self, table: str, row: Mapping[str, Any], query: str) -> Iterator[pa.RecordBatch]:
        """Give what a query finds in the `rows` of a table that belong to a row of `sessions`. Raises LakeError."""
        whose = f"{PARTITION} = '{row[PARTITION]}' AND push = '{row['push']}'"
        text = f"WITH rows AS (SELECT * FROM {table} WHERE {whose}) {query}"  # noqa: S608 - names of ours
        yield from self._asked(table, self.required(table), text)

    def count(self, table: str, row: Mapping[str, Any]) -> int:
        """Return how many rows of a table belong to a row of `sessions`. Raises LakeError."""
        (batch,) = self.rows(table, row, "SELECT count(*) FROM rows")
        return int(batch.column(0)[0].as_py())

    def _asked(self, name: str, table: DeltaTable, query: str) -> Iterator[pa.RecordBatch]:
        try:
            for batch in QueryBuilder().register(name, table).execute(query):
                yield pa.record_batch(batch)
        except (DeltaError, OSError) as error:
            raise self._failed(name, error) from error

    def change(self, table: str, how: Callable[[DeltaTable], T]) -> T:
        """Change a table as it is now, and again when another commit was in the way. Raises LakeError."""
        return self._tried(table, lambda: how(self.required(table)))

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
            "writer_properties": _PROPERTIES,
            "commit_properties": CommitProperties(app_transactions=[Transaction(push.name, 1)]),
        }
        how |= more

        def append(found: DeltaTable) -> bool:
            # A table takes a transaction that it has in silence. So it is asked, and what is written must follow on the
            # very state that was asked: another commit of this push since makes this one fail.
            if found.transaction_version(push.name) is not None:
                return False
            write_deltalake(found, pa.RecordBatchReader.from_batches(schema, batches()), **how)
            return True

        return self._tried(table, lambda: append(self.opened(table) or self._made(table, schema, how["partition_by"])))

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
        return DeltaTable.create(self.uri(table), plain, mode="ignore", partition_by=partition_by)

    def _failed(self, table: str, error: Exception | None) -> LakeError:
        why = (str(error).splitlines() or [type(error).__name__])[0][:LONGEST_TEXT]
        return LakeError(
            f"the table {self.uri(table)} cannot be used: {why}",
            hint="check the address, its permissions and the free space; a push that is called again goes on",
        )

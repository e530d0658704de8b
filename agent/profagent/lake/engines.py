"""Engines that answer SQL about a lake: DuckDB in this process, or a Spark Connect server.

Both receive the same text. An engine offers the tables of a lake by their names, with the rows of complete pushes.
"""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa  # type: ignore[import-untyped]

from profagent.cli.running import installing
from profagent.errors import LakeError, UsageError
from profagent.lake.lake import SESSIONS, listed
from profagent.lake.push import TABLES
from profagent.limits import CALL_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from duckdb import DuckDBPyConnection

    from profagent.lake.lake import Lake

DUCKDB, SPARK = "duckdb", "sc://"
SPARK_PORT = 15002
# Of files in an object store, which DuckDB reads through the same store library that writes the tables: only the
# environment then says how the store is reached, and DuckDB does not have to download an extension.
_PROTOCOL = "lake"
# The sessions come first: the rows that this state of them names were already in the other tables.
_ORDER = (SESSIONS, *(table for table in TABLES if table != SESSIONS))
_VIEW = """
CREATE OR REPLACE TEMPORARY VIEW {table} AS
SELECT * FROM all_{table} WHERE push IN (SELECT push FROM all_sessions)
"""
# Files from before a column was added lack it (union_by_name); a partition's `2026-11-28` stays text, as in other
# engines.
_PARQUET = """
CREATE TEMPORARY VIEW all_{table} AS
SELECT * FROM read_parquet([{files}], hive_partitioning = true, hive_types_autocast = false, union_by_name = true)
"""


class Answer(NamedTuple):
    """Result of a query: the names of its columns, and its rows."""

    names: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@contextmanager
def engine_of(lake: Lake, name: str = DUCKDB) -> Iterator[DuckDb | SparkConnect]:
    """Open an engine that has the tables of a lake. Raises UsageError for an unknown engine, and LakeError."""
    if name != DUCKDB and not name.startswith(SPARK):
        raise UsageError(f"there is no engine {name}", hint=f"{DUCKDB}, or {SPARK}HOST:PORT for Spark Connect")
    engine = DuckDb(lake) if name == DUCKDB else SparkConnect(lake, name)
    try:
        for table in _ORDER:
            engine.ask(_VIEW.format(table=table))
        yield engine
    finally:
        engine.close()


class DuckDb:
    """DuckDB in this process, on one state of a lake."""

    def __init__(self, lake: Lake) -> None:
        import duckdb  # noqa: PLC0415 - the other engine does without

        self._failed = duckdb.Error
        self._connection = duckdb.connect()
        for table in _ORDER:
            found = lake.required(table)
            files = found.file_uris()
            if files:
                paths = _readable(self._connection, lake.address, files)
                self.ask(_PARQUET.format(table=table, files=listed(paths)))
            else:
                self._connection.register(f"all_{table}", pa.schema(found.schema().to_arrow()).empty_table())

    def ask(self, sql: str) -> Answer:
        """Return the rows of one statement. Raises LakeError."""
        try:
            cursor = self._connection.execute(sql)
        except self._failed as error:
            raise _refused(error) from error
        return Answer(tuple(each[0] for each in cursor.description or ()), cursor.fetchall())

    def close(self) -> None:
        """Close the connection and release its file systems."""
        for each in self._connection.list_filesystems():
            self._connection.unregister_filesystem(each)
        self._connection.close()


def _readable(connection: DuckDBPyConnection, address: str, files: Iterable[str]) -> list[str]:
    """Return names by which a connection reads files below an address. Raises UsageError if a package is missing."""
    if "://" not in address:
        # File addresses are percent-encoded: a blank is %20.
        return [*map(unquote, files)]
    try:
        from fsspec.implementations.arrow import ArrowFSWrapper  # type: ignore[import-untyped]  # noqa: PLC0415 - here only
    except ImportError as error:
        hint = installing("fsspec")
        raise UsageError("a lake in an object store needs fsspec, which is not installed", hint=hint) from error
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - as above
    from pyarrow.fs import PyFileSystem  # type: ignore[import-untyped]  # noqa: PLC0415 - as above

    class Files(ArrowFSWrapper):  # type: ignore[misc]
        protocol = _PROTOCOL
        cachable = False

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return path.removeprefix(f"{_PROTOCOL}://")

        def glob(self, path: str, **_: Any) -> list[str]:
            # A file name may contain pattern characters, which must not be expanded.
            return [path]

    if not connection.filesystem_is_registered(_PROTOCOL):
        connection.register_filesystem(Files(PyFileSystem(DeltaStorageHandler(address))))
    # Delta Lake returns files below a `file://` address as plain paths.
    below = f"{address.removeprefix('file://')}/"
    return [f"{_PROTOCOL}://{unquote(file).removeprefix(below)}" for file in files]


class SparkConnect:
    """Session on a Spark Connect server, on one state of a lake."""

    def __init__(self, lake: Lake, address: str) -> None:
        try:
            import pyspark  # noqa: PLC0415 - the other engine does without
            from pyspark.errors import PySparkException  # noqa: PLC0415 - the other engine does without
            from pyspark.sql import SparkSession  # noqa: PLC0415 - as above
        except ImportError as error:
            hint = installing("pyspark-client 'pandas<3'")
            raise UsageError("Spark Connect needs pyspark-client, which is not installed", hint=hint) from error
        _require_answer(address)
        # Without it, pyspark searches for a full Spark installation if the program has no main module in a file.
        os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
        self._failed = PySparkException
        try:
            self._session = SparkSession.builder.remote(address).create()
            for table in _ORDER:
                version = lake.required(table).version()
                reader = self._session.read.format("delta").option("versionAsOf", version)
                reader.load(lake.uri(table)).createOrReplaceTempView(f"all_{table}")
        except PySparkException as error:
            raise _refused(error) from error

    def ask(self, sql: str) -> Answer:
        """Return the rows of one statement. Raises LakeError."""
        try:
            found = self._session.sql(sql)
            return Answer(tuple(found.columns), [tuple(row) for row in found.collect()])
        except self._failed as error:
            raise _refused(error) from error

    def close(self) -> None:
        """End the session on the server."""
        self._session.stop()


def _require_answer(address: str) -> None:
    """Raise LakeError if no server listens at the address: pyspark's own client would try for minutes."""
    place = urlsplit(address)
    try:
        with socket.create_connection((place.hostname or "", place.port or SPARK_PORT), CALL_TIMEOUT_S):
            return
    except (OSError, ValueError) as error:
        hint = f"{SPARK}HOST:PORT is where its server listens, as one of `sail spark server --port PORT`"
        raise LakeError(f"the engine {address} does not answer: {error}", hint=hint) from error


def _refused(error: Exception) -> LakeError:
    text = (str(error).splitlines() or [type(error).__name__])[0]
    return LakeError(f"the query failed: {text}", hint="the tables and their columns: docs/howto/fleet.md")

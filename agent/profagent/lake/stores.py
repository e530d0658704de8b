"""Files of a lake in an object store, for DuckDB: read through the same store library that writes the tables.

Only the environment then says how the store is reached, and DuckDB does not have to download an extension.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from profagent.cli.running import installing
from profagent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from duckdb import DuckDBPyConnection

PROTOCOL = "lake"


def readable(connection: DuckDBPyConnection, address: str, files: Iterable[str]) -> list[str]:
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
        protocol = PROTOCOL
        cachable = False

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return path.removeprefix(f"{PROTOCOL}://")

        def glob(self, path: str, **_: Any) -> list[str]:
            # A file name may contain pattern characters, which must not be expanded.
            return [path]

    if not connection.filesystem_is_registered(PROTOCOL):
        connection.register_filesystem(Files(PyFileSystem(DeltaStorageHandler(address))))
    # Delta Lake returns files below a `file://` address as plain paths.
    below = f"{address.removeprefix('file://')}/"
    return [f"{PROTOCOL}://{unquote(file).removeprefix(below)}" for file in files]

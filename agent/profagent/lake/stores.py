"""Files of a lake in an object store, for DuckDB: read through the store by which the tables are written.

So nothing but the environment says how the store is reached, and DuckDB needs no extension, which it would download.
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
    """Return names by which a connection reads files below an address. Raises UsageError where a package is missing."""
    if "://" not in address:
        # An address has %20 for a blank.
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
            # A name may have what is a pattern elsewhere.
            return [path]

    if not connection.filesystem_is_registered(PROTOCOL):
        connection.register_filesystem(Files(PyFileSystem(DeltaStorageHandler(address))))
    # Those of `file://` are given as paths.
    below = f"{address.removeprefix('file://')}/"
    return [f"{PROTOCOL}://{unquote(file).removeprefix(below)}" for file in files]

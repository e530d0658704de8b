"""Loading Python's libraries without OpenSSL, which takes 5 MB: gRPC has a TLS of its own, and digests are Python's."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Python's modules for it; asyncio and hashlib do without them, as on Pythons that were built without OpenSSL.
_MODULES = ("_ssl", "_hashlib")


@contextmanager
def without_openssl() -> Iterator[None]:
    """Let what is imported meanwhile find no OpenSSL; whoever wants it imports it afterwards."""
    absent = [name for name in _MODULES if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]  # which is how an import is made to fail
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]

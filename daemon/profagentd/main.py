"""The start of the command `profagentd`: what all others import is imported here first, without OpenSSL."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from profagentd.loop import Clock


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


with without_openssl():
    import asyncio  # noqa: F401
    import hashlib  # noqa: F401


def main(arguments: Sequence[str] | None = None, clock: Clock | None = None, filesystem: Path = Path("/")) -> int:
    """Serve until SIGTERM or SIGINT, by this machine's clocks and files unless others are given; the exit code."""
    from profagentd.command import run  # noqa: PLC0415 - imports both: see above

    return run(arguments, clock, filesystem)
